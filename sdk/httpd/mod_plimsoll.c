/*
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Plimsoll for Apache httpd 2.4. SheepDog (CPU Futures, section 5.3): of all workers that have a request, as many go on with it at once as
 * run without any of them being slowed more than a bound. The others wait for their turn, without using a CPU. And what workers do is told to
 * an agent, also when none of them is free.
 *
 *     LoadModule plimsoll_module modules/mod_plimsoll.so
 *     PlimsollMaxSlowdown 5
 *     PlimsollStatus /run/apache2/plimsoll.sock
 *
 *   workers (any MPM)                      shared memory                     the shepherd, a process of its own
 *   a request begins: take a place ------> who works, how many may  <------- looks at all workers five times a second
 *   it ends: give it back           <----- wakes who waits                   answers who asks what they do
 *
 * Processes that no turn would be left for do not even wait for connections (parking.c).
 *
 * It fails open: what the shepherd says holds for a second. Should it die, it is started again; until then nobody waits.
 */
#include <errno.h>
#include <grp.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <apr_pools.h>
#include <apr_shm.h>
#include <apr_strings.h>
#include <ap_mpm.h>
#include <httpd.h>
#include <http_config.h>
#include <http_connection.h>
#include <http_core.h>
#include <http_log.h>
#include <http_protocol.h>
#include <scoreboard.h>
#include <unixd.h>

#include <plimsoll_engine.h>

#include "pasture.h"

extern module AP_MODULE_DECLARE_DATA plimsoll_module;
APLOG_USE_MODULE(plimsoll);

/* From one look of the shepherd to the next, and for how long what it says holds, in nanoseconds. */
#define LOOK_NS 200000000LL
#define HOLDS_NS 1000000000LL
/* Who waits looks by itself after so long: what the shepherd says may no longer hold. */
#define WAIT_NS HOLDS_NS

/* A request's turn. Its pool may be cleaned up by another thread, when this one has begun with another request already: then the place has
 * another turn, which is not this request's to give back. */
struct turn {
    struct place *place;
    unsigned number;
    const conn_rec *connection;
};

/* The server's configuration. */
struct settings {
    double max_slowdown; /* 0: off */
    const char *status;  /* a path; NULL: off */
};

static struct pasture *pasture;
static __thread int own_place = -1;
/* When this process began, in seconds since 1970. */
static long long child_began_s;

static int thread_id(void) {
    return (int)syscall(SYS_gettid);
}

/* ---- workers ---- */

/* The place of the calling thread, or NULL if there are too many. */
static struct place *place_of_this_thread(void) {
    if (own_place >= 0) return &pasture->place[own_place];
    int tid = thread_id();
    for (int at = 0; at < MOST_WORKERS; at++) {
        int nobody = 0;
        if (!atomic_compare_exchange_strong(&pasture->place[at].tid, &nobody, tid)) continue;
        unsigned used = atomic_load(&pasture->places);
        while (used <= (unsigned)at && !atomic_compare_exchange_weak(&pasture->places, &used, (unsigned)at + 1)) {
        }
        own_place = at;
        pasture->place[at].pid = getpid();
        pasture->place[at].began_s = child_began_s;
        return &pasture->place[at];
    }
    return NULL;
}

/* One more, if that is below a number. */
static int raise_below(atomic_uint *count, unsigned most) {
    unsigned now = atomic_load(count);
    while (now < most)
        if (atomic_compare_exchange_weak(count, &now, now + 1)) return 1;
    return 0;
}

/* Wakes so many of those who wait. Who begins to wait has said so before it looks whether it may go on: what was given back before this sees
 * nobody, it finds. */
static void wake(unsigned count) {
    if (!count || !atomic_load(&pasture->waiting)) return;
    atomic_fetch_add(&pasture->turn, 1);
    syscall(SYS_futex, &pasture->turn, FUTEX_WAKE, (int)count, NULL, NULL, 0);
}

/* Waits for a turn. One is handed from who ends to who has waited longest, past those that have just come: until a thread that was woken gets a
 * CPU, another would have taken what was left free. */
