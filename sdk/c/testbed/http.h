/** As much HTTP/1.1 as a testbed needs: a thread a connection, GET without a body, keep-alive. */
#ifndef HTTP_H
#define HTTP_H

#include <stdbool.h>
#include <stddef.h>

#define HTTP_CONNECTIONS_MAX 512

struct http_answer {
    int status;
    char cancelled[64]; /* what it was cancelled for holding up; empty: it was not */
    char text[1024];
};

/* Answers `path` with its query, which is what follows `?` or "". `again`: a gateway sends it a second time, after it was cancelled. */
typedef void (*http_handler)(const char *path, const char *query, bool again, struct http_answer *answer);

/* The number called `name` in a query, or `otherwise`. */
double http_number(const char *query, const char *name, double otherwise);
/* Listens on 127.0.0.1, prints `ready PORT`, and serves for as long as the process lives. 1 if it cannot. */
int http_serve(int port, http_handler handler);

#endif
