/** The agent of `agent.h`. */
#include "agent.h"

#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness.h"

struct heard heard;

static void hear(const char *line, void *context) {
    (void)context;
    snprintf(heard.last, sizeof heard.last, "%s", line);
    __atomic_fetch_add(&heard.lines, 1, __ATOMIC_RELEASE);
}

plimsoll_app *app_open(const plimsoll_options *given) {
    plimsoll_options options;
    memset(&options, 0, sizeof options);
    if (given) options = *given;
    options.dir = test_dir();
    options.say = hear;
    memset(&heard, 0, sizeof heard);
    plimsoll_app *app = plimsoll_open_with("test", &options);
    if (app) {
        __atomic_store_n(&app->patience.retry_ns, 20000000, __ATOMIC_RELAXED);
        __atomic_store_n(&app->patience.refused_ns, 50000000, __ATOMIC_RELAXED);
    }
    return app;
}

void agent_listen(struct agent *agent) {
    memset(agent, 0, sizeof *agent);
    agent->fd = -1;
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/agent.sock", test_dir());
    unlink(address.sun_path);
    agent->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(agent->listening, (struct sockaddr *)&address, sizeof address) == 0 && listen(agent->listening, 8) == 0);
}

static bool readable(int fd) {
    struct pollfd polled = {fd, POLLIN, 0};
    return poll(&polled, 1, 30000) == 1;
}

void agent_accept(struct agent *agent) {
    agent->unread = 0;
    agent->fd = readable(agent->listening) ? accept4(agent->listening, NULL, NULL, SOCK_CLOEXEC) : -1;
    CHECK(agent->fd >= 0);
}

void agent_welcome(struct agent *agent) {
    agent_accept(agent);
    CHECK(strncmp(agent_line(agent), "hello 1 test.", 13) == 0);
    agent_say(agent, "welcome 1 enforce");
}

const char *agent_line(struct agent *agent) {
    char *end;
    while (!(end = memchr(agent->in, '\n', agent->unread))) {
        ssize_t got = readable(agent->fd) ? read(agent->fd, agent->in + agent->unread, sizeof agent->in - agent->unread) : 0;
        if (got <= 0) return "";
        agent->unread += (size_t)got;
    }
    size_t length = (size_t)(end - agent->in);
    memcpy(agent->line, agent->in, length);
    agent->line[length] = '\0';
    agent->unread -= length + 1;
    memmove(agent->in, end + 1, agent->unread);
    return agent->line;
}

void agent_say(struct agent *agent, const char *format, ...) {
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    line[length] = '\n';
    CHECK(send(agent->fd, line, (size_t)length + 1, MSG_NOSIGNAL) == length + 1);
}

void agent_cancel(struct agent *agent, int id, const plimsoll_task *task, const char *why) {
    agent_say(agent, "cancel %d %u %llu 0 %s", id, task->index, (unsigned long long)task->turn, why);
}

void agent_hang_up(struct agent *agent) {
    if (agent->fd >= 0) close(agent->fd);
    agent->fd = -1;
}

void agent_end(struct agent *agent) {
    agent_hang_up(agent);
    close(agent->listening);
}
