/* ages STEP...: generations of blocks, born and freed one argument a step.
 *   +COUNTxSIZE  a generation of so many blocks is born
 *   -K           all of generation K (from 0 on) is freed; -KxCOUNT: the oldest COUNT blocks left of it
 * Says of each generation between which two moments (CLOCK_MONOTONIC) it was born, and what is left of it. */
#include "lab.h"

enum { MOST_GENERATIONS = 16, MOST_BLOCKS = 100000 };

typedef struct {
    void **blocks; /* static, not from malloc */
    size_t count, freed, size;
    unsigned long long born_from, born_to;
} Generation;

static void *room[MOST_BLOCKS];
static size_t room_used;
static Generation generations[MOST_GENERATIONS];
static int generation_count;

static void bear(size_t count, size_t size) {
    if (generation_count == MOST_GENERATIONS || count > MOST_BLOCKS - room_used) _exit(2);
    Generation *young = &generations[generation_count++];
    *young = (Generation){ .blocks = room + room_used, .count = count, .size = size, .born_from = now_ns() };
    for (size_t i = 0; i < count; i++)
        if (!(young->blocks[i] = malloc(size))) _exit(2);
    young->born_to = now_ns();
    room_used += count;
}

static void bury(Generation *old, size_t count) {
    for (; count && old->freed < old->count; count--) free(old->blocks[old->freed++]);
}

static void take_step(const char *step) {
    size_t first, second = MOST_BLOCKS;
    int read = sscanf(step + 1, "%zux%zu", &first, &second);
    if (*step == '+' && read == 2) bear(first, second);
    else if (*step == '-' && read >= 1 && first < (size_t)generation_count) bury(&generations[first], second);
    else _exit(2);
}

static void say_generations(const char *step) {
    char text[3072];
    int length = 0;
    for (int i = 0; i < generation_count; i++) {
        const Generation *one = &generations[i];
        size_t left = one->count - one->freed;
        length += snprintf(text + length, sizeof text - (size_t)length,
                           "%s{\"born_ns\": [%llu, %llu], \"blocks\": %zu, \"bytes\": %zu}", i ? ", " : "",
                           one->born_from, one->born_to, left, left * one->size);
    }
    say("{\"phase\": \"%s\", \"generations\": [%s]}", step, text);
}

int main(int count, char **arguments) {
    say_ready();
    for (int i = 1; i < count; i++) {
        take_step(arguments[i]);
        say_generations(arguments[i]);
        wait_for_step();
    }
    return 0;
}
