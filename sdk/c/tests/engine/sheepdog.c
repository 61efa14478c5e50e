/** A pool of threads that want more of the CPUs than there is. */
#include <pthread.h>
#include <plimsoll_engine.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#define THREADS 32

struct pool {
    plimsoll_sheepdog *dog;
    bool spin, stop;
};

static bool is(bool *what) {
    return __atomic_load_n(what, __ATOMIC_ACQUIRE);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* All on one CPU, the first that there is. */
static void pin(void) {
    cpu_set_t mine, one;
    sched_getaffinity(0, sizeof mine, &mine);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &mine)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *work(void *argument) {
    struct pool *pool = argument;
    pin();
    while (!is(&pool->stop)) {
        plimsoll_sheepdog_enter(pool->dog);
        double end = now_s() + 0.005;
        while (is(&pool->spin) && now_s() < end) {}
        if (!is(&pool->spin)) usleep(5000);
        plimsoll_sheepdog_leave(pool->dog);
    }
    return NULL;
}

static bool few(void *pool) {
    return plimsoll_sheepdog_workers(((struct pool *)pool)->dog) <= 6;
}

static bool many(void *pool) {
    return plimsoll_sheepdog_workers(((struct pool *)pool)->dog) >= THREADS / 2;
}

TEST(sheepdog_holds_back_as_many_threads_as_would_starve) {
    struct pool pool = {.dog = plimsoll_sheepdog_start(1, THREADS, 4.0), .spin = true};
    REQUIRE(pool.dog);
    CHECK(plimsoll_sheepdog_workers(pool.dog) >= 1 && plimsoll_sheepdog_workers(pool.dog) <= THREADS);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, work, &pool) == 0);
    CHECK(test_until(few, &pool));
    __atomic_store_n(&pool.spin, false, __ATOMIC_RELEASE);
    CHECK(test_until(many, &pool));
    __atomic_store_n(&pool.stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    plimsoll_sheepdog_close(pool.dog);
}

TEST(sheepdog_that_is_none_holds_nobody_back) {
    plimsoll_sheepdog_enter(NULL);
    plimsoll_sheepdog_enter(NULL);
    plimsoll_sheepdog_leave(NULL);
    CHECK(plimsoll_sheepdog_workers(NULL) > 1000000);
    plimsoll_sheepdog_close(NULL);
}
