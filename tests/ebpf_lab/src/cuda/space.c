#include "space.h"

#include <stdlib.h>

#include "driver.h"

static const size_t NO_LIMIT = (size_t)1 << 44;
static const size_t ALIGNMENT = 512;

static size_t limit_of(size_t default_limit) {
    const char *text = getenv("FAKE_CUDA_MEMORY");
    if (!default_limit) return NO_LIMIT;
    return text ? strtoull(text, NULL, 10) : default_limit;
}

static int take(Space *space, size_t bytes, unsigned long long *address) {
    if (!bytes || !address) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > space->limit - space->used || space->count == MOST_BLOCKS) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = space->next;
    space->blocks[space->count].address = space->next;
    space->blocks[space->count++].bytes = bytes;
    space->used += bytes;
    space->next += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return CUDA_SUCCESS;
}

int space_take(Space *space, size_t default_limit, size_t bytes, unsigned long long *address) {
    pthread_mutex_lock(&space->lock);
    if (!space->limit) space->limit = limit_of(default_limit);
    int code = take(space, bytes, address);
    pthread_mutex_unlock(&space->lock);
    return code;
}

int space_give(Space *space, unsigned long long address) {
    int code = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&space->lock);
    for (int i = space->count - 1; i >= 0; i--) { /* from the end: what was taken last is often given back first */
        if (space->blocks[i].address != address) continue;
        space->used -= space->blocks[i].bytes;
        space->blocks[i] = space->blocks[--space->count];
        code = CUDA_SUCCESS;
        break;
    }
    pthread_mutex_unlock(&space->lock);
    return code;
}
