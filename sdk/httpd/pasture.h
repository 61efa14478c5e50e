/*
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What workers and the shepherd share, and what tells of it.
 */
#ifndef PLIMSOLL_PASTURE_H
#define PLIMSOLL_PASTURE_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>

/* The most workers that are known. Those beyond never wait, and are not told of. */
#define MOST_WORKERS 4096
/* The longest path of a socket. */
#define STATUS_LONGEST (sizeof((struct sockaddr_un *)0)->sun_path - 1)

/* What is written by one and read by others, in lines of the CPUs' caches of its own. */
#define CACHE_LINE 64

/* A thread that serves requests. */
struct place {
    _Alignas(CACHE_LINE) atomic_int tid; /* 0: free */
    atomic_uint turns;  /* so many have begun here; a turn's number is never 0 */
    atomic_uint has;    /* the turn that it has, 0: none */
    atomic_uint serves; /* the number of the request that it serves, 0: none */
    atomic_int stands;  /* where parking.c has it, 0: nowhere; a futex */
    atomic_llong since_ns; /* since when; CLOCK_MONOTONIC, in nanoseconds */
    atomic_llong took_ns;  /* how long the last one took */
    int pid;               /* its process */
    long long began_s;     /* when that began, in seconds since 1970 */
    char method[16];       /* what it serves, without what follows a `?` */
    char path[128];
};

/* What workers and shepherd share. */
struct pasture {
    /* What all read, and hardly anybody writes. */
    atomic_uint limit;
    atomic_uint places;       /* so many of them were ever used */
    atomic_llong limit_until; /* CLOCK_MONOTONIC, in nanoseconds */
    long long began_s;        /* when the server did, in seconds since 1970 */
    int threaded;             /* whether several workers share a process */
    int replaces;             /* whether processes that end are replaced at once */
    /* What each request changes. */
    _Alignas(CACHE_LINE) atomic_uint working; /* with those to whom a turn was handed */
    atomic_uint handed;  /* turns for those who wait, not taken yet */
    atomic_uint waiting;
    atomic_uint turn; /* a futex: changes when somebody who waits may go on */
    atomic_int held_back; /* somebody had to wait since the last look */
    atomic_uint awake;  /* workers that wait for a connection, or have one and do not wait for its client */
    atomic_uint parked; /* those that do not, until they are called */
    atomic_ullong requests; /* so many have begun */
    struct place place[MOST_WORKERS];
};

static inline long long clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline long long now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

/* How many may have a turn at once. A clock that is a few milliseconds behind, and is read for next to nothing, will do. */
static inline unsigned limit_now(const struct pasture *pasture) {
    long long now = clock_ns(CLOCK_MONOTONIC_COARSE);
    return now < atomic_load(&pasture->limit_until) ? atomic_load(&pasture->limit) : UINT32_MAX;
}

/* One less, if there is one. */
static inline int take_one(atomic_uint *count) {
    unsigned now = atomic_load(count);
    while (now)
        if (atomic_compare_exchange_weak(count, &now, now - 1)) return 1;
    return 0;
}

static inline unsigned beyond(unsigned a, unsigned b) {
    return a > b ? a - b : 0;
}

/* A count that is off in so many looks has lost somebody. */
#define LOOKS_UNTIL_LOST 10

/* By how much a count was off in each of the last looks: workers are counted while they come and go, so one look says nothing. */
struct drift {
    unsigned looks, more, less;
};

/* Takes away what a count has had too much in all of them, or adds what it lacked: those who were killed on the way. */
static inline void mend(atomic_uint *count, unsigned seen, struct drift *drift) {
    unsigned told = atomic_load(count), more = beyond(told, seen), less = beyond(seen, told);
    int is_first = !drift->looks;
    drift->more = is_first || more < drift->more ? more : drift->more;
    drift->less = is_first || less < drift->less ? less : drift->less;
    if (++drift->looks < LOOKS_UNTIL_LOST) return;
    for (; drift->more && take_one(count); drift->more--) {
    }
    atomic_fetch_add(count, drift->less);
    drift->looks = 0;
}

/* Listens at a path, which is then that user's, unless that is -1, and nobody else's. -1 with errno if it cannot be. */
int status_listen(const char *path, uid_t owner);

/* Answers who asks at the socket, until then (CLOCK_MONOTONIC, in nanoseconds) or a signal; only waits if the socket is -1. */
void status_answer(int listener, const struct pasture *pasture, long long until);

/* A worker's process has begun, and waits for connections. */
void parking_begins(struct pasture *pasture, struct place *place);

/* It has a connection. */
void parking_connected(struct place *place);

/* A request has come over it. */
void parking_asked(struct pasture *pasture, struct place *place);

/* It is answered, and the connection is kept for another. */
void parking_answered(struct pasture *pasture, struct place *place);

/* The connection has ended: whether it is to be parked. If not, it waits for another. */
int parking_ended(struct pasture *pasture, struct place *place);

/* Parks it: returns when it is to wait for another connection. */
void parking_park(struct pasture *pasture, struct place *place);

/* It is gone. */
void parking_gone(struct pasture *pasture, struct place *place);

/* Sees to it that enough are awake, says whether anybody who asks now has to wait, and mends what the killed have left. To be called a few times
 * a second. */
void parking_look(struct pasture *pasture);

#endif