static void await_turn(void) {
    struct timespec patience = {WAIT_NS / 1000000000LL, WAIT_NS % 1000000000LL};
    atomic_store(&pasture->held_back, 1);
    atomic_fetch_add(&pasture->waiting, 1);
    for (;;) {
        unsigned turn = atomic_load(&pasture->turn);
        if (take_one(&pasture->handed) || raise_below(&pasture->working, limit_now(pasture))) break;
        syscall(SYS_futex, &pasture->turn, FUTEX_WAIT, turn, &patience, NULL, 0);
    }
    atomic_fetch_sub(&pasture->waiting, 1);
}

/* Gives a turn back, if the place still has it. */
static void leave(struct place *place, unsigned number) {
    if (!number || !atomic_compare_exchange_strong(&place->has, &number, 0)) return;
    if (atomic_load(&pasture->waiting) > atomic_load(&pasture->handed) && atomic_load(&pasture->working) <= limit_now(pasture))
        atomic_fetch_add(&pasture->handed, 1);
    else
        atomic_fetch_sub(&pasture->working, 1);
    wake(1);
}

/* Says which request a place serves. Who reads it while it is written finds that it serves none. */
static void note_request(struct place *place, unsigned number, const request_rec *request) {
    atomic_store(&place->serves, 0);
    apr_cpystrn(place->method, request->method ? request->method : "-", sizeof place->method);
    apr_cpystrn(place->path, request->uri ? request->uri : "-", sizeof place->path);
    atomic_store(&place->since_ns, now_ns());
    atomic_fetch_add(&pasture->requests, 1);
    atomic_store(&place->serves, number);
}

static void note_end(struct place *place, unsigned number) {
    if (atomic_compare_exchange_strong(&place->serves, &number, 0))
        atomic_store(&place->took_ns, now_ns() - atomic_load(&place->since_ns));
}

static apr_status_t end_turn(void *data) {
    struct turn *turn = data;
    note_end(turn->place, turn->number);
    leave(turn->place, turn->number);
    if (turn->connection->keepalive == AP_CONN_KEEPALIVE) parking_answered(pasture, turn->place);
    return APR_SUCCESS;
}

static unsigned next_number(struct place *place) {
    unsigned number = atomic_fetch_add(&place->turns, 1) + 1;
    return number ? number : atomic_fetch_add(&place->turns, 1) + 1;
}

/* Goes on when it is its turn. */
static void take_turn(struct place *place, unsigned number) {
    /* A thread has one request at a time: the one before is only being sent, and leaves its turn to this one. */
    unsigned before = atomic_load(&place->has);
    int has = before && atomic_compare_exchange_strong(&place->has, &before, number);
    if (!has && (atomic_load(&pasture->waiting) || !raise_below(&pasture->working, limit_now(pasture)))) await_turn();
    if (!has) atomic_store(&place->has, number);
}

/* A request has been read. */
static int enter(request_rec *request) {
    struct settings *settings = ap_get_module_config(request->server->module_config, &plimsoll_module);
    if (!pasture || request->main || request->prev) return DECLINED;
    struct place *place = place_of_this_thread();
    if (!place) return DECLINED;
    struct turn *own = apr_palloc(request->pool, sizeof *own);
    *own = (struct turn){place, next_number(place), request->connection};
    note_request(place, own->number, request);
    parking_asked(pasture, place);
    if (settings->max_slowdown > 0) take_turn(place, own->number);
    /* However it ends. */
    apr_pool_cleanup_register(request->pool, own, end_turn, apr_pool_cleanup_null);
    return DECLINED;
}

static apr_status_t give_up_place(void *nothing) {
    (void)nothing;
    if (own_place >= 0) {
        parking_gone(pasture, &pasture->place[own_place]);
        atomic_store(&pasture->place[own_place].serves, 0);
        leave(&pasture->place[own_place], atomic_load(&pasture->place[own_place].has));
        atomic_store(&pasture->place[own_place].tid, 0);
        own_place = -1;
    }
    return APR_SUCCESS;
}

