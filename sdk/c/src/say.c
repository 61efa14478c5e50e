/** What the library has to say: one line a cause, on stderr or wherever the application wants it. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

void plimsoll_say(const plimsoll_options *options, uint32_t *said, enum plimsoll_cause cause, const char *format, ...) {
    uint32_t bit = 1u << (unsigned)cause;
    if (__atomic_fetch_or(said, bit, __ATOMIC_RELAXED) & bit) return;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (options && options->say) {
        options->say(line, options->say_context);
    } else {
        fprintf(stderr, "plimsoll: %s\n", line);
    }
}
