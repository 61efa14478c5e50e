/** Tasks: begun, made current, shared, ended. */
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"
#include "stack.h"

PLIMSOLL_API __thread plimsoll_task *plimsoll_the_current;
static __thread uint32_t task_tid;
static __thread bool task_exit_seen;
static pthread_key_t task_exit_key;
static pthread_once_t task_exit_once = PTHREAD_ONCE_INIT;

/* A thread that exits, or is cancelled, ends what it was doing. */
static void task_thread_exits(void *nothing) {
    (void)nothing;
    plimsoll_task *task = plimsoll_the_current;
    /* One that was ended by another thread may be somebody else's by now. */
    while (task && task->is_current && pthread_equal(task->thread, pthread_self())) {
        plimsoll_task_end(task);
        task = plimsoll_the_current;
    }
    plimsoll_the_current = NULL;
}

static void task_exit_key_make(void) {
    pthread_key_create(&task_exit_key, task_thread_exits);
}

void plimsoll_threads_forget(void) {
    task_tid = 0;
    plimsoll_the_current = NULL;
}

static void task_make_current(plimsoll_task *task) {
    if (!task_exit_seen) {
        task_exit_seen = true;
        pthread_once(&task_exit_once, task_exit_key_make);
        pthread_setspecific(task_exit_key, &task_exit_seen);
    }
    task->outer = plimsoll_the_current;
    task->is_current = true;
    plimsoll_the_current = task;
}

static uint32_t task_thread_id(void) {
    if (task_tid == 0) task_tid = (uint32_t)syscall(SYS_gettid);
    return task_tid;
}

static void task_leave_thread(plimsoll_task *task) {
    if (!task->is_current) return;
    task->is_current = false;
    plimsoll_task **at = &plimsoll_the_current;
    while (*at && *at != task) at = &(*at)->outer;
    if (*at) *at = task->outer;
}

/* A record that was never used, or PLIMSOLL_NONE. */
static uint32_t task_fresh(plimsoll_app *app) {
    if (PLIMSOLL_LOAD(&app->tasks_fresh) >= app->counts.tasks) return PLIMSOLL_NONE;
    uint32_t index = PLIMSOLL_NONE;
    pthread_mutex_lock(&app->lock);
    if (app->tasks_fresh < app->counts.tasks) {
        index = app->tasks_fresh;
        PLIMSOLL_STORE(&app->tasks_fresh, index + 1);
    }
    pthread_mutex_unlock(&app->lock);
    return index;
}

/* A handle that has no record of its own: for a share, or where there is no room. */
static plimsoll_task *task_without_record(plimsoll_app *app) {
    uint32_t index = plimsoll_stack_pop(app->free_shares, app->handles_next, sizeof *app->handles_next);
    if (index == PLIMSOLL_NONE && PLIMSOLL_LOAD(&app->shares_fresh) < app->counts.tasks) {
        pthread_mutex_lock(&app->lock);
        uint32_t used = app->shares_fresh;
        if (used < app->counts.tasks) {
            index = app->counts.tasks + used;
            PLIMSOLL_STORE(&app->shares_fresh, used + 1);
        }
        pthread_mutex_unlock(&app->lock);
    }
    if (index == PLIMSOLL_NONE) return NULL;
    plimsoll_task *task = plimsoll_handle(app, index);
    task->index = index;
    task->thread = pthread_self();
    task->hook = NULL;
    task->accounts_head = 0;
    task->is_current = false;
    task->cancel_thread = false;
    return task;
}

/* A request that found no record is still one: it counts in its lane when it ends. */
static plimsoll_task *task_unrecorded(plimsoll_app *app, const plimsoll_task_options *options) {
    __atomic_fetch_add(&app->header->tasks_refused, 1, __ATOMIC_RELAXED);
    plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_FULL_TASKS, "the ledger of %s has no room for more than %u tasks at once: some are not accounted for", app->name,
                 PLIMSOLL_LOAD(&app->tasks_fresh));
    plimsoll_task *task = options->background ? NULL : task_without_record(app);
    if (!task) return NULL;
    task->started_ns = plimsoll_now_ns();
    task->app = app;
    if (!options->detached) task_make_current(task);
    return task;
}

