/** The one background thread: heartbeats, and the connection to the agent. It runs nothing of the application's. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

struct connection {
    int fd; /* -1: none */
    uint64_t retry_ns;
    size_t unread;
    char in[PLIMSOLL_LINE_MAX + 1];
};

void plimsoll_control_wake(plimsoll_app *app) {
    uint64_t one = 1;
    ssize_t ignored = app->wake_fd >= 0 ? write(app->wake_fd, &one, sizeof one) : 0;
    (void)ignored;
}

/* A sign of life; and the time, while no agent gives it. */
void plimsoll_control_beat(plimsoll_app *app, uint64_t now_ns) {
    plimsoll_header *header = app->header;
    PLIMSOLL_STORE(&header->app_beat_ns, now_ns);
    uint64_t agent_ns = PLIMSOLL_LOAD(&header->agent_beat_ns);
    uint64_t apart = now_ns > agent_ns ? now_ns - agent_ns : agent_ns - now_ns;
    if (apart > PLIMSOLL_SECOND_NS) {
        PLIMSOLL_STORE(&header->clock_ns, now_ns);
        if (PLIMSOLL_LOAD(&header->flags) != 0) PLIMSOLL_STORE(&header->flags, 0);
    }
}

static void connection_end(plimsoll_app *app, struct connection *connection, uint64_t retry_ns) {
    pthread_mutex_lock(&app->lock);
    app->connected = app->welcome = app->overflow = false;
    app->outbox_used = 0;
    app->control_fd = -1;
    pthread_mutex_unlock(&app->lock);
    if (connection->fd >= 0) close(connection->fd);
    connection->fd = -1;
    connection->unread = 0;
    connection->retry_ns = app->given_fd ? UINT64_MAX : retry_ns;
}

/* Only our own user, or root, may tell us to cancel. */
static bool connection_peer_is_good(plimsoll_app *app, int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_FD, "%s goes without an agent: who is at the other end of its control connection cannot be told: %s", app->name, strerror(errno));
        return false;
    }
    if (peer.uid == geteuid() || peer.uid == 0) return true;
    plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_PEER, "%s/agent.sock belongs to a process of user %u, which may not cancel our tasks; an agent of user %u or root may", app->dir,
                 (unsigned)peer.uid, (unsigned)geteuid());
    return false;
}

static int connection_socket(plimsoll_app *app) {
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/agent.sock", app->dir);
    if (length >= (int)sizeof address.sun_path || app->dir[0] != '/') {
        /* An address has room for 107 bytes, a directory's name for more; and one from the working directory may be another by now. */
        snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/agent.sock", app->dir_fd);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void connection_try(plimsoll_app *app, struct connection *connection, uint64_t now_ns, int given) {
    int fd = given >= 0 ? given : connection_socket(app);
    if (fd < 0) {
        connection->retry_ns = app->given_fd ? UINT64_MAX : now_ns + PLIMSOLL_LOAD(&app->patience.retry_ns);
        return;
    }
    connection->fd = fd;
    if (!connection_peer_is_good(app, fd)) {
        connection_end(app, connection, now_ns + PLIMSOLL_LOAD(&app->patience.refused_ns));
        return;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    pthread_mutex_lock(&app->lock);
    app->connection++;
    app->connected = true;
    app->control_fd = fd;
    app->outbox_used = plimsoll_hello(app, app->outbox, sizeof app->outbox);
    pthread_mutex_unlock(&app->lock);
}

/* One line of the agent. False if the connection is to end, and when to try again. */
static bool connection_line(plimsoll_app *app, char *line, uint64_t now_ns, uint64_t *retry_ns) {
    struct plimsoll_line said;
    enum plimsoll_verb verb = plimsoll_line_read(line, &said);
    if (verb == PLIMSOLL_REFUSED) {
        plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_REFUSED, "the agent refuses %s: %s", app->file_name, said.text);
        *retry_ns = now_ns + PLIMSOLL_LOAD(&app->patience.refused_ns);
        return false;
    }
    if (verb == PLIMSOLL_WELCOME) {
        if (said.version != PLIMSOLL_FORMAT) {
            plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_VERSION, "the agent speaks version %llu of the ledger, and %s version %u", (unsigned long long)said.version, app->name,
                         PLIMSOLL_FORMAT);
            *retry_ns = now_ns + PLIMSOLL_LOAD(&app->patience.refused_ns);
            return false;
        }
        pthread_mutex_lock(&app->lock);
        app->welcome = true;
        pthread_mutex_unlock(&app->lock);
    } else if (app->welcome) {
        if (verb == PLIMSOLL_CANCEL) plimsoll_cancel_ask(app, &said);
        if (verb == PLIMSOLL_RERUN || verb == PLIMSOLL_DROP) plimsoll_again_settle(app, said.id, verb == PLIMSOLL_DROP);
    }
    return true;
}

