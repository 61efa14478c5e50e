/** The test vectors: every script is played and must leave the bytes of its ledger, every ledger is read and must give its dump or be refused, every line of the control protocol is
 * understood. `PLIMSOLL_VECTORS` names the directory. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "dump.h"
#include "harness.h"
#include "internal.h"

#define TASKS_MAX 256

static const char *vectors(void) {
    const char *dir = getenv("PLIMSOLL_VECTORS");
    return dir && *dir ? dir : "../vectors";
}

/* A whole file, and a zero after it; NULL if there is none. */
static char *file_read(const char *name, const char *ending, size_t *size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s%s", vectors(), name, ending);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = aligned_alloc(64, (*size + 64) & ~(size_t)63);
    bool good = bytes && fread(bytes, 1, *size, file) == *size;
    fclose(file);
    if (good) bytes[*size] = '\0';
    return good ? bytes : NULL;
}

static int every(const char *ending, void (*run)(const char *name)) {
    DIR *dir = opendir(vectors());
    int count = 0;
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char name[300];
        snprintf(name, sizeof name, "%s", entry->d_name);
        char *at = strrchr(name, '.');
        if (!at || strcmp(at, ending) != 0) continue;
        *at = '\0';
        run(name);
        count++;
    }
    if (dir) closedir(dir);
    return count;
}

struct play {
    plimsoll_app *app;
    char *names[TASKS_MAX];
    plimsoll_task *tasks[TASKS_MAX];
    int used;
    uint32_t said;
};

static char *word(char **line) {
    return strsep(line, " ");
}

static uint64_t amount(char **line) {
    const char *text = word(line);
    return text ? strtoull(text, NULL, 10) : 0;
}

static plimsoll_task **task_named(struct play *play, const char *name) {
    for (int i = play->used - 1; i >= 0; i--) {
        if (strcmp(play->names[i], name) == 0) return &play->tasks[i];
    }
    abort();
}

/* The resource of that name, without making one: NULL if it found no room. */
static plimsoll_resource *resource_named(plimsoll_app *app, const char *name) {
    size_t length = plimsoll_text_cut(name, 48);
    for (uint32_t i = 0; i < app->resources_used; i++) {
        const char *has = app->resource_records[i].name;
        if (strncmp(has, name, length) == 0 && (length == 48 || has[length] == '\0')) return &app->resources[i];
    }
    return NULL;
}

static void nothing(void *context) {
    (void)context;
}

static void play_ledger(struct play *play, char *line) {
    static plimsoll_options options;
    const char *name = word(&line);
    options.dir = test_dir();
    options.resources = (uint32_t)amount(&line);
    options.lanes = (uint32_t)amount(&line);
    options.tasks = (uint32_t)amount(&line);
    options.accounts = (uint32_t)amount(&line);
    options.say = NULL;
    struct plimsoll_birth birth;
    birth.pid = amount(&line);
    birth.pid_started = amount(&line);
    birth.created_ns = amount(&line);
    play->said = ~0u;
    play->app = plimsoll_app_new(name, &options, &birth, &play->said);
    if (!play->app) return;
    play->app->said = ~0u;
    CHECK(plimsoll_file_publish(play->app, &play->said));
}

static void play_task(struct play *play, char *line) {
    char *name = word(&line);
    uint64_t key = amount(&line);
    uint32_t flags = (uint32_t)amount(&line), tid = (uint32_t)amount(&line);
    plimsoll_task_options options;
    memset(&options, 0, sizeof options);
    options.deadline_ns = amount(&line);
    options.uncancellable = !(flags & PLIMSOLL_TASK_CANCELLABLE);
    options.background = flags & PLIMSOLL_TASK_BACKGROUND;
    options.second_run = flags & PLIMSOLL_TASK_RERUN;
    options.rerun.run = flags & PLIMSOLL_TASK_RERUNNABLE ? nothing : NULL;
    options.detached = true;
    plimsoll_task *task = plimsoll_task_begin_with(play->app, line, key, &options);
    if (task && task->resources) {
        CHECK(task->record->flags == flags);
        task->record->tid = tid; /* a thread that is not here */
    }
    play->names[play->used] = name;
    play->tasks[play->used++] = task;
}

