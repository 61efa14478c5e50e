/** What programs lock and wait with, keeping account by itself: a mutex, a read-write lock, a semaphore, a pool of permits.
 *
 * Each behaves as the POSIX thing inside it and returns what that returns; with no ledger it is that thing alone. The plain functions act for the thread's current task,
 * those that end in `_for` for the task they are given, which may be NULL. Lock and unlock for the same task. */
#ifndef PLIMSOLL_TRACKED_H
#define PLIMSOLL_TRACKED_H

#include <errno.h>
#include <semaphore.h>

#include "plimsoll.h"

#if defined(__STRICT_ANSI__) && !defined(__cplusplus) && (!defined(_POSIX_C_SOURCE) || _POSIX_C_SOURCE < 200112L)
#error "with -std=c11 the system hides pthread_rwlock_t: compile with -D_POSIX_C_SOURCE=200809L, or with -std=gnu11"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** A mutex. */
typedef struct plimsoll_mutex {
    pthread_mutex_t raw;
    plimsoll_resource *resource;
    plimsoll_task *holder; /* whoever locked it unlocks it, so this needs no lock of its own */
    uint64_t holder_turn;
} plimsoll_mutex;
/** For one with static storage; its `resource` may be set later. */
#define PLIMSOLL_MUTEX_INITIALIZER {PTHREAD_MUTEX_INITIALIZER, NULL, NULL, 0}

/** Mutexes of one name are one resource: the stripes of a striped lock, for instance. */
static inline int plimsoll_mutex_init(plimsoll_mutex *mutex, plimsoll_app *app, const char *name) {
    mutex->resource = plimsoll_resource_of(app, PLIMSOLL_LOCK, name, 1);
    mutex->holder = NULL;
    mutex->holder_turn = 0;
    return pthread_mutex_init(&mutex->raw, NULL);
}

static inline int plimsoll_mutex_destroy(plimsoll_mutex *mutex) {
    return pthread_mutex_destroy(&mutex->raw);
}

static inline void plimsoll_mutex_taken(plimsoll_mutex *mutex, plimsoll_task *task) {
    plimsoll_get(task, mutex->resource, 1);
    mutex->holder = task;
    mutex->holder_turn = task ? task->turn : 0;
}

static inline void plimsoll_mutex_leaving(plimsoll_mutex *mutex) {
    plimsoll_task *task = mutex->holder;
    mutex->holder = NULL;
    /* Its task may have ended since. */
    if (task && task->turn == mutex->holder_turn) plimsoll_free(task, mutex->resource, 1);
}

static inline int plimsoll_mutex_trylock_for(plimsoll_mutex *mutex, plimsoll_task *task) {
    int result = pthread_mutex_trylock(&mutex->raw);
    if (result == 0) plimsoll_mutex_taken(mutex, task);
    return result;
}

static inline int plimsoll_mutex_lock_for(plimsoll_mutex *mutex, plimsoll_task *task) {
    int result = pthread_mutex_trylock(&mutex->raw);
    if (result == EBUSY) {
        plimsoll_wait(task, mutex->resource);
        result = pthread_mutex_lock(&mutex->raw);
        if (result != 0) plimsoll_wait_end(task, mutex->resource);
    }
    if (result == 0) plimsoll_mutex_taken(mutex, task);
    return result;
}

static inline int plimsoll_mutex_lock(plimsoll_mutex *mutex) {
    return plimsoll_mutex_lock_for(mutex, plimsoll_task_current());
}

static inline int plimsoll_mutex_trylock(plimsoll_mutex *mutex) {
    return plimsoll_mutex_trylock_for(mutex, plimsoll_task_current());
}

static inline int plimsoll_mutex_unlock(plimsoll_mutex *mutex) {
    plimsoll_mutex_leaving(mutex);
    return pthread_mutex_unlock(&mutex->raw);
}