/* Whether workers are parked: where they are processes, and held back. */
static int parks(const server_rec *server) {
    struct settings *settings = ap_get_module_config(server->module_config, &plimsoll_module);
    return pasture && !pasture->threaded && settings->max_slowdown > 0;
}

/* The connection has been closed: what its pool has left is all about it. */
static apr_status_t connection_ended(void *data) {
    struct place *place = own_place < 0 ? NULL : &pasture->place[own_place];
    if (!place || !parking_ended(pasture, place)) return APR_SUCCESS;
    /* A worker that is parked is a spare one. */
    ap_update_child_status(data, SERVER_READY, NULL);
    parking_park(pasture, place);
    return APR_SUCCESS;
}

static int connected(conn_rec *connection, void *socket) {
    (void)socket;
    /* Not what another module makes of one. */
    if (connection->master || own_place < 0 || !parks(connection->base_server)) return DECLINED;
    parking_connected(&pasture->place[own_place]);
    apr_pool_cleanup_register(connection->pool, connection->sbh, connection_ended, apr_pool_cleanup_null);
    return DECLINED;
}

/* ---- the parent ---- */

/* How long after a worker's process has ended the parent looks whether it has to start others. */
#define SOON_US 10000

static void child_ended(int signal) {
    struct itimerval soon = {{0, 0}, {0, SOON_US}};
    (void)signal;
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void wake_up(int signal) {
    (void)signal;
}

/* The parent starts workers once a second, and sleeps in between. Where a process was ended with its request, its worker is missed now: these
 * signals end the sleep, the first so that the parent learns who has ended, the second so that it starts another. */
static void replace_soon(int replace) {
    struct sigaction ended = {.sa_handler = replace ? child_ended : SIG_DFL, .sa_flags = SA_RESTART};
    struct sigaction woken = {.sa_handler = replace ? wake_up : SIG_DFL, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &ended, NULL);
    sigaction(SIGALRM, &woken, NULL);
}

static void child_begins(apr_pool_t *pool, server_rec *server) {
    own_place = -1;
    if (pasture && pasture->replaces) replace_soon(0);
    child_began_s = (long long)time(NULL);
    if (pasture) apr_pool_cleanup_register(pool, NULL, give_up_place, apr_pool_cleanup_null);
    struct place *place = parks(server) ? place_of_this_thread() : NULL;
    if (place) parking_begins(pasture, place);
}

/* ---- the shepherd ---- */

static volatile sig_atomic_t stops;

static void stop(int signal) {
    (void)signal;
    stops = 1;
}

/* Hands out what turns are free. */
static void hand_out(void) {
    unsigned handed;
    while ((handed = atomic_load(&pasture->handed)) < atomic_load(&pasture->waiting) && raise_below(&pasture->working, limit_now(pasture)))
        atomic_fetch_add(&pasture->handed, 1);
    /* Those to whom they were handed have gone. */
    while (!atomic_load(&pasture->waiting) && take_one(&pasture->handed)) atomic_fetch_sub(&pasture->working, 1);
    wake(atomic_load(&pasture->handed));
}

/* Places of threads that are gone are free again, and whoever died at work does not work. */
static size_t count_workers(plimsoll_worker *workers) {
    static struct drift of_working;
    size_t count = 0;
    unsigned at_work = 0;
    unsigned places = atomic_load(&pasture->places);
    for (unsigned at = 0; at < places; at++) {
        struct place *place = &pasture->place[at];
        int tid = atomic_load(&place->tid);
        if (!tid) continue;
        /* A thread's number is found among processes too. */
        if (kill(tid, 0) && errno == ESRCH) {
            atomic_store(&place->serves, 0);
            parking_gone(pasture, place);
            leave(place, atomic_load(&place->has));
            atomic_compare_exchange_strong(&place->tid, &tid, 0);
            continue;
        }
        workers[count].tid = tid;
        at_work += (unsigned)(workers[count++].working = atomic_load(&place->has) != 0);
    }
    /* Turns that nobody has any more: of those who were killed between taking one and saying so. */
    mend(&pasture->working, at_work + atomic_load(&pasture->handed), &of_working);
    return count;
}

struct begins {
    server_rec *server;
    apr_pool_t *pool;
    double max_slowdown;
    const char *status;
};

/* Looks at the workers, and says how many may work at once. */
static void look(plimsoll_herd *herd, server_rec *server) {
    static plimsoll_worker workers[MOST_WORKERS];
    static unsigned before;
    size_t count = count_workers(workers);
    if (!herd) return;
    int held_back = atomic_exchange(&pasture->held_back, 0);
    unsigned limit = plimsoll_herd_look(herd, workers, count, held_back, atomic_load(&pasture->requests));
    atomic_store(&pasture->limit, limit);
    atomic_store(&pasture->limit_until, now_ns() + HOLDS_NS);
    hand_out();
    parking_look(pasture);
    if (limit != before)
        ap_log_error(APLOG_MARK, APLOG_DEBUG, 0, server, "%u of %lu workers may work at once", limit, (unsigned long)count);
    before = limit;
}

static void shepherd(const struct begins *with, int status) {
    plimsoll_herd *herd = with->max_slowdown > 0 ? plimsoll_herd_new(1, MOST_WORKERS, with->max_slowdown) : NULL;
    if (!herd && status < 0) return;
    while (!stops) {
        look(herd, with->server);
        status_answer(status, pasture, now_ns() + LOOK_NS);
    }
    atomic_store(&pasture->limit_until, 0);
    wake(MOST_WORKERS);
    if (herd) parking_look(pasture);
    if (herd) plimsoll_herd_close(herd);
}

static int begin_shepherd(struct begins *with);

static void shepherd_ended(int why, void *data, apr_wait_t status) {
    struct begins *with = data;
    int state = 0;
    (void)status;
    switch (why) {
    case APR_OC_REASON_DEATH:
    case APR_OC_REASON_LOST:
        apr_proc_other_child_unregister(data);
        if (ap_mpm_query(AP_MPMQ_MPM_STATE, &state) == APR_SUCCESS && state != AP_MPMQ_STOPPING) {
            ap_log_error(APLOG_MARK, APLOG_WARNING, 0, with->server, "the shepherd of the workers has ended, and is started again");
            begin_shepherd(with);
        }
        break;
    case APR_OC_REASON_RESTART:
        apr_proc_other_child_unregister(data);
        break;
    default:
        break;
    }
}

/* The workers' user: it may see them, and no more. */
static int become_worker(void) {
    return setgroups(0, NULL) || setgid(ap_unixd_config.group_id) || setuid(ap_unixd_config.user_id);
}

static int begin_shepherd(struct begins *with) {
    apr_proc_t *process = apr_pcalloc(with->pool, sizeof *process);
    pid_t parent = getpid();
    apr_status_t status = apr_proc_fork(process, with->pool);
    if (status == APR_INCHILD) {
        if (pasture->replaces) replace_soon(0);
        struct sigaction action = {.sa_handler = stop};
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
        signal(SIGHUP, SIG_IGN);
        signal(SIGUSR1, SIG_IGN);
        /* It goes when the server goes, however that goes. */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) exit(0);
        /* In a directory that may be root's alone. */
        int socket = with->status ? status_listen(with->status, geteuid() == 0 ? ap_unixd_config.user_id : (uid_t)-1) : -1;
        if (with->status && socket < 0)
            ap_log_error(APLOG_MARK, APLOG_ERR, errno, with->server, "cannot listen on %s: nobody is told what workers do", with->status);
        if (geteuid() == 0 && become_worker()) exit(0);
        /* Changing the user takes the wish back. */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        shepherd(with, socket);
        exit(0);
    }
    if (status != APR_INPARENT) {
        ap_log_error(APLOG_MARK, APLOG_ERR, status, with->server, "no process for the shepherd of the workers: nobody is held back");
        return DECLINED;
    }
    apr_pool_note_subprocess(with->pool, process, APR_KILL_AFTER_TIMEOUT);
    apr_proc_other_child_register(process, shepherd_ended, with, NULL, with->pool);
    return OK;
}

