/** The pool of permits of `plimsoll_tracked.h`. */
#include <errno.h>

#include "internal.h"
#include "plimsoll_tracked.h"

/* How often who waits looks whether its task was cancelled. */
#define POOL_LOOK_NS 20000000

PLIMSOLL_API int plimsoll_pool_init(plimsoll_pool *pool, plimsoll_app *app, const char *name, uint32_t permits) {
    pthread_condattr_t attributes;
    int result = pthread_condattr_init(&attributes);
    if (result != 0) return result;
    pool->resource = plimsoll_resource_of(app, PLIMSOLL_QUEUE, name, permits);
    pool->permits = pool->free = permits;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    result = pthread_mutex_init(&pool->lock, NULL);
    if (result == 0) result = pthread_cond_init(&pool->given, &attributes);
    pthread_condattr_destroy(&attributes);
    return result;
}

PLIMSOLL_API void plimsoll_pool_destroy(plimsoll_pool *pool) {
    pthread_cond_destroy(&pool->given);
    pthread_mutex_destroy(&pool->lock);
}

static void pool_unlock(void *lock) {
    pthread_mutex_unlock((pthread_mutex_t *)lock);
}

/* With the pool's lock, which it has again when it returns; if the thread is cancelled in it, nobody has. */
static void pool_wait(plimsoll_pool *pool, bool looks) {
    pthread_cleanup_push(pool_unlock, &pool->lock);
    if (looks) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += POOL_LOOK_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&pool->given, &pool->lock, &until);
    } else {
        pthread_cond_wait(&pool->given, &pool->lock);
    }
    pthread_cleanup_pop(0);
}

PLIMSOLL_API bool plimsoll_pool_take_for(plimsoll_pool *pool, plimsoll_task *task) {
    pthread_mutex_lock(&pool->lock);
    bool waits = pool->free == 0;
    if (waits) plimsoll_wait(task, pool->resource);
    while (pool->free == 0 && !plimsoll_cancelled(task)) pool_wait(pool, task != NULL);
    bool taken = pool->free > 0 && !(waits && plimsoll_cancelled(task));
    if (taken) pool->free--;
    /* A permit that was meant for this one is somebody else's. */
    if (!taken && pool->free > 0) pthread_cond_signal(&pool->given);
    pthread_mutex_unlock(&pool->lock);
    if (taken) {
        plimsoll_get(task, pool->resource, 1);
    } else {
        plimsoll_wait_end(task, pool->resource);
    }
    return taken;
}

PLIMSOLL_API bool plimsoll_pool_try_take_for(plimsoll_pool *pool, plimsoll_task *task) {
    pthread_mutex_lock(&pool->lock);
    bool taken = pool->free > 0;
    if (taken) pool->free--;
    pthread_mutex_unlock(&pool->lock);
    if (taken) plimsoll_get(task, pool->resource, 1);
    return taken;
}

PLIMSOLL_API void plimsoll_pool_give_for(plimsoll_pool *pool, plimsoll_task *task) {
    plimsoll_free(task, pool->resource, 1);
    pthread_mutex_lock(&pool->lock);
    if (pool->free < pool->permits) pool->free++;
    pthread_cond_signal(&pool->given);
    pthread_mutex_unlock(&pool->lock);
}
