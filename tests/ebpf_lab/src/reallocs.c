/* 8 threads that resize blocks at once, in one arena, so that what one gives back is another's at the next moment. They
 * exist before the first phase and until the end. */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>

#include "tally.h"

enum { THREADS = 8, BLOCKS = 16, ROUNDS = 4000, LARGEST = 20000 };

typedef struct { Tally tally; void *blocks[BLOCKS]; size_t sizes[BLOCKS]; uint32_t random; } Thread;

static Thread threads[THREADS];
static pthread_barrier_t barrier;
static volatile size_t too_much = SIZE_MAX / 2;

static uint32_t next_random(Thread *thread) {
    thread->random = thread->random * 1664525 + 1013904223;
    return thread->random >> 8;
}

static void resize(Thread *thread, size_t i, size_t size) {
    void *block = took(&thread->tally, realloc(thread->blocks[i], size), size);
    if (!block) return;
    if (thread->blocks[i]) {
        thread->tally.frees++;
        thread->tally.freed_bytes += thread->sizes[i];
    }
    thread->blocks[i] = block;
    thread->sizes[i] = size;
}

static void *work(void *argument) {
    Thread *thread = argument;
    pthread_barrier_wait(&barrier);
    for (int round = 0; round < ROUNDS; round++) {
        size_t i = next_random(thread) % BLOCKS;
        resize(thread, i, round % 50 ? 1 + next_random(thread) % LARGEST : too_much);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(void) {
    pthread_t started;
    Tally sum = { 0 };
    mallopt(M_ARENA_MAX, 1);
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++) {
        threads[i].random = (uint32_t)i;
        if (pthread_create(&started, NULL, work, &threads[i])) _exit(2);
    }
    say_ready();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) {
        sum.allocs += threads[i].tally.allocs;
        sum.bytes += threads[i].tally.bytes;
        sum.frees += threads[i].tally.frees;
        sum.freed_bytes += threads[i].tally.freed_bytes;
        sum.failures += threads[i].tally.failures;
    }
    say_tally("resized", &sum);
    wait_for_step();
    return 0;
}
