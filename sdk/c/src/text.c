/** Texts of a fixed size: UTF-8, cut at the end of a character. */
#include <string.h>

#include "internal.h"

/* How many bytes of `text` fit into `most`. */
size_t plimsoll_text_cut(const char *text, size_t most) {
    size_t length = strnlen(text, most + 1);
    if (length <= most) return length;
    length = most;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
    return length;
}
