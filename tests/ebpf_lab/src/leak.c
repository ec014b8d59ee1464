/* Every way to allocate with libc, each that fails, then a leak of two functions at every further step. */
#include <malloc.h>
#include <stdint.h>

#include "tally.h"

enum { SMALL = 48, SMALLS = 1000, BIG = 100000, BIGS = 20 };

static Tally tally;
static void *kept;
static const size_t KEPT = 4000;
static volatile size_t too_much = SIZE_MAX / 2; /* volatile, as a compiler that sees it warns */

static void *resize(void *old, size_t from, size_t to) {
    void *block = took(&tally, realloc(old, to), to);
    if (!block) return old;
    if (old) {
        tally.frees++;
        tally.freed_bytes += from;
    }
    return block;
}

static void use_malloc(void) {
    for (size_t i = 0; i < 100; i++) {
        void *block = took(&tally, malloc(100 + i), 100 + i);
        if (i % 2) give_back(&tally, block, 100 + i);
    }
    took(&tally, malloc(0), 0);
    took(&tally, malloc(1 << 20), 1 << 20); /* large enough for a mapping of its own */
    free(NULL);
    say_tally("malloc", &tally);
}

static void use_calloc(void) {
    for (size_t i = 1; i <= 20; i++) {
        void *block = took(&tally, calloc(10, 100 * i), 1000 * i);
        if (i % 4 == 0) give_back(&tally, block, 1000 * i);
    }
    say_tally("calloc", &tally);
}

static void use_realloc(void) {
    kept = resize(NULL, 0, KEPT);
    void *block = resize(NULL, 0, 77);
    block = resize(block, 77, 5000);
    block = resize(block, 5000, 100);
    block = resize(block, 100, 3 << 20);     /* from the heap to a mapping */
    block = resize(block, 3 << 20, 6 << 20); /* that mremap() makes larger */
    block = resize(block, 6 << 20, 50);
    if (realloc(block, 0)) _exit(2); /* glibc frees it */
    tally.frees++;
    tally.freed_bytes += 50;
    say_tally("realloc", &tally);
}

static void use_aligned(void) {
    void *block = NULL;
    took(&tally, aligned_alloc(64, 640), 640);
    give_back(&tally, took(&tally, aligned_alloc(4096, 8192), 8192), 8192);
    took(&tally, memalign(256, 1000), 1000);
    give_back(&tally, took(&tally, memalign(32, 500), 500), 500);
    took(&tally, posix_memalign(&block, 4096, 10000) ? NULL : block, 10000);
    give_back(&tally, took(&tally, posix_memalign(&block, 64, 300) ? NULL : block, 300), 300);
    say_tally("aligned", &tally);
}

static void use_failing(void) {
    void *block = NULL;
    took(&tally, malloc(too_much), 0);
    took(&tally, calloc(too_much, 4), 0); /* the product overflows */
    took(&tally, aligned_alloc(64, too_much), 0);
    took(&tally, memalign(64, too_much), 0);
    took(&tally, posix_memalign(&block, 64, too_much) ? NULL : block, 0);
    took(&tally, posix_memalign(&block, 3, 100) ? NULL : block, 0); /* no power of two */
    if (resize(kept, KEPT, too_much) != kept) _exit(2);             /* stays allocated */
    say_tally("failing", &tally);
}

NOINLINE void leak_small(void) {
    took(&tally, malloc(SMALL), SMALL);
}

NOINLINE void leak_big(void) {
    took(&tally, malloc(BIG), BIG);
}

NOINLINE void leak_both(void) {
    for (int i = 0; i < SMALLS; i++) leak_small();
    for (int i = 0; i < BIGS; i++) leak_big();
}

static void say_leaks(unsigned long rounds) {
    say("{\"phase\": \"leaks\", " TALLY ", \"outstanding\": {\"leak_small\": {\"blocks\": %lu, \"bytes\": %lu}, "
        "\"leak_big\": {\"blocks\": %lu, \"bytes\": %lu}}}",
        TALLY_VALUES(tally), rounds * SMALLS, rounds * SMALLS * SMALL, rounds * BIGS, rounds * BIGS * BIG);
}

int main(void) {
    static void (*const PHASES[])(void) = { use_malloc, use_calloc, use_realloc, use_aligned, use_failing };
    say_ready();
    for (size_t i = 0; i < sizeof PHASES / sizeof *PHASES; i++) {
        PHASES[i]();
        wait_for_step();
    }
    for (unsigned long round = 1;; round++) {
        leak_both();
        say_leaks(round);
        wait_for_step();
    }
}
