/* Processes: lists, use, accounting; and the driver's samples. */
#include <string.h>

#include "fake.h"

typedef struct { unsigned pid; Wide memory; unsigned gi, ci; } Entry;
typedef struct { unsigned pid; Wide memory; unsigned gi, ci; Wide protected_memory; } LongEntry; /* early R535, as "v3" */
typedef struct { unsigned version, mode, count; LongEntry *list; } DetailList;
typedef struct { unsigned pid; Wide time; unsigned sm, memory, enc, dec; } Use;
typedef struct { unsigned gpu, memory; Wide most, time, start; unsigned running, reserved[5]; } Stats;
typedef struct { Wide time; union { double real; unsigned u32; Wide wide; } value; } Sample;

static Return list(const Processes *from, const Mig *mig, unsigned *count, void *out, size_t size) {
    unsigned room = out ? *count : 0, found = 0;
    for (int i = 0; i < from->count; i++) {
        const Process *process = &from->list[i];
        if (mig && process->gi != mig->gi) continue;
        if (found < room) {
            LongEntry entry = { process->pid, process->memory, process->gi, process->ci, 0 };
            memcpy((char *)out + found * size, &entry, size);
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

/* One of the three lists, as the GPU is told to spoil them. */
static Return spoilt_list(const Gpu *gpu, const Processes *from, const Mig *mig, unsigned *count, void *out, size_t size) {
    if (out && strstr(gpu->proc_layout, "cleared")) memset(out, 0, *count * size);
    Return code = list(from, mig, count, out, size);
    if (!gpu->proc_count) return code;
    *count = gpu->proc_count;
    return (Return)gpu->proc_count_ret;
}

static size_t layout(const Gpu *gpu) { return strncmp(gpu->proc_layout, "r535", 4) ? sizeof(Entry) : sizeof(LongEntry); }

#define LIST(function, member, size) \
    API Return function(void *handle, unsigned *count, void *out) { ENTER(handle); return leave(spoilt_list(gpu, &gpu->member, call.mig, count, out, size)); }

LIST(nvmlDeviceGetComputeRunningProcesses_v3, compute, layout(gpu))
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, graphics, layout(gpu))
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, mps, layout(gpu))
LIST(nvmlDeviceGetComputeRunningProcesses_v2, compute, sizeof(Entry))
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, graphics, sizeof(Entry))
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, mps, sizeof(Entry))

API Return nvmlDeviceGetRunningProcessDetailList(void *handle, DetailList *details) {
    static const Processes NONE;
    ENTER(handle);
    const Processes *const modes[] = { &gpu->compute, &gpu->graphics, &gpu->mps };
    const Processes *from = details->mode < 3 ? modes[details->mode] : &NONE;
    return leave(list(from, call.mig, &details->count, details->list, sizeof(LongEntry)));
}

API Return nvmlDeviceGetProcessUtilization(void *handle, Use *out, unsigned *count, Wide since) {
    ENTER(handle);
    (void)since;
    unsigned room = *count, found = (unsigned)gpu->use_count;
    if (gpu->mig) return leave(NOT_SUPPORTED);
    *count = out && found > room ? room : found;
    if (!found) return leave(NOT_FOUND);
    if (!out) return leave(INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < *count; i++)
        out[i] = (Use){ gpu->uses[i].pid, (Wide)(now() * 1e6), gpu->uses[i].sm, gpu->uses[i].memory, 0, 0 };
    return leave(OK);
}

API Return nvmlDeviceGetAccountingMode(void *handle, unsigned *mode) {
    ENTER(handle);
    if (gpu->mig) return leave(NOT_SUPPORTED);
    *mode = gpu->accounting != 0;
    return leave(OK);
}

API Return nvmlDeviceGetAccountingBufferSize(void *handle, unsigned *size) {
    ENTER(handle);
    *size = 4000;
    return leave(OK);
}

API Return nvmlDeviceGetAccountingPids(void *handle, unsigned *count, unsigned *pids) {
    ENTER(handle);
    if (!gpu->accounting) return leave(NOT_SUPPORTED);
    unsigned room = *count, found = (unsigned)gpu->accounted.count;
    *count = found;
    if (!pids || room < found) return leave(INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < found; i++) pids[i] = gpu->accounted.list[i].pid;
    return leave(OK);
}

static int runs(const Gpu *gpu, unsigned pid) {
    for (int i = 0; i < gpu->compute.count; i++)
        if (gpu->compute.list[i].pid == pid) return 1;
    return 0;
}

API Return nvmlDeviceGetAccountingStats(void *handle, unsigned pid, Stats *stats) {
    ENTER(handle);
    if (!gpu->accounting) return leave(NOT_SUPPORTED);
    for (int i = 0; i < gpu->accounted.count; i++) {
        if (gpu->accounted.list[i].pid != pid) continue;
        memset(stats, 0, sizeof *stats);
        stats->most = gpu->accounted.list[i].memory;
        stats->gpu = gpu->util, stats->memory = gpu->memutil;
        stats->running = (unsigned)runs(gpu, pid);
        stats->time = stats->running ? 0 : 1000;
        return leave(OK);
    }
    return leave(NOT_FOUND);
}

/* A hundred samples, of power 20 ms apart, of the rest 166 ms. */
API Return nvmlDeviceGetSamples(void *handle, unsigned type, Wide since, unsigned *value_type, unsigned *count, Sample *out) {
    ENTER(handle);
    if (type > 7 || (gpu->mig && type >= 1 && type <= 4)) return leave(NOT_SUPPORTED);
    const unsigned values[] = { gpu->power_mw, gpu->util, gpu->memutil, gpu->enc, gpu->dec, gpu->sm, gpu->mem, gpu->power_mw };
    double step = type ? 0.1667 : 0.02;
    Wide end = (Wide)(now() * 1e6);
    unsigned found = 0, room = *count;
    *value_type = 1;
    for (int i = 99; i >= 0; i--) {
        Wide time = end - (Wide)(i * step * 1e6);
        if (time <= since) continue;
        if (out && found < room) out[found] = (Sample){ time, { .u32 = values[type] } };
        found++;
    }
    if (!found) return leave(NOT_FOUND);
    *count = out && found > room ? room : found;
    return leave(OK);
}
