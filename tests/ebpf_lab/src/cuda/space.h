/* Addresses that are handed out and taken back, with no memory behind them and none allocated for them. */
#ifndef LAB_CUDA_SPACE_H
#define LAB_CUDA_SPACE_H

#include <pthread.h>
#include <stddef.h>

enum { MOST_BLOCKS = 4096 };

typedef struct {
    pthread_mutex_t lock;
    unsigned long long next; /* the address of the next block: none is given twice */
    size_t limit, used;      /* bytes; limit 0: not read yet */
    struct { unsigned long long address; size_t bytes; } blocks[MOST_BLOCKS];
    int count;
} Space;

#define SPACE(base) { .lock = PTHREAD_MUTEX_INITIALIZER, .next = (base) }

/* CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE or CUDA_ERROR_OUT_OF_MEMORY. default_limit: unless FAKE_CUDA_MEMORY says how
 * many bytes there are; 0: as good as no limit, whatever that says. */
int space_take(Space *space, size_t default_limit, size_t bytes, unsigned long long *address);
int space_give(Space *space, unsigned long long address);

#endif
