/* Memory of the stand-in for libcuda, and copies, which copy nothing. */
#include "session.h"
#include "space.h"

static const size_t DEVICE_BYTES = (size_t)1 << 30;

static Space device = SPACE(0x7f0000000000ULL);
/* What is not on the device, and managed memory, of which there may be more than the device has. */
static Space host = SPACE(0x7e0000000000ULL);

static CUresult give(CUdeviceptr address) {
    CUresult code = space_give(&device, address);
    return code ? space_give(&host, address) : code;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    CUresult code = need_context();
    return code ? code : space_take(&device, DEVICE_BYTES, bytes, address);
}

API CUresult cuMemFree_v2(CUdeviceptr address) {
    CUresult code = need_context();
    return code ? code : give(address);
}

API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    CUresult code = need_context();
    if (code) return code;
    return flags ? space_take(&host, 0, bytes, address) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    (void)flags;
    unsigned long long taken;
    CUresult code = need_context();
    if (!code) code = space_take(&host, 0, bytes, &taken);
    if (!code) *address = (void *)(size_t)taken;
    return code;
}

API CUresult cuMemFreeHost(void *address) {
    CUresult code = need_context();
    return code ? code : space_give(&host, (size_t)address);
}

API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    CUresult code = need_stream(stream);
    return code ? code : space_take(&device, DEVICE_BYTES, bytes, address);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    CUresult code = need_stream(stream);
    return code ? code : give(address);
}

API CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice to, CUstream stream) {
    if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
    return to == 0 || to == CU_DEVICE_CPU ? need_stream(stream) : CUDA_ERROR_INVALID_DEVICE;
}

API CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned flags,
                                      CUstream stream) {
    if (!address || !bytes || flags) return CUDA_ERROR_INVALID_VALUE;
    return to.id == 0 ? need_stream(stream) : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult work(CUdeviceptr address, size_t bytes, CUstream stream) {
    return bytes && !address ? CUDA_ERROR_INVALID_VALUE : need_stream(stream);
}

API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return from ? work(to, bytes, NULL) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return from ? work(to, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return from ? work(to, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return from ? work(to, bytes, stream ? stream : CU_STREAM_PER_THREAD) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream) {
    return copy->width > copy->pitch ? CUDA_ERROR_INVALID_VALUE : work(copy->device, copy->height, stream);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return to ? work(from, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return from ? work(to, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    (void)value;
    return work(to, count, stream);
}

API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    (void)value;
    return to % sizeof value ? CUDA_ERROR_INVALID_VALUE : work(to, count, stream);
}
