/** Runs the tests and says what became of them. */
#include "harness.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct test *tests;
static int failures;
static char dir[64];

void test_register(struct test *test) {
    struct test **at = &tests;
    while (*at && strcmp((*at)->name, test->name) < 0) at = &(*at)->next;
    test->next = *at;
    *at = test;
}

bool test_check(bool good, const char *what, const char *file, int line) {
    if (!good) {
        /* Checks may run on any thread. */
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
        printf("%s:%d: not so: %s\n", file, line, what);
    }
    return good;
}

const char *test_dir(void) {
    return dir;
}

bool test_until(bool (*good)(void *), void *context) {
    for (int i = 0; i < 30000; i++) {
        if (good(context)) return true;
        usleep(1000);
    }
    return false;
}

static int remove_one(const char *path, const struct stat *stat, int flag, struct FTW *ftw) {
    (void)stat, (void)flag, (void)ftw;
    return remove(path);
}

static bool wanted(const char *name, int count, char **prefixes) {
    for (int i = 1; i < count; i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    }
    return count < 2;
}

int main(int count, char **prefixes) {
    int passed = 0, failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (struct test *test = tests; test; test = test->next) {
        if (!wanted(test->name, count, prefixes)) continue;
        strcpy(dir, "/tmp/plimsoll-test-XXXXXX");
        if (!mkdtemp(dir)) return 2;
        int before = failures;
        test->run();
        chmod(dir, 0700);
        nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        bool good = __atomic_load_n(&failures, __ATOMIC_RELAXED) == before;
        printf("test %s ... %s\n", test->name, good ? "ok" : "FAILED");
        passed += good;
        failed += !good;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
