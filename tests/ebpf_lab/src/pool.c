/* An allocator whose functions call themselves, and are left by a jump: what is to be counted is what a caller asked for.
 * Then libc's function that calls another one of it. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdint.h>

#include "tally.h"

enum { HEADER = 16, ENDLESS = 7 };

static char memory[1 << 20], *next = memory;
static jmp_buf out;
static volatile size_t too_much = SIZE_MAX / 2; /* volatile, as a compiler that sees it warns */

/* An odd size takes an even block and hands out what is behind its header. */
NOINLINE void *pool_get(size_t size) {
    if (size == ENDLESS) longjmp(out, 1);
    if (size % 2) {
        char *whole = pool_get(size + HEADER + 1);
        return whole ? whole + HEADER : NULL;
    }
    if (size > (size_t)(memory + sizeof memory - next)) return NULL;
    char *block = next;
    next += size;
    return block;
}

NOINLINE void pool_put(void *block) {
    asm volatile("" : : "r"(block) : "memory");
}

static void put(Tally *tally, void *block, size_t size) {
    pool_put(block);
    tally->frees++;
    tally->freed_bytes += size;
}

static void nested(Tally *tally) {
    void *odd = took(tally, pool_get(101), 101), *even = took(tally, pool_get(200), 200);
    took(tally, pool_get(303), 303);
    put(tally, odd, 101);
    put(tally, even, 200);
    took(tally, pool_get(2 * sizeof memory + 1), 0);
}

static void jumped(Tally *tally) {
    for (volatile int i = 0; i < 20; i++)
        if (!setjmp(out)) pool_get(ENDLESS);
        else took(tally, pool_get(50 + 2 * (size_t)i), 50 + 2 * (size_t)i);
}

/* From frames below the one that the jump left for ever. */
NOINLINE static void leave_by_a_jump(void) {
    if (!setjmp(out)) pool_get(ENDLESS);
}

NOINLINE static void deeper(Tally *tally) {
    char room[4096];
    for (int i = 0; i < 20; i++) took(tally, pool_get(10), 10);
    asm volatile("" : : "r"(room) : "memory");
}

static void arrays(Tally *tally) {
    void *block = took(tally, reallocarray(NULL, 10, 10), 100);
    block = took(tally, reallocarray(block, 20, 10), 200);
    tally->frees++;
    tally->freed_bytes += 100;
    took(tally, reallocarray(block, too_much, 4), 0); /* the product overflows */
    took(tally, reallocarray(block, too_much, 1), 0); /* realloc fails */
}

int main(void) {
    Tally tally = { 0 }, of_libc = { 0 };
    say_ready();
    nested(&tally);
    say_tally("nested", &tally);
    wait_for_step();
    jumped(&tally);
    say_tally("jumped", &tally);
    wait_for_step();
    leave_by_a_jump();
    deeper(&tally);
    say_tally("deeper", &tally);
    wait_for_step();
    arrays(&of_libc);
    say_tally("arrays", &of_libc);
    wait_for_step();
    return 0;
}
