/** A stack of indices that threads push to and pop from without waiting for each other: what free tasks and free accounts are kept in.
 *
 * The head is one word: the topmost index plus 1 below, and above it a count of changes, so that a thread which slept between its load and its
 * exchange notices that the same index has been away and back. */
#ifndef PLIMSOLL_STACK_H
#define PLIMSOLL_STACK_H

#include <stdint.h>

/* `next(i)`: where the index below `i`, plus 1, is kept. */
#define PLIMSOLL_NONE UINT32_MAX

static inline uint64_t plimsoll_stack_head(uint64_t old, uint32_t top) {
    return ((old >> 32) + 1) << 32 | top;
}

static inline void plimsoll_stack_push(uint64_t *head, uint32_t *next, uint32_t index) {
    uint64_t old = __atomic_load_n(head, __ATOMIC_RELAXED);
    do {
        __atomic_store_n(next, (uint32_t)old, __ATOMIC_RELAXED);
    } while (!__atomic_compare_exchange_n(head, &old, plimsoll_stack_head(old, index + 1), true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* `at` is the first `next`, `step` the bytes from one to the next. */
static inline uint32_t plimsoll_stack_pop(uint64_t *head, const void *at, uint32_t step) {
    uint64_t old = __atomic_load_n(head, __ATOMIC_ACQUIRE);
    while ((uint32_t)old != 0) {
        uint32_t top = (uint32_t)old - 1;
        const uint32_t *next = (const uint32_t *)(const void *)((const char *)at + (uint64_t)top * step);
        uint32_t below = __atomic_load_n(next, __ATOMIC_RELAXED);
        if (__atomic_compare_exchange_n(head, &old, plimsoll_stack_head(old, below), true, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) return top;
    }
    return PLIMSOLL_NONE;
}

#endif
