/** Lanes: what became of requests, added up by whichever thread ended them. */
#include "internal.h"

uint32_t plimsoll_lane_bin(uint64_t latency_ns) {
    uint64_t v = latency_ns >> 10;
    uint32_t shift = v < 16 ? 0 : (uint32_t)(63 - __builtin_clzll(v)) - 3;
    uint64_t bin = ((uint64_t)shift << 3) + (v >> shift);
    return bin < PLIMSOLL_LANE_BINS ? (uint32_t)bin : PLIMSOLL_LANE_BINS - 1;
}

void plimsoll_lane_add(plimsoll_app *app, uint32_t index, uint64_t latency_ns, bool cancelled) {
    plimsoll_lane *lane = &app->lanes[index % app->counts.lanes];
    if (cancelled) {
        __atomic_fetch_add(&lane->cancelled, 1, __ATOMIC_RELAXED);
    } else {
        __atomic_fetch_add(&lane->bins[plimsoll_lane_bin(latency_ns)], 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&lane->sum_ns, latency_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&lane->completed, 1, __ATOMIC_RELAXED);
}

/* Threads are given lanes in turn, so that few of them share one. */
uint32_t plimsoll_lane_mine(void) {
    static uint32_t threads;
    static __thread uint32_t mine;
    if (mine == 0) mine = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    return mine;
}
