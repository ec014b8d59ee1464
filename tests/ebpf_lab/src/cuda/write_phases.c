/* Two writes to device memory, a case each: whether something orders them where their ranges overlap. Every case has a
 * buffer of its own, so what one leaves unordered is no conflict for the next. */
#include "phases.h"

enum { BYTES = 4096, HALF = BYTES / 2 };

static char host[BYTES];
static CUdeviceptr source;

NOINLINE void first_write(CUdeviceptr to, size_t bytes, CUstream stream) {
    must(cuMemcpyHtoDAsync_v2(to, host, bytes, stream));
}

NOINLINE void second_write(CUdeviceptr to, size_t bytes, CUstream stream) {
    must(cuMemcpyDtoDAsync_v2(to, source, bytes, stream));
}

NOINLINE void case_unordered(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    second_write(at + HALF, HALF, streams->second);
}

static void order_by_event(CUstream before, CUstream after) {
    CUevent event;
    must(cuEventCreate(&event, 0));
    must(cuEventRecord(event, before));
    must(cuStreamWaitEvent(after, event, 0));
    must(cuEventDestroy_v2(event));
}

NOINLINE void case_event(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    order_by_event(streams->first, streams->second);
    second_write(at + HALF, HALF, streams->second);
}

/* The third stream orders the two with events of its own. */
NOINLINE void case_event_chain(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    order_by_event(streams->first, streams->third);
    order_by_event(streams->third, streams->second);
    second_write(at + HALF, HALF, streams->second);
}

/* What was recorded before the write says nothing of it. */
NOINLINE void case_event_too_early(CUdeviceptr at, const Streams *streams) {
    order_by_event(streams->first, streams->second);
    first_write(at, BYTES, streams->first);
    second_write(at + HALF, HALF, streams->second);
}

NOINLINE void case_event_sync(CUdeviceptr at, const Streams *streams) {
    CUevent event;
    must(cuEventCreate(&event, 0));
    first_write(at, BYTES, streams->first);
    must(cuEventRecord(event, streams->first));
    must(cuEventSynchronize(event));
    second_write(at + HALF, HALF, streams->second);
    must(cuEventDestroy_v2(event));
}

NOINLINE void case_stream_sync(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    must(cuStreamSynchronize(streams->first));
    second_write(at + HALF, HALF, streams->second);
}

/* Of the stream that had nothing to wait for. */
NOINLINE void case_wrong_stream_sync(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    must(cuStreamSynchronize(streams->second));
    second_write(at + HALF, HALF, streams->second);
}

NOINLINE void case_context_sync(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    must(cuCtxSynchronize());
    second_write(at + HALF, HALF, streams->second);
}

NOINLINE void case_disjoint(CUdeviceptr at, const Streams *streams) {
    first_write(at, HALF, streams->first);
    second_write(at + HALF, HALF, streams->second);
}

NOINLINE void case_same_stream(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    second_write(at + HALF, HALF, streams->first);
}

/* Of a count of 32-bit words the last byte. */
NOINLINE void case_one_byte(CUdeviceptr at, const Streams *streams) {
    must(cuMemsetD32Async(at, 0, HALF / 4, streams->first));
    must(cuMemcpyAsync(at + HALF - 1, source, HALF, streams->second));
}

NOINLINE void case_memset_disjoint(CUdeviceptr at, const Streams *streams) {
    must(cuMemsetD8Async(at, 0, HALF, streams->first));
    must(cuMemcpyAsync(at + HALF, source, HALF, streams->second));
}

/* The default stream waits for blocking streams, and they for it. */
NOINLINE void case_default_stream(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, NULL);
    second_write(at + HALF, HALF, streams->second);
}

NOINLINE void case_default_stream_after(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    second_write(at + HALF, HALF, CU_STREAM_LEGACY);
}

NOINLINE void case_default_stream_non_blocking(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, NULL);
    second_write(at + HALF, HALF, streams->non_blocking);
}

