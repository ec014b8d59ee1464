/* A stand-in for libcudart. Unlike the real one it calls nothing of libcuda, and has memory of its own, so that a
 * tracer of both counts each allocation once and the two apart. */
#include "driver.h"
#include "space.h"

static const size_t DEVICE_BYTES = (size_t)1 << 30;

static Space device = SPACE(0x7d0000000000ULL);
static Space host = SPACE(0x7c0000000000ULL);

static int take(Space *space, size_t limit, size_t bytes, void **address) {
    unsigned long long taken;
    int code = space_take(space, limit, bytes, &taken);
    if (!code) *address = (void *)(size_t)taken;
    return code;
}

static int give(void *address) {
    if (!address) return CUDA_SUCCESS;
    int code = space_give(&device, (size_t)address);
    return code ? space_give(&host, (size_t)address) : code;
}

API int cudaMalloc(void **address, size_t bytes) {
    return take(&device, DEVICE_BYTES, bytes, address);
}

API int cudaFree(void *address) {
    return give(address);
}

API int cudaMallocManaged(void **address, size_t bytes, unsigned flags) {
    return flags ? take(&host, 0, bytes, address) : CUDA_ERROR_INVALID_VALUE;
}

API int cudaMallocHost(void **address, size_t bytes) {
    return take(&host, 0, bytes, address);
}

API int cudaFreeHost(void *address) {
    return address ? space_give(&host, (size_t)address) : CUDA_SUCCESS;
}

API int cudaMallocAsync(void **address, size_t bytes, CUstream stream) {
    (void)stream;
    return take(&device, DEVICE_BYTES, bytes, address);
}

API int cudaFreeAsync(void *address, CUstream stream) {
    (void)stream;
    return give(address);
}
