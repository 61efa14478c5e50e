/** Applications: opened, closed, and what becomes of them when the process forks or exits. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static plimsoll_app *registry;
static plimsoll_app *registry_abandoned; /* closed before their tasks had ended */
static uint32_t registry_said;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;

static void registry_before_fork(void) {
    pthread_mutex_lock(&registry_lock);
}

static void registry_after_fork(void) {
    pthread_mutex_unlock(&registry_lock);
}

/* In the child: its parent's ledger is none of its business, nor is its parent's connection. What memory they have stays as it is, since the application still has
 * handles on it; they are nobody's. */
static void registry_in_child(void) {
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    registry_lock = fresh;
    for (plimsoll_app *app = registry; app; app = app->next) {
        madvise(app->own, app->own_size, MADV_DONTNEED);
        if (app->control_fd >= 0) close(app->control_fd);
        if (app->wake_fd >= 0) close(app->wake_fd);
        if (app->file_fd >= 0) close(app->file_fd);
        if (app->dir_fd >= 0) close(app->dir_fd);
        app->control_fd = app->wake_fd = app->file_fd = app->dir_fd = -1;
    }
    registry = NULL;
    plimsoll_threads_forget();
    plimsoll_clock_forked();
}

static void registry_prepare(void) {
    pthread_atfork(registry_before_fork, registry_after_fork, registry_in_child);
}

/* The process exits in order. Its threads may still run. */
__attribute__((destructor)) static void registry_at_exit(void) {
    if (pthread_mutex_trylock(&registry_lock) != 0) return;
    for (plimsoll_app *app = registry; app; app = app->next) plimsoll_file_remove(app);
    pthread_mutex_unlock(&registry_lock);
}

/* A thread that no signal is delivered to: those are for the application's. */
bool plimsoll_thread_start(pthread_t *thread, void *(*run)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
    bool started = pthread_create(thread, NULL, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) pthread_setname_np(*thread, "plimsoll");
    return started;
}

static void app_free(plimsoll_app *app) {
    if (app->header) munmap(app->header, app->size);
    if (app->own) munmap(app->own, app->own_size);
    free(app->resources);
    if (app->file_fd >= 0) close(app->file_fd);
    if (app->dir_fd >= 0) close(app->dir_fd);
    if (app->wake_fd >= 0) close(app->wake_fd);
    while (app->jobs) {
        struct plimsoll_job *next = app->jobs->next;
        free(app->jobs);
        app->jobs = next;
    }
    while (app->cancels) {
        struct plimsoll_cancel *next = app->cancels->next;
        free(app->cancels);
        app->cancels = next;
    }
    pthread_cond_destroy(&app->actor.wake);
    pthread_cond_destroy(&app->rerunner.wake);
    pthread_mutex_destroy(&app->lock);
    free(app);
}

/* The last one to leave frees it. */
void plimsoll_app_leave(plimsoll_app *app) {
    if (__atomic_sub_fetch(&app->holders, 1, __ATOMIC_ACQ_REL) == 0) app_free(app);
}

static bool app_name_is_good(const char *name) {
    size_t length = name ? strlen(name) : 0;
    return length >= 1 && length <= 32 && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length;
}

/* `wanted`, or what is usual, if it is at most `most`. */
static bool app_count(uint32_t wanted, uint32_t usual, uint32_t most, uint32_t *count) {
    *count = wanted ? wanted : usual;
    return *count <= most;
}

/* An application with its file, and nothing that runs. */
plimsoll_app *plimsoll_app_new(const char *name, const plimsoll_options *options, const struct plimsoll_birth *birth, uint32_t *said) {
    if (!app_name_is_good(name)) {
        plimsoll_say(options, said, PLIMSOLL_SAY_NAME, "no accounts are kept: an application's name is 1 to 32 of a-z A-Z 0-9 _ -, and not \"%.64s\"", name ? name : "");
        return NULL;
    }
    plimsoll_app *app = (plimsoll_app *)calloc(1, sizeof *app);
    if (!app) return NULL;
    if (options) app->options = *options;
    memcpy(app->name, name, strlen(name));
    app->pid = getpid();
    app->file_fd = app->wake_fd = app->control_fd = app->dir_fd = -1;
    app->holders = 1;
    app->patience.retry_ns = PLIMSOLL_SECOND_NS;
    app->patience.refused_ns = 10 * PLIMSOLL_SECOND_NS;
    app->patience.action_ns = 5 * PLIMSOLL_SECOND_NS;
    app->patience.rerun_ns = 30 * PLIMSOLL_SECOND_NS;
    pthread_mutex_init(&app->lock, NULL);
    pthread_cond_init(&app->actor.wake, NULL);
    pthread_cond_init(&app->rerunner.wake, NULL);
    struct plimsoll_counts *counts = &app->counts;
    bool limits = app_count(app->options.resources, 64, 256, &counts->resources) && app_count(app->options.lanes, 8, 64, &counts->lanes) &&
                  app_count(app->options.tasks, 4096, 131072, &counts->tasks) && app_count(app->options.accounts, 16384, 1048576, &counts->accounts);
    if (!limits) {
        plimsoll_say(&app->options, said, PLIMSOLL_SAY_LIMITS, "no accounts are kept: a ledger has at most 256 resources, 64 lanes, 131072 tasks and 1048576 accounts, not %u, %u, %u and %u",
                     counts->resources, counts->lanes, counts->tasks, counts->accounts);
    } else if ((app->dir_fd = plimsoll_dir_open(app, said)) >= 0) {
        bool own = plimsoll_own_make(app);
        if (!own) plimsoll_say(&app->options, said, PLIMSOLL_SAY_MEMORY, "no accounts are kept: no memory for them: %s", strerror(errno));
        if (own && plimsoll_file_make(app, birth, said)) return app;
        plimsoll_file_remove(app);
    }
    app_free(app);
    return NULL;
}

