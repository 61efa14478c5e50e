/** A small web service that three kinds of request can bring to its knees: one that holds its lock, one that empties its cache, one that sits on its workers. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "http.h"
#include "plimsoll.h"
#include "plimsoll_tracked.h"

#define WORKERS 8
#define HOT_PAGES 200
#define SCAN_AT_ONCE 32
#define SECONDS_MAX 600.0

static plimsoll_app *app; /* NULL with --no-sdk: then nobody keeps account, and workers and table are what the system has. What an account costs is measured against that. */
static plimsoll_pool workers;
static sem_t plain_workers;
static plimsoll_mutex table;
static pthread_mutex_t plain_table = PTHREAD_MUTEX_INITIALIZER;

static bool worker_take(void) {
    return app ? plimsoll_pool_take(&workers) : sem_wait(&plain_workers) == 0;
}

static void worker_give(void) {
    if (app) plimsoll_pool_give(&workers);
    else sem_post(&plain_workers);
}

static void table_lock(void) {
    if (app) plimsoll_mutex_lock(&table);
    else pthread_mutex_lock(&plain_table);
}

static void table_unlock(void) {
    if (app) plimsoll_mutex_unlock(&table);
    else pthread_mutex_unlock(&plain_table);
}

/* Waits, in steps, until it is over or the task is cancelled. */
static void last(plimsoll_task *task, double seconds) {
    uint64_t total_us = (uint64_t)(seconds * 1e6), done_us = 0, before_ns = plimsoll_now_ns();
    while (done_us < total_us && !plimsoll_cancelled(task)) {
        plimsoll_progress(task, done_us, total_us);
        uint64_t left_us = total_us - done_us;
        usleep((useconds_t)(left_us < 10000 ? left_us : 10000));
        done_us = (plimsoll_now_ns() - before_ns) / 1000;
    }
}

static void item(plimsoll_task *task, const char *query) {
    table_lock();
    usleep(200);
    table_unlock();
    cache_read(task, (uint64_t)http_number(query, "id", 0) % HOT_PAGES, 1);
    usleep(300); /* writes it down */
    cache_release(task, 1);
}

static void hog_lock(plimsoll_task *task, double seconds) {
    table_lock();
    last(task, seconds);
    table_unlock();
}

/* Reads one page after the other, many at once, and has as many as the cache holds. */
static void hog_cache(plimsoll_task *task, double seconds) {
    static uint64_t next = 1000000;
    uint64_t total_us = (uint64_t)(seconds * 1e6), before_ns = plimsoll_now_ns(), done_us = 0;
    uint32_t has = 0;
    while (done_us < total_us && !plimsoll_cancelled(task)) {
        cache_read(task, __atomic_fetch_add(&next, SCAN_AT_ONCE, __ATOMIC_RELAXED), SCAN_AT_ONCE);
        has += SCAN_AT_ONCE;
        if (has > CACHE_PAGES) {
            cache_release(task, has - CACHE_PAGES);
            has = CACHE_PAGES;
        }
        done_us = (plimsoll_now_ns() - before_ns) / 1000;
        plimsoll_progress(task, done_us, total_us);
    }
    cache_release(task, has);
}

static void handle(const char *path, const char *query, bool again, struct http_answer *answer) {
    static const char *const paths[] = {"/item", "/hog/lock", "/hog/cache", "/hog/pool", "/slow"};
    static const char *const labels[] = {"GET /item", "GET /hog/lock", "GET /hog/cache", "GET /hog/pool", "GET /slow"};
    double seconds = http_number(query, "seconds", 1);
    size_t which = 0;
    while (which < 5 && strcmp(path, paths[which]) != 0) which++;
    if (which == 5 || !(seconds >= 0 && seconds <= SECONDS_MAX)) {
        answer->status = which == 5 ? 404 : 400;
        snprintf(answer->text, sizeof answer->text, which == 5 ? "/item, /hog/lock, /hog/cache, /hog/pool, /slow" : "seconds: 0 to 600");
        return;
    }
    plimsoll_task_options options = {0};
    options.second_run = again;
    plimsoll_task *task = plimsoll_task_begin_with(app, labels[which], (uint64_t)http_number(query, "id", 0), &options);
    bool worker = which != 4 && worker_take();
    if (worker || which == 4) {
        if (which == 0) item(task, query);
        if (which == 1) hog_lock(task, seconds);
        if (which == 2) hog_cache(task, seconds);
        if (which == 3 || which == 4) last(task, seconds);
    }
    if (worker) worker_give();
    const char *reason = plimsoll_cancel_reason(task);
    answer->status = reason ? 503 : 200;
    if (reason) snprintf(answer->cancelled, sizeof answer->cancelled, "%s", plimsoll_cancel_resource(task));
    snprintf(answer->text, sizeof answer->text, "%s%s", reason ? "cancelled: " : "ok", reason ? reason : "");
    plimsoll_task_end(task);
}

/* The number after an option, or -1. */
static long number_of(const char *word, long most) {
    char *end;
    long number = strtol(word, &end, 10);
    return *word && !*end && number >= 0 && number <= most ? number : -1;
}

int main(int count, char **words) {
    long port = -1, miss_ms = 2;
    bool sdk = true, wrong = false;
    for (int i = 1; i < count; i++) {
        bool more = i + 1 < count;
        if (more && strcmp(words[i], "--port") == 0) port = number_of(words[++i], 65535);
        else if (more && strcmp(words[i], "--miss-ms") == 0) miss_ms = number_of(words[++i], 1000);
        else if (strcmp(words[i], "--no-sdk") == 0) sdk = false;
        else wrong = true;
    }
    if (wrong || port < 0 || miss_ms < 0) {
        fprintf(stderr, "usage: testbed --port N [--miss-ms N] [--no-sdk] (port 0 to 65535, 0 takes a free one; a page that is not in the cache takes 0 to 1000 ms, 2 if not said)\n");
        return 2;
    }
    if (sdk) app = plimsoll_open("testbed-c");
    cache_init(app, (uint32_t)miss_ms * 1000);
    sem_init(&plain_workers, 0, WORKERS);
    plimsoll_mutex_init(&table, app, "table");
    plimsoll_pool_init(&workers, app, "workers", WORKERS);
    return http_serve((int)port, handle);
}
