/** The directory of ledgers: ours or root's, and nobody else's to write in. Whoever could write there could take the agent's place. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* The directory, opened, or -1. Fills `app->dir`. */
int plimsoll_dir_open(plimsoll_app *app, uint32_t *said) {
    const char *dir = app->options.dir;
    if (!dir || !*dir) dir = getenv("PLIMSOLL_DIR");
    bool given = dir && *dir;
    int length = given ? snprintf(app->dir, sizeof app->dir, "%s", dir) : snprintf(app->dir, sizeof app->dir, "/dev/shm/plimsoll-%u", (unsigned)geteuid());
    if (length < 0 || (size_t)length >= sizeof app->dir) {
        plimsoll_say(&app->options, said, PLIMSOLL_SAY_DIR, "no accounts are kept: the directory's name has %d bytes, more than a path may have", length);
        return -1;
    }
    if (mkdir(app->dir, 0700) != 0 && errno != EEXIST) {
        plimsoll_say(&app->options, said, PLIMSOLL_SAY_DIR, "no accounts are kept: cannot make %s: %s; PLIMSOLL_DIR names another directory", app->dir, strerror(errno));
        return -1;
    }
    /* In /dev/shm anybody could have put a link in the place of our directory. */
    int fd = open(app->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (given ? 0 : O_NOFOLLOW));
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0) {
        plimsoll_say(&app->options, said, PLIMSOLL_SAY_DIR, "no accounts are kept: cannot open the directory %s: %s", app->dir, strerror(errno));
    } else if (stat.st_uid != geteuid() && stat.st_uid != 0) {
        plimsoll_say(&app->options, said, PLIMSOLL_SAY_DIR, "no accounts are kept: %s belongs to user %u, and has to be ours (%u) or root's", app->dir,
                     (unsigned)stat.st_uid, (unsigned)geteuid());
    } else if (stat.st_mode & S_IWOTH) {
        plimsoll_say(&app->options, said, PLIMSOLL_SAY_DIR, "no accounts are kept: everybody may write in %s; make its mode 0700", app->dir);
    } else {
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}
