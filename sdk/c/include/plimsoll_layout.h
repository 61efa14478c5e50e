/** The ledger's records as C structs: `docs/ledger.md`, word for word. Nothing here does anything; an application needs only `plimsoll.h`. */
#ifndef PLIMSOLL_LAYOUT_H
#define PLIMSOLL_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a ledger is little-endian, and is written in place: this SDK needs a little-endian machine"
#endif

#define PLIMSOLL_HEADER_SIZE 4096u
#define PLIMSOLL_LANE_BINS 248u
#define PLIMSOLL_FORMAT 1u
#define PLIMSOLL_FLAG_EXACT 1u

#define PLIMSOLL_TASK_CANCELLABLE 1u
#define PLIMSOLL_TASK_BACKGROUND 2u
#define PLIMSOLL_TASK_RERUNNABLE 4u
#define PLIMSOLL_TASK_RERUN 8u

typedef struct plimsoll_header {
    char magic[8];
    uint32_t version;
    uint32_t resources;
    uint32_t lanes;
    uint32_t tasks;
    uint32_t accounts;
    uint32_t unused_1c;
    uint64_t pid;
    uint64_t pid_started;
    uint64_t created_ns;
    uint64_t unused_38;
    char app[64];
    uint64_t app_beat_ns;
    uint64_t tasks_refused;
    uint64_t accounts_refused;
    uint64_t resources_refused;
    uint32_t tasks_used;
    uint32_t accounts_used;
    uint64_t unused_a8[3];
    uint64_t agent_beat_ns;
    uint64_t flags;
    uint64_t agent_pid;
    uint64_t unused_d8[5];
    uint64_t clock_ns;
} plimsoll_header;

typedef struct plimsoll_resource_record {
    uint32_t kind;
    uint32_t unused_4;
    uint64_t capacity;
    char name[48];
} plimsoll_resource_record;

typedef struct plimsoll_lane {
    uint64_t completed;
    uint64_t cancelled;
    uint64_t sum_ns;
    uint64_t unused_18[5];
    uint64_t bins[PLIMSOLL_LANE_BINS];
} plimsoll_lane;

typedef struct plimsoll_task_record {
    uint64_t turn;
    uint64_t key;
    uint64_t started_ns;
    uint64_t done;
    uint64_t total;
    uint64_t deadline_ns;
    uint32_t flags;
    uint32_t tid;
    uint64_t unused_38;
    char label[64];
} plimsoll_task_record;

typedef struct plimsoll_account {
    uint64_t owner;
    uint64_t gets;
    uint64_t frees;
    uint64_t slows;
    uint64_t wait_ns;
    uint64_t hold_ns;
    uint64_t waiting_since_ns;
    uint64_t holding_since_ns;
} plimsoll_account;

#ifdef __cplusplus
#define PLIMSOLL_ASSERT(what, why) static_assert(what, why)
#else
#define PLIMSOLL_ASSERT(what, why) _Static_assert(what, why)
#endif
PLIMSOLL_ASSERT(offsetof(plimsoll_header, pid) == 0x20, "pid");
PLIMSOLL_ASSERT(offsetof(plimsoll_header, app) == 0x40, "app");
PLIMSOLL_ASSERT(offsetof(plimsoll_header, app_beat_ns) == 0x80, "app_beat_ns");
PLIMSOLL_ASSERT(offsetof(plimsoll_header, tasks_used) == 0xa0, "tasks_used");
PLIMSOLL_ASSERT(offsetof(plimsoll_header, agent_beat_ns) == 0xc0, "agent_beat_ns");
PLIMSOLL_ASSERT(offsetof(plimsoll_header, agent_pid) == 0xd0, "agent_pid");
PLIMSOLL_ASSERT(offsetof(plimsoll_header, clock_ns) == 0x100, "clock_ns");
PLIMSOLL_ASSERT(sizeof(plimsoll_resource_record) == 64, "resource");
PLIMSOLL_ASSERT(offsetof(plimsoll_lane, bins) == 64 && sizeof(plimsoll_lane) == 2048, "lane");
PLIMSOLL_ASSERT(offsetof(plimsoll_task_record, label) == 64 && sizeof(plimsoll_task_record) == 128, "task");
PLIMSOLL_ASSERT(sizeof(plimsoll_account) == 64, "account");

#endif
