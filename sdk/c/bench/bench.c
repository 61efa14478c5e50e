/** What the account costs: ns for a get and a free, in calm (over and over at one resource, and at two nested ones) and with exact stamps, and for a task; beside an untracked and a tracked
 * mutex. One JSON line. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "plimsoll.h"
#include "plimsoll_tracked.h"

/* Many short batches, of which the median is taken: on a machine that others use, too, most of them are undisturbed. */
#define BATCHES 2001
#define PAIRS 10000
#define TASKS 1000

static plimsoll_app *app;
static plimsoll_task *the_task;
static plimsoll_resource *the_resource, *the_other;
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static plimsoll_mutex tracked;

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pairs(void) {
    /* As in an application: handles are arguments or locals. */
    plimsoll_task *task = the_task;
    plimsoll_resource *resource = the_resource;
    for (int i = 0; i < PAIRS; i++) {
        plimsoll_get(task, resource, 1);
        plimsoll_free(task, resource, 1);
    }
}

/* As in life: a worker, and a lock. */
static void nested_pairs(void) {
    plimsoll_task *task = the_task;
    plimsoll_resource *resource = the_resource, *other = the_other;
    for (int i = 0; i < PAIRS / 2; i++) {
        plimsoll_get(task, other, 1);
        plimsoll_get(task, resource, 1);
        plimsoll_free(task, resource, 1);
        plimsoll_free(task, other, 1);
    }
}

static void tasks(void) {
    for (int i = 0; i < TASKS; i++) plimsoll_task_end(plimsoll_task_begin(app, "GET /item", (uint64_t)i));
}

static void tasks_and_four(void) {
    static const char *const names[] = {"a", "b", "c", "d"};
    plimsoll_resource *four[4];
    for (int r = 0; r < 4; r++) four[r] = plimsoll_resource_of(app, PLIMSOLL_LOCK, names[r], 1);
    for (int i = 0; i < TASKS; i++) {
        plimsoll_task *one = plimsoll_task_begin(app, "GET /item", (uint64_t)i);
        for (int r = 0; r < 4; r++) {
            plimsoll_get(one, four[r], 1);
            plimsoll_free(one, four[r], 1);
        }
        plimsoll_task_end(one);
    }
}

static void mutex_plain(void) {
    for (int i = 0; i < PAIRS; i++) {
        pthread_mutex_lock(&plain);
        pthread_mutex_unlock(&plain);
    }
}

static void mutex_tracked(void) {
    for (int i = 0; i < PAIRS; i++) {
        plimsoll_mutex_lock(&tracked);
        plimsoll_mutex_unlock(&tracked);
    }
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* With `exact`, there is an agent that asks for exact stamps; the SDK would clear what a dead one left behind. */
static double median_ns(void (*loop)(void), int count, bool exact) {
    static double ns[BATCHES];
    plimsoll_header *header = the_task->header;
    loop();
    for (int batch = 0; batch < BATCHES; batch++) {
        if (exact) {
            __atomic_store_n(&header->agent_beat_ns, plimsoll_now_ns(), __ATOMIC_RELAXED);
            __atomic_store_n(&header->flags, PLIMSOLL_FLAG_EXACT, __ATOMIC_RELAXED);
        }
        uint64_t before = clock_ns();
        loop();
        ns[batch] = (double)(clock_ns() - before) / count;
    }
    __atomic_store_n(&header->flags, 0, __ATOMIC_RELAXED);
    qsort(ns, BATCHES, sizeof *ns, ascending);
    return ns[BATCHES / 2];
}

int main(void) {
    char dir[] = "/tmp/plimsoll-bench-XXXXXX";
    plimsoll_options options = {0};
    options.dir = mkdtemp(dir);
    app = plimsoll_open_with("bench", &options);
    if (!app) return 1;
    the_task = plimsoll_task_begin(app, "bench", 1);
    the_resource = plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1);
    the_other = plimsoll_resource_of(app, PLIMSOLL_QUEUE, "workers", 8);
    plimsoll_mutex_init(&tracked, app, "mutex");
    usleep(1500000); /* until the clock is calibrated */
    double calm = median_ns(pairs, PAIRS, false);
    double nested = median_ns(nested_pairs, PAIRS, false);
    double exact = median_ns(pairs, PAIRS, true);
    double mutex = median_ns(mutex_plain, PAIRS, false);
    double mutex_calm = median_ns(mutex_tracked, PAIRS, false);
    double begin_end = median_ns(tasks, TASKS, false);
    double with_four = median_ns(tasks_and_four, TASKS, false);
    printf("{\"lang\":\"c\",\"calm_ns\":%.2f,\"calm_nested_ns\":%.2f,\"exact_ns\":%.2f,\"task_ns\":%.1f,\"task_with_four_resources_ns\":%.1f,\"mutex_ns\":%.2f,\"tracked_mutex_ns\":%.2f}\n", calm, nested,
           exact, begin_end, with_four, mutex, mutex_calm);
    plimsoll_task_end(the_task);
    plimsoll_close(app);
    rmdir(dir);
    return 0;
}
