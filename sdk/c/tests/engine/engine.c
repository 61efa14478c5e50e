/** A program that is watched from within. Linked with the engine, and with nothing of the SDK's inside. */
#include <dirent.h>
#include <plimsoll_engine.h>
#include <plimsoll_tracked.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define VICTIMS 4

/* Requests that each need the table for a moment, a slow one that needs something else, and a dump that keeps the table until it is cancelled. */
struct shop {
    plimsoll_app *app;
    plimsoll_mutex table, archive;
    pthread_t victims[VICTIMS], slow, dump;
    bool stop, dumped, slow_cancelled, dump_cancelled;
};

/* What was told: of the dump, that it is cancelled or would be; that what it held is free. */
struct told {
    int cancels, dump_cancels, dump_would, releases;
};

static void count(int *what, bool is) {
    if (is) __atomic_fetch_add(what, 1, __ATOMIC_RELEASE);
}

static void tell(const char *line, void *context) {
    struct told *told = context;
    bool cancel = strstr(line, "\"event\":\"cancel\""), would = strstr(line, "\"event\":\"would_cancel\"");
    bool dump = strstr(line, "\"task\":\"task 77 (POST /dump)\",\"resource\":\"table\"");
    count(&told->cancels, cancel);
    count(&told->dump_cancels, cancel && dump);
    count(&told->dump_would, would && dump);
    count(&told->releases, dump && strstr(line, "\"event\":\"released\""));
}

static bool stopped(struct shop *shop) {
    return __atomic_load_n(&shop->stop, __ATOMIC_ACQUIRE);
}

static void *victim(void *argument) {
    struct shop *shop = argument;
    while (!stopped(shop)) {
        plimsoll_task *task = plimsoll_task_begin(shop->app, "GET /item", 1);
        plimsoll_mutex_lock(&shop->table);
        usleep(1000);
        plimsoll_mutex_unlock(&shop->table);
        plimsoll_task_end(task);
        usleep(2000);
    }
    return NULL;
}

static bool keeps(struct shop *shop, plimsoll_mutex *what, const char *label, uint64_t key) {
    plimsoll_task *task = plimsoll_task_begin(shop->app, label, key);
    plimsoll_mutex_lock(what);
    while (!stopped(shop) && !plimsoll_cancelled(task)) usleep(1000);
    bool cancelled = plimsoll_cancelled(task);
    plimsoll_mutex_unlock(what);
    plimsoll_task_end(task);
    return cancelled;
}

static void *slow(void *argument) {
    struct shop *shop = argument;
    shop->slow_cancelled = keeps(shop, &shop->archive, "GET /archive", 4);
    return NULL;
}

static void *dump(void *argument) {
    struct shop *shop = argument;
    usleep(1000000);
    shop->dump_cancelled = keeps(shop, &shop->table, "POST /dump", 77);
    __atomic_store_n(&shop->dumped, true, __ATOMIC_RELEASE);
    return NULL;
}

static void shop_open(struct shop *shop, plimsoll_app *app) {
    memset(shop, 0, sizeof *shop);
    shop->app = app;
    plimsoll_mutex_init(&shop->table, app, "table");
    plimsoll_mutex_init(&shop->archive, app, "archive");
    for (int i = 0; i < VICTIMS; i++) CHECK(pthread_create(&shop->victims[i], NULL, victim, shop) == 0);
    CHECK(pthread_create(&shop->slow, NULL, slow, shop) == 0);
    CHECK(pthread_create(&shop->dump, NULL, dump, shop) == 0);
}

static void shop_close(struct shop *shop) {
    __atomic_store_n(&shop->stop, true, __ATOMIC_RELEASE);
    for (int i = 0; i < VICTIMS; i++) pthread_join(shop->victims[i], NULL);
    pthread_join(shop->slow, NULL);
    pthread_join(shop->dump, NULL);
}

static plimsoll_engine *opened(const char *config, struct told *told, plimsoll_app **app, char *why, size_t size) {
    plimsoll_options options = {.dir = test_dir()};
    plimsoll_engine_options engine = {.config = config, .event = told ? tell : NULL, .event_context = told};
    return plimsoll_engine_open("shop", &options, &engine, app, why, size);
}

static int threads_of_the_engine(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fgets(name, sizeof name, file)) count += strncmp(name, "plimsoll-e", 10) == 0;
        fclose(file);
    }
    if (tasks) closedir(tasks);
    return count;
}

/* A thread gives itself its name. */
static bool has_threads(void *context) {
    (void)context;
    return threads_of_the_engine() == 2;
}

static bool dumped(void *shop) {
    return __atomic_load_n(&((struct shop *)shop)->dumped, __ATOMIC_ACQUIRE);
}

static bool released(void *told) {
    return __atomic_load_n(&((struct told *)told)->releases, __ATOMIC_ACQUIRE) > 0;
}

