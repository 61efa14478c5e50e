/** A reader of ledgers for tests: what it says is what the vectors' dumps say. */
#ifndef DUMP_H
#define DUMP_H

#include <stdbool.h>
#include <stdio.h>

/* Why these bytes are no ledger, as the word of `sdk/vectors`; NULL if they are one. */
const char *dump_refuse(const void *bytes, size_t size);
void dump(FILE *to, const void *bytes);

#endif
