/*
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * How many of a server's processes wait for connections, where each has one at a time (the MPM prefork): hardly more than may be at work.
 *
 * The kernel hands connections to all who wait for one in turn. Where those are many more than may be at work, every request finds caches that
 * others have filled meanwhile, and a turn that it has to wait for. So whoever has ended a connection is parked, unless it is needed:
 *
 *   listens --- a connection ---> has it --- it ends, others listen and work that are enough ---> parked
 *      ^                             |                                                              |
 *      +------- it ends, else -------+          nobody listens, though one more may have a turn     |
 *      +--------------------------------------------------------------------------------------------+
 *
 * Who has answered and keeps its connection for another request is not counted from then on, and who waits for what its client sends not from the
 * next look on: another listens instead.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pasture.h"

/* Where a worker stands. */
enum { NOWHERE, LISTENS, CONNECTED, PARKED };

/* Who is parked looks by itself after so long: nobody may be there to call it. */
static const struct timespec PATIENCE = {1, 0};

static void listens(struct pasture *pasture, struct place *place) {
    atomic_store(&place->stands, LISTENS);
    atomic_fetch_add(&pasture->listening, 1);
}

/* One of the parked, if there is one, is to listen. It counts at once, so that nobody is called in its stead until it runs. */
static int call_one(struct pasture *pasture) {
    if (!take_one(&pasture->parked)) return 0;
    atomic_fetch_add(&pasture->listening, 1);
    atomic_fetch_add(&pasture->called, 1);
    atomic_fetch_add(&pasture->call, 1);
    syscall(SYS_futex, &pasture->call, FUTEX_WAKE, 1, NULL, NULL, 0);
    return 1;
}

static void park(struct pasture *pasture, struct place *place) {
    atomic_store(&place->stands, PARKED);
    atomic_fetch_add(&pasture->parked, 1);
    for (;;) {
        unsigned call = atomic_load(&pasture->call);
        if (take_one(&pasture->called)) break;
        long status = syscall(SYS_futex, &pasture->call, FUTEX_WAIT, call, &PATIENCE, NULL, 0);
        /* A signal is the server's way to say that it ends, which is for its own loop to see. */
        int leaves = status && (errno == EINTR || (errno == ETIMEDOUT && limit_now(pasture) == UINT32_MAX));
        if (leaves && take_one(&pasture->parked)) {
            atomic_fetch_add(&pasture->listening, 1);
            break;
        }
    }
    atomic_store(&place->stands, LISTENS);
}

void parking_begins(struct pasture *pasture, struct place *place) {
    listens(pasture, place);
}

void parking_connected(struct pasture *pasture, struct place *place) {
    int stood = LISTENS;
    if (atomic_compare_exchange_strong(&place->stands, &stood, CONNECTED)) take_one(&pasture->listening);
}

void parking_ended(struct pasture *pasture, struct place *place) {
    unsigned limit = limit_now(pasture);
    /* Those who will work next without this one: they have a request already, or wait for one. */
    unsigned next = atomic_load(&pasture->waiting) + atomic_load(&pasture->listening);
    if (next && limit != UINT32_MAX && next + atomic_load(&pasture->working) >= limit)
        park(pasture, place);
    else
        listens(pasture, place);
}

void parking_gone(struct pasture *pasture, struct place *place) {
    int stood = atomic_exchange(&place->stands, NOWHERE);
    if (stood == LISTENS) take_one(&pasture->listening);
    if (stood == PARKED) take_one(&pasture->parked);
    parking_call(pasture);
}

void parking_call(struct pasture *pasture) {
    if (atomic_load(&pasture->parked) && !atomic_load(&pasture->listening) && atomic_load(&pasture->working) < limit_now(pasture)) call_one(pasture);
}

void parking_look(struct pasture *pasture, int pressed) {
    static struct drift of_listening, of_parked;
    unsigned listening = 0, parked = 0, idle = 0, places = atomic_load(&pasture->places);
    for (unsigned at = 0; at < places; at++) {
        const struct place *place = &pasture->place[at];
        int stands = atomic_load(&place->stands);
        listening += stands == LISTENS, parked += stands == PARKED;
        idle += stands == CONNECTED && !atomic_load(&place->has);
    }
    unsigned called = atomic_load(&pasture->called);
    /* Who is called listens, by the counts. */
    mend(&pasture->listening, listening + called, &of_listening);
    mend(&pasture->parked, beyond(parked, called), &of_parked);
    /* Calls that were for the killed. */
    while (!parked && take_one(&pasture->called)) {
    }
    if (listening || !parked) return;
    /* Whoever asks now has to wait. Where CPUs have time, as many more as wait for their clients, so that they are soon enough. */
    atomic_store(&pasture->held_back, 1);
    if (pressed) return;
    unsigned limit = limit_now(pasture), working = atomic_load(&pasture->working);
    unsigned more = beyond(limit, working);
    if (more && idle > more) more = idle;
    while (more-- && call_one(pasture)) {
    }
}