static bool play_event(struct play *play, const char *step, char *line) {
    plimsoll_task **task = task_named(play, word(&line));
    if (strcmp(step, "progress") == 0) {
        uint64_t done = amount(&line);
        plimsoll_progress(*task, done, amount(&line));
        return true;
    }
    if (strcmp(step, "end") == 0) {
        uint32_t lane = (uint32_t)amount(&line);
        plimsoll_outcome how = line && strcmp(line, "cancelled") == 0 ? PLIMSOLL_CANCELLED : PLIMSOLL_FINISHED;
        if (*task) plimsoll_task_end_in(*task, &how, lane);
        *task = NULL;
        return true;
    }
    /* A resource's name may hold spaces; what follows it is numbers. */
    uint64_t last[2] = {0, 0};
    int numbers = strcmp(step, "slow") == 0 ? 2 : strcmp(step, "get") == 0 || strcmp(step, "free") == 0 ? 1 : 0;
    for (int i = numbers; i > 0; i--) {
        char *space = strrchr(line, ' ');
        last[i - 1] = strtoull(space + 1, NULL, 10);
        *space = '\0';
    }
    plimsoll_resource *resource = resource_named(play->app, line);
    if (strcmp(step, "get") == 0) plimsoll_get(*task, resource, last[0]);
    else if (strcmp(step, "free") == 0) plimsoll_free(*task, resource, last[0]);
    else if (strcmp(step, "slow") == 0) plimsoll_slow(*task, resource, last[0], last[1]);
    else if (strcmp(step, "wait") == 0) plimsoll_wait(*task, resource);
    else if (strcmp(step, "unwait") == 0) plimsoll_wait_end(*task, resource);
    else return false;
    return true;
}

static bool play_step(struct play *play, char *line) {
    static const char *const kinds[] = {"", "LOCK", "MEMORY", "QUEUE", "CPU", "IO"};
    const char *step = word(&line);
    if (strcmp(step, "ledger") == 0) {
        play_ledger(play, line);
        return play->app != NULL;
    }
    plimsoll_header *header = play->app->header;
    if (strcmp(step, "now") == 0) plimsoll_clock_set_manual(amount(&line));
    else if (strcmp(step, "clock") == 0) header->clock_ns = amount(&line);
    else if (strcmp(step, "exact") == 0) header->flags = amount(&line);
    else if (strcmp(step, "beat") == 0) header->app_beat_ns = amount(&line);
    else if (strcmp(step, "task") == 0) play_task(play, line);
    else if (strcmp(step, "resource") == 0) {
        const char *name = word(&line);
        int kind = 1;
        while (kind < 5 && strcmp(kinds[kind], name) != 0) kind++;
        uint64_t capacity = amount(&line);
        plimsoll_resource_of(play->app, (plimsoll_kind)kind, line, capacity);
    } else return play_event(play, step, line);
    return true;
}

static void script_play(const char *name) {
    size_t script_size, ledger_size;
    char *script = file_read(name, ".script", &script_size), *ledger = file_read(name, ".ledger", &ledger_size), *rest = script, *line;
    struct play play;
    memset(&play, 0, sizeof play);
    REQUIRE(script && ledger);
    while ((line = strsep(&rest, "\n"))) {
        if (!*line || *line == '#') continue;
        if (!CHECK(play_step(&play, line))) printf("%s: in the step %s\n", name, line);
        if (!play.app) return;
    }
    bool same = play.app->size == ledger_size && memcmp(play.app->header, ledger, ledger_size) == 0;
    if (!CHECK(same)) {
        printf("%s: wanted\n", name);
        dump(stdout, ledger);
        printf("%s: became\n", name);
        dump(stdout, play.app->header);
    }
    for (int i = 0; i < play.used; i++) plimsoll_task_end(play.tasks[i]);
    plimsoll_close(play.app);
    free(script);
    free(ledger);
    plimsoll_the_clock.source = PLIMSOLL_CLOCK_SYSTEM;
    printf("vector %s played\n", name);
}

static void ledger_dump(const char *name) {
    size_t size, wanted_size, got_size;
    char *ledger = file_read(name, ".ledger", &size), *wanted = file_read(name, ".dump", &wanted_size), *got = NULL;
    REQUIRE(ledger && wanted);
    REQUIRE(dump_refuse(ledger, size) == NULL);
    FILE *to = open_memstream(&got, &got_size);
    dump(to, ledger);
    fclose(to);
    if (!CHECK(strcmp(got, wanted) == 0)) printf("%s: wanted\n%s%s: got\n%s", name, wanted, name, got);
    free(got);
    free(wanted);
    free(ledger);
    printf("vector %s read\n", name);
}

