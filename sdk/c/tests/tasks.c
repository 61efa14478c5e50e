/** Tasks and resources, one thread at a time. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "harness.h"

static plimsoll_account *account_of(plimsoll_app *app, const plimsoll_task *task, const plimsoll_resource *resource) {
    for (uint32_t i = 0; i < app->accounts_fresh; i++) {
        uint64_t owner = app->accounts[i].owner;
        if ((uint32_t)owner == task->index + 1 && ((owner >> 32) & 0xffff) == resource->index) return &app->accounts[i];
    }
    return NULL;
}

TEST(tasks_nothing_is_nothing) {
    plimsoll_task_options options = {0};
    plimsoll_task *task = plimsoll_task_begin(NULL, "GET /", 1);
    plimsoll_resource *resource = plimsoll_resource_of(NULL, PLIMSOLL_LOCK, "table", 1);
    CHECK(!task && !resource && !plimsoll_task_begin_with(NULL, "GET /", 1, &options) && !plimsoll_task_share(NULL));
    plimsoll_wait(task, resource);
    plimsoll_get(task, resource, 1);
    plimsoll_slow(task, resource, 1, 1);
    plimsoll_free(task, resource, 1);
    plimsoll_wait_end(task, resource);
    plimsoll_progress(task, 1, 2);
    plimsoll_task_attach(NULL);
    CHECK(!plimsoll_cancelled(task) && !plimsoll_cancel_reason(task) && !plimsoll_task_on_cancel(task, NULL, NULL, NULL));
    CHECK(plimsoll_task_end(task) == PLIMSOLL_FINISHED && plimsoll_task_end_as(task, PLIMSOLL_CANCELLED) == PLIMSOLL_FINISHED);
    CHECK(!plimsoll_task_detach() && !plimsoll_task_current() && !plimsoll_connected(NULL) && *plimsoll_file(NULL) == '\0');
    plimsoll_close(NULL);
    /* A task and no resource, and one that has ended. */
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    task = plimsoll_task_begin(app, NULL, 1);
    plimsoll_get(task, NULL, 1);
    plimsoll_wait(task, NULL);
    plimsoll_task_end(task);
    resource = plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1);
    plimsoll_get(task, resource, 1);
    plimsoll_progress(task, 1, 2);
    CHECK(!plimsoll_cancelled(task) && plimsoll_task_end(task) == PLIMSOLL_FINISHED);
    CHECK(app->accounts_fresh == 0);
    plimsoll_close(app);
}

TEST(tasks_current) {
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    plimsoll_task *outer = plimsoll_task_begin(app, "outer", 1);
    CHECK(plimsoll_task_current() == outer && outer->record->tid == (uint32_t)gettid());
    plimsoll_task *inner = plimsoll_task_begin(app, "inner", 2);
    CHECK(plimsoll_task_current() == inner);
    plimsoll_task_end(outer); /* out of order */
    CHECK(plimsoll_task_current() == inner);
    CHECK(plimsoll_task_detach() == inner && !plimsoll_task_current() && inner->record->tid == 0);
    plimsoll_task_attach(inner);
    CHECK(plimsoll_task_current() == inner && inner->record->tid == (uint32_t)gettid());
    plimsoll_task_end(inner);
    CHECK(!plimsoll_task_current());
    plimsoll_task_options options = {0};
    options.detached = true;
    inner = plimsoll_task_begin_with(app, "detached", 3, &options);
    CHECK(inner && !plimsoll_task_current() && inner->record->tid == 0);
    plimsoll_task_end(inner);
    plimsoll_close(app);
}

static void *begins_and_exits(void *app) {
    plimsoll_task_begin(app, "outer", 1);
    plimsoll_task *task = plimsoll_task_begin(app, "inner", 2);
    plimsoll_get(task, plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1), 1);
    return NULL;
}

