/** The exact clock: the TSC where it runs at one rate for ever, calibrated against CLOCK_MONOTONIC at every heartbeat; that clock itself everywhere else.
 *
 * A heartbeat sets the clock anew, so it follows when the system slews its time or the machine was suspended. Between two beats it is wrong by the error of the rate,
 * which is taken over at least one beat: far below the millisecond that docs/ledger.md allows. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "internal.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

PLIMSOLL_API struct plimsoll_clock plimsoll_the_clock;

PLIMSOLL_API uint64_t plimsoll_system_ns(void) {
    if (PLIMSOLL_LOAD(&plimsoll_the_clock.source) == PLIMSOLL_CLOCK_MANUAL) return PLIMSOLL_LOAD(&plimsoll_the_clock.ns);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * PLIMSOLL_SECOND_NS + (uint64_t)now.tv_nsec;
}

void plimsoll_clock_set_manual(uint64_t ns) {
    PLIMSOLL_STORE(&plimsoll_the_clock.ns, ns);
    PLIMSOLL_STORE(&plimsoll_the_clock.source, PLIMSOLL_CLOCK_MANUAL);
}

#if defined(__x86_64__)

/* A TSC is trusted if the processor says that it never changes its rate, and the kernel keeps its own time by it. */
static bool tsc_is_good(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000007u, &a, &b, &c, &d) || !(d & (1u << 8))) return false;
    char name[32] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (!file) return false;
    bool read = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    return read && (strncmp(name, "tsc", 3) == 0 || strncmp(name, "kvm-clock", 9) == 0);
}

struct sample {
    uint64_t ticks, ns;
};

/* Of a few attempts the one that took least: a thread that was put aside between the two readings would see them apart. */
static struct sample sample_take(void) {
    struct sample best = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int attempt = 0; attempt < 4; attempt++) {
        uint64_t before = __builtin_ia32_rdtsc();
        uint64_t ns = plimsoll_system_ns();
        uint64_t after = __builtin_ia32_rdtsc();
        if (after - before < least) {
            least = after - before;
            best.ticks = before + (after - before) / 2;
            best.ns = ns;
        }
    }
    return best;
}

static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;

/* In the child of a fork: the thread that was setting the clock is not here to finish it. */
void plimsoll_clock_forked(void) {
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    clock_lock = fresh;
    uint32_t sequence = PLIMSOLL_LOAD(&plimsoll_the_clock.sequence);
    if (!(sequence & 1)) return;
    PLIMSOLL_STORE(&plimsoll_the_clock.source, PLIMSOLL_CLOCK_SYSTEM);
    PLIMSOLL_STORE(&plimsoll_the_clock.sequence, sequence + 1);
}

void plimsoll_clock_beat(void) {
    static enum { UNKNOWN, GOOD, BAD } state = UNKNOWN;
    static struct sample base;
    static unsigned wrong;
    if (pthread_mutex_trylock(&clock_lock) != 0) return;
    if (state == UNKNOWN) {
        state = tsc_is_good() && PLIMSOLL_LOAD(&plimsoll_the_clock.source) == PLIMSOLL_CLOCK_SYSTEM ? GOOD : BAD;
        base = sample_take();
    }
    struct sample now = base;
    if (state == GOOD) now = sample_take();
    if (state == GOOD && now.ns - base.ns >= PLIMSOLL_BEAT_NS / 2 && now.ticks > base.ticks) {
        /* How far the clock is off that the application has read until now. */
        uint64_t said = PLIMSOLL_LOAD(&plimsoll_the_clock.source) == PLIMSOLL_CLOCK_TSC ? plimsoll_now_ns() : now.ns;
        uint64_t off = said > now.ns ? said - now.ns : now.ns - said;
        wrong = off > 500000 ? wrong + 1 : 0;
        if (wrong >= 3) {
            state = BAD;
            PLIMSOLL_STORE(&plimsoll_the_clock.source, PLIMSOLL_CLOCK_SYSTEM);
        } else {
            __extension__ typedef unsigned __int128 wide;
            uint64_t rate = (uint64_t)(((wide)(now.ns - base.ns) << 32) / (now.ticks - base.ticks));
            uint32_t sequence = PLIMSOLL_LOAD(&plimsoll_the_clock.sequence);
            PLIMSOLL_STORE(&plimsoll_the_clock.sequence, sequence + 1);
            PLIMSOLL_STORE(&plimsoll_the_clock.ticks, now.ticks);
            PLIMSOLL_STORE(&plimsoll_the_clock.ns, now.ns);
            PLIMSOLL_STORE(&plimsoll_the_clock.ns_per_tick_32, rate);
            PLIMSOLL_STORE(&plimsoll_the_clock.sequence, sequence + 2);
            PLIMSOLL_STORE(&plimsoll_the_clock.source, PLIMSOLL_CLOCK_TSC);
            /* The rate over the last second or so: it follows a clock that is slewed. */
            if (off > 500000 || now.ns - base.ns > PLIMSOLL_SECOND_NS) base = now;
        }
    }
    pthread_mutex_unlock(&clock_lock);
}

#else

void plimsoll_clock_beat(void) {
}

void plimsoll_clock_forked(void) {
}

#endif