/** `pthread_cond_wait` with a tracked mutex: the time in it is neither a hold nor a wait for the mutex. `deadline` NULL: for ever. */
static inline int plimsoll_cond_wait(pthread_cond_t *condition, plimsoll_mutex *mutex, const struct timespec *deadline) {
    plimsoll_task *task = mutex->holder;
    plimsoll_mutex_leaving(mutex);
    int result = deadline ? pthread_cond_timedwait(condition, &mutex->raw, deadline) : pthread_cond_wait(condition, &mutex->raw);
    plimsoll_mutex_taken(mutex, task);
    return result;
}

/** A read-write lock: a reader has a share of it, a writer all of it. */
typedef struct plimsoll_rwlock {
    pthread_rwlock_t raw;
    plimsoll_resource *resource;
} plimsoll_rwlock;
#define PLIMSOLL_RWLOCK_INITIALIZER {PTHREAD_RWLOCK_INITIALIZER, NULL}

static inline int plimsoll_rwlock_init(plimsoll_rwlock *lock, plimsoll_app *app, const char *name) {
    lock->resource = plimsoll_resource_of(app, PLIMSOLL_LOCK, name, 0);
    return pthread_rwlock_init(&lock->raw, NULL);
}

static inline int plimsoll_rwlock_destroy(plimsoll_rwlock *lock) {
    return pthread_rwlock_destroy(&lock->raw);
}

static inline int plimsoll_rwlock_tryrdlock_for(plimsoll_rwlock *lock, plimsoll_task *task) {
    int result = pthread_rwlock_tryrdlock(&lock->raw);
    if (result == 0) plimsoll_get(task, lock->resource, 1);
    return result;
}

static inline int plimsoll_rwlock_trywrlock_for(plimsoll_rwlock *lock, plimsoll_task *task) {
    int result = pthread_rwlock_trywrlock(&lock->raw);
    if (result == 0) plimsoll_get(task, lock->resource, 1);
    return result;
}

static inline int plimsoll_rwlock_rdlock_for(plimsoll_rwlock *lock, plimsoll_task *task) {
    int result = plimsoll_rwlock_tryrdlock_for(lock, task);
    if (result != EBUSY) return result;
    plimsoll_wait(task, lock->resource);
    result = pthread_rwlock_rdlock(&lock->raw);
    if (result == 0) plimsoll_get(task, lock->resource, 1);
    else plimsoll_wait_end(task, lock->resource);
    return result;
}

static inline int plimsoll_rwlock_wrlock_for(plimsoll_rwlock *lock, plimsoll_task *task) {
    int result = plimsoll_rwlock_trywrlock_for(lock, task);
    if (result != EBUSY) return result;
    plimsoll_wait(task, lock->resource);
    result = pthread_rwlock_wrlock(&lock->raw);
    if (result == 0) plimsoll_get(task, lock->resource, 1);
    else plimsoll_wait_end(task, lock->resource);
    return result;
}

static inline int plimsoll_rwlock_unlock_for(plimsoll_rwlock *lock, plimsoll_task *task) {
    plimsoll_free(task, lock->resource, 1);
    return pthread_rwlock_unlock(&lock->raw);
}

static inline int plimsoll_rwlock_rdlock(plimsoll_rwlock *lock) {
    return plimsoll_rwlock_rdlock_for(lock, plimsoll_task_current());
}

static inline int plimsoll_rwlock_wrlock(plimsoll_rwlock *lock) {
    return plimsoll_rwlock_wrlock_for(lock, plimsoll_task_current());
}

static inline int plimsoll_rwlock_tryrdlock(plimsoll_rwlock *lock) {
    return plimsoll_rwlock_tryrdlock_for(lock, plimsoll_task_current());
}

static inline int plimsoll_rwlock_trywrlock(plimsoll_rwlock *lock) {
    return plimsoll_rwlock_trywrlock_for(lock, plimsoll_task_current());
}

static inline int plimsoll_rwlock_unlock(plimsoll_rwlock *lock) {
    return plimsoll_rwlock_unlock_for(lock, plimsoll_task_current());
}

