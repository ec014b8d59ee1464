/* Calls libcuda as fast as it can for some seconds: more than anybody can follow. */
#include "../lab.h"
#include "driver.h"

enum { SECONDS = 6, AT_ONCE = 1000 };

int main(void) {
    CUcontext context;
    CUstream stream;
    say_ready();
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || cuStreamCreate(&stream, 0)) return 2;
    unsigned long long calls = 0, end = now_ns() + SECONDS * 1000000000ULL;
    for (; now_ns() < end; calls += AT_ONCE)
        for (int i = 0; i < AT_ONCE; i++)
            if (cuStreamSynchronize(stream)) return 2;
    say("{\"phase\": \"flood\", \"calls\": %llu, \"seconds\": %d}", calls, SECONDS);
    wait_for_step();
    return 0;
}
