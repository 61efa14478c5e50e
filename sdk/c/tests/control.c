/** The control connection, with an agent that does what agents do, and what they should not. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "harness.h"

static bool stops(void *task) {
    return plimsoll_cancelled(task);
}

static bool counted(void *count) {
    return __atomic_load_n((int *)count, __ATOMIC_ACQUIRE) > 0;
}

static bool is_connected(void *app) {
    return plimsoll_connected(app);
}

TEST(control_hello) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    agent_accept(&agent);
    char wanted[128];
    snprintf(wanted, sizeof wanted, "hello 1 test.%d.ledger", (int)getpid());
    CHECK(strcmp(agent_line(&agent), wanted) == 0);
    CHECK(!plimsoll_connected(app));
    agent_say(&agent, "a word of a later version");
    agent_say(&agent, "welcome 1 shadow");
    CHECK(test_until(is_connected, app));
    plimsoll_close(app);
    CHECK(strcmp(agent_line(&agent), "") == 0);
    agent_end(&agent);
    CHECK(heard.lines == 0);
}

TEST(control_cancel_is_noticed) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1);
    agent_welcome(&agent);
    plimsoll_task *task = plimsoll_task_begin(app, "GET /report", 7);
    CHECK(!plimsoll_cancel_resource(task) && !plimsoll_cancelled(task) && !plimsoll_cancel_reason(task));
    agent_cancel(&agent, 1, task, "it holds table for 1.2 s");
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0);
    CHECK(plimsoll_cancelled(task));
    CHECK(strcmp(plimsoll_cancel_reason(task), "it holds table for 1.2 s") == 0 && strcmp(plimsoll_cancel_resource(task), "table") == 0);
    CHECK(plimsoll_task_end(task) == PLIMSOLL_CANCELLED);
    CHECK(strcmp(agent_line(&agent), "outcome 1 cancelled") == 0);
    /* One that ends without having looked finished by itself. */
    task = plimsoll_task_begin(app, "GET /report", 8);
    agent_cancel(&agent, 2, task, "why");
    CHECK(strcmp(agent_line(&agent), "acknowledge 2") == 0);
    CHECK(plimsoll_task_end(task) == PLIMSOLL_FINISHED);
    CHECK(strcmp(agent_line(&agent), "outcome 2 finished") == 0);
    /* Or says so itself. */
    task = plimsoll_task_begin(app, "GET /report", 9);
    agent_cancel(&agent, 3, task, "why");
    CHECK(test_until(stops, task));
    CHECK(plimsoll_task_end_as(task, PLIMSOLL_FINISHED) == PLIMSOLL_FINISHED);
    CHECK(strcmp(agent_line(&agent), "acknowledge 3") == 0);
    CHECK(strcmp(agent_line(&agent), "outcome 3 finished") == 0);
    uint64_t completed = 0, cancelled = 0;
    for (uint32_t lane = 0; lane < app->counts.lanes; lane++) {
        completed += app->lanes[lane].completed;
        cancelled += app->lanes[lane].cancelled;
    }
    CHECK(completed == 3 && cancelled == 1);
    plimsoll_close(app);
    agent_end(&agent);
}

TEST(control_cancel_of_what_cannot_be) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    agent_welcome(&agent);
    plimsoll_task_options options = {0};
    options.uncancellable = true;
    plimsoll_task *never = plimsoll_task_begin_with(app, "migration", 1, &options), *task = plimsoll_task_begin(app, "GET /", 2);
    agent_cancel(&agent, 1, never, "why");
    CHECK(strcmp(agent_line(&agent), "outcome 1 failed this task is not cancellable") == 0);
    agent_say(&agent, "cancel 2 %u %llu 0 why", task->index, (unsigned long long)task->turn + 2);
    CHECK(strcmp(agent_line(&agent), "outcome 2 gone") == 0);
    agent_say(&agent, "cancel 3 %u %llu 0 why", task->index, (unsigned long long)task->turn + 1);
    CHECK(strcmp(agent_line(&agent), "outcome 3 gone") == 0);
    agent_say(&agent, "cancel 4 4000 1 0 why");
    CHECK(strcmp(agent_line(&agent), "outcome 4 gone") == 0);
    agent_cancel(&agent, 5, task, "first");
    CHECK(strcmp(agent_line(&agent), "acknowledge 5") == 0);
    agent_cancel(&agent, 6, task, "second");
    CHECK(strcmp(agent_line(&agent), "outcome 6 failed it has been cancelled already") == 0);
    CHECK(!plimsoll_cancelled(never) && strcmp(plimsoll_cancel_reason(task), "first") == 0);
    plimsoll_task_end(task);
    CHECK(strcmp(agent_line(&agent), "outcome 5 cancelled") == 0);
    plimsoll_task_end(never);
    plimsoll_close(app);
    agent_end(&agent);
}

