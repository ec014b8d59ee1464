/* Calls the stand-ins for libcuda and libcudart: contexts and streams, then memory, then writes that race or do not. */
#include "phases.h"

static Streams open_device(void) {
    Streams streams;
    CUdevice device;
    CUcontext primary, other;
    CUstream gone;
    if (cuInit(0) || cuDeviceGet(&device, 0) || !cuDeviceGet(&device, 1)) _exit(2);
    must(cuDevicePrimaryCtxRetain(&primary, 0));
    must(cuDevicePrimaryCtxRetain(&primary, 0));
    must(cuDevicePrimaryCtxRelease_v2(0));
    must(cuCtxCreate_v2(&other, 0, 0));
    must(cuCtxDestroy_v2(other));
    must(cuCtxSetCurrent(primary));
    must(cuStreamCreate(&streams.first, 0));
    must(cuStreamCreate(&streams.second, 0));
    must(cuStreamCreateWithPriority(&streams.third, 0, -1));
    must(cuStreamCreate(&streams.non_blocking, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&gone, 0));
    must(cuStreamDestroy_v2(gone));
    if (!cuStreamQuery(gone)) _exit(2);
    return streams;
}

int main(void) {
    say_ready();
    Streams streams = open_device();
    say("{\"phase\": \"contexts\", \"contexts_created\": 1, \"contexts_live\": 0, \"primary_retains\": 2, "
        "\"primary_releases\": 1, \"streams_created\": 5, \"streams_live\": 4}");
    wait_for_step();
    memory_phases(&streams);
    write_phases(&streams);
    must(cuStreamDestroy_v2(streams.first));
    must(cuStreamDestroy_v2(streams.second));
    must(cuStreamDestroy_v2(streams.third));
    must(cuStreamDestroy_v2(streams.non_blocking));
    must(cuDevicePrimaryCtxRelease_v2(0));
    say("{\"phase\": \"closed\", \"contexts_live\": 0, \"streams_live\": 0}");
    wait_for_step();
    return 0;
}
