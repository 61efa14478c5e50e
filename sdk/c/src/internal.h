/** What the files of the library share. The order of locks: `registry` (app.c), then `app->lock`. No callback runs under the latter, and none but `say` under the former. */
#ifndef PLIMSOLL_INTERNAL_H
#define PLIMSOLL_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "plimsoll.h"

#define PLIMSOLL_SECOND_NS 1000000000ull
#define PLIMSOLL_BEAT_NS PLIMSOLL_SECOND_NS
#define PLIMSOLL_WAITING_MAX 1024u
#define PLIMSOLL_JOBS_MAX 64u
#define PLIMSOLL_CANCELS_MAX 4096u
#define PLIMSOLL_LINE_MAX 1024u
#define PLIMSOLL_OUTBOX 16384u

/* What there can be to say, each once. */
enum plimsoll_cause {
    PLIMSOLL_SAY_NAME,
    PLIMSOLL_SAY_LIMITS,
    PLIMSOLL_SAY_DIR,
    PLIMSOLL_SAY_FILE,
    PLIMSOLL_SAY_MEMORY,
    PLIMSOLL_SAY_TWICE,
    PLIMSOLL_SAY_THREAD,
    PLIMSOLL_SAY_FULL_TASKS,
    PLIMSOLL_SAY_FULL_ACCOUNTS,
    PLIMSOLL_SAY_FULL_RESOURCES,
    PLIMSOLL_SAY_RESOURCE_NAME,
    PLIMSOLL_SAY_PEER,
    PLIMSOLL_SAY_REFUSED,
    PLIMSOLL_SAY_VERSION,
    PLIMSOLL_SAY_LINE,
    PLIMSOLL_SAY_FD,
    PLIMSOLL_SAY_ACTION
};

struct plimsoll_counts {
    uint32_t resources, lanes, tasks, accounts;
};

/* Which account, in memory of our own: an index is never taken from the file. */
struct plimsoll_account_side {
    uint32_t next;     /* of the task's accounts or of the free ones, plus 1 */
    uint32_t resource; /* for ever */
};

/* A task's own action. */
struct plimsoll_hook {
    plimsoll_cancel_action action;
    void (*release)(void *context);
    void *context;
};

/* A cancellation whose task lives, or did a moment ago. */
struct plimsoll_cancel {
    struct plimsoll_cancel *next;
    uint64_t id, connection, turn;
    uint32_t task;
    bool seen;     /* the application has read the flag */
    bool acted;    /* an action was called for it */
    bool answered; /* an outcome was sent */
    char resource[sizeof(((plimsoll_resource_record *)0)->name) + 1];
    char reason[PLIMSOLL_LINE_MAX];
};

/* The word of an outcome and its text, each of which may be NULL. */
struct plimsoll_answer {
    const char *word, *text;
};

/* A cancellation that needs the action thread. */
struct plimsoll_job {
    struct plimsoll_job *next;
    uint64_t id, connection, turn;
    uint32_t task, resource;
    char reason[PLIMSOLL_LINE_MAX];
};

/* Something cancelled that may be run again. */
struct plimsoll_again {
    struct plimsoll_again *next;
    uint64_t id, connection, due_ns;
    uint64_t deadline_ns; /* 0: none */
    bool drop;
    plimsoll_rerun rerun;
};

/* What a line of the agent says. */
enum plimsoll_verb { PLIMSOLL_IGNORED, PLIMSOLL_WELCOME, PLIMSOLL_REFUSED, PLIMSOLL_CANCEL, PLIMSOLL_RERUN, PLIMSOLL_DROP };
struct plimsoll_line {
    uint64_t id, task, turn, resource, version;
    const char *text; /* of a welcome, its mode */
};

struct plimsoll_worker {
    pthread_t thread;
    pthread_cond_t wake;
    bool exists, busy;
};

/* What docs/ledger.md says; tests have less patience. */
struct plimsoll_patience {
    uint64_t retry_ns, refused_ns, action_ns, rerun_ns;
};

struct plimsoll_app {
    plimsoll_app *next; /* of the registry */
    struct plimsoll_patience patience;
    plimsoll_options options;
    pid_t pid;
    uint32_t said;
    /* the file */
    struct plimsoll_counts counts;
    plimsoll_header *header;
    plimsoll_resource_record *resource_records;
    plimsoll_lane *lanes;
    plimsoll_task_record *task_records;
    plimsoll_account *accounts;
    size_t size;
    int file_fd, dir_fd;
    /* our own, in memory that a forked child finds zeroed: see handles.c */
    char *own;
    size_t own_size, stride;
    uint32_t *alive;
    char *handles; /* `2 * tasks` of them: one a record, then those for shares */
    uint32_t *handles_next;
    struct plimsoll_account_side *sides;
    uint64_t *free_tasks, *free_shares;
    plimsoll_resource *resources;
    /* the rest is for whoever has the lock */
    pthread_mutex_t lock;
    uint32_t resources_used, tasks_fresh, shares_fresh, accounts_fresh;
    bool closing;
    uint32_t holders; /* threads, and whoever opened it: the last one frees it */
    /* control */
    pthread_t control_thread;
    bool control_exists;
    int wake_fd, control_fd;
    bool given_fd; /* there is no other connection than the first */
    uint64_t connection; /* counts up */
    bool connected, welcome, overflow;
    size_t outbox_used;
    struct plimsoll_cancel *cancels;
    uint32_t cancels_count;
    struct plimsoll_job *jobs;
    uint32_t jobs_count;
    uint64_t action_since_ns, action_id, action_connection;
    bool action_stuck;
    struct plimsoll_worker actor, rerunner;
    struct plimsoll_again *waiting; /* for the agent's word */
    struct plimsoll_again *ready;
    uint32_t waiting_count;
    /* last, since they are long: what a task's beginning and end read lies together */
    char outbox[PLIMSOLL_OUTBOX];
    char name[33];
    char dir[PATH_MAX];
    char file_name[80];
    char path[PATH_MAX + 96];
};