struct called {
    int times, released;
    pthread_t thread;
    plimsoll_cancellation what;
    char label[80], resource[80], reason[80];
    int result;
    int hangs; /* until it is 0 */
};

static int act(plimsoll_cancellation *what, void *context) {
    struct called *called = context;
    called->thread = pthread_self();
    called->what = *what;
    snprintf(called->label, sizeof called->label, "%s", what->label);
    snprintf(called->resource, sizeof called->resource, "%s", what->resource);
    snprintf(called->reason, sizeof called->reason, "%s", what->reason);
    if (called->result) snprintf(what->failure, sizeof what->failure, "the session\nis gone");
    __atomic_fetch_add(&called->times, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&called->hangs, __ATOMIC_ACQUIRE)) usleep(1000);
    return called->result;
}

static void release(void *context) {
    __atomic_fetch_add(&((struct called *)context)->released, 1, __ATOMIC_RELEASE);
}

TEST(control_action_is_called) {
    struct agent agent;
    struct called called = {0};
    plimsoll_options options = {0};
    options.cancel = act;
    options.cancel_context = &called;
    agent_listen(&agent);
    plimsoll_app *app = app_open(&options);
    REQUIRE(app);
    plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1);
    agent_welcome(&agent);
    plimsoll_task *task = plimsoll_task_begin(app, "GET /report", 77);
    agent_cancel(&agent, 1, task, "why not");
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0);
    CHECK(test_until(counted, &called.times));
    CHECK(called.what.key == 77 && strcmp(called.label, "GET /report") == 0 && strcmp(called.resource, "table") == 0 && strcmp(called.reason, "why not") == 0);
    CHECK(!pthread_equal(called.thread, pthread_self()) && !pthread_equal(called.thread, app->control_thread));
    CHECK(plimsoll_task_end(task) == PLIMSOLL_CANCELLED);
    CHECK(strcmp(agent_line(&agent), "outcome 1 cancelled") == 0);
    /* A task's own action comes before the application's. */
    struct called own = {0};
    task = plimsoll_task_begin(app, "GET /own", 78);
    CHECK(plimsoll_task_on_cancel(task, act, release, &own));
    agent_cancel(&agent, 2, task, "again");
    CHECK(test_until(counted, &own.released));
    CHECK(own.times == 1 && called.times == 1);
    CHECK(!plimsoll_task_on_cancel(task, act, release, &own) && own.released == 2);
    plimsoll_task_end(task);
    CHECK(own.released == 2);
    /* One that is not needed is released, too. */
    task = plimsoll_task_begin(app, "GET /own", 79);
    CHECK(plimsoll_task_on_cancel(task, act, release, &own));
    CHECK(plimsoll_task_end(task) == PLIMSOLL_FINISHED);
    CHECK(own.released == 3 && own.times == 1);
    plimsoll_close(app);
    agent_end(&agent);
}

TEST(control_action_fails) {
    struct agent agent;
    struct called called = {0};
    plimsoll_options options = {0};
    called.result = 1;
    options.cancel = act;
    options.cancel_context = &called;
    agent_listen(&agent);
    plimsoll_app *app = app_open(&options);
    REQUIRE(app);
    agent_welcome(&agent);
    plimsoll_task *task = plimsoll_task_begin(app, "GET /report", 77);
    agent_cancel(&agent, 1, task, "why");
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0);
    CHECK(strcmp(agent_line(&agent), "outcome 1 failed the session is gone") == 0);
    /* One outcome a cancellation, whatever becomes of the task. */
    plimsoll_task_end(task);
    agent_say(&agent, "cancel 2 0 999 0 x");
    CHECK(strcmp(agent_line(&agent), "outcome 2 gone") == 0);
    plimsoll_close(app);
    agent_end(&agent);
}

