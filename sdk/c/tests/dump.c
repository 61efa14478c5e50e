/** Ledgers as text. */
#include "dump.h"

#include <string.h>

#include "plimsoll_layout.h"

typedef unsigned long long number;

static size_t part_at(const plimsoll_header *h, int part) {
    size_t sizes[4] = {64u * (size_t)h->resources, 2048u * (size_t)h->lanes, 128u * (size_t)h->tasks, 64u * (size_t)h->accounts};
    size_t at = PLIMSOLL_HEADER_SIZE;
    for (int i = 0; i < part; i++) at += sizes[i];
    return at;
}

const char *dump_refuse(const void *bytes, size_t size) {
    const plimsoll_header *h = bytes;
    if (size < 8 || memcmp(bytes, "PLIMSOLL", 8) != 0) return "magic";
    if (size < PLIMSOLL_HEADER_SIZE) return "length";
    if (h->version != PLIMSOLL_FORMAT) return "version";
    if (h->resources < 1 || h->resources > 256 || h->lanes < 1 || h->lanes > 64 || h->tasks < 1 || h->tasks > 131072 || h->accounts < 1 || h->accounts > 1048576) return "counts";
    if (size != part_at(h, 4)) return "length";
    size_t length = strnlen(h->app, sizeof h->app);
    if (length < 1 || length > 32) return "app";
    for (size_t i = 0; i < sizeof h->app; i++) {
        if (i >= length ? h->app[i] != 0 : !strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", h->app[i])) return "app";
    }
    return NULL;
}

/* The bytes of the character that begins here, or 0 if none does. */
static size_t character(const unsigned char *at, size_t left) {
    unsigned char c = at[0];
    size_t bytes = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (bytes == 0 || bytes > left) return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    if ((c == 0xe0 && at[1] < 0xa0) || (c == 0xed && at[1] > 0x9f) || (c == 0xf0 && at[1] < 0x90) || (c == 0xf4 && at[1] > 0x8f)) return 0;
    return bytes;
}

/* How many bytes of what is no character are shown as one U+FFFD: as far as it might have become one. */
static size_t stump(const unsigned char *at, size_t left) {
    unsigned char c = at[0];
    size_t wanted = c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 1, bytes = 1;
    while (bytes < wanted && bytes < left && (at[bytes] & 0xc0) == 0x80) {
        unsigned char low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        if (bytes == 1 && (at[1] < low || at[1] > high)) break;
        bytes++;
    }
    return bytes;
}

static void text(FILE *to, const char *given, size_t size) {
    const unsigned char *at = (const unsigned char *)given;
    size_t left = strnlen(given, size);
    if (left) fputc(' ', to);
    while (left) {
        size_t bytes = character(at, left);
        bool control = bytes == 1 ? at[0] < 0x20 || at[0] == 0x7f : bytes == 2 && at[0] == 0xc2 && at[1] < 0xa0;
        if (bytes && !control) {
            fwrite(at, 1, bytes, to);
        } else {
            fputs("\xef\xbf\xbd", to);
            if (!bytes) bytes = stump(at, left);
        }
        at += bytes;
        left -= bytes;
    }
    fputc('\n', to);
}

static void dump_lane(FILE *to, unsigned i, const plimsoll_lane *lane) {
    if (lane->completed == 0) return;
    fprintf(to, "lane %u completed=%llu cancelled=%llu sum_ns=%llu bins=", i, (number)lane->completed, (number)lane->cancelled, (number)lane->sum_ns);
    const char *comma = "";
    for (unsigned bin = 0; bin < PLIMSOLL_LANE_BINS; bin++) {
        if (!lane->bins[bin]) continue;
        fprintf(to, "%s%u:%llu", comma, bin, (number)lane->bins[bin]);
        comma = ",";
    }
    fputc('\n', to);
}

static void dump_account(FILE *to, unsigned i, const plimsoll_account *a, const plimsoll_header *h, const plimsoll_task_record *tasks) {
    uint32_t task = (uint32_t)a->owner, resource = (uint32_t)(a->owner >> 32) & 0xffff, turn = (uint32_t)(a->owner >> 48);
    bool somebody = task != 0 && task <= h->tasks && resource < h->resources && (tasks[task - 1].turn & 1) && (tasks[task - 1].turn & 0xffff) == turn;
    fprintf(to, "account %u ", i);
    if (somebody) {
        fprintf(to, "task=%u turn=%u", task - 1, turn);
    } else {
        fprintf(to, "task=- turn=0");
    }
    fprintf(to, " resource=%u gets=%llu frees=%llu slows=%llu wait_ns=%llu hold_ns=%llu waiting_since_ns=%llu holding_since_ns=%llu\n", resource, (number)a->gets, (number)a->frees,
            (number)a->slows, (number)a->wait_ns, (number)a->hold_ns, (number)a->waiting_since_ns, (number)a->holding_since_ns);
}

void dump(FILE *to, const void *bytes) {
    static const char *const kinds[] = {"", "LOCK", "MEMORY", "QUEUE", "CPU", "IO"};
    const plimsoll_header *h = bytes;
    const plimsoll_resource_record *resources = (const void *)((const char *)bytes + part_at(h, 0));
    const plimsoll_lane *lanes = (const void *)((const char *)bytes + part_at(h, 1));
    const plimsoll_task_record *tasks = (const void *)((const char *)bytes + part_at(h, 2));
    const plimsoll_account *accounts = (const void *)((const char *)bytes + part_at(h, 3));
    uint32_t tasks_used = h->tasks_used < h->tasks ? h->tasks_used : h->tasks, accounts_used = h->accounts_used < h->accounts ? h->accounts_used : h->accounts;
    fprintf(to, "ledger %s version=%u resources=%u lanes=%u tasks=%u accounts=%u pid=%llu pid_started=%llu created_ns=%llu\n", h->app, h->version, h->resources, h->lanes, h->tasks,
            h->accounts, (number)h->pid, (number)h->pid_started, (number)h->created_ns);
    fprintf(to, "application beat_ns=%llu tasks_refused=%llu accounts_refused=%llu resources_refused=%llu tasks_used=%u accounts_used=%u\n", (number)h->app_beat_ns, (number)h->tasks_refused,
            (number)h->accounts_refused, (number)h->resources_refused, tasks_used, accounts_used);
    fprintf(to, "agent beat_ns=%llu exact=%u pid=%llu\n", (number)h->agent_beat_ns, (unsigned)(h->flags & 1), (number)h->agent_pid);
    fprintf(to, "clock ns=%llu\n", (number)h->clock_ns);
    for (unsigned i = 0; i < h->resources; i++) {
        if (resources[i].kind < 1 || resources[i].kind > 5) continue;
        fprintf(to, "resource %u %s capacity=%llu", i, kinds[resources[i].kind], (number)resources[i].capacity);
        text(to, resources[i].name, sizeof resources[i].name);
    }
    for (unsigned i = 0; i < h->lanes; i++) dump_lane(to, i, &lanes[i]);
    for (unsigned i = 0; i < tasks_used; i++) {
        const plimsoll_task_record *t = &tasks[i];
        fprintf(to, "task %u turn=%llu key=%llu started_ns=%llu done=%llu total=%llu deadline_ns=%llu flags=%u tid=%u", i, (number)t->turn, (number)t->key, (number)t->started_ns, (number)t->done,
                (number)t->total, (number)t->deadline_ns, t->flags, t->tid);
        text(to, t->label, sizeof t->label);
    }
    for (unsigned i = 0; i < accounts_used; i++) dump_account(to, i, &accounts[i], h, tasks);
}