static void ledger_refuse(const char *name) {
    size_t size, why_size;
    char *ledger = file_read(name, ".ledger", &size), *why = file_read(name, ".error", &why_size);
    REQUIRE(ledger && why);
    const char *said = dump_refuse(ledger, size);
    if (!CHECK(said && strncmp(said, why, strlen(said)) == 0)) printf("%s: %s instead of %s", name, said ? said : "taken", why);
    free(ledger);
    free(why);
    printf("vector %s refused\n", name);
}

TEST(vectors_scripts) {
    CHECK(every(".script", script_play) >= 6);
}

TEST(vectors_dumps) {
    CHECK(every(".dump", ledger_dump) >= 8);
}

TEST(vectors_errors) {
    CHECK(every(".error", ledger_refuse) >= 5);
}

/* What the line says, in the words of control.txt. */
static void line_say(char *line, char *said, size_t size) {
    struct plimsoll_line got;
    enum plimsoll_verb verb = plimsoll_line_read(line, &got);
    typedef unsigned long long number;
    if (verb == PLIMSOLL_WELCOME) snprintf(said, size, "welcome version=%llu mode=%s", (number)got.version, got.text);
    else if (verb == PLIMSOLL_REFUSED) snprintf(said, size, "refused text=%s", got.text);
    else if (verb == PLIMSOLL_CANCEL)
        snprintf(said, size, "cancel id=%llu task=%llu turn=%llu resource=%llu text=%s", (number)got.id, (number)got.task, (number)got.turn, (number)got.resource, got.text);
    else if (verb == PLIMSOLL_RERUN) snprintf(said, size, "rerun id=%llu", (number)got.id);
    else if (verb == PLIMSOLL_DROP) snprintf(said, size, "drop id=%llu", (number)got.id);
    else snprintf(said, size, "ignored");
}

/* Writes what our line is meant to say, to be compared with the line. False if it is none that an SDK writes. */
static bool line_write(char *meaning, char *line, size_t size) {
    plimsoll_app *app = calloc(1, sizeof *app);
    app->connected = true;
    app->wake_fd = -1;
    char *verb = word(&meaning), *first = word(&meaning);
    uint64_t id = first && strncmp(first, "id=", 3) == 0 ? strtoull(first + 3, NULL, 10) : 0;
    bool ours = true;
    if (strcmp(verb, "hello") == 0) {
        snprintf(app->file_name, sizeof app->file_name, "%s", word(&meaning) + strlen("file="));
        app->outbox_used = plimsoll_hello(app, app->outbox, sizeof app->outbox);
    } else if (strcmp(verb, "acknowledge") == 0) {
        plimsoll_post_acknowledge(app, 0, id);
    } else if (strcmp(verb, "outcome") == 0) {
        char *what = word(&meaning) + strlen("word=");
        plimsoll_post_outcome(app, 0, id, what, meaning + strlen("text="));
    } else if (strcmp(verb, "reran") == 0 || strcmp(verb, "dropped") == 0) {
        plimsoll_post_settled(app, 0, id, strcmp(verb, "dropped") == 0);
    } else {
        ours = false;
    }
    snprintf(line, size, "%.*s", (int)app->outbox_used, app->outbox);
    free(app);
    return ours;
}

TEST(vectors_control) {
    size_t size;
    char *text = file_read("control", ".txt", &size), *rest = text, *line;
    int agent = 0, sdk = 0;
    REQUIRE(text);
    while ((line = strsep(&rest, "\n"))) {
        bool from_agent = strncmp(line, "agent ", 6) == 0, from_sdk = strncmp(line, "sdk ", 4) == 0;
        if (!from_agent && !from_sdk) continue;
        char *meaning = strsep(&rest, "\n");
        REQUIRE(meaning && strncmp(meaning, "= ", 2) == 0);
        char got[2048] = "", kept[2048];
        snprintf(kept, sizeof kept, "%s", line);
        if (from_agent) {
            line_say(line + 6, got, sizeof got);
            if (!CHECK(strcmp(got, meaning + 2) == 0)) printf("%s: %s instead of %s\n", kept, got, meaning + 2);
            agent++;
        } else if (strcmp(meaning + 2, "ignored") != 0) {
            CHECK(line_write(meaning + 2, got, sizeof got));
            size_t length = strlen(kept + 4);
            if (!CHECK(strncmp(got, kept + 4, length) == 0 && strcmp(got + length, "\n") == 0)) printf("%s instead of %s\n", got, kept + 4);
            sdk++;
        }
    }
    CHECK(agent >= 15 && sdk >= 8);
    free(text);
}
