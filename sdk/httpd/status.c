/*
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Says what workers do, over a Unix socket: a line is asked, whatever it says, and a line of JSON is the answer, in the words of php-fpm's
 * status page (`?full&json`). The shepherd answers, which needs no worker: it does so when all of them are taken, which is when it matters.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <apr_portable.h>
#include <ap_listen.h>
#include <httpd.h>

#include "pasture.h"

/* Who asks at once; the next one is turned away. */
#define MOST_CLIENTS 4
/* The longest question. */
#define LONGEST_LINE 64
/* More than the longest line that tells of a worker, and of the server. */
#define ROOM 512
/* How long a client that reads nothing is waited for, in microseconds. The shepherd has other work. */
#define PATIENCE_US 100000

struct client {
    int fd; /* 0: nobody */
    size_t read;
};

static struct client clients[MOST_CLIENTS];
static char page[(MOST_WORKERS + 1) * ROOM];

int status_listen(const char *path, uid_t owner) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat there;
    if (strlen(path) > STATUS_LONGEST) return errno = ENAMETOOLONG, -1;
    strcpy(address.sun_path, path);
    /* One that was left behind; anything else stays. */
    if (!lstat(path, &there) && S_ISSOCK(there.st_mode)) unlink(path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0) return -1;
    mode_t before = umask(0177);
    int failed = bind(listener, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (failed || (owner != (uid_t)-1 && chown(path, owner, (gid_t)-1)) || listen(listener, MOST_CLIENTS)) {
        int why = errno;
        close(listener);
        return errno = why, -1;
    }
    return listener;
}

/* Connections that no worker has accepted yet, at all ports. Of a socket that listens, the kernel says so where others have unacknowledged
 * segments. */
static unsigned long listen_queue(void) {
    unsigned long waiting = 0;
    for (const ap_listen_rec *at = ap_listeners; at; at = at->next) {
        apr_os_sock_t fd;
        struct tcp_info info;
        socklen_t size = sizeof info;
        if (at->sd && apr_os_sock_get(&fd, at->sd) == APR_SUCCESS && !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size))
            waiting += info.tcpi_unacked;
    }
    return waiting;
}

/* Copies text into a string of JSON, which it may not end: what would have to be written otherwise becomes a question mark. */
static void copy_text(char *to, const char *from, size_t size) {
    size_t at = 0;
    for (; at + 1 < size && from[at]; at++) {
        unsigned char c = (unsigned char)from[at];
        to[at] = c < 0x20 || c > 0x7e || c == '"' || c == '\\' ? '?' : (char)c;
    }
    to[at] = 0;
}

static size_t add(size_t length, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int added = vsnprintf(page + length, sizeof page - length, format, values);
    va_end(values);
    return added > 0 && (size_t)added < sizeof page - length ? length + (size_t)added : length;
}

static size_t add_worker(size_t length, const struct place *place, int tid, long long now) {
    char method[sizeof place->method], path[sizeof place->path];
    unsigned requests = atomic_load(&place->turns), serves = atomic_load(&place->serves);
    copy_text(method, place->method, sizeof method);
    copy_text(path, place->path, sizeof path);
    long long since = atomic_load(&place->since_ns), took = atomic_load(&place->took_ns);
    /* It has gone on to another meanwhile: that one has just begun. */
    if (atomic_load(&place->serves) != serves) serves = 0;
    long long duration = serves ? now - since : took;
    return add(length,
               "%s{\"pid\":%d,\"tid\":%d,\"state\":\"%s\",\"start time\":%lld,\"requests\":%u,\"request duration\":%lld,"
               "\"request method\":\"%s\",\"request uri\":\"%s\"}",
               page[length - 1] == '[' ? "" : ",", place->pid, tid, serves ? "Running" : "Idle", place->began_s, serves ? serves : requests,
               duration > 0 ? duration / 1000 : 0, method, path);
}

static size_t write_page(const struct pasture *pasture) {
    long long now = now_ns();
    size_t length = add(0, "{\"pool\":\"httpd\",\"start time\":%lld,\"accepted conn\":%llu,\"listen queue\":%lu,\"threaded\":%s,\"processes\":[",
                        pasture->began_s, (unsigned long long)atomic_load(&pasture->requests), listen_queue(),
                        pasture->threaded ? "true" : "false");
    unsigned places = atomic_load(&pasture->places);
    for (unsigned at = 0; at < places && length + ROOM < sizeof page; at++) {
        int tid = atomic_load(&pasture->place[at].tid);
        if (tid) length = add_worker(length, &pasture->place[at], tid, now);
    }
    return add(length, "]}\n");
}

static void leave(struct client *client) {
    close(client->fd);
    *client = (struct client){0, 0};
}

static void answer(struct client *client, const struct pasture *pasture) {
    char text[LONGEST_LINE];
    ssize_t got = read(client->fd, text, sizeof text);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    client->read += got > 0 ? (size_t)got : 0;
    if (got <= 0 || client->read > sizeof text) {
        leave(client);
        return;
    }
    if (!memchr(text, '\n', (size_t)got)) return;
    client->read = 0;
    size_t length = write_page(pasture), sent = 0;
    while (sent < length) {
        ssize_t more = send(client->fd, page + sent, length - sent, MSG_NOSIGNAL);
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) {
            leave(client);
            return;
        }
        sent += (size_t)more;
    }
}

static void welcome(int listener) {
    struct timeval patience = {0, PATIENCE_US};
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    for (int at = 0; at < MOST_CLIENTS; at++) {
        if (clients[at].fd) continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        clients[at] = (struct client){fd, 0};
        return;
    }
    close(fd);
}

void status_answer(int listener, const struct pasture *pasture, long long until) {
    for (;;) {
        struct pollfd wait[1 + MOST_CLIENTS] = {{.fd = listener, .events = POLLIN}};
        for (int at = 0; at < MOST_CLIENTS; at++)
            wait[1 + at] = (struct pollfd){.fd = clients[at].fd ? clients[at].fd : -1, .events = POLLIN};
        long long left = until - now_ns();
        int ready = left > 0 ? poll(wait, 1 + MOST_CLIENTS, (int)(left / 1000000 + 1)) : 0;
        if (ready <= 0) return;
        for (int at = 0; at < MOST_CLIENTS; at++)
            if (wait[1 + at].revents) answer(&clients[at], pasture);
        if (wait[0].revents) welcome(listener);
    }
}
