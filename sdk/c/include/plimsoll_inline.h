/** The hot path of `plimsoll.h`, which includes this: a get and a free are a handful of loads and stores, without a call. The structs are for it alone; they may change
 * with any version. */
#ifndef PLIMSOLL_INLINE_H
#define PLIMSOLL_INLINE_H

#ifndef PLIMSOLL_H
#error "include plimsoll.h"
#endif

#include <time.h>

#define PLIMSOLL_LIKELY(what) __builtin_expect(!!(what), 1)
/* Not stdatomic.h, which C++ before 23 does not have. */
#define PLIMSOLL_LOAD(at) __atomic_load_n(at, __ATOMIC_RELAXED)
#define PLIMSOLL_STORE(at, value) __atomic_store_n(at, value, __ATOMIC_RELEASE)
/* What is before it is stored to the account before what comes after it, as docs/ledger.md asks for. An account has one writer, so its words are plain ones with this between them: the compiler
 * makes half as many instructions of that as of atomics, and is free to keep everything else in registers. */
#if defined(__x86_64__) || defined(__i386__)
#define PLIMSOLL_THEN(account) __asm__ volatile("" : "+m"(*(account)))
#else
#define PLIMSOLL_THEN(account) __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

/* An application's resources are an array that is aligned to its size. So the address of one says which it is and whose, without a load. */
#define PLIMSOLL_RESOURCES_SIZE ((uintptr_t)256 * 64)

struct plimsoll_resource {
    plimsoll_app *app;
    uint32_t index;
    uint32_t kind;
    uint64_t free_accounts; /* a stack; see stack.h */
    uint64_t unused[5];     /* a line of its own: threads fight for this one */
};

/* Lies in memory that a forked child finds zeroed, so that there `resources` is NULL and nothing is written to the parent's ledger. What is noted of
 * its account with each resource follows: see `plimsoll_place_of`. */
struct plimsoll_hook;
struct plimsoll_task {
    const char *resources; /* where those of its application are; NULL: ended, never begun, or without a record */
    plimsoll_header *header;
    plimsoll_task_record *record;
    plimsoll_task *primary; /* itself, but for shares */
    uint64_t turn;
    uint64_t state; /* of the primary: turn * 2 while it lives, + 1 when it shall stop; 0 when it has ended */
    /* what follows is read only where calls are made anyway */
    plimsoll_app *app; /* also of a request without a record, which counts when it ends */
    plimsoll_task *outer;
    struct plimsoll_hook *hook;
    uint64_t started_ns;
    pthread_t thread;
    uint32_t index;
    uint32_t accounts_head;
    uint32_t flags;
    bool is_current;
    bool cancel_thread;
    bool has_thread; /* `thread` is where it runs */
    uint8_t unused;
    plimsoll_rerun rerun;
};
PLIMSOLL_ASSERT(sizeof(struct plimsoll_resource) == 64, "256 of them fill the array");
PLIMSOLL_ASSERT(sizeof(plimsoll_task) % 64 == 0, "accounts follow on a line of their own");

struct plimsoll_clock {
    uint32_t sequence; /* odd while it is being set */
    uint32_t source;   /* one of PLIMSOLL_CLOCK_* */
    uint64_t ticks;    /* the TSC when it was `ns` */
    uint64_t ns;
    uint64_t ns_per_tick_32; /* times 2^32 */
};
#define PLIMSOLL_CLOCK_SYSTEM 0u
#define PLIMSOLL_CLOCK_TSC 1u
#define PLIMSOLL_CLOCK_MANUAL 2u /* tests: it is `ns` */

extern PLIMSOLL_API struct plimsoll_clock plimsoll_the_clock;
extern PLIMSOLL_API __thread plimsoll_task *plimsoll_the_current;
PLIMSOLL_API void plimsoll_get_slowly(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n);
PLIMSOLL_API void plimsoll_free_slowly(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n);
PLIMSOLL_API void plimsoll_wait_slowly(plimsoll_task *task, const plimsoll_resource *resource);
PLIMSOLL_API void plimsoll_wait_end_slowly(plimsoll_task *task, const plimsoll_resource *resource);
PLIMSOLL_API void plimsoll_slow_slowly(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n, uint64_t delay_ns);
PLIMSOLL_API bool plimsoll_cancelled_slowly(plimsoll_task *task);
PLIMSOLL_API uint64_t plimsoll_system_ns(void);

/* A pointer, and not a number, so that the compiler sees that no word of an account is one. */
typedef const char *plimsoll_place;

static inline plimsoll_task *plimsoll_task_current(void) {
    return plimsoll_the_current;
}

static inline uint64_t plimsoll_now_ns(void) {
#if defined(__x86_64__)
    if (PLIMSOLL_LIKELY(PLIMSOLL_LOAD(&plimsoll_the_clock.source) == PLIMSOLL_CLOCK_TSC)) {
        __extension__ typedef unsigned __int128 wide;
        uint64_t now_ticks = __builtin_ia32_rdtsc(), ticks, ns, rate;
        uint32_t sequence;
        do {
            sequence = __atomic_load_n(&plimsoll_the_clock.sequence, __ATOMIC_ACQUIRE);
            ticks = __atomic_load_n(&plimsoll_the_clock.ticks, __ATOMIC_ACQUIRE);
            ns = __atomic_load_n(&plimsoll_the_clock.ns, __ATOMIC_ACQUIRE);
            rate = __atomic_load_n(&plimsoll_the_clock.ns_per_tick_32, __ATOMIC_ACQUIRE);
        } while ((sequence & 1) || sequence != PLIMSOLL_LOAD(&plimsoll_the_clock.sequence));
        /* The clock may have been set after the ticks were read. */
        uint64_t since = now_ticks > ticks ? now_ticks - ticks : 0;
        return ns + (uint64_t)(((wide)since * rate) >> 32);
    }
#endif
    return plimsoll_system_ns();
}