NOINLINE void case_reads(CUdeviceptr at, const Streams *streams) {
    must(cuMemcpyDtoHAsync_v2(host, at, HALF, streams->first));
    must(cuMemcpyDtoHAsync_v2(host + HALF, at, HALF, streams->second));
}

static void launch(CUstream stream) {
    must(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

/* Any work in the default stream orders what blocking streams do before and after. */
NOINLINE void case_kernel_in_default_stream(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    launch(NULL);
    second_write(at + HALF, HALF, streams->second);
}

NOINLINE void case_configured_kernel_in_default_stream(CUdeviceptr at, const Streams *streams) {
    CUlaunchConfig config = {.stream = NULL};
    first_write(at, BYTES, streams->first);
    must(cuLaunchKernelEx(&config, NULL, NULL, NULL));
    second_write(at + HALF, HALF, streams->second);
}

NOINLINE void case_kernel_elsewhere(CUdeviceptr at, const Streams *streams) {
    first_write(at, BYTES, streams->first);
    launch(streams->third);
    second_write(at + HALF, HALF, streams->second);
}

NOINLINE void case_default_stream_per_thread(CUdeviceptr at, const Streams *streams) {
    must(cuMemcpyHtoDAsync_v2_ptsz(at, host, BYTES, NULL));
    second_write(at + HALF, HALF, streams->second);
}

/* What is captured is not done. */
NOINLINE void case_captured(CUdeviceptr at, const Streams *streams) {
    CUgraph graph;
    must(cuStreamBeginCapture_v2(streams->first, 0));
    first_write(at, BYTES, streams->first);
    must(cuStreamEndCapture(streams->first, &graph));
    second_write(at + HALF, HALF, streams->second);
}

static void copy_rows(CUdeviceptr at, size_t pitch, size_t width, CUstream stream) {
    CUDA_MEMCPY2D copy = {.source_host = host, .type = CU_MEMORYTYPE_DEVICE, .device = at, .pitch = pitch};
    copy.width = width;
    copy.height = HALF / pitch;
    must(cuMemcpy2DAsync_v2(&copy, stream));
}

NOINLINE void case_rows(CUdeviceptr at, const Streams *streams) {
    copy_rows(at, 64, 64, streams->first);
    second_write(at + HALF - 1, HALF, streams->second);
}

NOINLINE void case_columns(CUdeviceptr at, const Streams *streams) {
    copy_rows(at, 64, 32, streams->first);
    copy_rows(at + 32, 64, 32, streams->second);
}

#define CASE(name, conflicts) { #name, case_##name, conflicts }
static const struct {
    const char *name;
    void (*run)(CUdeviceptr, const Streams *);
    int conflicts;
} CASES[] = {
    CASE(unordered, 1),
    CASE(event, 0),
    CASE(event_chain, 0),
    CASE(event_too_early, 1),
    CASE(event_sync, 0),
    CASE(stream_sync, 0),
    CASE(wrong_stream_sync, 1),
    CASE(context_sync, 0),
    CASE(disjoint, 0),
    CASE(same_stream, 0),
    CASE(one_byte, 1),
    CASE(memset_disjoint, 0),
    CASE(default_stream, 0),
    CASE(default_stream_after, 0),
    CASE(default_stream_non_blocking, 1),
    CASE(reads, 0),
    CASE(kernel_in_default_stream, 0),
    CASE(configured_kernel_in_default_stream, 0),
    CASE(kernel_elsewhere, 1),
    CASE(default_stream_per_thread, 1),
    CASE(captured, 0),
    CASE(rows, 1),
    CASE(columns, 0),
};

void write_phases(const Streams *streams) {
    CUdeviceptr at;
    must(cuMemAlloc_v2(&source, BYTES));
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        must(cuMemAlloc_v2(&at, BYTES));
        /* A device that is at rest, whatever the case before left. */
        must(cuCtxSynchronize());
        CASES[i].run(at, streams);
        say("{\"phase\": \"%s\", \"conflicts\": %d, \"address\": %llu, \"bytes\": %d}", CASES[i].name,
            CASES[i].conflicts, at, BYTES);
        wait_for_step();
    }
    must(cuMemcpy(at, source, BYTES));
}
