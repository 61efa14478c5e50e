/** Where ledgers are put, where they are not, and whose they are. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "dump.h"
#include "harness.h"

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

TEST(places_file) {
    plimsoll_app *app = app_open(NULL);
    struct stat stat_of;
    REQUIRE(app);
    char path[512], wanted[512];
    snprintf(path, sizeof path, "%s", plimsoll_file(app));
    snprintf(wanted, sizeof wanted, "%s/test.%d.ledger", test_dir(), (int)getpid());
    CHECK(strcmp(path, wanted) == 0);
    REQUIRE(stat(path, &stat_of) == 0);
    CHECK((stat_of.st_mode & 07777) == 0600 && stat_of.st_size == 4096 + 64 * 64 + 8 * 2048 + 4096 * 128 + 16384 * 64);
    CHECK(dump_refuse(app->header, app->size) == NULL);
    CHECK(app->header->pid == (uint64_t)getpid() && app->header->pid_started > 0 && app->header->created_ns > 0 && app->header->clock_ns > 0);
    plimsoll_close(app);
    CHECK(!exists(path));
    CHECK(heard.lines == 0);
    plimsoll_options options = {0};
    options.group_reads = true;
    app = app_open(&options);
    REQUIRE(app && stat(plimsoll_file(app), &stat_of) == 0);
    CHECK((stat_of.st_mode & 07777) == 0640);
    plimsoll_close(app);
}

TEST(places_from_the_environment) {
    char dir[512];
    struct stat stat_of;
    snprintf(dir, sizeof dir, "%s/made", test_dir());
    setenv("PLIMSOLL_DIR", dir, 1);
    plimsoll_app *app = plimsoll_open("environment");
    unsetenv("PLIMSOLL_DIR");
    REQUIRE(app);
    CHECK(strncmp(plimsoll_file(app), dir, strlen(dir)) == 0);
    CHECK(stat(dir, &stat_of) == 0 && (stat_of.st_mode & 07777) == 0700);
    plimsoll_close(app);
}

static void said_and_null(const char *name, const char *dir, uint32_t tasks, const char *why) {
    plimsoll_options options = {0};
    uint32_t said = 0;
    struct plimsoll_birth birth = {1, 1, 1};
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    fclose(stderr);
    stderr = to;
    options.dir = dir;
    options.tasks = tasks;
    plimsoll_app *app = plimsoll_app_new(name, &options, &birth, &said), *again = plimsoll_app_new(name, &options, &birth, &said);
    fclose(to);
    stderr = fdopen(dup(STDOUT_FILENO), "w");
    CHECK(!app && !again);
    char *newline = strchr(text, '\n');
    /* One line, though it was tried twice. */
    if (!CHECK(newline && !newline[1] && strstr(text, why) && strncmp(text, "plimsoll: ", 10) == 0)) printf("instead of %s: %s\n", why, text);
    free(text);
}

TEST(places_where_no_accounts_are_kept) {
    char path[512];
    said_and_null("no/good", test_dir(), 0, "1 to 32 of a-z");
    said_and_null("", test_dir(), 0, "1 to 32 of a-z");
    said_and_null("an-application-with-a-name-too-long", test_dir(), 0, "1 to 32 of a-z");
    said_and_null("many", test_dir(), 131073, "at most 256 resources");
    said_and_null("nowhere", "/proc/nowhere/at/all", 0, "cannot make /proc/nowhere/at/all");
    snprintf(path, sizeof path, "%s/file", test_dir());
    close(open(path, O_CREAT | O_WRONLY, 0600));
    said_and_null("file", path, 0, "cannot open the directory");
    snprintf(path, sizeof path, "%s/open", test_dir());
    mkdir(path, 0700);
    chmod(path, 0777);
    said_and_null("open", path, 0, "everybody may write");
    if (geteuid() == 0) {
        chmod(path, 0700);
        CHECK(chown(path, 65534, 65534) == 0);
        said_and_null("theirs", path, 0, "belongs to user 65534");
    }
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    path[511] = '\0';
    said_and_null("long", path, 0, "cannot make");
}

