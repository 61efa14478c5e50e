/** A test is a function that registers itself; its checks say where they failed. `./tests [PREFIX...]` runs those whose names begin so, or all. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stdio.h>

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};

void test_register(struct test *test);
bool test_check(bool good, const char *what, const char *file, int line);
/* A directory of one's own for the test that runs, gone after it. */
const char *test_dir(void);
/* Waits until `good(context)`, for half a minute at most; no test says how long something takes. */
bool test_until(bool (*good)(void *context), void *context);

#define TEST(function)                                                                       \
    static void function(void);                                                              \
    __attribute__((constructor)) static void register_##function(void) {                     \
        static struct test test = {#function, function, NULL};                               \
        test_register(&test);                                                                \
    }                                                                                        \
    static void function(void)

#define CHECK(what) test_check((what), #what, __FILE__, __LINE__)
/* What cannot go on without it. */
#define REQUIRE(what) \
    do {              \
        if (!test_check((what), #what, __FILE__, __LINE__)) return; \
    } while (0)

#endif