static plimsoll_outcome task_unrecorded_end(plimsoll_task *task, const plimsoll_outcome *how, uint32_t lane) {
    plimsoll_app *app = task->app;
    uint64_t now = plimsoll_now_ns();
    plimsoll_outcome outcome = how ? *how : PLIMSOLL_FINISHED;
    plimsoll_lane_add(app, lane, now > task->started_ns ? now - task->started_ns : 0, outcome != PLIMSOLL_FINISHED);
    task_leave_thread(task);
    task->app = NULL;
    plimsoll_stack_push(app->free_shares, &app->handles_next[task->index], task->index);
    return outcome;
}

/* Records are taken fresh by several threads at once, each after it has filled in its own. */
static void task_raise_used(plimsoll_app *app, uint32_t used) {
    uint32_t old = PLIMSOLL_LOAD(&app->header->tasks_used);
    while (old < used && !__atomic_compare_exchange_n(&app->header->tasks_used, &old, used, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) continue;
}

PLIMSOLL_API plimsoll_task *plimsoll_task_begin(plimsoll_app *app, const char *label, uint64_t key) {
    return plimsoll_task_begin_with(app, label, key, NULL);
}

PLIMSOLL_API plimsoll_task *plimsoll_task_begin_with(plimsoll_app *app, const char *label, uint64_t key, const plimsoll_task_options *given) {
    static plimsoll_task_options usual;
    const plimsoll_task_options *options = given ? given : &usual;
    if (!plimsoll_is_ours(app)) return NULL;
    uint32_t index = plimsoll_stack_pop(app->free_tasks, app->handles_next, sizeof *app->handles_next);
    bool fresh = index == PLIMSOLL_NONE;
    if (fresh) index = task_fresh(app);
    if (index == PLIMSOLL_NONE) return task_unrecorded(app, options);
    plimsoll_task *task = plimsoll_handle(app, index);
    plimsoll_task_record *record = &app->task_records[index];
    bool second_run = options->second_run || plimsoll_in_rerun;
    uint32_t flags = (options->uncancellable || second_run ? 0 : PLIMSOLL_TASK_CANCELLABLE) | (options->background ? PLIMSOLL_TASK_BACKGROUND : 0) |
                     (options->rerun.run && !second_run ? PLIMSOLL_TASK_RERUNNABLE : 0) | (second_run ? PLIMSOLL_TASK_RERUN : 0);
    /* Even a free record that somebody scribbled over gets an odd turn. */
    uint64_t turn = (PLIMSOLL_LOAD(&record->turn) + 1) | 1;
    task->header = app->header;
    task->record = record;
    task->primary = task;
    task->turn = turn;
    PLIMSOLL_STORE(&task->hook, (struct plimsoll_hook *)NULL);
    task->started_ns = plimsoll_now_ns();
    task->thread = pthread_self();
    task->index = index;
    task->accounts_head = 0;
    task->flags = flags;
    task->is_current = false;
    task->cancel_thread = options->cancel_thread;
    task->has_thread = !options->detached;
    task->rerun = options->rerun;
    if (!options->detached) task_make_current(task);

    PLIMSOLL_STORE(&record->key, key);
    PLIMSOLL_STORE(&record->started_ns, task->started_ns);
    PLIMSOLL_STORE(&record->done, 0);
    PLIMSOLL_STORE(&record->total, 0);
    PLIMSOLL_STORE(&record->deadline_ns, options->deadline_ns);
    PLIMSOLL_STORE(&record->flags, flags);
    PLIMSOLL_STORE(&record->tid, options->detached ? 0 : task_thread_id());
    size_t length = label ? plimsoll_text_cut(label, sizeof record->label) : 0;
    memset(record->label, 0, sizeof record->label);
    if (length) memcpy(record->label, label, length);
    if (fresh) task_raise_used(app, index + 1);
    PLIMSOLL_STORE(&record->turn, turn);
    PLIMSOLL_STORE(&task->state, turn << 1);
    task->app = app;
    PLIMSOLL_STORE(&task->resources, (const char *)app->resources);
    return task;
}

static void task_share_end(plimsoll_task *task) {
    plimsoll_app *app = task->app;
    plimsoll_accounts_end(task);
    task_leave_thread(task);
    task->app = NULL;
    PLIMSOLL_STORE(&task->resources, (const char *)NULL);
    plimsoll_stack_push(app->free_shares, &app->handles_next[task->index], task->index);
}

/* `how` is NULL where the library has to find out. */
plimsoll_outcome plimsoll_task_end_in(plimsoll_task *task, const plimsoll_outcome *how, uint32_t lane) {
    plimsoll_app *app = task->app;
    if (!task->resources) return app ? task_unrecorded_end(task, how, lane) : PLIMSOLL_FINISHED;
    if (task->primary != task) {
        task_share_end(task);
        return PLIMSOLL_FINISHED;
    }
    /* From here on nobody can cancel it. Who has done so already has the lock, or has written all about it. */
    uint64_t state = __atomic_exchange_n(&task->state, 0, __ATOMIC_ACQ_REL);
    plimsoll_accounts_end(task);
    plimsoll_outcome outcome = how ? *how : PLIMSOLL_FINISHED;
    plimsoll_task_record *record = task->record;
    struct plimsoll_again again = {NULL, 0, 0, 0, PLIMSOLL_LOAD(&record->deadline_ns), false, task->rerun};
    bool wait_again = false;
    uint64_t turn = task->turn;
    uint64_t now = plimsoll_now_ns();
    uint64_t latency_ns = now > task->started_ns ? now - task->started_ns : 0;
    PLIMSOLL_STORE(&record->turn, turn + 1);
    /* The hook may be looked at without the lock only by a task that nobody cancels. */
    if ((state & 1) || task->hook) wait_again = plimsoll_cancel_ended(app, task, turn, how, &outcome, &again);
    if (!(task->flags & PLIMSOLL_TASK_BACKGROUND)) plimsoll_lane_add(app, lane, latency_ns, outcome != PLIMSOLL_FINISHED);
    task_leave_thread(task);
    task->app = NULL;
    PLIMSOLL_STORE(&task->resources, (const char *)NULL);
    plimsoll_stack_push(app->free_tasks, &app->handles_next[task->index], task->index);
    if (!wait_again) return outcome;
    if (!plimsoll_again_wait(app, &again) && again.rerun.drop) again.rerun.drop(again.rerun.context);
    return PLIMSOLL_WILL_RERUN;
}

PLIMSOLL_API plimsoll_outcome plimsoll_task_end(plimsoll_task *task) {
    if (!task) return PLIMSOLL_FINISHED;
    return plimsoll_task_end_in(task, NULL, plimsoll_lane_mine());
}

PLIMSOLL_API plimsoll_outcome plimsoll_task_end_as(plimsoll_task *task, plimsoll_outcome how) {
    if (!task) return PLIMSOLL_FINISHED;
    return plimsoll_task_end_in(task, &how, plimsoll_lane_mine());
}

PLIMSOLL_API plimsoll_task *plimsoll_task_share(plimsoll_task *task) {
    if (!task || !task->resources) return NULL;
    plimsoll_app *app = task->app;
    plimsoll_task *share = task_without_record(app);
    if (!share) return NULL;
    share->header = task->header;
    share->record = task->record;
    share->primary = task->primary;
    share->turn = task->turn;
    share->app = app;
    PLIMSOLL_STORE(&share->resources, (const char *)app->resources);
    return share;
}

/* Which thread runs it, for the agent and for `pthread_cancel`. */
static void task_set_thread(plimsoll_task *task, bool here) {
    if (!task->resources || task->primary != task) {
        task->thread = pthread_self();
        return;
    }
    PLIMSOLL_STORE(&task->record->tid, here ? task_thread_id() : 0);
    /* Who cancels the thread does so with the lock. */
    if (task->cancel_thread) pthread_mutex_lock(&task->app->lock);
    task->thread = pthread_self();
    task->has_thread = here;
    if (task->cancel_thread) pthread_mutex_unlock(&task->app->lock);
}

PLIMSOLL_API void plimsoll_task_attach(plimsoll_task *task) {
    if (!task || !task->app || task->is_current) return;
    task_set_thread(task, true);
    task_make_current(task);
}

PLIMSOLL_API plimsoll_task *plimsoll_task_detach(void) {
    plimsoll_task *task = plimsoll_the_current;
    if (!task) return NULL;
    task_set_thread(task, false);
    task_leave_thread(task);
    return task->app ? task : NULL;
}