TEST(tasks_end_with_their_thread) {
    plimsoll_app *app = app_open(NULL);
    pthread_t thread;
    REQUIRE(app && pthread_create(&thread, NULL, begins_and_exits, app) == 0);
    pthread_join(thread, NULL);
    CHECK(app->task_records[0].turn == 2 && app->task_records[1].turn == 2);
    CHECK(app->accounts[0].gets == 1 && app->accounts[0].frees == 1 && (uint32_t)app->accounts[0].owner == 0);
    plimsoll_close(app);
}

TEST(tasks_share) {
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    plimsoll_resource *table = plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1);
    plimsoll_task *task = plimsoll_task_begin(app, "GET /", 1), *share = plimsoll_task_share(task);
    plimsoll_get(task, table, 1);
    plimsoll_get(share, table, 1);
    CHECK(app->accounts_fresh == 2 && app->accounts[0].owner == app->accounts[1].owner && app->accounts[0].gets == 1 && app->accounts[1].gets == 1);
    plimsoll_progress(share, 3, 4);
    CHECK(task->record->done == 3 && task->record->total == 4);
    CHECK(!plimsoll_cancelled(share) && plimsoll_task_current() == task);
    plimsoll_task_end(share);
    CHECK(app->accounts[1].frees == 1 && (uint32_t)app->accounts[1].owner == 0 && task->record->turn == 1);
    /* One that is left behind stops. */
    share = plimsoll_task_share(task);
    plimsoll_task_end(task);
    CHECK(plimsoll_cancelled(share) && plimsoll_cancel_reason(share));
    plimsoll_task_end(share);
    plimsoll_close(app);
}

TEST(tasks_of_two_applications) {
    plimsoll_options options = {0};
    options.dir = test_dir();
    options.resources = 1;
    plimsoll_app *app = app_open(NULL), *small = plimsoll_open_with("small", &options);
    REQUIRE(app && small);
    plimsoll_resource *last = NULL;
    for (int i = 0; i < 64; i++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", i);
        last = plimsoll_resource_of(app, PLIMSOLL_LOCK, name, 1);
    }
    CHECK(last && last->index == 63 && plimsoll_resource_of(app, PLIMSOLL_LOCK, "r7", 1) == &app->resources[7]);
    CHECK(!plimsoll_resource_of(app, PLIMSOLL_LOCK, "one more", 1) && app->header->resources_refused == 1 && heard.lines == 1);
    plimsoll_task *task = plimsoll_task_begin(small, "GET /", 1);
    /* Its own row has one place. */
    plimsoll_wait(task, last);
    plimsoll_get(task, last, 1);
    plimsoll_free(task, last, 1);
    CHECK(app->accounts_fresh == 0 && small->accounts_fresh == 0);
    CHECK(!plimsoll_open_with("small", &options));
    plimsoll_task_end(task);
    plimsoll_close(small);
    plimsoll_close(app);
}

TEST(tasks_find_no_room) {
    plimsoll_options options = {0};
    options.tasks = 2;
    options.accounts = 1;
    plimsoll_app *app = app_open(&options);
    REQUIRE(app);
    plimsoll_resource *table = plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1);
    plimsoll_task *tasks[6];
    for (int i = 0; i < 6; i++) {
        tasks[i] = plimsoll_task_begin(app, "GET /", (uint64_t)i);
        plimsoll_wait(tasks[i], table);
        plimsoll_get(tasks[i], table, 1);
        plimsoll_progress(tasks[i], 1, 2);
        CHECK(!plimsoll_cancelled(tasks[i]) && !plimsoll_cancel_reason(tasks[i]));
    }
    CHECK(app->header->tasks_refused == 4 && app->header->accounts_refused >= 1 && app->header->tasks_used == 2);
    CHECK(app->accounts[0].gets == 1 && heard.lines == 2); /* one about tasks, one about accounts */
    for (int i = 5; i >= 0; i--) plimsoll_task_end(tasks[i]);
    uint64_t completed = 0;
    for (uint32_t lane = 0; lane < app->counts.lanes; lane++) completed += app->lanes[lane].completed;
    CHECK(completed == 4); /* two without a record had room to be counted, two had none */
    plimsoll_task *task = plimsoll_task_begin(app, "GET /", 7);
    CHECK(task && task->resources && task->index < 2);
    plimsoll_task_end(task);
    plimsoll_close(app);
}

