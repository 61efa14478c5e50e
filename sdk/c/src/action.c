/** The thread on which cancel actions run, one at a time, and what happens when one does not return. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* With the lock: what the action is told. The task cannot end here, its record is still its own. */
static void action_tell(plimsoll_app *app, const struct plimsoll_job *job, plimsoll_cancellation *what, char *label, char *resource) {
    plimsoll_task_record *record = &app->task_records[job->task];
    memset(what, 0, sizeof *what);
    what->key = PLIMSOLL_LOAD(&record->key);
    memcpy(label, record->label, sizeof record->label);
    label[sizeof record->label] = '\0';
    if (job->resource < app->resources_used) memcpy(resource, app->resource_records[job->resource].name, sizeof app->resource_records->name);
    what->label = label;
    what->resource = resource;
    what->reason = job->reason;
}

/* With the lock, which is let go while the action runs. */
static void action_run(plimsoll_app *app, struct plimsoll_job *job) {
    struct plimsoll_hook hook;
    char label[sizeof app->task_records->label + 1], resource[sizeof app->resource_records->name + 1] = "";
    plimsoll_cancellation what;
    struct plimsoll_answer answer = plimsoll_cancel_mark(app, job, &hook);
    if (answer.word) {
        plimsoll_post_outcome(app, job->connection, job->id, answer.word, answer.text);
        return;
    }
    action_tell(app, job, &what, label, resource);
    app->action_since_ns = plimsoll_now_ns();
    app->action_id = job->id;
    app->action_connection = job->connection;
    pthread_mutex_unlock(&app->lock);
    int result = 0;
    if (hook.action) {
        result = hook.action(&what, hook.context);
    } else if (app->options.cancel) {
        result = app->options.cancel(&what, app->options.cancel_context);
    }
    if (hook.release) hook.release(hook.context);
    pthread_mutex_lock(&app->lock);
    app->action_since_ns = 0;
    app->action_stuck = false;
    struct plimsoll_cancel *cancel = plimsoll_cancel_find(app, job->connection, job->id);
    if (result != 0 && cancel && !cancel->answered) {
        char text[sizeof what.failure];
        memcpy(text, what.failure, sizeof text);
        text[sizeof text - 1] = '\0';
        cancel->answered = true;
        plimsoll_post_outcome(app, job->connection, job->id, "failed", text[0] ? text : "the cancel action says that it could not");
    }
}

static void *action_main(void *argument) {
    plimsoll_app *app = (plimsoll_app *)argument;
    pthread_mutex_lock(&app->lock);
    while (!app->closing) {
        struct plimsoll_job *job = app->jobs;
        if (!job) {
            pthread_cond_wait(&app->actor.wake, &app->lock);
            continue;
        }
        app->jobs = job->next;
        app->jobs_count--;
        app->actor.busy = true;
        action_run(app, job);
        app->actor.busy = false;
        free(job);
    }
    pthread_mutex_unlock(&app->lock);
    plimsoll_app_leave(app);
    return NULL;
}

/* With the lock. Takes the job, or says why not. */
struct plimsoll_answer plimsoll_action_queue(plimsoll_app *app, struct plimsoll_job *job) {
    static const struct plimsoll_answer taken = {NULL, NULL}, too_many = {"failed", "too many cancel actions are waiting"};
    static const struct plimsoll_answer no_thread = {"failed", "there is no thread to be had for the cancel action"};
    if (app->jobs_count >= PLIMSOLL_JOBS_MAX) return too_many;
    if (!app->actor.exists) {
        app->holders++;
        app->actor.exists = plimsoll_thread_start(&app->actor.thread, action_main, app);
        if (!app->actor.exists) {
            app->holders--;
            return no_thread;
        }
    }
    struct plimsoll_job **at = &app->jobs;
    while (*at) at = &(*at)->next;
    job->next = NULL;
    *at = job;
    app->jobs_count++;
    pthread_cond_signal(&app->actor.wake);
    return taken;
}

/* Answers for an action that has not returned in time, and for all that wait for it. */
void plimsoll_action_watch(plimsoll_app *app, uint64_t now_ns) {
    bool stuck = false;
    pthread_mutex_lock(&app->lock);
    if (app->action_since_ns && !app->action_stuck && now_ns > app->action_since_ns + PLIMSOLL_LOAD(&app->patience.action_ns)) {
        app->action_stuck = stuck = true;
        struct plimsoll_cancel *cancel = plimsoll_cancel_find(app, app->action_connection, app->action_id);
        if (cancel && !cancel->answered) {
            cancel->answered = true;
            plimsoll_post_outcome(app, cancel->connection, cancel->id, "failed", "the cancel action has not returned for 5 s");
        }
    }
    while (app->action_stuck && app->jobs) {
        struct plimsoll_job *job = app->jobs;
        app->jobs = job->next;
        app->jobs_count--;
        plimsoll_post_outcome(app, job->connection, job->id, "failed", "an earlier cancel action has not returned");
        free(job);
    }
    pthread_mutex_unlock(&app->lock);
    if (stuck) plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_ACTION, "the cancel action of %s has not returned for 5 s; until it does, nothing can be cancelled", app->name);
}
