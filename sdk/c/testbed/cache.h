/** A cache of pages that evicts the one that was used longest ago, and keeps account of who takes pages and whom that costs. */
#ifndef CACHE_H
#define CACHE_H

#include <stdint.h>

#include "plimsoll.h"

#define CACHE_PAGES 256

/* A read takes `miss_us`. */
void cache_init(plimsoll_app *app, uint32_t miss_us);
/* Reads `count` pages from `first` on for the task. Those that are not there cost one read together. Returns how many were not. */
uint32_t cache_read(plimsoll_task *task, uint64_t first, uint32_t count);
/* Gives back that many pages. */
void cache_release(plimsoll_task *task, uint32_t count);

#endif