TEST(tasks_in_exact_time) {
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    plimsoll_resource *table = plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1);
    plimsoll_task *task = plimsoll_task_begin(app, "GET /", 7);
    plimsoll_get(task, table, 1);
    plimsoll_free(task, table, 1);
    plimsoll_account *account = account_of(app, task, table);
    REQUIRE(account);
    /* There is an agent, and it wants exact times. */
    plimsoll_header *header = app->header;
    __atomic_store_n(&header->agent_beat_ns, plimsoll_now_ns() + 900000000, __ATOMIC_RELAXED);
    __atomic_store_n(&header->flags, PLIMSOLL_FLAG_EXACT, __ATOMIC_RELAXED);
    uint64_t hold_ns = account->hold_ns, before = plimsoll_now_ns();
    plimsoll_get(task, table, 1);
    while (plimsoll_now_ns() < before + 100000) continue;
    plimsoll_free(task, table, 1);
    uint64_t after = plimsoll_now_ns();
    CHECK(account->hold_ns > hold_ns && account->hold_ns - hold_ns <= after - before);
    plimsoll_wait(task, table);
    CHECK(account->waiting_since_ns >= after && account->slows == 1);
    plimsoll_wait(task, table); /* it waits already */
    CHECK(account->slows == 1);
    plimsoll_wait_end(task, table);
    CHECK(account->waiting_since_ns == 0);
    plimsoll_task_end(task);
    plimsoll_close(app);
}

static uint64_t apart(uint64_t a, uint64_t b) {
    return a > b ? a - b : b - a;
}

static bool calibrated(void *nothing) {
    (void)nothing;
    return PLIMSOLL_LOAD(&plimsoll_the_clock.source) == PLIMSOLL_CLOCK_TSC;
}

TEST(tasks_clock_is_within_a_millisecond) {
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    /* Two heartbeats, after which it is the TSC where that is good. */
    usleep(2200000);
    printf("the exact clock is %s\n", calibrated(NULL) ? "the TSC" : "the system's");
    uint64_t nearest = UINT64_MAX;
    /* A thread that is put aside between the two sees them apart; not always. */
    for (int i = 0; i < 100; i++) {
        uint64_t between = apart(plimsoll_now_ns(), plimsoll_system_ns());
        if (between < nearest) nearest = between;
    }
    CHECK(nearest < 1000000);
    plimsoll_close(app);
}

static bool self_ticked(void *context) {
    plimsoll_header *header = context;
    return PLIMSOLL_LOAD(&header->flags) == 0 && PLIMSOLL_LOAD(&header->clock_ns) > 12345 && PLIMSOLL_LOAD(&header->app_beat_ns) > 12345;
}

TEST(tasks_sdk_ticks_when_the_agent_is_silent) {
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    /* What an agent leaves behind that was killed. */
    __atomic_store_n(&app->header->flags, PLIMSOLL_FLAG_EXACT, __ATOMIC_RELAXED);
    __atomic_store_n(&app->header->clock_ns, 12345, __ATOMIC_RELAXED);
    CHECK(test_until(self_ticked, app->header));
    /* While one lives, it has the clock. */
    uint64_t now = plimsoll_now_ns();
    app->header->agent_beat_ns = now;
    app->header->clock_ns = 12345;
    plimsoll_control_beat(app, now + 900000000);
    bool kept = app->header->clock_ns == 12345;
    CHECK(kept || plimsoll_now_ns() > now + 1000000000);
    plimsoll_close(app);
}

TEST(tasks_labels_are_cut_at_a_character) {
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    char label[80];
    memset(label, 'x', sizeof label);
    memcpy(label + 62, "\xe2\x82\xac", 4); /* a euro that does not fit */
    plimsoll_task *task = plimsoll_task_begin(app, label, 1);
    CHECK(strnlen(task->record->label, 64) == 62);
    plimsoll_task_end(task);
    task = plimsoll_task_begin(app, "short", 1);
    CHECK(strcmp(task->record->label, "short") == 0 && task->record->label[63] == '\0');
    plimsoll_task_end(task);
    CHECK(!plimsoll_resource_of(app, PLIMSOLL_LOCK, "", 1) && !plimsoll_resource_of(app, (plimsoll_kind)9, "x", 1) && heard.lines == 1);
    plimsoll_close(app);
}