/* Where the task's account with the resource is noted: its address plus 1; its address, while it waits; 0, if it has none. So one test tells that there is an account and no wait.
 * NULL if task and resource are not of one application, which no resource, NULL, never is. */
static inline plimsoll_place *plimsoll_place_of(plimsoll_task *task, const plimsoll_resource *resource) {
    uintptr_t offset = (uintptr_t)resource & (PLIMSOLL_RESOURCES_SIZE - 1);
    if (!PLIMSOLL_LIKELY(task && (uintptr_t)resource - offset == (uintptr_t)task->resources)) return NULL;
    return (plimsoll_place *)(void *)(task + 1) + offset / sizeof *resource;
}

static inline bool plimsoll_place_is_usual(plimsoll_place place) {
    return PLIMSOLL_LIKELY((uintptr_t)place & 1);
}

/* The account that is noted. A load that the compiler addresses by the tagged pointer and a store by the other look like two places to the processor, which then makes the next load wait for the
 * store; so the compiler is not told how they hang together. */
static inline plimsoll_account *plimsoll_account_at(plimsoll_place place) {
    plimsoll_account *account = (plimsoll_account *)((uintptr_t)place - 1);
    __asm__("" : "+r"(account));
    return account;
}

/* In calm, the whole of an event is in these functions. Whatever is not usual goes to those of account.c that end in `_slowly`: no account yet, a wait that ends, something that is held already,
 * a hold over which the clock has ticked, exact stamps. */
static inline void plimsoll_get(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n) {
    plimsoll_place *place = plimsoll_place_of(task, resource);
    if (!PLIMSOLL_LIKELY(place != NULL)) return;
    if (plimsoll_place_is_usual(*place)) {
        plimsoll_account *account = plimsoll_account_at(*place);
        const plimsoll_header *header = task->header;
        uint64_t now = PLIMSOLL_LOAD(&header->clock_ns);
        if (PLIMSOLL_LIKELY((account->holding_since_ns | PLIMSOLL_LOAD(&header->flags)) == 0 && n != 0)) {
            account->gets += n;
            PLIMSOLL_THEN(account);
            account->holding_since_ns = now;
            PLIMSOLL_THEN(account);
            return;
        }
    }
    plimsoll_get_slowly(task, resource, n);
}

static inline void plimsoll_free(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n) {
    plimsoll_place *place = plimsoll_place_of(task, resource);
    if (!PLIMSOLL_LIKELY(place != NULL)) return;
    if (plimsoll_place_is_usual(*place)) {
        plimsoll_account *account = plimsoll_account_at(*place);
        const plimsoll_header *header = task->header;
        uint64_t now = PLIMSOLL_LOAD(&header->clock_ns), frees = account->frees;
        if (PLIMSOLL_LIKELY((((account->gets - frees) ^ n) | (now ^ account->holding_since_ns) | PLIMSOLL_LOAD(&header->flags)) == 0)) {
            account->holding_since_ns = 0;
            PLIMSOLL_THEN(account);
            account->frees = frees + n;
            PLIMSOLL_THEN(account);
            return;
        }
    }
    plimsoll_free_slowly(task, resource, n);
}

static inline void plimsoll_wait(plimsoll_task *task, const plimsoll_resource *resource) {
    plimsoll_place *place = plimsoll_place_of(task, resource);
    if (!PLIMSOLL_LIKELY(place != NULL)) return;
    if (PLIMSOLL_LIKELY(plimsoll_place_is_usual(*place) && PLIMSOLL_LOAD(&task->header->flags) == 0)) {
        plimsoll_account *account = plimsoll_account_at(*place);
        account->slows += 1;
        PLIMSOLL_THEN(account);
        account->waiting_since_ns = PLIMSOLL_LOAD(&task->header->clock_ns);
        *place = (plimsoll_place)account;
        PLIMSOLL_THEN(account);
        return;
    }
    plimsoll_wait_slowly(task, resource);
}

static inline void plimsoll_wait_end(plimsoll_task *task, const plimsoll_resource *resource) {
    plimsoll_place *place = plimsoll_place_of(task, resource);
    if (PLIMSOLL_LIKELY(place && *place && !plimsoll_place_is_usual(*place))) plimsoll_wait_end_slowly(task, resource);
}

static inline void plimsoll_slow(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n, uint64_t delay_ns) {
    if (PLIMSOLL_LIKELY(plimsoll_place_of(task, resource) != NULL)) plimsoll_slow_slowly(task, resource, n, delay_ns);
}

static inline void plimsoll_progress(plimsoll_task *task, uint64_t done, uint64_t total) {
    if (!PLIMSOLL_LIKELY(task && task->resources)) return;
    PLIMSOLL_STORE(&task->record->done, done);
    PLIMSOLL_STORE(&task->record->total, total);
}

static inline bool plimsoll_cancelled(plimsoll_task *task) {
    if (!PLIMSOLL_LIKELY(task && task->resources)) return false;
    if (PLIMSOLL_LIKELY(__atomic_load_n(&task->primary->state, __ATOMIC_ACQUIRE) == task->turn << 1)) return false;
    return plimsoll_cancelled_slowly(task);
}

#endif
