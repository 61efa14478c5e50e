/** The engine within the program: finds the task that holds up all others and has it cancelled, as `plimsoll agent` does, on one thread and without a second process.
 *
 * In a library of its own, `-lplimsoll_engine`, beside `-lplimsoll`: `make engine` builds it, for which it needs cargo. The program never depends on it: where the
 * engine cannot do its work it says why, and the application runs as if nobody looked. */
#ifndef PLIMSOLL_ENGINE_H
#define PLIMSOLL_ENGINE_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An application that is watched from within. */
typedef struct plimsoll_engine plimsoll_engine;

/** All zero but for the config. */
typedef struct plimsoll_engine_options {
    /** What `plimsoll agent` would read: TOML with `[app.NAME]`, whose `slo` is all that it must have. `mode` is "enforce" if it is not said, or "shadow", or "off"; `[agent] events` is a
     * file to which events are appended. Not kept. */
    const char *config;
    /** Called with every event, a line of JSON, on a thread that does nothing else; then nothing is appended to a file. */
    void (*event)(const char *line, void *context);
    void *event_context;
} plimsoll_engine_options;

/** Watches the ledger `file` of application `name`, which this process has open with the other end of `fd`, a pair of stream sockets. `fd` belongs to the engine from now on. NULL if that cannot be,
 * because an agent has the ledger already, for instance; then `error` says why, cut to `size` bytes with its end. */
PLIMSOLL_API plimsoll_engine *plimsoll_engine_start(const char *name, const plimsoll_engine_options *options, const char *file, int fd, char *error, size_t size);
/** Why nobody watches any more, or NULL while somebody does (or the mode is off). Lives until the engine is closed. */
PLIMSOLL_API const char *plimsoll_engine_problem(const plimsoll_engine *engine);
/** Ends the watch, and waits until its threads have ended: for five seconds at most, should `event` not return; what that uses has to live for as long as it does. The application
 * stays open, and nobody looks. Nothing is done for NULL, nor in a forked child. */
PLIMSOLL_API void plimsoll_engine_close(plimsoll_engine *engine);

/** Opens an application, as `plimsoll_open_with` does, and watches it. `*app` is the application even if this is NULL and `error` says why nobody watches; only where there can
 * be no ledger is it NULL, too. Close the engine, then the application. */
static inline plimsoll_engine *plimsoll_engine_open(const char *name, const plimsoll_options *options, const plimsoll_engine_options *engine, plimsoll_app **app, char *error, size_t size) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        if (size > 0) snprintf(error, size, "no pair of sockets for it: %s", strerror(errno));
        *app = plimsoll_open_with(name, options);
        return NULL;
    }
    *app = plimsoll_open_with_control_fd(name, options, ends[0]);
    return plimsoll_engine_start(name, engine, plimsoll_file(*app), ends[1], error, size);
}

/** As many threads of a pool at work at once as run without any of them waiting too long for a CPU. Needs neither an application nor an agent. */
typedef struct plimsoll_sheepdog plimsoll_sheepdog;

/** For a pool of which `least` to `most` threads may work at once, none of them more than `max_slowdown` times (above 1) slower than on an idle machine. To begin with, as many as keep all CPUs busy. NULL where there is no
 * memory; the others take NULL, and then nobody ever waits. */
PLIMSOLL_API plimsoll_sheepdog *plimsoll_sheepdog_start(unsigned least, unsigned most, double max_slowdown);
/** How many may work at once, as of now. */
PLIMSOLL_API unsigned plimsoll_sheepdog_workers(const plimsoll_sheepdog *dog);
/** The calling thread is about to work; waits while enough others do. */
PLIMSOLL_API void plimsoll_sheepdog_enter(const plimsoll_sheepdog *dog);
/** The calling thread, which entered, no longer works. */
PLIMSOLL_API void plimsoll_sheepdog_leave(const plimsoll_sheepdog *dog);
/** Ends it. Nobody is within, or waits to be. */
PLIMSOLL_API void plimsoll_sheepdog_close(plimsoll_sheepdog *dog);

/** The same for workers of other processes, whose number somebody else keeps: how many may work at once. Used by one thread. */
typedef struct plimsoll_herd plimsoll_herd;

/** A worker: its thread's number, and whether it is at work. */
typedef struct plimsoll_worker {
    int tid;
    int working;
} plimsoll_worker;

/** As plimsoll_sheepdog_start. */
PLIMSOLL_API plimsoll_herd *plimsoll_herd_new(unsigned least, unsigned most, double max_slowdown);
/** How many may work at once from now on. To be called a few times a second, with all workers, whether anybody has had to wait for a place since the last time,
 *  and how many requests or jobs were ever done: where more at once get no more done, there are to be fewer again. */
PLIMSOLL_API unsigned plimsoll_herd_look(plimsoll_herd *herd, const plimsoll_worker *workers, size_t count, int held_back, uint64_t done);
/** Ends it. */
PLIMSOLL_API void plimsoll_herd_close(plimsoll_herd *herd);

#ifdef __cplusplus
}
#endif

#endif
