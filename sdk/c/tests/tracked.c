/** The tracked mutex, read-write lock, semaphore and pool. */
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "harness.h"
#include "plimsoll_tracked.h"

struct sum {
    uint64_t gets, frees, slows, waiting, holding;
};

static struct sum sum_of(plimsoll_app *app, const plimsoll_resource *resource) {
    struct sum sum = {0, 0, 0, 0, 0};
    for (uint32_t i = 0; i < app->accounts_fresh; i++) {
        plimsoll_account *account = &app->accounts[i];
        if (((PLIMSOLL_LOAD(&account->owner) >> 32) & 0xffff) != resource->index) continue;
        sum.gets += PLIMSOLL_LOAD(&account->gets);
        sum.frees += PLIMSOLL_LOAD(&account->frees);
        sum.slows += PLIMSOLL_LOAD(&account->slows);
        sum.waiting += PLIMSOLL_LOAD(&account->waiting_since_ns) != 0;
        sum.holding += PLIMSOLL_LOAD(&account->holding_since_ns) != 0;
    }
    return sum;
}

struct scene {
    plimsoll_app *app;
    plimsoll_resource *resource;
    void *thing;
    void (*take)(void *thing);
    void (*give)(void *thing);
};

static bool somebody_waits(void *context) {
    struct scene *scene = context;
    return sum_of(scene->app, scene->resource).waiting == 1;
}

static void *second(void *context) {
    struct scene *scene = context;
    plimsoll_task *task = plimsoll_task_begin(scene->app, "second", 2);
    scene->take(scene->thing);
    scene->give(scene->thing);
    plimsoll_task_end(task);
    return NULL;
}

/* One has it, another waits for it, gets it, and gives it back. */
static void play(plimsoll_app *app, plimsoll_resource *resource, void *thing, void (*take)(void *), void (*give)(void *)) {
    struct scene scene = {app, resource, thing, take, give};
    pthread_t thread;
    plimsoll_task *task = plimsoll_task_begin(app, "first", 1);
    take(thing);
    struct sum sum = sum_of(app, resource);
    CHECK(sum.gets == 1 && sum.frees == 0 && sum.holding == 1);
    REQUIRE(pthread_create(&thread, NULL, second, &scene) == 0);
    CHECK(test_until(somebody_waits, &scene));
    give(thing);
    pthread_join(thread, NULL);
    sum = sum_of(app, resource);
    CHECK(sum.gets == 2 && sum.frees == 2 && sum.slows == 1 && sum.waiting == 0 && sum.holding == 0);
    plimsoll_task_end(task);
    /* Without a task it is the plain thing. */
    take(thing);
    give(thing);
    CHECK(sum_of(app, resource).gets == 2);
}

static void mutex_take(void *mutex) {
    plimsoll_mutex_lock(mutex);
}
static void mutex_give(void *mutex) {
    plimsoll_mutex_unlock(mutex);
}
static void read_take(void *lock) {
    plimsoll_rwlock_wrlock(lock);
}
static void read_give(void *lock) {
    plimsoll_rwlock_unlock(lock);
}
static void semaphore_take(void *semaphore) {
    plimsoll_semaphore_wait(semaphore);
}
static void semaphore_give(void *semaphore) {
    plimsoll_semaphore_post(semaphore);
}
static void pool_take(void *pool) {
    plimsoll_pool_take(pool);
}
static void pool_give(void *pool) {
    plimsoll_pool_give(pool);
}

TEST(tracked_mutex) {
    plimsoll_app *app = app_open(NULL);
    plimsoll_mutex mutex;
    REQUIRE(app && plimsoll_mutex_init(&mutex, app, "table") == 0);
    play(app, mutex.resource, &mutex, mutex_take, mutex_give);
    plimsoll_task *task = plimsoll_task_begin(app, "third", 3);
    CHECK(plimsoll_mutex_trylock(&mutex) == 0 && plimsoll_mutex_trylock(&mutex) == EBUSY);
    CHECK(sum_of(app, mutex.resource).gets == 3 && sum_of(app, mutex.resource).slows == 1);
    /* In a condition nothing is held and nothing waited for. */
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec past = {1, 0};
    CHECK(plimsoll_cond_wait(&never, &mutex, &past) == ETIMEDOUT);
    CHECK(sum_of(app, mutex.resource).gets == 4 && sum_of(app, mutex.resource).frees == 3 && sum_of(app, mutex.resource).slows == 1);
    /* Its task ends before it lets go: what it held is given back once. */
    plimsoll_task_end(task);
    task = plimsoll_task_begin(app, "fourth", 4);
    plimsoll_mutex_unlock(&mutex);
    CHECK(sum_of(app, mutex.resource).gets == 4 && sum_of(app, mutex.resource).frees == 4);
    plimsoll_task_end(task);
    plimsoll_mutex_destroy(&mutex);
    plimsoll_close(app);
}

