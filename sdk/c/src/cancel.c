/** Cancelling: finding the task that is meant, telling it, and telling the agent what became of it.
 *
 * A task's `state` is what decides. Whoever turns its lowest bit on holds the lock, and the task that ends takes the state away with one exchange: so either the
 * cancellation finds the task it means, and the task finds the cancellation at its end, or neither sees the other. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* With the lock. */
struct plimsoll_cancel *plimsoll_cancel_find(plimsoll_app *app, uint64_t connection, uint64_t id) {
    struct plimsoll_cancel *cancel = app->cancels;
    while (cancel && !(cancel->id == id && cancel->connection == connection)) cancel = cancel->next;
    return cancel;
}

static struct plimsoll_cancel **cancel_of(plimsoll_app *app, uint32_t task, uint64_t turn) {
    struct plimsoll_cancel **at = &app->cancels;
    while (*at && !((*at)->task == task && (*at)->turn == turn)) at = &(*at)->next;
    return at;
}

/* With the lock. Tells the task that it shall stop, and takes its hook. No word if that is done, or the outcome. */
struct plimsoll_answer plimsoll_cancel_mark(plimsoll_app *app, const struct plimsoll_job *job, struct plimsoll_hook *hook) {
    static const struct plimsoll_answer too_many = {"failed", "too many cancelled tasks have not ended yet"}, no_memory = {"failed", "there is no memory"};
    static const struct plimsoll_answer again = {"failed", "it has been cancelled already"}, finished = {"finished", NULL}, done = {NULL, NULL};
    plimsoll_task *task = plimsoll_handle(app, job->task);
    if (app->cancels_count >= PLIMSOLL_CANCELS_MAX) return too_many;
    struct plimsoll_cancel *cancel = (struct plimsoll_cancel *)calloc(1, sizeof *cancel);
    if (!cancel) return no_memory;
    uint64_t alive = job->turn << 1;
    if (!__atomic_compare_exchange_n(&task->state, &alive, alive | 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        free(cancel);
        return alive == (job->turn << 1 | 1) ? again : finished;
    }
    cancel->id = job->id;
    cancel->connection = job->connection;
    cancel->turn = job->turn;
    cancel->task = job->task;
    memcpy(cancel->reason, job->reason, sizeof cancel->reason);
    if (job->resource < app->resources_used) memcpy(cancel->resource, app->resource_records[job->resource].name, sizeof app->resource_records->name);
    cancel->next = app->cancels;
    app->cancels = cancel;
    app->cancels_count++;
    plimsoll_post_acknowledge(app, job->connection, job->id);
    memset(hook, 0, sizeof *hook);
    if (task->hook) {
        *hook = *task->hook;
        free(task->hook);
        PLIMSOLL_STORE(&task->hook, (struct plimsoll_hook *)NULL);
    }
    cancel->acted = hook->action || app->options.cancel || task->cancel_thread;
    /* It cannot exit meanwhile: its exit ends the task, and that would wait for the lock. */
    if (task->cancel_thread && task->has_thread) pthread_cancel(task->thread);
    return done;
}

/* With the lock: cancels it, or gives it to the action thread, or says why neither. `*kept` if the job is needed longer. */
static struct plimsoll_answer cancel_begin(plimsoll_app *app, struct plimsoll_job *job, bool *kept) {
    static const struct plimsoll_answer gone = {"gone", NULL}, no = {"failed", "this task is not cancellable"};
    static const struct plimsoll_answer stuck = {"failed", "an earlier cancel action has not returned"};
    plimsoll_task *task = plimsoll_handle(app, job->task);
    struct plimsoll_hook none;
    if (job->task >= app->tasks_fresh || !(job->turn & 1)) return gone;
    if (__atomic_load_n(&task->state, __ATOMIC_ACQUIRE) >> 1 != job->turn) return gone;
    if (!(PLIMSOLL_LOAD(&app->task_records[job->task].flags) & PLIMSOLL_TASK_CANCELLABLE)) return no;
    if (app->action_stuck) return stuck;
    if (!app->options.cancel && !PLIMSOLL_LOAD(&task->hook)) return plimsoll_cancel_mark(app, job, &none);
    struct plimsoll_answer answer = plimsoll_action_queue(app, job);
    *kept = !answer.word;
    return answer;
}

/* The agent asks. On the control thread. */
void plimsoll_cancel_ask(plimsoll_app *app, const struct plimsoll_line *asked) {
    struct plimsoll_job *job = (struct plimsoll_job *)calloc(1, sizeof *job);
    if (!job) return;
    bool kept = false;
    pthread_mutex_lock(&app->lock);
    job->id = asked->id;
    job->connection = app->connection;
    job->turn = asked->turn;
    job->task = (uint32_t)asked->task;
    job->resource = (uint32_t)asked->resource;
    memcpy(job->reason, asked->text, plimsoll_text_cut(asked->text, sizeof job->reason - 1));
    struct plimsoll_answer answer = cancel_begin(app, job, &kept);
    if (answer.word) plimsoll_post_outcome(app, app->connection, asked->id, answer.word, answer.text);
    pthread_mutex_unlock(&app->lock);
    if (!kept) free(job);
}

/* A task that was cancelled, or had an action of its own, has ended. Tells the agent; true if it shall wait to be run again. */
bool plimsoll_cancel_ended(plimsoll_app *app, plimsoll_task *task, uint64_t turn, const plimsoll_outcome *how, plimsoll_outcome *outcome, struct plimsoll_again *again) {
    bool cancelled = false;
    pthread_mutex_lock(&app->lock);
    struct plimsoll_hook *hook = task->hook;
    PLIMSOLL_STORE(&task->hook, (struct plimsoll_hook *)NULL);
    struct plimsoll_cancel **at = cancel_of(app, task->index, turn);
    struct plimsoll_cancel *cancel = *at;
    if (cancel) {
        *at = cancel->next;
        app->cancels_count--;
        cancelled = how ? *how != PLIMSOLL_FINISHED : cancel->seen || cancel->acted;
        again->id = cancel->id;
        again->connection = cancel->connection;
        if (!cancel->answered) plimsoll_post_outcome(app, cancel->connection, cancel->id, cancelled ? "cancelled" : "finished", NULL);
        *outcome = cancelled ? PLIMSOLL_CANCELLED : PLIMSOLL_FINISHED;
    }
    pthread_mutex_unlock(&app->lock);
    free(cancel);
    if (hook && hook->release) hook->release(hook->context);
    free(hook);
    return cancelled && (task->flags & PLIMSOLL_TASK_RERUNNABLE);
}

PLIMSOLL_API bool plimsoll_task_on_cancel(plimsoll_task *task, plimsoll_cancel_action action, void (*release)(void *context), void *context) {
    bool taken = false;
    struct plimsoll_hook *old = NULL;
    struct plimsoll_hook *hook = (struct plimsoll_hook *)calloc(1, sizeof *hook);
    if (hook && action && task && task->resources && task->primary == task && (task->flags & PLIMSOLL_TASK_CANCELLABLE)) {
        hook->action = action;
        hook->release = release;
        hook->context = context;
        pthread_mutex_lock(&task->app->lock);
        if (__atomic_load_n(&task->state, __ATOMIC_ACQUIRE) == task->turn << 1) {
            old = task->hook;
            PLIMSOLL_STORE(&task->hook, hook);
            taken = true;
        }
        pthread_mutex_unlock(&task->app->lock);
    }
    if (old && old->release) old->release(old->context);
    free(old);
    if (taken) return true;
    free(hook);
    if (release) release(context);
    return false;
}

/* The cancellation of the task that this handle is for, or NULL. Having asked is having noticed. It lives until the task ends. */
static struct plimsoll_cancel *cancel_seen(plimsoll_task *task) {
    if (!task || !task->resources || __atomic_load_n(&task->primary->state, __ATOMIC_ACQUIRE) == task->turn << 1) return NULL;
    pthread_mutex_lock(&task->app->lock);
    struct plimsoll_cancel *cancel = *cancel_of(task->app, task->primary->index, task->turn);
    if (cancel) cancel->seen = true;
    pthread_mutex_unlock(&task->app->lock);
    return cancel;
}

/* A share may outlive its task, and has nothing to do then. */
static bool cancel_is_left(const plimsoll_task *task) {
    return task && task->resources && task->primary != task && __atomic_load_n(&task->primary->state, __ATOMIC_ACQUIRE) != task->turn << 1;
}

PLIMSOLL_API bool plimsoll_cancelled_slowly(plimsoll_task *task) {
    return cancel_seen(task) || cancel_is_left(task);
}

PLIMSOLL_API const char *plimsoll_cancel_reason(plimsoll_task *task) {
    struct plimsoll_cancel *cancel = cancel_seen(task);
    return cancel ? cancel->reason : cancel_is_left(task) ? "the task has ended" : NULL;
}

PLIMSOLL_API const char *plimsoll_cancel_resource(plimsoll_task *task) {
    struct plimsoll_cancel *cancel = cancel_seen(task);
    return cancel ? cancel->resource : cancel_is_left(task) ? "" : NULL;
}