TEST(control_action_never_returns) {
    static struct called called;
    struct agent agent;
    plimsoll_options options = {0};
    called.hangs = 1;
    options.cancel = act;
    options.cancel_context = &called;
    agent_listen(&agent);
    plimsoll_app *app = app_open(&options);
    REQUIRE(app);
    __atomic_store_n(&app->patience.action_ns, 300000000, __ATOMIC_RELAXED);
    agent_welcome(&agent);
    plimsoll_task *first = plimsoll_task_begin(app, "first", 1), *second = plimsoll_task_begin(app, "second", 2), *third = plimsoll_task_begin(app, "third", 3);
    agent_cancel(&agent, 1, first, "why");
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0);
    agent_cancel(&agent, 2, second, "waits for the first");
    CHECK(strcmp(agent_line(&agent), "outcome 1 failed the cancel action has not returned for 5 s") == 0);
    CHECK(strcmp(agent_line(&agent), "outcome 2 failed an earlier cancel action has not returned") == 0);
    agent_cancel(&agent, 3, third, "at once");
    CHECK(strcmp(agent_line(&agent), "outcome 3 failed an earlier cancel action has not returned") == 0);
    CHECK(!plimsoll_cancelled(second) && !plimsoll_cancelled(third));
    CHECK(heard.lines == 1 && strstr(heard.last, "has not returned"));
    /* Once it is back, so is everything else; the next action may take its time. */
    __atomic_store_n(&app->patience.action_ns, 5000000000, __ATOMIC_RELAXED);
    __atomic_store_n(&called.hangs, 0, __ATOMIC_RELEASE);
    const char *line;
    int id = 4;
    do {
        usleep(1000);
        agent_cancel(&agent, id, third, "now");
        line = agent_line(&agent);
    } while (strstr(line, "has not returned") && id++ < 20000);
    CHECK(strncmp(line, "acknowledge", 11) == 0);
    plimsoll_task_end(third);
    plimsoll_task_end(second);
    plimsoll_task_end(first);
    CHECK(strstr(agent_line(&agent), "cancelled"));
    plimsoll_close(app);
    agent_end(&agent);
}

TEST(control_closes_while_an_action_hangs) {
    static struct called called;
    struct agent agent;
    plimsoll_options options = {0};
    called.hangs = 1;
    options.cancel = act;
    options.cancel_context = &called;
    agent_listen(&agent);
    plimsoll_app *app = app_open(&options);
    REQUIRE(app);
    __atomic_store_n(&app->patience.action_ns, 100000000, __ATOMIC_RELAXED);
    agent_welcome(&agent);
    plimsoll_task *task = plimsoll_task_begin(app, "first", 1);
    agent_cancel(&agent, 1, task, "why");
    CHECK(test_until(counted, &called.times));
    plimsoll_task_end(task);
    plimsoll_close(app);
    __atomic_store_n(&called.hangs, 0, __ATOMIC_RELEASE);
    agent_end(&agent);
}

TEST(control_agent_dies_and_comes_back) {
    struct agent agent;
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    plimsoll_task *task = plimsoll_task_begin(app, "GET /", 1);
    agent_listen(&agent);
    agent_welcome(&agent);
    CHECK(test_until(is_connected, app));
    agent_cancel(&agent, 1, task, "why");
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0);
    agent_end(&agent);
    agent_listen(&agent);
    agent_welcome(&agent);
    /* The outcome belonged to a connection that is no more; IDs begin anew. */
    plimsoll_task *other = plimsoll_task_begin(app, "GET /", 2);
    CHECK(plimsoll_cancelled(task) && plimsoll_task_end(task) == PLIMSOLL_CANCELLED);
    agent_cancel(&agent, 1, other, "why");
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0);
    CHECK(plimsoll_cancelled(other) && plimsoll_task_end(other) == PLIMSOLL_CANCELLED);
    CHECK(strcmp(agent_line(&agent), "outcome 1 cancelled") == 0);
    plimsoll_close(app);
    agent_end(&agent);
    CHECK(heard.lines == 0);
}