TEST(tracked_rwlock) {
    plimsoll_app *app = app_open(NULL);
    plimsoll_rwlock lock;
    REQUIRE(app && plimsoll_rwlock_init(&lock, app, "index") == 0);
    play(app, lock.resource, &lock, read_take, read_give);
    plimsoll_task *task = plimsoll_task_begin(app, "reader", 3);
    plimsoll_rwlock_rdlock(&lock);
    CHECK(plimsoll_rwlock_tryrdlock(&lock) == 0 && plimsoll_rwlock_trywrlock(&lock) == EBUSY);
    CHECK(sum_of(app, lock.resource).gets == 4 && sum_of(app, lock.resource).frees == 2);
    plimsoll_rwlock_unlock(&lock);
    plimsoll_rwlock_unlock(&lock);
    CHECK(sum_of(app, lock.resource).frees == 4);
    plimsoll_task_end(task);
    plimsoll_rwlock_destroy(&lock);
    plimsoll_close(app);
}

TEST(tracked_semaphore) {
    plimsoll_app *app = app_open(NULL);
    plimsoll_semaphore semaphore;
    REQUIRE(app && plimsoll_semaphore_init(&semaphore, app, "slots", 1) == 0);
    CHECK(app->resource_records[0].kind == PLIMSOLL_QUEUE && app->resource_records[0].capacity == 1);
    play(app, semaphore.resource, &semaphore, semaphore_take, semaphore_give);
    plimsoll_semaphore_destroy(&semaphore);
    plimsoll_close(app);
}

TEST(tracked_pool) {
    plimsoll_app *app = app_open(NULL);
    plimsoll_pool pool;
    REQUIRE(app && plimsoll_pool_init(&pool, app, "workers", 1) == 0);
    play(app, pool.resource, &pool, pool_take, pool_give);
    CHECK(plimsoll_pool_try_take(&pool) && !plimsoll_pool_try_take(&pool));
    plimsoll_pool_give(&pool);
    plimsoll_pool_give(&pool); /* one too many */
    CHECK(pool.free == 1);
    plimsoll_pool_destroy(&pool);
    plimsoll_close(app);
}

struct waiter {
    plimsoll_app *app;
    plimsoll_pool *pool;
    plimsoll_task *task;
    bool got;
};

static void *waits_in_pool(void *context) {
    struct waiter *waiter = context;
    plimsoll_task *task = plimsoll_task_begin(waiter->app, "waits", 2);
    __atomic_store_n(&waiter->task, task, __ATOMIC_RELEASE);
    waiter->got = plimsoll_pool_take(waiter->pool);
    plimsoll_task_end(task);
    return NULL;
}

TEST(tracked_pool_waits_no_more_when_cancelled) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    plimsoll_pool pool;
    pthread_t thread;
    REQUIRE(app && plimsoll_pool_init(&pool, app, "workers", 1) == 0);
    agent_welcome(&agent);
    CHECK(plimsoll_pool_take(&pool));
    struct waiter waiter = {app, &pool, NULL, true};
    struct scene scene = {app, pool.resource, NULL, NULL, NULL};
    REQUIRE(pthread_create(&thread, NULL, waits_in_pool, &waiter) == 0);
    REQUIRE(test_until(somebody_waits, &scene));
    agent_cancel(&agent, 1, __atomic_load_n(&waiter.task, __ATOMIC_ACQUIRE), "why");
    pthread_join(thread, NULL);
    CHECK(!waiter.got && pool.free == 0);
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0 && strcmp(agent_line(&agent), "outcome 1 cancelled") == 0);
    plimsoll_pool_give(&pool);
    plimsoll_pool_destroy(&pool);
    plimsoll_close(app);
    agent_end(&agent);
}

TEST(tracked_without_a_ledger) {
    plimsoll_mutex mutex = PLIMSOLL_MUTEX_INITIALIZER;
    plimsoll_rwlock lock = PLIMSOLL_RWLOCK_INITIALIZER;
    plimsoll_pool pool;
    CHECK(plimsoll_mutex_lock(&mutex) == 0 && plimsoll_mutex_trylock(&mutex) == EBUSY && plimsoll_mutex_unlock(&mutex) == 0);
    CHECK(plimsoll_rwlock_rdlock(&lock) == 0 && plimsoll_rwlock_trywrlock(&lock) == EBUSY && plimsoll_rwlock_unlock(&lock) == 0);
    CHECK(plimsoll_pool_init(&pool, NULL, "workers", 1) == 0 && plimsoll_pool_take(&pool) && !plimsoll_pool_try_take(&pool));
    plimsoll_pool_give(&pool);
    plimsoll_pool_destroy(&pool);
}
