/** Running again what was cancelled: who waits for the agent's word, and the thread on which it is done. */
#include <stdlib.h>

#include "internal.h"

__thread bool plimsoll_in_rerun;

static void again_append(struct plimsoll_again **at, struct plimsoll_again *again) {
    while (*at) at = &(*at)->next;
    again->next = NULL;
    *at = again;
}

static void again_call(const struct plimsoll_again *again) {
    void (*call)(void *) = again->drop ? again->rerun.drop : again->rerun.run;
    if (call) call(again->rerun.context);
}

static void *again_main(void *argument) {
    plimsoll_app *app = (plimsoll_app *)argument;
    plimsoll_in_rerun = true;
    pthread_mutex_lock(&app->lock);
    while (!app->closing) {
        struct plimsoll_again *again = app->ready;
        if (!again) {
            pthread_cond_wait(&app->rerunner.wake, &app->lock);
            continue;
        }
        app->ready = again->next;
        app->waiting_count--;
        app->rerunner.busy = true;
        pthread_mutex_unlock(&app->lock);
        again_call(again);
        pthread_mutex_lock(&app->lock);
        app->rerunner.busy = false;
        plimsoll_post_settled(app, again->connection, again->id, again->drop);
        free(again);
    }
    pthread_mutex_unlock(&app->lock);
    plimsoll_app_leave(app);
    return NULL;
}

/* With the lock: there is something to do. Where no thread is to be had now, the next heartbeat tries again. */
static void again_wake(plimsoll_app *app) {
    if (app->closing || !app->ready) return;
    if (!app->rerunner.exists) {
        app->holders++;
        app->rerunner.exists = plimsoll_thread_start(&app->rerunner.thread, again_main, app);
        if (!app->rerunner.exists) app->holders--;
    }
    pthread_cond_signal(&app->rerunner.wake);
}

/* With the lock: moves `*at` from those that wait to those that are done next. */
static void again_ready(plimsoll_app *app, struct plimsoll_again **at, bool drop) {
    struct plimsoll_again *again = *at;
    *at = again->next;
    again->drop = drop;
    again_append(&app->ready, again);
}

/* Keeps it until the agent says what to do with it. False if too many wait. */
bool plimsoll_again_wait(plimsoll_app *app, const struct plimsoll_again *wanted) {
    struct plimsoll_again *again = (struct plimsoll_again *)malloc(sizeof *again);
    if (!again) return false;
    *again = *wanted;
    again->due_ns = plimsoll_now_ns() + PLIMSOLL_LOAD(&app->patience.rerun_ns);
    pthread_mutex_lock(&app->lock);
    bool room = app->waiting_count < PLIMSOLL_WAITING_MAX && !app->closing;
    if (room) {
        app->waiting_count++;
        again_append(&app->waiting, again);
        /* The connection that it was cancelled over may have ended before the task did. */
        if (!app->connected || again->connection != app->connection) plimsoll_control_wake(app);
    } else {
        plimsoll_post_settled(app, again->connection, again->id, true);
    }
    pthread_mutex_unlock(&app->lock);
    if (!room) free(again);
    return room;
}

/* The agent's word. */
void plimsoll_again_settle(plimsoll_app *app, uint64_t id, bool drop) {
    pthread_mutex_lock(&app->lock);
    for (struct plimsoll_again **at = &app->waiting; *at; at = &(*at)->next) {
        if ((*at)->id != id || (*at)->connection != app->connection) continue;
        again_ready(app, at, drop);
        again_wake(app);
        break;
    }
    pthread_mutex_unlock(&app->lock);
}

/* What has waited too long, or for a connection that is no more, is run; or dropped, if it is of no use any more. */
void plimsoll_again_watch(plimsoll_app *app, uint64_t now_ns) {
    pthread_mutex_lock(&app->lock);
    struct plimsoll_again **at = &app->waiting;
    while (*at) {
        bool waits = app->connected && (*at)->connection == app->connection && now_ns < (*at)->due_ns;
        if (waits) {
            at = &(*at)->next;
        } else {
            again_ready(app, at, (*at)->deadline_ns != 0 && now_ns > (*at)->deadline_ns);
        }
    }
    again_wake(app);
    pthread_mutex_unlock(&app->lock);
}

/* The application closes: none of it will be run. */
void plimsoll_again_drop_all(plimsoll_app *app) {
    pthread_mutex_lock(&app->lock);
    while (app->waiting) again_ready(app, &app->waiting, true);
    struct plimsoll_again *all = app->ready;
    app->ready = NULL;
    pthread_mutex_unlock(&app->lock);
    while (all) {
        struct plimsoll_again *next = all->next;
        all->drop = true;
        again_call(all);
        free(all);
        all = next;
    }
}
