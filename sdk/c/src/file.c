/** The ledger's file: made under another name, filled, published, and removed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* Who we are: field 22 of /proc/self/stat is when the process began. The command, field 2, may hold spaces and brackets. */
bool plimsoll_birth_now(struct plimsoll_birth *birth) {
    char text[1024] = "";
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    char *at = length > 0 ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (!at) return false;
    birth->pid = (uint64_t)getpid();
    birth->pid_started = strtoull(at + 1, NULL, 10);
    birth->created_ns = plimsoll_system_ns();
    return true;
}

static void file_hidden_name(const plimsoll_app *app, char *name, size_t size) {
    snprintf(name, size, ".%s.%d.new", app->name, (int)app->pid);
}

/* Room for all that may be written: to write to a page for which a full file system has none would be a signal. */
static bool file_room(plimsoll_app *app) {
    do {
        errno = posix_fallocate(app->file_fd, 0, (off_t)app->size);
    } while (errno == EINTR);
    return errno == 0;
}

static bool file_fail(plimsoll_app *app, uint32_t *said, const char *what) {
    plimsoll_say(&app->options, said, PLIMSOLL_SAY_FILE, "no accounts are kept: cannot %s a ledger in %s: %s", what, app->dir, strerror(errno));
    return false;
}

/* Makes the file under a name that no agent looks at, maps it and fills in the header, but for the magic. */
bool plimsoll_file_make(plimsoll_app *app, const struct plimsoll_birth *birth, uint32_t *said) {
    struct plimsoll_counts *counts = &app->counts;
    size_t lanes_at = PLIMSOLL_HEADER_SIZE + sizeof(plimsoll_resource_record) * counts->resources;
    size_t tasks_at = lanes_at + sizeof(plimsoll_lane) * counts->lanes;
    size_t accounts_at = tasks_at + sizeof(plimsoll_task_record) * counts->tasks;
    app->size = accounts_at + sizeof(plimsoll_account) * counts->accounts;
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < app->size) {
        /* To try would be a signal. */
        errno = EFBIG;
        return file_fail(app, said, "make room for");
    }
    char hidden[96];
    file_hidden_name(app, hidden, sizeof hidden);
    unlinkat(app->dir_fd, hidden, 0); /* of a process that died here with our number */
    app->file_fd = openat(app->dir_fd, hidden, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (app->file_fd < 0) return file_fail(app, said, "make");
    if (fchmod(app->file_fd, app->options.group_reads ? 0640 : 0600) != 0 || !file_room(app)) {
        return file_fail(app, said, "make room for");
    }
    void *at = mmap(NULL, app->size, PROT_READ | PROT_WRITE, MAP_SHARED, app->file_fd, 0);
    if (at == MAP_FAILED) return file_fail(app, said, "map");
    app->header = (plimsoll_header *)at;
    app->resource_records = (plimsoll_resource_record *)(void *)((char *)at + PLIMSOLL_HEADER_SIZE);
    app->lanes = (plimsoll_lane *)(void *)((char *)at + lanes_at);
    app->task_records = (plimsoll_task_record *)(void *)((char *)at + tasks_at);
    app->accounts = (plimsoll_account *)(void *)((char *)at + accounts_at);

    plimsoll_header *header = app->header;
    header->version = PLIMSOLL_FORMAT;
    header->resources = counts->resources;
    header->lanes = counts->lanes;
    header->tasks = counts->tasks;
    header->accounts = counts->accounts;
    header->pid = birth->pid;
    header->pid_started = birth->pid_started;
    header->created_ns = birth->created_ns;
    memcpy(header->app, app->name, strlen(app->name));
    return true;
}

/* Writes the magic and gives the file its name. */
bool plimsoll_file_publish(plimsoll_app *app, uint32_t *said) {
    char hidden[96];
    file_hidden_name(app, hidden, sizeof hidden);
    __asm__ volatile("" ::: "memory"); /* in this order; and no reader sees it before it has its name */
    memcpy(app->header->magic, "PLIMSOLL", sizeof app->header->magic);
    snprintf(app->file_name, sizeof app->file_name, "%s.%d.ledger", app->name, (int)app->pid);
    snprintf(app->path, sizeof app->path, "%s/%s", app->dir, app->file_name);
    if (renameat(app->dir_fd, hidden, app->dir_fd, app->file_name) == 0) return true;
    file_fail(app, said, "name");
    app->file_name[0] = '\0';
    app->path[0] = '\0';
    return false;
}

/* Takes the file away, under whichever name it has. Safe while the process exits. */
void plimsoll_file_remove(plimsoll_app *app) {
    char hidden[96];
    if (app->dir_fd < 0 || app->pid != getpid()) return;
    if (app->file_name[0]) {
        unlinkat(app->dir_fd, app->file_name, 0);
    } else if (app->file_fd >= 0) {
        file_hidden_name(app, hidden, sizeof hidden);
        unlinkat(app->dir_fd, hidden, 0);
    }
}
