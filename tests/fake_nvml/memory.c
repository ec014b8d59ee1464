/* Memory. v1 counts what the driver reserves as used, v2 tells it apart. */
#include <string.h>

#include "fake.h"

static const unsigned MEMORY_V2 = 0x02000028;

typedef struct { Wide total, free, used; } Memory1;
typedef struct { unsigned version; Wide total, reserved, free, used; } Memory2;

/* A function of the wall clock, so that all processes see the same. */
static Wide used_now(const Gpu *gpu) {
    double time = now(), used = (double)gpu->used, most = (double)(gpu->total - gpu->reserved);
    if (gpu->ramp_rate != 0 && time > gpu->ramp_begin) {
        used += (time - gpu->ramp_begin) * gpu->ramp_rate;
        if (gpu->ramp_most > 0 && used > gpu->ramp_most) used = gpu->ramp_most;
    }
    if (gpu->spike_bytes > 0 && gpu->spike_period_ms > 0) {
        double ms = time * 1000;
        double phase = ms - gpu->spike_period_ms * (double)(long long)(ms / gpu->spike_period_ms);
        if (phase < gpu->spike_width_ms) used += gpu->spike_bytes;
    }
    for (int i = 0; i < gpu->spike_count; i++) {
        double since = time - gpu->spikes[i].begin;
        if (since >= 0 && since < gpu->spikes[i].width_ms / 1000) used += gpu->spikes[i].bytes;
    }
    return (Wide)(used > most ? most : used < 0 ? 0 : used);
}

static void read_memory(const Gpu *gpu, const Mig *mig, Memory2 *memory) {
    memory->total = mig ? mig->total : gpu->total;
    memory->reserved = mig ? 0 : gpu->reserved;
    memory->used = mig ? mig->used : used_now(gpu);
    memory->free = memory->total - memory->used - memory->reserved;
    if (!strcmp(gpu->mem_garbage, "used_over_total")) memory->used = memory->total + (1ULL << 30);
    if (!strcmp(gpu->mem_garbage, "sum_mismatch")) memory->free /= 2;
    if (!strcmp(gpu->mem_garbage, "zero")) memory->total = memory->reserved = memory->used = memory->free = 0;
}

API Return nvmlDeviceGetMemoryInfo(void *handle, Memory1 *memory) {
    ENTER(handle);
    Memory2 read;
    if (!gpu->total) return leave(NOT_SUPPORTED);
    read_memory(gpu, call.mig, &read);
    memory->total = read.total;
    memory->used = read.used + read.reserved;
    memory->free = read.free;
    return leave(OK);
}

API Return nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *memory) {
    ENTER(handle);
    if (memory->version != MEMORY_V2) return leave(ARGUMENT_VERSION_MISMATCH);
    if (!gpu->total) return leave(NOT_SUPPORTED);
    read_memory(gpu, call.mig, memory);
    return leave(OK);
}

API Return nvmlDeviceGetBAR1MemoryInfo(void *handle, Memory1 *memory) {
    ENTER(handle);
    memory->total = 1ULL << 38;
    memory->used = 1ULL << 20;
    memory->free = memory->total - memory->used;
    return leave(OK);
}