/* What has come. False if the connection is to end. */
static bool connection_read(plimsoll_app *app, struct connection *connection, uint64_t now_ns, uint64_t *retry_ns) {
    ssize_t got = recv(connection->fd, connection->in + connection->unread, sizeof connection->in - connection->unread, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0) return false;
    connection->unread += (size_t)got;
    char *line = connection->in, *end = connection->in + connection->unread, *newline;
    while ((newline = (char *)memchr(line, '\n', (size_t)(end - line))) != NULL) {
        *newline = '\0';
        if (!connection_line(app, line, now_ns, retry_ns)) return false;
        line = newline + 1;
    }
    connection->unread = (size_t)(end - line);
    memmove(connection->in, line, connection->unread);
    if (connection->unread < sizeof connection->in) return true;
    plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_LINE, "the agent sent %s a line of more than %u bytes", app->name, PLIMSOLL_LINE_MAX);
    return false;
}

/* What is to go. False if the connection is to end. */
static bool connection_write(plimsoll_app *app, struct connection *connection, bool *more) {
    bool good = true;
    pthread_mutex_lock(&app->lock);
    if (app->outbox_used && connection->fd >= 0) {
        ssize_t sent = send(connection->fd, app->outbox, app->outbox_used, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            app->outbox_used -= (size_t)sent;
            memmove(app->outbox, app->outbox + sent, app->outbox_used);
        } else if (sent < 0) {
            good = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        }
    }
    if (app->overflow) good = false;
    *more = app->outbox_used > 0;
    pthread_mutex_unlock(&app->lock);
    return good;
}

static void *control_main(void *argument) {
    plimsoll_app *app = (plimsoll_app *)argument;
    struct connection connection;
    memset(&connection, 0, sizeof connection);
    connection.fd = -1;
    uint64_t beat_ns = 0;
    int given = app->control_fd;
    while (!PLIMSOLL_LOAD(&app->closing)) {
        uint64_t now_ns = plimsoll_system_ns();
        bool tries = connection.fd < 0 && now_ns >= connection.retry_ns;
        /* Who is awake beats, so that both fall together: waking up is what this thread costs. */
        if (tries || now_ns >= beat_ns) {
            plimsoll_clock_beat();
            plimsoll_control_beat(app, now_ns);
            plimsoll_action_watch(app, now_ns);
            beat_ns = now_ns + PLIMSOLL_BEAT_NS;
        }
        if (tries) {
            connection_try(app, &connection, now_ns, given);
            given = -1;
        }
        plimsoll_again_watch(app, now_ns);
        bool more = false;
        uint64_t retry_ns = now_ns + PLIMSOLL_LOAD(&app->patience.retry_ns);
        if (connection.fd >= 0 && !connection_write(app, &connection, &more)) {
            /* It may have said why before it left. */
            connection_read(app, &connection, now_ns, &retry_ns);
            connection_end(app, &connection, retry_ns);
        }
        struct pollfd polled[2] = {{app->wake_fd, POLLIN, 0}, {connection.fd, (short)(more ? POLLIN | POLLOUT : POLLIN), 0}};
        uint64_t until_ns = connection.fd < 0 && connection.retry_ns < beat_ns ? connection.retry_ns : beat_ns;
        poll(polled, 2, until_ns > now_ns ? (int)((until_ns - now_ns + 999999) / 1000000) : 0);
        uint64_t drained;
        if (polled[0].revents) while (read(app->wake_fd, &drained, sizeof drained) > 0) continue;
        retry_ns = plimsoll_system_ns() + PLIMSOLL_LOAD(&app->patience.retry_ns);
        if (connection.fd >= 0 && (polled[1].revents & ~POLLOUT) && !connection_read(app, &connection, now_ns, &retry_ns)) connection_end(app, &connection, retry_ns);
    }
    bool more;
    if (connection.fd >= 0) connection_write(app, &connection, &more);
    connection_end(app, &connection, UINT64_MAX);
    if (given >= 0) close(given);
    return NULL;
}

bool plimsoll_control_start(plimsoll_app *app) {
    app->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (app->wake_fd < 0) return false;
    app->control_exists = plimsoll_thread_start(&app->control_thread, control_main, app);
    return app->control_exists;
}