/* What a child says with its exit code. */
static int child(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A child that goes on with everything its parent had open, as children do by mistake. */
static int meddle(plimsoll_app *app, plimsoll_task *task, plimsoll_task *share, plimsoll_resource *table) {
    plimsoll_wait(task, table);
    plimsoll_get(task, table, 5);
    plimsoll_free(task, table, 5);
    plimsoll_slow(share, table, 1, 1);
    plimsoll_progress(task, 99, 100);
    bool good = !plimsoll_cancelled(task) && !plimsoll_task_begin(app, "child", 1) && !plimsoll_resource_of(app, PLIMSOLL_LOCK, "child", 1) && !plimsoll_connected(app);
    plimsoll_task_on_cancel(task, NULL, NULL, NULL);
    plimsoll_task_end(share);
    plimsoll_task_end(task);
    plimsoll_close(app);
    return good ? 7 : 1;
}

TEST(places_child_leaves_its_parents_ledger_alone) {
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    plimsoll_resource *table = plimsoll_resource_of(app, PLIMSOLL_LOCK, "table", 1);
    plimsoll_task *task = plimsoll_task_begin(app, "GET /", 1), *share = plimsoll_task_share(task);
    plimsoll_get(task, table, 1);
    pid_t pid = fork();
    if (pid == 0) {
        int good = plimsoll_task_current() == NULL ? meddle(app, task, share, table) : 2;
        /* It may have one of its own, which goes when it exits. */
        plimsoll_options options = {0};
        options.dir = test_dir();
        plimsoll_app *own = plimsoll_open_with("test", &options);
        plimsoll_task *mine = plimsoll_task_begin(own, "child", 1);
        plimsoll_get(mine, plimsoll_resource_of(own, PLIMSOLL_LOCK, "own", 1), 1);
        if (!own || !mine || own->accounts[0].gets != 1 || own->header->pid != (uint64_t)getpid() || !exists(plimsoll_file(own))) good = 3;
        if (plimsoll_task_current() != mine) good = 4;
        plimsoll_task_end(mine);
        plimsoll_close(own);
        _exit(good);
    }
    CHECK(child(pid) == 7);
    /* The bare system call, of which no library hears. */
    pid = (pid_t)syscall(SYS_fork);
    if (pid == 0) _exit(meddle(app, task, share, table));
    CHECK(child(pid) == 7);
    CHECK(exists(plimsoll_file(app)));
    CHECK(task->record->done == 0 && app->accounts[0].gets == 1 && app->accounts[0].frees == 0 && app->accounts[0].slows == 0 && app->header->tasks_used == 1 && task->record->turn == 1);
    plimsoll_task_end(share);
    plimsoll_task_end(task);
    plimsoll_close(app);
}

TEST(places_file_goes_when_the_process_exits) {
    char path[512];
    int pair[2];
    REQUIRE(pipe(pair) == 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        plimsoll_options options = {0};
        options.dir = test_dir();
        plimsoll_app *app = plimsoll_open_with("exits", &options);
        if (!app || !exists(plimsoll_file(app)) || write(pair[1], plimsoll_file(app), strlen(plimsoll_file(app)) + 1) < 1) _exit(1);
        exit(0);
    }
    CHECK(child(pid) == 0);
    CHECK(read(pair[0], path, sizeof path) > 0 && strstr(path, "/exits.") && !exists(path));
    close(pair[0]);
    close(pair[1]);
}

TEST(places_no_room_for_a_file) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        /* More than that would be SIGXFSZ. */
        struct rlimit limit = {65536, 65536};
        plimsoll_options options = {0};
        options.dir = test_dir();
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(plimsoll_open_with("small", &options) == NULL ? 0 : 1);
    }
    CHECK(child(pid) == 0);
}

TEST(places_no_signal_reaches_our_threads) {
    plimsoll_app *app = app_open(NULL);
    REQUIRE(app);
    char path[300], line[256];
    bool blocked = false;
    DIR *threads = opendir("/proc/self/task");
    REQUIRE(threads);
    /* Of this process's threads, the ones that carry our name block everything that can be blocked. */
    for (struct dirent *entry = readdir(threads); entry && !blocked; entry = readdir(threads)) {
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        bool ours = false;
        while (file && fgets(line, sizeof line, file)) {
            if (strncmp(line, "Name:\tplimsoll\n", 15) == 0) ours = true;
            unsigned long long mask;
            /* SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGCHLD stand for all. */
            if (ours && sscanf(line, "SigBlk: %llx", &mask) == 1) blocked = (mask & 0x14203) == 0x14203;
        }
        if (file) fclose(file);
    }
    closedir(threads);
    CHECK(blocked);
    plimsoll_close(app);
}
