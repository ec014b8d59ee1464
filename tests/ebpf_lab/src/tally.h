/* The account of a program that allocates, from its start on. A realloc that succeeds is a free of the old size and an
 * allocation of the new one; realloc to 0 is a free alone; free(NULL) is nothing. */
#ifndef TALLY_H
#define TALLY_H

#include "lab.h"

typedef struct { unsigned long allocs, bytes, frees, freed_bytes, failures; } Tally;

#define TALLY "\"allocs\": %lu, \"bytes\": %lu, \"frees\": %lu, \"freed_bytes\": %lu, \"failures\": %lu"
#define TALLY_VALUES(t) (t).allocs, (t).bytes, (t).frees, (t).freed_bytes, (t).failures

static inline void *took(Tally *tally, void *block, size_t size) {
    if (!block) {
        tally->failures++;
        return NULL;
    }
    tally->allocs++;
    tally->bytes += size;
    return block;
}

static inline void give_back(Tally *tally, void *block, size_t size) {
    free(block);
    tally->frees++;
    tally->freed_bytes += size;
}

static inline void say_tally(const char *phase, const Tally *tally) {
    say("{\"phase\": \"%s\", " TALLY "}", phase, TALLY_VALUES(*tally));
}

#endif
