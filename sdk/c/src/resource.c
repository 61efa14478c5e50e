/** Resources: a name, once. */
#include <string.h>

#include "internal.h"

PLIMSOLL_API plimsoll_resource *plimsoll_resource_of(plimsoll_app *app, plimsoll_kind kind, const char *name, uint64_t capacity) {
    if (!plimsoll_is_ours(app)) return NULL;
    if (!name || !*name || (unsigned)kind < PLIMSOLL_LOCK || (unsigned)kind > PLIMSOLL_IO) {
        plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_RESOURCE_NAME, "a resource of %s is not accounted for: it needs a name and a kind from 1 (LOCK) to 5 (IO), and has kind %d", app->name, (int)kind);
        return NULL;
    }
    char padded[sizeof app->resource_records->name] = "";
    memcpy(padded, name, plimsoll_text_cut(name, sizeof padded));
    plimsoll_resource *found = NULL;
    pthread_mutex_lock(&app->lock);
    for (uint32_t i = 0; i < app->resources_used && !found; i++) {
        if (memcmp(app->resource_records[i].name, padded, sizeof padded) == 0) found = &app->resources[i];
    }
    bool full = !found && app->resources_used == app->counts.resources;
    if (full) {
        __atomic_fetch_add(&app->header->resources_refused, 1, __ATOMIC_RELAXED);
    } else if (!found) {
        uint32_t index = app->resources_used++;
        found = &app->resources[index];
        found->app = app;
        found->index = index;
        found->kind = (uint32_t)kind;
        plimsoll_resource_record *record = &app->resource_records[index];
        memcpy(record->name, padded, sizeof padded);
        PLIMSOLL_STORE(&record->capacity, capacity);
        PLIMSOLL_STORE(&record->kind, (uint32_t)kind);
    }
    pthread_mutex_unlock(&app->lock);
    if (full) {
        plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_FULL_RESOURCES, "the ledger of %s has room for %u resources: \"%.48s\" and what comes after it are not accounted for", app->name,
                     app->counts.resources, padded);
    }
    return found;
}