/* ---- configuration ---- */

static int configured(apr_pool_t *pool, apr_pool_t *log, apr_pool_t *temporary, server_rec *server) {
    struct settings *settings = ap_get_module_config(server->module_config, &plimsoll_module);
    struct begins *with = apr_pcalloc(pool, sizeof *with);
    apr_shm_t *shared;
    (void)log;
    (void)temporary;
    pasture = NULL;
    /* The first of the two times that a server reads its configuration is only a trial. */
    if (ap_state_query(AP_SQ_MAIN_STATE) == AP_SQ_MS_CREATE_PRE_CONFIG || (settings->max_slowdown <= 0 && !settings->status))
        return OK;
    apr_status_t status = apr_shm_create(&shared, sizeof *pasture + CACHE_LINE, NULL, pool);
    if (status != APR_SUCCESS) {
        ap_log_error(APLOG_MARK, APLOG_ERR, status, server, "no shared memory for the workers' places: nobody is held back or told of");
        return OK;
    }
    /* What it gives begins with a word of its own. */
    uintptr_t base = (uintptr_t)apr_shm_baseaddr_get(shared);
    pasture = (struct pasture *)((base + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    memset(pasture, 0, sizeof *pasture);
    pasture->began_s = (long long)time(NULL);
    ap_mpm_query(AP_MPMQ_IS_THREADED, &pasture->threaded);
    pasture->replaces = settings->status && !pasture->threaded;
    if (pasture->replaces) replace_soon(1);
    *with = (struct begins){server, pool, settings->max_slowdown, settings->status};
    begin_shepherd(with);
    return OK;
}

static void *new_settings(apr_pool_t *pool, server_rec *server) {
    (void)server;
    return apr_pcalloc(pool, sizeof(struct settings));
}

static void *merge_settings(apr_pool_t *pool, void *of_server, void *of_host) {
    (void)pool;
    (void)of_host;
    return of_server; /* one for all hosts: they share the workers */
}

static const char *set_max_slowdown(cmd_parms *command, void *nothing, const char *text) {
    struct settings *settings = ap_get_module_config(command->server->module_config, &plimsoll_module);
    const char *error = ap_check_cmd_context(command, GLOBAL_ONLY);
    char *end;
    (void)nothing;
    if (error) return error;
    if (!strcasecmp(text, "off")) {
        settings->max_slowdown = 0;
        return NULL;
    }
    settings->max_slowdown = strtod(text, &end);
    if (*end || !(settings->max_slowdown > 1 && settings->max_slowdown <= 1000))
        return apr_pstrcat(command->pool, "PlimsollMaxSlowdown ", text, ": give a number above 1 and up to 1000, as 5, or off", NULL);
    return NULL;
}

static const char *set_status(cmd_parms *command, void *nothing, const char *text) {
    struct settings *settings = ap_get_module_config(command->server->module_config, &plimsoll_module);
    const char *error = ap_check_cmd_context(command, GLOBAL_ONLY);
    (void)nothing;
    if (error) return error;
    settings->status = strcasecmp(text, "off") ? ap_server_root_relative(command->pool, text) : NULL;
    if (settings->status && strlen(settings->status) > STATUS_LONGEST)
        return apr_pstrcat(command->pool, "PlimsollStatus ", text, ": too long for the path of a socket", NULL);
    return NULL;
}

static const command_rec commands[] = {
    AP_INIT_TAKE1("PlimsollMaxSlowdown", set_max_slowdown, NULL, RSRC_CONF,
                  "how many times slower than on an idle machine a worker may run, or off"),
    AP_INIT_TAKE1("PlimsollStatus", set_status, NULL, RSRC_CONF, "the path of a socket on which an agent is told what workers do, or off"),
    {NULL}};

static void hooks(apr_pool_t *pool) {
    (void)pool;
    ap_hook_post_config(configured, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_child_init(child_begins, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_pre_connection(connected, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_post_read_request(enter, NULL, NULL, APR_HOOK_REALLY_FIRST);
}

module AP_MODULE_DECLARE_DATA plimsoll_module = {
    STANDARD20_MODULE_STUFF, NULL, NULL, new_settings, merge_settings, commands, hooks, 0};