/* What an application's ledger is like when it is made. Tests say it; `plimsoll_open` finds it out. */
struct plimsoll_birth {
    uint64_t pid, pid_started, created_ns;
};

/* say.c, text.c, clock.c */
void plimsoll_say(const plimsoll_options *options, uint32_t *said, enum plimsoll_cause cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
size_t plimsoll_text_cut(const char *text, size_t most);
void plimsoll_clock_beat(void);
void plimsoll_clock_forked(void);
void plimsoll_clock_set_manual(uint64_t ns);

/* directory.c, file.c */
int plimsoll_dir_open(plimsoll_app *app, uint32_t *said);
bool plimsoll_file_make(plimsoll_app *app, const struct plimsoll_birth *birth, uint32_t *said);
bool plimsoll_file_publish(plimsoll_app *app, uint32_t *said);
void plimsoll_file_remove(plimsoll_app *app);
bool plimsoll_birth_now(struct plimsoll_birth *birth);

/* handles.c */
bool plimsoll_own_make(plimsoll_app *app);
plimsoll_task *plimsoll_handle(const plimsoll_app *app, uint32_t index);
bool plimsoll_is_ours(const plimsoll_app *app);
void plimsoll_threads_forget(void);
extern __thread bool plimsoll_in_rerun;

/* app.c: `tests` make an application without threads */
plimsoll_app *plimsoll_app_new(const char *name, const plimsoll_options *options, const struct plimsoll_birth *birth, uint32_t *said);
void plimsoll_app_leave(plimsoll_app *app);
bool plimsoll_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* account.c */
void plimsoll_accounts_end(plimsoll_task *task);

/* lane.c */
uint32_t plimsoll_lane_bin(uint64_t latency_ns);
void plimsoll_lane_add(plimsoll_app *app, uint32_t lane, uint64_t latency_ns, bool cancelled);
uint32_t plimsoll_lane_mine(void);

/* task.c: with a lane of one's choice, taken modulo how many there are */
plimsoll_outcome plimsoll_task_end_in(plimsoll_task *task, const plimsoll_outcome *how, uint32_t lane);

/* cancel.c */
void plimsoll_cancel_ask(plimsoll_app *app, const struct plimsoll_line *asked);
struct plimsoll_answer plimsoll_cancel_mark(plimsoll_app *app, const struct plimsoll_job *job, struct plimsoll_hook *hook);
struct plimsoll_cancel *plimsoll_cancel_find(plimsoll_app *app, uint64_t connection, uint64_t id);
bool plimsoll_cancel_ended(plimsoll_app *app, plimsoll_task *task, uint64_t turn, const plimsoll_outcome *how, plimsoll_outcome *outcome, struct plimsoll_again *again);

/* action.c */
struct plimsoll_answer plimsoll_action_queue(plimsoll_app *app, struct plimsoll_job *job);
void plimsoll_action_watch(plimsoll_app *app, uint64_t now_ns);

/* rerun.c */
bool plimsoll_again_wait(plimsoll_app *app, const struct plimsoll_again *again);
void plimsoll_again_settle(plimsoll_app *app, uint64_t id, bool drop);
void plimsoll_again_watch(plimsoll_app *app, uint64_t now_ns);
void plimsoll_again_drop_all(plimsoll_app *app);

/* control.c, protocol.c */
bool plimsoll_control_start(plimsoll_app *app);
void plimsoll_control_wake(plimsoll_app *app);
void plimsoll_control_beat(plimsoll_app *app, uint64_t now_ns);
void plimsoll_post_acknowledge(plimsoll_app *app, uint64_t connection, uint64_t id);
/* `text` may be NULL. */
void plimsoll_post_outcome(plimsoll_app *app, uint64_t connection, uint64_t id, const char *word, const char *text);
void plimsoll_post_settled(plimsoll_app *app, uint64_t connection, uint64_t id, bool dropped);
size_t plimsoll_hello(const plimsoll_app *app, char *line, size_t size);
enum plimsoll_verb plimsoll_line_read(char *line, struct plimsoll_line *said);

#endif
