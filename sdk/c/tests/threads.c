/** Many threads at once, an agent that cancels whomever it finds, and a reader that looks at the file meanwhile. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "dump.h"
#include "harness.h"
#include "plimsoll_tracked.h"

#define WORKERS 6
#define ROUNDS 3000

struct load {
    plimsoll_app *app;
    plimsoll_resource *pages;
    plimsoll_mutex mutex;
    plimsoll_pool pool;
    uint64_t gets, cancelled, failures, reran, dropped;
    int running;
};

static void reran(void *context) {
    __atomic_fetch_add(&((struct load *)context)->reran, 1, __ATOMIC_RELAXED);
}

static void dropped(void *context) {
    __atomic_fetch_add(&((struct load *)context)->dropped, 1, __ATOMIC_RELAXED);
}

struct worker {
    struct load *load;
    uint32_t seed;
    uint64_t reruns;
};

/* xorshift: each thread has its own. */
static uint32_t draw(uint32_t *seed, uint32_t below) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed % below;
}

static void *work(void *context) {
    struct worker *worker = context;
    struct load *load = worker->load;
    for (int i = 0; i < ROUNDS; i++) {
        plimsoll_task_options options = {0};
        options.background = draw(&worker->seed, 4) == 0;
        if (draw(&worker->seed, 2)) {
            options.rerun.run = reran;
            options.rerun.drop = dropped;
            options.rerun.context = load;
        }
        plimsoll_task *task = plimsoll_task_begin_with(load->app, "work", (uint64_t)i, &options);
        uint32_t n = draw(&worker->seed, 20);
        for (uint32_t k = 0; k < n && !plimsoll_cancelled(task); k++) {
            if (plimsoll_pool_take(&load->pool)) {
                plimsoll_mutex_lock(&load->mutex);
                plimsoll_get(task, load->pages, 2);
                plimsoll_progress(task, k, n);
                plimsoll_mutex_unlock(&load->mutex);
                plimsoll_free(task, load->pages, draw(&worker->seed, 3));
                plimsoll_pool_give(&load->pool);
                __atomic_fetch_add(&load->gets, 2, __ATOMIC_RELAXED);
            }
        }
        /* Some take long enough to be found. */
        if (draw(&worker->seed, 30) == 0) {
            usleep(1000);
            plimsoll_cancelled(task);
        }
        plimsoll_outcome outcome = plimsoll_task_end(task);
        if (outcome != PLIMSOLL_FINISHED) __atomic_fetch_add(&load->cancelled, !options.background, __ATOMIC_RELAXED);
        worker->reruns += outcome == PLIMSOLL_WILL_RERUN;
    }
    __atomic_fetch_sub(&load->running, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Another process would read like this. What changes while it is copied may look as if more was given back than taken, which is nothing held; never the other way round by more than there is. */
static void look(struct load *load, int fd) {
    static union {
        char bytes[4096 + 64 * 64 + 8 * 2048 + 4096 * 128 + 16384 * 64];
        plimsoll_header header;
    } copy;
    ssize_t got = pread(fd, copy.bytes, sizeof copy, 0);
    if (got != (ssize_t)sizeof copy || dump_refuse(copy.bytes, sizeof copy)) __atomic_fetch_add(&load->failures, 1, __ATOMIC_RELAXED);
    plimsoll_account *accounts = (plimsoll_account *)(void *)(copy.bytes + 4096 + 64 * 64 + 8 * 2048 + 4096 * 128);
    if (copy.header.tasks_used > 64 || copy.header.accounts_used > 1000) __atomic_fetch_add(&load->failures, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < copy.header.accounts_used && i < 16384; i++) {
        uint32_t task = (uint32_t)accounts[i].owner, resource = (uint32_t)(accounts[i].owner >> 32) & 0xffff;
        int64_t held = (int64_t)(accounts[i].gets - accounts[i].frees);
        if (task > copy.header.tasks_used + WORKERS || resource > 2 || held > 2 * 20 + 2) __atomic_fetch_add(&load->failures, 1, __ATOMIC_RELAXED);
    }
}

static void *read_on(void *context) {
    struct load *load = context;
    int fd = open(plimsoll_file(load->app), O_RDONLY | O_CLOEXEC);
    while (__atomic_load_n(&load->running, __ATOMIC_ACQUIRE) > 0) {
        look(load, fd);
        usleep(2000);
    }
    look(load, fd);
    close(fd);
    return NULL;
}

struct canceller {
    struct load *load;
    struct agent *agent;
    uint32_t seed;
};

/* The last of it goes to a connection that has ended. */
static bool agent_try(struct agent *agent, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool agent_try(struct agent *agent, const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return send(agent->fd, line, (size_t)length, MSG_NOSIGNAL) == length;
}

static void *cancel_on(void *context) {
    struct canceller *canceller = context;
    struct load *load = canceller->load;
    int id = 0;
    while (__atomic_load_n(&load->running, __ATOMIC_ACQUIRE) > 0) {
        uint32_t task = draw(&canceller->seed, WORKERS);
        uint64_t turn = PLIMSOLL_LOAD(&load->app->task_records[task].turn);
        if (!agent_try(canceller->agent, "cancel %d %u %llu 0 chosen by lot\n", ++id, task, (unsigned long long)turn)) break;
        if (strncmp(agent_line(canceller->agent), "acknowledge", 11) != 0) continue;
        const char *line;
        do line = agent_line(canceller->agent);
        while (*line && !strstr(line, "outcome"));
        agent_try(canceller->agent, draw(&canceller->seed, 2) ? "rerun %d\n" : "drop %d\n", id);
    }
    return NULL;
}

TEST(threads_all_at_once) {
    const char *given = getenv("PLIMSOLL_SEED");
    uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)time(NULL) | 1;
    printf("PLIMSOLL_SEED=%u\n", seed);
    struct agent agent;
    static struct load load;
    memset(&load, 0, sizeof load);
    agent_listen(&agent);
    load.app = app_open(NULL);
    REQUIRE(load.app);
    agent_welcome(&agent);
    load.pages = plimsoll_resource_of(load.app, PLIMSOLL_MEMORY, "pages", 0);
    plimsoll_mutex_init(&load.mutex, load.app, "mutex");
    plimsoll_pool_init(&load.pool, load.app, "pool", 3);
    load.running = WORKERS;
    struct worker workers[WORKERS];
    pthread_t threads[WORKERS], reader, canceller;
    for (int i = 0; i < WORKERS; i++) {
        workers[i].load = &load;
        workers[i].seed = seed * (uint32_t)(i + 1) | 1;
        workers[i].reruns = 0;
        REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    struct canceller chance = {&load, &agent, seed * 77 | 1};
    REQUIRE(pthread_create(&reader, NULL, read_on, &load) == 0 && pthread_create(&canceller, NULL, cancel_on, &chance) == 0);
    uint64_t reruns = 0;
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        reruns += workers[i].reruns;
    }
    shutdown(agent.fd, SHUT_RDWR);
    pthread_join(canceller, NULL);
    pthread_join(reader, NULL);
    CHECK(load.failures == 0);
    /* Nothing is lost, and nothing left over. */
    uint64_t gets = 0, frees = 0, cancelled = 0, owned = 0;
    for (uint32_t i = 0; i < load.app->accounts_fresh; i++) {
        plimsoll_account *account = &load.app->accounts[i];
        owned += (uint32_t)account->owner != 0 || account->waiting_since_ns != 0 || account->holding_since_ns != 0;
        if (((account->owner >> 32) & 0xffff) == load.pages->index) gets += account->gets;
        frees += account->gets - account->frees;
    }
    for (uint32_t i = 0; i < load.app->counts.lanes; i++) cancelled += load.app->lanes[i].cancelled;
    CHECK(owned == 0 && frees == 0 && gets == load.gets);
    CHECK(cancelled == load.cancelled);
    CHECK(load.pool.free == 3 && load.app->tasks_fresh <= WORKERS + 1);
    plimsoll_close(load.app);
    CHECK(load.reran + load.dropped == reruns);
    printf("%llu requests cancelled, %llu tasks run again, %llu dropped\n", (unsigned long long)load.cancelled, (unsigned long long)load.reran, (unsigned long long)load.dropped);
    plimsoll_pool_destroy(&load.pool);
    plimsoll_mutex_destroy(&load.mutex);
    agent_end(&agent);
}