TEST(tasks_bins) {
    CHECK(plimsoll_lane_bin(0) == 0 && plimsoll_lane_bin(15 << 10) == 15 && plimsoll_lane_bin(16 << 10) == 16 && plimsoll_lane_bin(18 << 10) == 17);
    CHECK(plimsoll_lane_bin(UINT64_MAX) == 247);
    for (uint64_t ns = 1; ns < UINT64_MAX / 3; ns += ns / 9 + 1) CHECK(plimsoll_lane_bin(ns) <= plimsoll_lane_bin(ns + ns / 9));
}

struct scribble {
    int fd, goes_on;
    off_t size;
    unsigned seed;
};

static void *scribble(void *context) {
    struct scribble *scribble = context;
    while (__atomic_load_n(&scribble->goes_on, __ATOMIC_ACQUIRE)) {
        uint64_t bytes = ((uint64_t)rand_r(&scribble->seed) << 40) ^ ((uint64_t)rand_r(&scribble->seed) << 20) ^ (uint64_t)rand_r(&scribble->seed);
        /* Mostly where there is something. */
        off_t end = rand_r(&scribble->seed) % 2 ? 40000 : scribble->size, at = rand_r(&scribble->seed) % (end / 8) * 8;
        if (pwrite(scribble->fd, &bytes, sizeof bytes, at) < 0) break;
    }
    return NULL;
}

TEST(tasks_survive_random_bytes) {
    const char *given = getenv("PLIMSOLL_SEED");
    struct scribble wild = {-1, 1, 0, given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL)};
    printf("PLIMSOLL_SEED=%u\n", wild.seed);
    plimsoll_options options = {0};
    options.tasks = 64;
    options.accounts = 256;
    plimsoll_app *app = app_open(&options);
    pthread_t thread;
    REQUIRE(app);
    wild.fd = open(plimsoll_file(app), O_WRONLY | O_CLOEXEC);
    wild.size = (off_t)app->size;
    REQUIRE(wild.fd >= 0 && pthread_create(&thread, NULL, scribble, &wild) == 0);
    plimsoll_resource *table = plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1), *pages = plimsoll_resource_of(app, PLIMSOLL_MEMORY, "pages", 1);
    CHECK(table && pages);
    for (int i = 0; i < 30000; i++) {
        plimsoll_task *outer = plimsoll_task_begin(app, "outer", 1), *inner = plimsoll_task_begin(app, "inner", 2);
        plimsoll_wait(outer, table);
        plimsoll_get(outer, table, 2);
        plimsoll_get(inner, pages, 3);
        plimsoll_slow(inner, pages, 1, 1);
        plimsoll_progress(inner, 1, 2);
        plimsoll_free(outer, table, 1);
        plimsoll_free(inner, pages, 3);
        if (plimsoll_cancelled(inner) || plimsoll_cancelled(outer) || plimsoll_task_current() != inner) CHECK(!"nobody cancels, and what is current is our own");
        plimsoll_task_end(inner);
        plimsoll_task_end(outer);
    }
    CHECK(app->tasks_fresh == 2 && app->accounts_fresh == 2);
    __atomic_store_n(&wild.goes_on, 0, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    close(wild.fd);
    plimsoll_close(app);
}

TEST(tasks_outlive_their_application) {
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    plimsoll_resource *table = plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1);
    plimsoll_task *task = plimsoll_task_begin(app, "late", 1);
    plimsoll_get(task, table, 1);
    plimsoll_close(app);
    plimsoll_free(task, table, 1);
    CHECK(!plimsoll_task_begin(app, "too late", 1));
    CHECK(!plimsoll_cancelled(task) && plimsoll_task_end(task) == PLIMSOLL_FINISHED);
}
