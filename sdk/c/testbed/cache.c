/** The cache of `cache.h`. */
#include "cache.h"

#include <unistd.h>

struct page {
    uint64_t id, used; /* `used`: when, in readings; 0: the page is empty */
};

static plimsoll_resource *pages;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct page cache[CACHE_PAGES];
static uint64_t readings;
static uint32_t read_us;

void cache_init(plimsoll_app *app, uint32_t miss_us) {
    read_us = miss_us;
    pages = plimsoll_resource_of(app, PLIMSOLL_MEMORY, "pages", CACHE_PAGES);
}

/* With the lock: where the page is, or the one that has to make room for it. */
static struct page *find(uint64_t id, bool *hit) {
    struct page *oldest = &cache[0];
    for (int i = 0; i < CACHE_PAGES; i++) {
        *hit = cache[i].used && cache[i].id == id;
        if (*hit) return &cache[i];
        if (cache[i].used < oldest->used) oldest = &cache[i];
    }
    return oldest;
}

uint32_t cache_read(plimsoll_task *task, uint64_t first, uint32_t count) {
    uint32_t missed = 0, evicted = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++) {
        bool hit;
        struct page *page = find(first + i, &hit);
        missed += !hit;
        evicted += !hit && page->used;
        page->id = first + i;
        page->used = ++readings;
    }
    pthread_mutex_unlock(&lock);
    if (missed) {
        uint64_t before_ns = plimsoll_now_ns();
        usleep(read_us);
        /* What had to make room is what will have to be read again: the read is what an eviction costs. */
        if (evicted) plimsoll_slow(task, pages, evicted, plimsoll_now_ns() - before_ns);
    }
    plimsoll_get(task, pages, count);
    return missed;
}

void cache_release(plimsoll_task *task, uint32_t count) {
    plimsoll_free(task, pages, count);
}
