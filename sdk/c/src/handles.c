/** What the library knows about tasks and accounts in memory of its own.
 *
 * One mapping holds all of it, and the kernel gives a forked child zeroes in its place (MADV_WIPEONFORK): there every handle is nobody's, so whatever the child does with
 * the tasks of its parent, it does not reach the parent's ledger. That costs the hot path nothing, and holds for a bare fork system call, too. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static size_t own_part(size_t *at, size_t bytes) {
    size_t start = *at;
    *at = (start + bytes + 63) & ~(size_t)63;
    return start;
}

bool plimsoll_own_make(plimsoll_app *app) {
    const struct plimsoll_counts *counts = &app->counts;
    size_t at = 0;
    app->stride = (sizeof(plimsoll_task) + sizeof(plimsoll_place) * counts->resources + 63) & ~(size_t)63;
    size_t alive_at = own_part(&at, sizeof(uint32_t));
    size_t free_tasks_at = own_part(&at, sizeof(uint64_t));
    size_t free_shares_at = own_part(&at, sizeof(uint64_t));
    size_t next_at = own_part(&at, sizeof(uint32_t) * 2 * counts->tasks);
    size_t sides_at = own_part(&at, sizeof(struct plimsoll_account_side) * counts->accounts);
    size_t handles_at = own_part(&at, app->stride * 2 * counts->tasks);
    /* Not among the rest: in a child, an application's resource must not look as if it belonged to nobody's task. */
    app->resources = (plimsoll_resource *)aligned_alloc(PLIMSOLL_RESOURCES_SIZE, PLIMSOLL_RESOURCES_SIZE);
    if (!app->resources) return false;
    memset(app->resources, 0, PLIMSOLL_RESOURCES_SIZE);
    void *own = mmap(NULL, at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (own == MAP_FAILED) return false;
    /* Old kernels cannot: then the handlers of a fork empty it (app.c). */
    madvise(own, at, MADV_WIPEONFORK);
    app->own = (char *)own;
    app->own_size = at;
    app->alive = (uint32_t *)(void *)(app->own + alive_at);
    app->free_tasks = (uint64_t *)(void *)(app->own + free_tasks_at);
    app->free_shares = (uint64_t *)(void *)(app->own + free_shares_at);
    app->handles_next = (uint32_t *)(void *)(app->own + next_at);
    app->sides = (struct plimsoll_account_side *)(void *)(app->own + sides_at);
    app->handles = app->own + handles_at;
    *app->alive = 1;
    return true;
}

plimsoll_task *plimsoll_handle(const plimsoll_app *app, uint32_t index) {
    return (plimsoll_task *)(void *)(app->handles + app->stride * index);
}

/* Whether this is the process that opened it. */
bool plimsoll_is_ours(const plimsoll_app *app) {
    return app && PLIMSOLL_LOAD(app->alive) == 1;
}
