/** An agent for tests: a socket in the test's directory, and lines. */
#ifndef AGENT_H
#define AGENT_H

#include <stddef.h>

#include "internal.h"

struct agent {
    int listening, fd;
    char in[4096];
    size_t unread;
    char line[4096];
};

/* Listens at `agent.sock` of the test's directory. */
void agent_listen(struct agent *agent);
/* Waits for a connection, reads its hello, and says welcome. */
void agent_welcome(struct agent *agent);
void agent_accept(struct agent *agent);
/* The next line that the SDK sends; "" if it left, or said nothing for half a minute. */
const char *agent_line(struct agent *agent);
void agent_say(struct agent *agent, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a task that lives. */
void agent_cancel(struct agent *agent, int id, const plimsoll_task *task, const char *why);
void agent_hang_up(struct agent *agent);
void agent_end(struct agent *agent);

/* An application in the test's directory that is not patient, and says what it has to say into `heard`. */
struct heard {
    int lines;
    char last[512];
};
extern struct heard heard;
plimsoll_app *app_open(const plimsoll_options *options);

#endif
