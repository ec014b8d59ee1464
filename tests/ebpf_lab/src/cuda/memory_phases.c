/* Allocations of each kind. What a phase says is of its own calls alone; cuMemFree_v2 frees managed memory too. */
#include "phases.h"

static const size_t MIB = (size_t)1 << 20;
static const size_t TOO_MUCH = (size_t)1 << 45;

static CUdeviceptr blocks[MOST_TALLIED];

/* Counts an allocation of `bytes` that answered `code`. */
static void count(Tally *tally, CUresult code, size_t bytes) {
    took(tally, code ? NULL : tally, bytes);
}

static void count_free(Tally *tally, CUresult code, size_t bytes) {
    must(code);
    tally->frees++;
    tally->freed_bytes += bytes;
}

static void say_memory(const char *phase, const Tally *tally) {
    say_tally(phase, tally);
    wait_for_step();
}

static void of_device(void) {
    Tally tally = { 0 };
    CUdeviceptr none;
    for (size_t i = 0; i < 100; i++) count(&tally, cuMemAlloc_v2(&blocks[i], MIB + i), MIB + i);
    for (size_t i = 0; i < 40; i++) count_free(&tally, cuMemFree_v2(blocks[i]), MIB + i);
    count(&tally, cuMemAlloc_v2(&none, TOO_MUCH), 0);
    count(&tally, cuMemAlloc_v2(&none, 0), 0);
    if (!cuMemFree_v2(blocks[0])) _exit(2); /* is freed already, and nothing happens */
    say_memory("device", &tally);
}

static void of_stream(CUstream stream) {
    Tally tally = { 0 };
    CUdeviceptr none;
    for (size_t i = 0; i < 20; i++) count(&tally, cuMemAllocAsync(&blocks[i], 2 * MIB + i, stream), 2 * MIB + i);
    for (size_t i = 0; i < 15; i++) count_free(&tally, cuMemFreeAsync(blocks[i], stream), 2 * MIB + i);
    count(&tally, cuMemAllocAsync(&none, TOO_MUCH, stream), 0);
    say_memory("async", &tally);
}

static void managed(CUstream stream) {
    Tally tally = { 0 };
    CUdeviceptr block, none;
    CUmemLocation device = { 1, 0 };
    count(&tally, cuMemAllocManaged(&block, 3 * MIB, CU_MEM_ATTACH_GLOBAL), 3 * MIB);
    must(cuMemPrefetchAsync(block, 2 * MIB, 0, stream));
    must(cuMemPrefetchAsync(block, MIB, CU_DEVICE_CPU, stream));
    must(cuMemPrefetchAsync_v2(block, 3 * MIB, device, 0, stream));
    count(&tally, cuMemAllocManaged(&none, 5 * MIB, CU_MEM_ATTACH_GLOBAL), 5 * MIB);
    count_free(&tally, cuMemFree_v2(none), 5 * MIB);
    count(&tally, cuMemAllocManaged(&none, TOO_MUCH, CU_MEM_ATTACH_GLOBAL), 0);
    say("{\"phase\": \"managed\", " TALLY ", \"prefetches\": {\"calls\": 3, \"bytes\": %zu}}", TALLY_VALUES(tally),
        6 * MIB);
    wait_for_step();
}

static void of_host(void) {
    Tally tally = { 0 };
    void *kept, *gone;
    count(&tally, cuMemHostAlloc(&kept, 7 * MIB, 0), 7 * MIB);
    count(&tally, cuMemHostAlloc(&gone, 4 * MIB, 0), 4 * MIB);
    count_free(&tally, cuMemFreeHost(gone), 4 * MIB);
    count(&tally, cuMemHostAlloc(&gone, TOO_MUCH, 0), 0);
    say_memory("host", &tally);
}

static void of_runtime(CUstream stream) {
    Tally tally = { 0 };
    void *at[4], *none;
    count(&tally, cudaMalloc(&at[0], 11 * MIB), 11 * MIB);
    count(&tally, cudaMallocManaged(&at[1], 12 * MIB, CU_MEM_ATTACH_GLOBAL), 12 * MIB);
    count(&tally, cudaMallocHost(&at[2], 13 * MIB), 13 * MIB);
    count(&tally, cudaMallocAsync(&at[3], 14 * MIB, stream), 14 * MIB);
    count(&tally, cudaMalloc(&none, TOO_MUCH), 0);
    count_free(&tally, cudaFree(at[1]), 12 * MIB);
    count_free(&tally, cudaFreeHost(at[2]), 13 * MIB);
    count_free(&tally, cudaFreeAsync(at[3], stream), 14 * MIB);
    must(cudaFree(NULL));
    say_memory("runtime", &tally);
}

void memory_phases(const Streams *streams) {
    of_device();
    of_stream(streams->first);
    managed(streams->first);
    of_host();
    of_runtime(streams->first);
}