static bool would_cancel(void *told) {
    return __atomic_load_n(&((struct told *)told)->dump_would, __ATOMIC_ACQUIRE) > 0;
}

static bool has_problem(void *engine) {
    return plimsoll_engine_problem(engine) != NULL;
}

TEST(cancels_who_holds_up_all_others_and_nobody_who_is_merely_slow) {
    struct told told = {0};
    struct shop shop;
    plimsoll_app *app;
    char why[256] = "";
    plimsoll_engine *engine = opened("[app.shop]\nslo = { p99 = \"100ms\" }", &told, &app, why, sizeof why);
    REQUIRE(engine && app && !*why && !plimsoll_engine_problem(engine));
    CHECK(test_until(has_threads, NULL));
    shop_open(&shop, app);
    CHECK(test_until(dumped, &shop));
    CHECK(test_until(released, &told));
    shop_close(&shop);
    CHECK(shop.dump_cancelled && !shop.slow_cancelled);
    CHECK(!plimsoll_engine_problem(engine));
    plimsoll_engine_close(engine);
    CHECK(threads_of_the_engine() == 0);
    CHECK(told.dump_cancels == 1);
    /* Nobody looks any more, and nobody minds. */
    plimsoll_task_end(plimsoll_task_begin(app, "GET /item", 1));
    plimsoll_close(app);
}

TEST(cancels_nobody_in_shadow) {
    struct told told = {0};
    struct shop shop;
    plimsoll_app *app;
    char why[256] = "";
    plimsoll_engine *engine = opened("[app.shop]\nslo = { p99 = \"100ms\" }\nmode = \"shadow\"", &told, &app, why, sizeof why);
    REQUIRE(engine);
    shop_open(&shop, app);
    CHECK(test_until(would_cancel, &told));
    usleep(1000000);
    CHECK(!dumped(&shop));
    shop_close(&shop);
    CHECK(!shop.dump_cancelled && !shop.slow_cancelled);
    plimsoll_engine_close(engine);
    CHECK(told.cancels == 0);
    plimsoll_close(app);
}

TEST(says_what_is_wrong_and_the_application_runs) {
    plimsoll_app *app;
    char why[256] = "";
    CHECK(!opened("[app.shop]\nslo = { p99 = \"50\" }", NULL, &app, why, sizeof why) && app && strstr(why, "p99"));
    plimsoll_task_end(plimsoll_task_begin(app, "GET /item", 1));
    plimsoll_close(app);
    CHECK(!opened("[app.cart]\nslo = { p99 = \"50ms\" }", NULL, &app, why, sizeof why) && app);
    CHECK(strcmp(why, "there is no [app.shop] in the config") == 0);
    plimsoll_close(app);
    CHECK(!opened(NULL, NULL, &app, why, 9) && app && strcmp(why, "there is") == 0);
    plimsoll_close(app);
    plimsoll_engine_options engine = {.config = "[app.shop]\nslo = { p99 = \"50ms\" }"};
    plimsoll_options nowhere = {.dir = "/proc/nowhere"};
    CHECK(!plimsoll_engine_open("shop", &nowhere, &engine, &app, why, sizeof why) && !app && strcmp(why, "there is no ledger") == 0);
    CHECK(!plimsoll_engine_open(NULL, NULL, NULL, &app, NULL, 0) && !app);
    plimsoll_engine_close(NULL);
    CHECK(plimsoll_engine_problem(NULL));
}

TEST(stands_back_where_there_is_another) {
    plimsoll_app *app;
    char why[256] = "", expected[64];
    const plimsoll_engine_options wanted = {.config = "[app.shop]\nslo = { p99 = \"50ms\" }"};
    plimsoll_engine *first = opened(wanted.config, NULL, &app, why, sizeof why);
    REQUIRE(first);
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(!plimsoll_engine_start("shop", &wanted, plimsoll_file(app), ends[0], why, sizeof why));
    snprintf(expected, sizeof expected, "another agent has it, process %d", (int)getpid());
    CHECK(strstr(why, expected));
    close(ends[1]);
    CHECK(!plimsoll_engine_problem(first));
    /* An application that is closed first is watched no more. */
    plimsoll_close(app);
    CHECK(test_until(has_problem, first));
    plimsoll_engine_close(first);
}

/* A child has neither the thread nor any business with it. */
TEST(leaves_a_forked_child_alone) {
    plimsoll_app *app;
    char why[256];
    plimsoll_engine *engine = opened("[app.shop]\nslo = { p99 = \"50ms\" }", NULL, &app, why, sizeof why);
    REQUIRE(engine);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        plimsoll_engine_close(engine);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!plimsoll_engine_problem(engine));
    plimsoll_engine_close(engine);
    plimsoll_close(app);
}