TEST(control_refused_is_said_once) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    for (int i = 0; i < 3; i++) {
        agent_accept(&agent);
        agent_say(&agent, "refused the ledger is another user's");
        agent_hang_up(&agent);
    }
    agent_welcome(&agent);
    CHECK(test_until(is_connected, app));
    CHECK(heard.lines == 1 && strstr(heard.last, "the ledger is another user's"));
    plimsoll_close(app);
    agent_end(&agent);
}

TEST(control_bad_agents) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    plimsoll_task *task = plimsoll_task_begin(app, "GET /", 1);
    /* No cancelling without a welcome. */
    agent_accept(&agent);
    agent_line(&agent);
    agent_cancel(&agent, 1, task, "why");
    agent_say(&agent, "welcome 1 enforce");
    CHECK(test_until(is_connected, app));
    CHECK(!plimsoll_cancelled(task));
    /* A line without an end. */
    char much[3000];
    memset(much, 'x', sizeof much);
    CHECK(send(agent.fd, much, sizeof much, MSG_NOSIGNAL) == sizeof much);
    CHECK(strcmp(agent_line(&agent), "") == 0);
    agent_hang_up(&agent);
    /* Another version. */
    agent_accept(&agent);
    agent_line(&agent);
    agent_say(&agent, "welcome 2 enforce");
    CHECK(strcmp(agent_line(&agent), "") == 0);
    agent_hang_up(&agent);
    /* One that asks and does not listen: until the connection ends, or it has had enough. */
    agent_welcome(&agent);
    static char line[] = "cancel 1 0 3 0 and does not read what is answered\n";
    for (int i = 0; i < 200000 && send(agent.fd, line, sizeof line - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0; i++) continue;
    agent_hang_up(&agent);
    agent_welcome(&agent);
    CHECK(test_until(is_connected, app));
    CHECK(!plimsoll_cancelled(task) && plimsoll_task_end(task) == PLIMSOLL_FINISHED);
    plimsoll_close(app);
    agent_end(&agent);
}

TEST(control_over_a_given_fd) {
    struct agent agent = {0};
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    plimsoll_options options = {0};
    options.dir = test_dir();
    plimsoll_app *app = plimsoll_open_with_control_fd("test", &options, pair[1]);
    REQUIRE(app);
    agent.fd = pair[0];
    CHECK(strncmp(agent_line(&agent), "hello 1 test.", 13) == 0);
    agent_say(&agent, "welcome 1 enforce");
    plimsoll_task *task = plimsoll_task_begin(app, "GET /", 1);
    agent_cancel(&agent, 1, task, "from within");
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0);
    CHECK(plimsoll_cancelled(task));
    agent_hang_up(&agent);
    plimsoll_task_end(task);
    plimsoll_close(app);
    /* What is no connection is not used, and closed. */
    REQUIRE(pipe(pair) == 0);
    app = plimsoll_open_with_control_fd("bad name", NULL, pair[1]);
    CHECK(!app && write(pair[1], "", 1) < 0);
    close(pair[0]);
}

static void *thread_cancelled(void *argument) {
    plimsoll_task_options options = {0};
    options.cancel_thread = true;
    plimsoll_task *task = plimsoll_task_begin_with(((void **)argument)[0], "thread", 1, &options);
    __atomic_store_n(&((void **)argument)[1], task, __ATOMIC_RELEASE);
    for (;;) pause();
    return NULL;
}

static bool begun(void *argument) {
    return __atomic_load_n(&((void **)argument)[1], __ATOMIC_ACQUIRE) != NULL;
}

TEST(control_thread_is_cancelled_if_it_opted_in) {
    struct agent agent;
    agent_listen(&agent);
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    agent_welcome(&agent);
    void *shared[2] = {app, NULL}, *result;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, thread_cancelled, shared) == 0);
    REQUIRE(test_until(begun, shared));
    agent_cancel(&agent, 1, shared[1], "why");
    CHECK(strcmp(agent_line(&agent), "acknowledge 1") == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(strcmp(agent_line(&agent), "outcome 1 cancelled") == 0);
    plimsoll_close(app);
    agent_end(&agent);
}
