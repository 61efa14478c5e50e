/*
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * How many of a server's processes wait for connections, where each has one at a time (the MPM prefork): hardly more than may be at work.
 *
 * The kernel hands connections to all who wait for one in turn. Where those are many more than may be at work, every request finds caches that
 * others have filled meanwhile, and a turn that it has to wait for. So as many are awake as may be at work, always the same if they are enough:
 *
 *   LISTENS --- a connection ---> CONNECTED --- has answered, and its client may ask again; ---> AWAY
 *      ^                           |     ^      or waits for it since the last look               |
 *      |                           |     +------------------- asks -------------------------------+
 *      +-- it ends, and too few ---+------------------------------------------------------------- it ends
 *      |   are awake               |
 *      +--------- called --------- PARKED
 *
 * Awake are those who listen or are connected. Who closes its connection is so, too: soon it listens again.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pasture.h"

/* Where a worker stands. */
enum { NOWHERE, LISTENS, CONNECTED, AWAY, PARKED };

/* Who is parked looks by itself after so long: nobody may be there to call it. */
static const struct timespec PATIENCE = {1, 0};

static int goes(struct place *place, int from, int to) {
    return atomic_compare_exchange_strong(&place->stands, &from, to);
}

/* One who is parked is to listen. It is awake at once, so that nobody is called in its stead until it runs. */
static int unpark(struct pasture *pasture, struct place *place) {
    if (!goes(place, PARKED, LISTENS)) return 0;
    take_one(&pasture->parked);
    atomic_fetch_add(&pasture->awake, 1);
    return 1;
}

/* Calls those who are missing: the first of all places, so that they are those who were awake before, whose caches are filled. */
static void call_missing(struct pasture *pasture) {
    unsigned places = atomic_load(&pasture->places);
    for (unsigned at = 0; at < places && atomic_load(&pasture->parked) && atomic_load(&pasture->awake) < limit_now(pasture); at++) {
        struct place *place = &pasture->place[at];
        if (unpark(pasture, place)) syscall(SYS_futex, &place->stands, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

/* Is awake no more, if it was. */
static int leaves(struct pasture *pasture, struct place *place, int from, int to) {
    if (!goes(place, from, to)) return 0;
    take_one(&pasture->awake);
    return 1;
}

void parking_park(struct pasture *pasture, struct place *place) {
    atomic_fetch_add(&pasture->parked, 1);
    if (!leaves(pasture, place, CONNECTED, PARKED)) atomic_store(&place->stands, PARKED);
    /* Others may have gone at the same moment. */
    call_missing(pasture);
    while (atomic_load(&place->stands) == PARKED) {
        long status = syscall(SYS_futex, &place->stands, FUTEX_WAIT, PARKED, &PATIENCE, NULL, 0);
        /* A signal is the server's way to say that it ends, which is for its own loop to see. */
        if (status && (errno == EINTR || (errno == ETIMEDOUT && limit_now(pasture) == UINT32_MAX))) unpark(pasture, place);
    }
}

void parking_begins(struct pasture *pasture, struct place *place) {
    atomic_store(&place->stands, LISTENS);
    atomic_fetch_add(&pasture->awake, 1);
}

void parking_connected(struct place *place) {
    goes(place, LISTENS, CONNECTED);
}

void parking_asked(struct pasture *pasture, struct place *place) {
    if (goes(place, AWAY, CONNECTED)) atomic_fetch_add(&pasture->awake, 1);
}

void parking_answered(struct pasture *pasture, struct place *place) {
    if (leaves(pasture, place, CONNECTED, AWAY)) call_missing(pasture);
}

int parking_ended(struct pasture *pasture, struct place *place) {
    parking_asked(pasture, place);
    if (atomic_load(&pasture->awake) > limit_now(pasture)) return 1;
    if (!goes(place, CONNECTED, LISTENS)) parking_begins(pasture, place); /* the last look has just sent it away */
    return 0;
}

void parking_gone(struct pasture *pasture, struct place *place) {
    int stood = atomic_exchange(&place->stands, NOWHERE);
    if (stood == LISTENS || stood == CONNECTED) take_one(&pasture->awake);
    if (stood == PARKED) take_one(&pasture->parked);
    call_missing(pasture);
}

/* Who is connected and has no turn, nor had one since the last look, is away. */
static void send_away(struct pasture *pasture, struct place *place, unsigned *turns) {
    unsigned before = *turns;
    int idle = atomic_load(&place->stands) == CONNECTED && !atomic_load(&place->has);
    /* One more, so that 0 is none. */
    *turns = idle ? atomic_load(&place->turns) + 1 : 0;
    if (idle && *turns == before) leaves(pasture, place, CONNECTED, AWAY);
}

void parking_look(struct pasture *pasture) {
    static struct drift of_awake, of_parked;
    static unsigned turns[MOST_WORKERS];
    unsigned listening = 0, connected = 0, parked = 0, places = atomic_load(&pasture->places);
    for (unsigned at = 0; at < places; at++) {
        send_away(pasture, &pasture->place[at], &turns[at]);
        int stands = atomic_load(&pasture->place[at].stands);
        listening += stands == LISTENS, connected += stands == CONNECTED, parked += stands == PARKED;
    }
    mend(&pasture->awake, listening + connected, &of_awake);
    mend(&pasture->parked, parked, &of_parked);
    /* Whoever asks now has to wait. */
    if (parked && !listening) atomic_store(&pasture->held_back, 1);
    call_missing(pasture);
}
