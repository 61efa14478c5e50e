/** The HTTP of `http.h`. */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MAX 8192

struct connection {
    int fd;
    http_handler handler;
};

static int connections;

double http_number(const char *query, const char *name, double otherwise) {
    size_t length = strlen(name);
    for (const char *at = query; at && *at; at = strchr(at, '&'), at = at ? at + 1 : NULL) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') return atof(at + length + 1);
    }
    return otherwise;
}

static bool send_all(int fd, const char *bytes, size_t count) {
    while (count) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes += sent;
        count -= (size_t)sent;
    }
    return true;
}

static const char *reason(int status) {
    return status == 200 ? "OK" : status == 404 ? "Not Found" : status == 400 ? "Bad Request" : "Service Unavailable";
}

static bool send_answer(int fd, const struct http_answer *answer, bool keep) {
    char bytes[2048];
    bool cancelled = answer->cancelled[0] != '\0';
    int length = snprintf(bytes, sizeof bytes, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n%s%s%s%s\r\n%s", answer->status, reason(answer->status), strlen(answer->text),
                          keep ? "" : "Connection: close\r\n", cancelled ? "plimsoll-cancelled: " : "", answer->cancelled, cancelled ? "\r\n" : "", answer->text);
    return send_all(fd, bytes, (size_t)length);
}

/* One request of those in `head`. False if the connection ends with it. */
static bool serve_one(const struct connection *connection, char *head) {
    struct http_answer answer = {400, "", "only GET is answered here"};
    char *line_end = strstr(head, "\r\n");
    bool keep = strcasestr(head, "\nconnection: close") == NULL, again = strcasestr(head, "\nplimsoll-rerun: 1\r") != NULL;
    if (line_end) *line_end = '\0';
    char *version = strrchr(head, ' ');
    if (strncmp(head, "GET ", 4) == 0 && version && version > head + 4) {
        *version = '\0';
        char *path = head + 4, *query = strchr(path, '?');
        if (query) *query++ = '\0';
        connection->handler(path, query ? query : "", again, &answer);
    } else {
        keep = false;
    }
    return send_answer(connection->fd, &answer, keep) && keep;
}

static void *serve(void *argument) {
    struct connection *connection = argument;
    char in[HEAD_MAX + 1];
    size_t unread = 0;
    bool keep = true;
    while (keep) {
        in[unread] = '\0';
        char *end = strstr(in, "\r\n\r\n");
        if (end) {
            char head[HEAD_MAX + 1];
            size_t length = (size_t)(end - in) + 4;
            memcpy(head, in, length);
            head[length] = '\0';
            unread -= length;
            memmove(in, in + length, unread);
            keep = serve_one(connection, head);
            continue;
        }
        ssize_t got = unread < HEAD_MAX ? recv(connection->fd, in + unread, HEAD_MAX - unread, 0) : 0;
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        unread += (size_t)got;
    }
    close(connection->fd);
    free(connection);
    __atomic_fetch_sub(&connections, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void serve_in_thread(int fd, http_handler handler) {
    static const struct http_answer full = {503, "", "too many connections"};
    pthread_t thread;
    struct connection *connection = malloc(sizeof *connection);
    bool room = __atomic_add_fetch(&connections, 1, __ATOMIC_RELAXED) <= HTTP_CONNECTIONS_MAX;
    if (connection) {
        connection->fd = fd;
        connection->handler = handler;
    }
    if (room && connection && pthread_create(&thread, NULL, serve, connection) == 0) {
        pthread_detach(thread);
        return;
    }
    send_answer(fd, &full, false);
    close(fd);
    free(connection);
    __atomic_fetch_sub(&connections, 1, __ATOMIC_RELAXED);
}

int http_serve(int port, http_handler handler) {
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 1024) != 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        fprintf(stderr, "cannot listen on 127.0.0.1:%d: %s\n", port, strerror(errno));
        return 1;
    }
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (accepted >= 0) {
            serve_in_thread(accepted, handler);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            usleep(10000); /* out of file descriptors, say: it passes */
        }
    }
}
