/** Running again what was cancelled, or not. */
#include <string.h>

#include "agent.h"
#include "harness.h"

struct rerun {
    plimsoll_app *app;
    int ran, dropped;
    uint32_t flags;
};

static void run(void *context) {
    struct rerun *rerun = context;
    plimsoll_task *task = plimsoll_task_begin(rerun->app, "again", 1);
    if (task) rerun->flags = task->record->flags;
    plimsoll_task_end(task);
    __atomic_fetch_add(&rerun->ran, 1, __ATOMIC_RELEASE);
}

static void drop(void *context) {
    __atomic_fetch_add(&((struct rerun *)context)->dropped, 1, __ATOMIC_RELEASE);
}

static bool counted(void *count) {
    return __atomic_load_n((int *)count, __ATOMIC_ACQUIRE) > 0;
}

static plimsoll_task *begin(plimsoll_app *app, struct rerun *rerun) {
    plimsoll_task_options options = {0};
    rerun->app = app;
    options.rerun.run = run;
    options.rerun.drop = drop;
    options.rerun.context = rerun;
    options.detached = true;
    return plimsoll_task_begin_with(app, "first time", 1, &options);
}

/* Begun, cancelled, ended: it waits. */
static void cancel(struct agent *agent, plimsoll_app *app, struct rerun *rerun, int id) {
    char wanted[64];
    plimsoll_task *task = begin(app, rerun);
    agent_cancel(agent, id, task, "why");
    snprintf(wanted, sizeof wanted, "acknowledge %d", id);
    CHECK(strcmp(agent_line(agent), wanted) == 0);
    CHECK(plimsoll_cancelled(task) && plimsoll_task_end(task) == PLIMSOLL_WILL_RERUN);
    snprintf(wanted, sizeof wanted, "outcome %d cancelled", id);
    CHECK(strcmp(agent_line(agent), wanted) == 0);
}

TEST(rerun_and_drop_at_the_agents_word) {
    struct agent agent;
    struct rerun one = {0}, two = {0}, none = {0};
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    agent_welcome(&agent);
    CHECK(plimsoll_task_end(begin(app, &none)) == PLIMSOLL_FINISHED);
    cancel(&agent, app, &one, 1);
    cancel(&agent, app, &two, 2);
    agent_say(&agent, "drop 2");
    CHECK(strcmp(agent_line(&agent), "dropped 2") == 0);
    agent_say(&agent, "rerun 3");
    agent_say(&agent, "rerun 1");
    CHECK(strcmp(agent_line(&agent), "reran 1") == 0);
    CHECK(one.ran == 1 && one.dropped == 0 && two.ran == 0 && two.dropped == 1 && none.ran + none.dropped == 0);
    CHECK(one.flags == PLIMSOLL_TASK_RERUN);
    agent_say(&agent, "rerun 1");
    plimsoll_close(app);
    CHECK(one.ran == 1);
    agent_end(&agent);
}

TEST(rerun_when_nothing_comes) {
    struct agent agent;
    struct rerun late = {0}, alone = {0};
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    agent_welcome(&agent);
    uint64_t patience = app->patience.rerun_ns;
    CHECK(patience == 30000000000ull);
    __atomic_store_n(&app->patience.rerun_ns, 50000000, __ATOMIC_RELAXED);
    cancel(&agent, app, &late, 1);
    CHECK(strcmp(agent_line(&agent), "reran 1") == 0);
    CHECK(late.ran == 1);
    /* The connection ends. */
    __atomic_store_n(&app->patience.rerun_ns, patience, __ATOMIC_RELAXED);
    cancel(&agent, app, &alone, 2);
    agent_end(&agent);
    CHECK(test_until(counted, &alone.ran));
    /* And it ended before the task did. */
    struct rerun orphan = {0};
    agent_listen(&agent);
    agent_welcome(&agent);
    plimsoll_task *task = begin(app, &orphan);
    agent_cancel(&agent, 1, task, "why");
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0);
    agent_end(&agent);
    agent_listen(&agent);
    agent_welcome(&agent);
    CHECK(plimsoll_cancelled(task) && plimsoll_task_end(task) == PLIMSOLL_WILL_RERUN);
    CHECK(test_until(counted, &orphan.ran));
    CHECK(orphan.ran == 1 && orphan.dropped == 0);
    /* Of what is of no use any more, nothing is run. */
    struct rerun useless = {0};
    plimsoll_task_options options = {0};
    options.rerun.run = run;
    options.rerun.drop = drop;
    options.rerun.context = &useless;
    options.deadline_ns = 1;
    task = plimsoll_task_begin_with(app, "too late", 1, &options);
    agent_cancel(&agent, 7, task, "why");
    CHECK(strcmp(agent_line(&agent), "acknowledge 7") == 0);
    CHECK(plimsoll_cancelled(task) && plimsoll_task_end(task) == PLIMSOLL_WILL_RERUN);
    agent_end(&agent);
    CHECK(test_until(counted, &useless.dropped));
    CHECK(useless.ran == 0);
    plimsoll_close(app);
}

TEST(rerun_of_too_many) {
    enum { MANY = PLIMSOLL_WAITING_MAX + 1 };
    static struct rerun all[MANY];
    struct agent agent;
    memset(all, 0, sizeof all);
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    agent_welcome(&agent);
    /* However long that takes, nothing has waited too long. */
    __atomic_store_n(&app->patience.rerun_ns, 3600000000000, __ATOMIC_RELAXED);
    for (int i = 0; i < MANY - 1; i++) cancel(&agent, app, &all[i], i + 1);
    plimsoll_task *task = begin(app, &all[MANY - 1]);
    agent_cancel(&agent, MANY, task, "one too many");
    agent_line(&agent);
    CHECK(plimsoll_cancelled(task) && plimsoll_task_end(task) == PLIMSOLL_WILL_RERUN);
    CHECK(all[MANY - 1].dropped == 1 && all[MANY - 1].ran == 0);
    CHECK(strstr(agent_line(&agent), "cancelled") && strstr(agent_line(&agent), "dropped"));
    /* What still waits when the application closes is dropped, none of it lost. */
    plimsoll_close(app);
    int dropped = 0, ran = 0;
    for (int i = 0; i < MANY; i++) dropped += all[i].dropped, ran += all[i].ran;
    CHECK(dropped == MANY && ran == 0);
    agent_end(&agent);
}