static bool registry_has(const char *name) {
    plimsoll_app *app = registry;
    while (app && strcmp(app->name, name) != 0) app = app->next;
    return app != NULL;
}

PLIMSOLL_API plimsoll_app *plimsoll_open(const char *name) {
    return plimsoll_open_with(name, NULL);
}

PLIMSOLL_API plimsoll_app *plimsoll_open_with(const char *name, const plimsoll_options *options) {
    return plimsoll_open_with_control_fd(name, options, -1);
}

static plimsoll_app *app_open(const char *name, const plimsoll_options *options, int fd) {
    struct plimsoll_birth birth;
    if (registry_has(name ? name : "")) {
        plimsoll_say(options, &registry_said, PLIMSOLL_SAY_TWICE, "application %s is open in this process already: it has one ledger", name);
        return NULL;
    }
    if (!plimsoll_birth_now(&birth)) {
        plimsoll_say(options, &registry_said, PLIMSOLL_SAY_FILE, "no accounts are kept: cannot read /proc/self/stat, which says when this process began");
        return NULL;
    }
    plimsoll_app *app = plimsoll_app_new(name, options, &birth, &registry_said);
    if (!app) return NULL;
    PLIMSOLL_STORE(&app->header->clock_ns, birth.created_ns);
    PLIMSOLL_STORE(&app->header->app_beat_ns, birth.created_ns);
    app->given_fd = fd >= 0;
    app->control_fd = fd;
    if (plimsoll_file_publish(app, &registry_said)) {
        if (plimsoll_control_start(app)) {
            app->next = registry;
            registry = app;
            return app;
        }
        plimsoll_say(options, &registry_said, PLIMSOLL_SAY_THREAD, "no accounts are kept: cannot start a thread: %s", strerror(errno));
    }
    app->control_fd = -1;
    plimsoll_file_remove(app);
    app_free(app);
    return NULL;
}

PLIMSOLL_API plimsoll_app *plimsoll_open_with_control_fd(const char *name, const plimsoll_options *options, int fd) {
    pthread_once(&registry_once, registry_prepare);
    pthread_mutex_lock(&registry_lock);
    plimsoll_app *app = app_open(name, options, fd);
    pthread_mutex_unlock(&registry_lock);
    if (!app && fd >= 0) close(fd);
    return app;
}

/* A thread that is inside a callback of the application is waited for as long as a cancel action may take, unless it is the one that closes. */
static void worker_close(plimsoll_app *app, struct plimsoll_worker *worker) {
    uint64_t until_ns = plimsoll_system_ns() + PLIMSOLL_LOAD(&app->patience.action_ns);
    for (bool waits = true; waits && plimsoll_system_ns() < until_ns;) {
        pthread_mutex_lock(&app->lock);
        waits = worker->exists && worker->busy && !pthread_equal(worker->thread, pthread_self());
        pthread_mutex_unlock(&app->lock);
        if (waits) usleep(1000);
    }
    pthread_mutex_lock(&app->lock);
    bool exists = worker->exists, busy = worker->busy;
    worker->exists = false;
    pthread_cond_broadcast(&worker->wake);
    pthread_mutex_unlock(&app->lock);
    if (!exists) return;
    if (busy) {
        pthread_detach(worker->thread);
    } else {
        pthread_join(worker->thread, NULL);
    }
}

static bool app_has_tasks(const plimsoll_app *app) {
    for (uint32_t i = 0; i < app->tasks_fresh; i++) {
        if (PLIMSOLL_LOAD(&plimsoll_handle(app, i)->resources)) return true;
    }
    for (uint32_t i = 0; i < app->shares_fresh; i++) {
        if (PLIMSOLL_LOAD(&plimsoll_handle(app, app->counts.tasks + i)->app)) return true;
    }
    return false;
}

PLIMSOLL_API void plimsoll_close(plimsoll_app *app) {
    /* In a forked child it is its parent's. */
    if (!plimsoll_is_ours(app)) return;
    pthread_mutex_lock(&registry_lock);
    plimsoll_app **at = &registry;
    while (*at && *at != app) at = &(*at)->next;
    if (*at) *at = app->next;
    pthread_mutex_unlock(&registry_lock);
    pthread_mutex_lock(&app->lock);
    PLIMSOLL_STORE(&app->closing, true);
    pthread_mutex_unlock(&app->lock);
    plimsoll_control_wake(app);
    if (app->control_exists) pthread_join(app->control_thread, NULL);
    worker_close(app, &app->actor);
    worker_close(app, &app->rerunner);
    plimsoll_again_drop_all(app);
    plimsoll_file_remove(app);
    /* Handles on tasks that have not ended stay good, at the price of some memory. */
    PLIMSOLL_STORE(app->alive, 0u);
    if (app_has_tasks(app)) {
        pthread_mutex_lock(&registry_lock);
        app->next = registry_abandoned;
        registry_abandoned = app;
        pthread_mutex_unlock(&registry_lock);
    } else {
        plimsoll_app_leave(app);
    }
}

PLIMSOLL_API const char *plimsoll_file(const plimsoll_app *app) {
    return app ? app->path : "";
}

PLIMSOLL_API bool plimsoll_connected(const plimsoll_app *constant) {
    plimsoll_app *app = (plimsoll_app *)constant;
    if (!plimsoll_is_ours(app)) return false;
    pthread_mutex_lock(&app->lock);
    bool welcome = app->welcome;
    pthread_mutex_unlock(&app->lock);
    return welcome;
}
