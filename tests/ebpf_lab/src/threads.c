/* 8 threads that allocate at once, then free half of it each, from another thread than the one that allocated. They
 * exist before the first phase and until the end, as making and ending a thread allocates and frees too. */
#include <pthread.h>

#include "tally.h"

enum { THREADS = 8, BLOCKS = 1000, SIZE = 200 };

static Tally tallies[THREADS];
static void *blocks[THREADS][BLOCKS];
static pthread_barrier_t barrier;

static void *work(void *argument) {
    size_t own = (size_t)argument, next = (own + 1) % THREADS;
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < BLOCKS; i++) blocks[own][i] = took(&tallies[own], malloc(SIZE + own), SIZE + own);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < BLOCKS; i += 2) give_back(&tallies[own], blocks[next][i], SIZE + next);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void run_phase(const char *name) {
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    Tally sum = { 0 };
    for (int i = 0; i < THREADS; i++) {
        sum.allocs += tallies[i].allocs;
        sum.bytes += tallies[i].bytes;
        sum.frees += tallies[i].frees;
        sum.freed_bytes += tallies[i].freed_bytes;
        sum.failures += tallies[i].failures;
    }
    say_tally(name, &sum);
    wait_for_step();
}

int main(void) {
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, work, (void *)i)) _exit(2);
    say_ready();
    run_phase("allocated");
    run_phase("freed");
    return 0;
}
