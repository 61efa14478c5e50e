/** Plimsoll for C: an application keeps account of what its running tasks hold and wait for, and can be asked to give one of them up.
 *
 * Everything takes NULL for an application, a task or a resource, and does nothing then: that is what an application has when there is no
 * room, no directory or no permission to account, so it needs no checks of its own. Nothing here blocks, and nothing fails loudly.
 *
 * A task belongs to one thread at a time. See README.md for ten lines that use it, and `docs/ledger.md` for what it writes. */
#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "plimsoll_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PLIMSOLL_API __attribute__((visibility("default")))
#else
#error "this SDK needs gcc or clang"
#endif

/** An application's ledger and its connection to the agent. */
typedef struct plimsoll_app plimsoll_app;
/** Something that tasks get, free and wait for. Lives as long as its application. */
typedef struct plimsoll_resource plimsoll_resource;
/** A handle on a running task, for one thread at a time. Valid from its begin to its end. */
typedef struct plimsoll_task plimsoll_task;

typedef enum plimsoll_kind {
    PLIMSOLL_LOCK = 1,   /**< a lock, or shares of one */
    PLIMSOLL_MEMORY = 2, /**< pages, entries, bytes of something that evicts */
    PLIMSOLL_QUEUE = 3,  /**< workers, permits, connections of a pool */
    PLIMSOLL_CPU = 4,    /**< nanoseconds; the agent reads them from outside */
    PLIMSOLL_IO = 5      /**< bytes; the agent reads them from outside */
} plimsoll_kind;

/** How a task ended. */
typedef enum plimsoll_outcome {
    PLIMSOLL_FINISHED = 0,  /**< by itself */
    PLIMSOLL_CANCELLED = 1, /**< because it was cancelled */
    PLIMSOLL_WILL_RERUN = 2 /**< cancelled, and its `rerun` now belongs to the SDK: exactly one of `run` and `drop` is called */
} plimsoll_outcome;

/** What a cancel action is told. The texts live until it returns. */
typedef struct plimsoll_cancellation {
    uint64_t key;         /**< the task's */
    const char *label;    /**< the task's */
    const char *resource; /**< what it holds up; "" if that is not known */
    const char *reason;   /**< for people */
    char failure[160];    /**< an action that fails may say here how; it goes to the agent */
} plimsoll_cancellation;

/** Makes the application give up a task by its own means. Runs on a thread of the SDK that no task needs, one at a time; returns 0, or anything else if
 * it could not. If it is not back after five seconds the agent is told that it failed, and asks for nothing more until it is. */
typedef int (*plimsoll_cancel_action)(plimsoll_cancellation *what, void *context);

/** How a cancelled task is run again. Both are called on a thread of the SDK, one after the other, never both for one task; `drop` may also be called from
 * within `plimsoll_task_end`, when a thousand others wait already. Either may be NULL, but without `run` the task is not rerunnable. */
typedef struct plimsoll_rerun {
    void (*run)(void *context);  /**< run it again; a task that it begins on this thread is marked as a second run and never cancelled */
    void (*drop)(void *context); /**< it is not run again: its deadline has passed, or too many wait */
    void *context;
} plimsoll_rerun;

/** All zero is the default. */
typedef struct plimsoll_options {
    const char *dir;    /**< where the ledger goes; NULL: `$PLIMSOLL_DIR`, or `/dev/shm/plimsoll-UID` */
    uint32_t resources; /**< 1 to 256; 0: 64 */
    uint32_t lanes;     /**< 1 to 64; 0: 8 */
    uint32_t tasks;     /**< how many can run at once, 1 to 131,072; 0: 4,096 */
    uint32_t accounts;  /**< 1 to 1,048,576; 0: 16,384 */
    bool group_reads;   /**< the file's mode is 0640, for an agent of the group */
    plimsoll_cancel_action cancel; /**< called beside setting the flag that `plimsoll_cancelled` reads, for tasks without an action of their own */
    void *cancel_context;
    void (*say)(const char *line, void *context); /**< gets what there is to say, at most one line a cause; calls nothing of this SDK. NULL: stderr */
    void *say_context;
} plimsoll_options;

/** All zero is a request that can be cancelled and is current on the thread that begins it. */
typedef struct plimsoll_task_options {
    bool background;    /**< no request: counts in no latency */
    bool uncancellable; /**< is seen, never cancelled */
    bool detached;      /**< is not made the thread's current task, and names no thread: for event loops */
    bool second_run;    /**< this is a re-execution that was handed to a thread of yours; implies uncancellable */
    bool cancel_thread; /**< opt-in: to cancel it also means `pthread_cancel` of the thread it is current on. The thread's exit ends the task */
    uint64_t deadline_ns; /**< CLOCK_MONOTONIC, when it is of no use any more; 0: never */
    plimsoll_rerun rerun; /**< how it can be run again, if it can */
} plimsoll_task_options;