/** A semaphore whose permits are held: who waits for it posts it. One that only signals from thread to thread is better left untracked. */
typedef struct plimsoll_semaphore {
    sem_t raw;
    plimsoll_resource *resource;
} plimsoll_semaphore;

static inline int plimsoll_semaphore_init(plimsoll_semaphore *semaphore, plimsoll_app *app, const char *name, unsigned permits) {
    semaphore->resource = plimsoll_resource_of(app, PLIMSOLL_QUEUE, name, permits);
    return sem_init(&semaphore->raw, 0, permits);
}

static inline int plimsoll_semaphore_destroy(plimsoll_semaphore *semaphore) {
    return sem_destroy(&semaphore->raw);
}

static inline int plimsoll_semaphore_trywait_for(plimsoll_semaphore *semaphore, plimsoll_task *task) {
    int result = sem_trywait(&semaphore->raw);
    if (result == 0) plimsoll_get(task, semaphore->resource, 1);
    return result;
}

static inline int plimsoll_semaphore_wait_for(plimsoll_semaphore *semaphore, plimsoll_task *task) {
    int result = plimsoll_semaphore_trywait_for(semaphore, task);
    if (result == 0 || errno != EAGAIN) return result;
    plimsoll_wait(task, semaphore->resource);
    result = sem_wait(&semaphore->raw);
    if (result == 0) plimsoll_get(task, semaphore->resource, 1);
    else plimsoll_wait_end(task, semaphore->resource);
    return result;
}

static inline int plimsoll_semaphore_post_for(plimsoll_semaphore *semaphore, plimsoll_task *task) {
    plimsoll_free(task, semaphore->resource, 1);
    return sem_post(&semaphore->raw);
}

static inline int plimsoll_semaphore_wait(plimsoll_semaphore *semaphore) {
    return plimsoll_semaphore_wait_for(semaphore, plimsoll_task_current());
}

static inline int plimsoll_semaphore_trywait(plimsoll_semaphore *semaphore) {
    return plimsoll_semaphore_trywait_for(semaphore, plimsoll_task_current());
}

static inline int plimsoll_semaphore_post(plimsoll_semaphore *semaphore) {
    return plimsoll_semaphore_post_for(semaphore, plimsoll_task_current());
}

/** A pool of permits: workers, connections. Unlike a semaphore, waiting for one ends when the task is cancelled. */
typedef struct plimsoll_pool {
    pthread_mutex_t lock;
    pthread_cond_t given;
    plimsoll_resource *resource;
    uint32_t permits, free;
} plimsoll_pool;

/** A pool of `permits`, all of them free. 0, or an error number. */
PLIMSOLL_API int plimsoll_pool_init(plimsoll_pool *pool, plimsoll_app *app, const char *name, uint32_t permits);
PLIMSOLL_API void plimsoll_pool_destroy(plimsoll_pool *pool);
/** Takes a permit and waits for one if need be. False, and it has none, if the task is cancelled meanwhile (seen within 20 ms). */
PLIMSOLL_API bool plimsoll_pool_take_for(plimsoll_pool *pool, plimsoll_task *task);
/** Takes a permit if one is free. */
PLIMSOLL_API bool plimsoll_pool_try_take_for(plimsoll_pool *pool, plimsoll_task *task);
/** Gives a permit back. */
PLIMSOLL_API void plimsoll_pool_give_for(plimsoll_pool *pool, plimsoll_task *task);

static inline bool plimsoll_pool_take(plimsoll_pool *pool) {
    return plimsoll_pool_take_for(pool, plimsoll_task_current());
}

static inline bool plimsoll_pool_try_take(plimsoll_pool *pool) {
    return plimsoll_pool_try_take_for(pool, plimsoll_task_current());
}

static inline void plimsoll_pool_give(plimsoll_pool *pool) {
    plimsoll_pool_give_for(pool, plimsoll_task_current());
}

#ifdef __cplusplus
}
#endif

#endif
