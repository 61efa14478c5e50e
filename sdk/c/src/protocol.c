/** The lines of the control connection: reading the agent's, writing ours. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

/* The next word of the line, without the space behind it; "" at its end. */
static char *line_word(char **line) {
    char *word = *line;
    char *end = strchr(word, ' ');
    if (end) {
        *end = '\0';
        *line = end + 1;
    } else {
        *line = word + strlen(word);
    }
    return word;
}

/* Digits and nothing else, at most `most`. */
static bool line_number(char **line, uint64_t most, uint64_t *number) {
    const char *word = line_word(line);
    uint64_t value = 0;
    if (!*word) return false;
    for (; *word; word++) {
        if (*word < '0' || *word > '9') return false;
        uint64_t digit = (uint64_t)(*word - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *number = value;
    return value <= most;
}

/* Takes a line apart, in place. */
enum plimsoll_verb plimsoll_line_read(char *line, struct plimsoll_line *said) {
    memset(said, 0, sizeof *said);
    const char *verb = line_word(&line);
    said->text = line;
    if (strcmp(verb, "welcome") == 0) {
        if (!line_number(&line, UINT64_MAX, &said->version)) return PLIMSOLL_IGNORED;
        said->text = line_word(&line);
        bool known = strcmp(said->text, "off") == 0 || strcmp(said->text, "shadow") == 0 || strcmp(said->text, "enforce") == 0;
        return known ? PLIMSOLL_WELCOME : PLIMSOLL_IGNORED;
    }
    if (strcmp(verb, "refused") == 0) return PLIMSOLL_REFUSED;
    if (strcmp(verb, "cancel") == 0) {
        bool whole = line_number(&line, UINT64_MAX, &said->id) && line_number(&line, 131071, &said->task) && line_number(&line, UINT64_MAX, &said->turn) &&
                     line_number(&line, 255, &said->resource);
        said->text = line;
        return whole ? PLIMSOLL_CANCEL : PLIMSOLL_IGNORED;
    }
    bool rerun = strcmp(verb, "rerun") == 0;
    if (!rerun && strcmp(verb, "drop") != 0) return PLIMSOLL_IGNORED;
    if (!line_number(&line, UINT64_MAX, &said->id)) return PLIMSOLL_IGNORED;
    return rerun ? PLIMSOLL_RERUN : PLIMSOLL_DROP;
}

size_t plimsoll_hello(const plimsoll_app *app, char *line, size_t size) {
    int length = snprintf(line, size, "hello %u %s\n", PLIMSOLL_FORMAT, app->file_name);
    return length > 0 && (size_t)length < size ? (size_t)length : 0;
}

/* With the lock: one more line to send, unless the connection that it belongs to is no more. */
static void post(plimsoll_app *app, uint64_t connection, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void post(plimsoll_app *app, uint64_t connection, const char *format, ...) {
    if (connection != app->connection || !app->connected) return;
    char line[PLIMSOLL_LINE_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    size_t bytes = plimsoll_text_cut(line, sizeof line - 1);
    if ((size_t)length > bytes) {
        while (bytes > 0 && ((unsigned char)line[bytes - 1] & 0xc0) == 0x80) bytes--;
        if (bytes > 0 && (unsigned char)line[bytes - 1] >= 0xc0) bytes--;
    }
    if (app->outbox_used + bytes + 1 > sizeof app->outbox) {
        /* An agent that does not read: the connection is given up, not the memory. */
        app->overflow = true;
    } else {
        for (size_t i = 0; i < bytes; i++) app->outbox[app->outbox_used++] = line[i] == '\n' || line[i] == '\r' ? ' ' : line[i];
        app->outbox[app->outbox_used++] = '\n';
    }
    plimsoll_control_wake(app);
}

void plimsoll_post_acknowledge(plimsoll_app *app, uint64_t connection, uint64_t id) {
    post(app, connection, "acknowledge %llu", (unsigned long long)id);
}

void plimsoll_post_outcome(plimsoll_app *app, uint64_t connection, uint64_t id, const char *word, const char *text) {
    bool any = text && *text;
    post(app, connection, "outcome %llu %s%s%s", (unsigned long long)id, word, any ? " " : "", any ? text : "");
}

void plimsoll_post_settled(plimsoll_app *app, uint64_t connection, uint64_t id, bool dropped) {
    post(app, connection, "%s %llu", dropped ? "dropped" : "reran", (unsigned long long)id);
}