/** Opens the ledger of application `name` (1 to 32 of `a-z A-Z 0-9 _ -`), once a process. NULL if there cannot be one: says why, once. */
PLIMSOLL_API plimsoll_app *plimsoll_open(const char *name);
/** The same with options; `options` may be NULL. */
PLIMSOLL_API plimsoll_app *plimsoll_open_with(const char *name, const plimsoll_options *options);
/** The same, but the control connection is `fd`, a connected stream socket (one end of a socketpair to an engine in this process, for instance), which now belongs
 * to the SDK. When it ends there is no other. */
PLIMSOLL_API plimsoll_app *plimsoll_open_with_control_fd(const char *name, const plimsoll_options *options, int fd);
/** Ends the connection and removes the file; what waits to be run again is dropped. End tasks first. A callback that is running is waited
 * for, for five seconds; what it uses has to live for as long as it does. Exit does the file's part by itself. */
PLIMSOLL_API void plimsoll_close(plimsoll_app *app);
/** The path of the ledger, "" for NULL. */
PLIMSOLL_API const char *plimsoll_file(const plimsoll_app *app);
/** Whether an agent has said welcome and is still there. */
PLIMSOLL_API bool plimsoll_connected(const plimsoll_app *app);

/** The resource of that name, made if need be. `capacity` in units (permits, pages; 1 for a mutex), 0 if nobody knows. NULL when the ledger is full. */
PLIMSOLL_API plimsoll_resource *plimsoll_resource_of(plimsoll_app *app, plimsoll_kind kind, const char *name, uint64_t capacity);

/** Begins a task and makes it this thread's current one. `label` is for people, at most 64 bytes of UTF-8; `key` helps to find it again. */
PLIMSOLL_API plimsoll_task *plimsoll_task_begin(plimsoll_app *app, const char *label, uint64_t key);
/** The same with options; `options` may be NULL. */
PLIMSOLL_API plimsoll_task *plimsoll_task_begin_with(plimsoll_app *app, const char *label, uint64_t key, const plimsoll_task_options *options);
/** Ends it: what it still holds is free. It counts as cancelled if it was, and if that was noticed: by `plimsoll_cancelled`, or because an action ran. */
PLIMSOLL_API plimsoll_outcome plimsoll_task_end(plimsoll_task *task);
/** Ends it, and says oneself whether the cancellation was why. `how` is FINISHED or CANCELLED. */
PLIMSOLL_API plimsoll_outcome plimsoll_task_end_as(plimsoll_task *task, plimsoll_outcome how);
/** A further handle on the same task, for another thread that works for it at the same time. Ended like a task, on its thread, and best before it. */
PLIMSOLL_API plimsoll_task *plimsoll_task_share(plimsoll_task *task);
/** Makes a task the current one of this thread, after another thread has let go of it. */
PLIMSOLL_API void plimsoll_task_attach(plimsoll_task *task);
/** Takes the current task from this thread without ending it; gives it back, or NULL. */
PLIMSOLL_API plimsoll_task *plimsoll_task_detach(void);
/** An action of this task's own, called instead of the application's. `release`, if not NULL, is called with `context` exactly once, on any thread, when the SDK needs it no
 * more. False (and `release` has been called) if the task has been cancelled already or cannot be. */
PLIMSOLL_API bool plimsoll_task_on_cancel(plimsoll_task *task, plimsoll_cancel_action action, void (*release)(void *context), void *context);

/** This thread's current task, or NULL. */
static inline plimsoll_task *plimsoll_task_current(void);
/** Whether the task shall stop. A load and a compare while it need not. */
static inline bool plimsoll_cancelled(plimsoll_task *task);
/** Why it shall stop, or NULL if it need not. Lives until the task ends. */
PLIMSOLL_API const char *plimsoll_cancel_reason(plimsoll_task *task);
/** The name of what it holds up, "" if that is not known, or NULL if it need not stop. Lives until the task ends. An HTTP server says it in a 503 with `plimsoll-cancelled: RESOURCE`, by which a
 * gateway knows that it may send the request once more, with `plimsoll-rerun: 1`: then begin its task with `second_run`. */
PLIMSOLL_API const char *plimsoll_cancel_resource(plimsoll_task *task);
/** So much of `total` is done: rows, bytes, steps. `total` 0: nobody knows. */
static inline void plimsoll_progress(plimsoll_task *task, uint64_t done, uint64_t total);

/** The task took `n` units; a wait, if there is one, has ended. */
static inline void plimsoll_get(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n);
/** The task gave `n` units back; at most what it holds. */
static inline void plimsoll_free(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n);
/** The task begins to wait. */
static inline void plimsoll_wait(plimsoll_task *task, const plimsoll_resource *resource);
/** It waits no more, without having got anything. */
static inline void plimsoll_wait_end(plimsoll_task *task, const plimsoll_resource *resource);
/** `n` units had to be evicted for the task (or it waited `n` times, measured elsewhere), which took `delay_ns`. */
static inline void plimsoll_slow(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n, uint64_t delay_ns);
/** The exact time: nanoseconds of CLOCK_MONOTONIC, to within a millisecond. What deadlines are made of. */
static inline uint64_t plimsoll_now_ns(void);

#include "plimsoll_inline.h"

#ifdef __cplusplus
}
#endif

#endif
