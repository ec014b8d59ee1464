/* The part of the CUDA driver API and of its runtime that the stand-ins have, as the real ones declare it. */
#ifndef LAB_CUDA_DRIVER_H
#define LAB_CUDA_DRIVER_H

#include <stddef.h>

/* No API function is inlined, so that each begins where its symbol is. */
#define API __attribute__((visibility("default"), noinline))

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
};
enum { CU_DEVICE_CPU = -1, CU_STREAM_NON_BLOCKING = 1, CU_MEM_ATTACH_GLOBAL = 1, CU_MEMORYTYPE_DEVICE = 2 };

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct Context *CUcontext;
typedef struct Stream *CUstream;
typedef struct Event *CUevent;
typedef struct { int type, id; } CUmemLocation;
typedef struct Function *CUfunction;
typedef struct Graph *CUgraph;
typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
    void *attributes;
    unsigned attribute_count;
} CUlaunchConfig;
typedef struct {
    size_t source_x, source_y;
    int source_type;
    const void *source_host;
    CUdeviceptr source_device;
    void *source_array;
    size_t source_pitch, x, y;
    int type;
    void *host;
    CUdeviceptr device;
    void *array;
    size_t pitch, width, height;
} CUDA_MEMCPY2D;

#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

API CUresult cuInit(unsigned flags);
API CUresult cuDeviceGet(CUdevice *device, int ordinal);
API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
API CUresult cuCtxDestroy_v2(CUcontext context);
API CUresult cuCtxSetCurrent(CUcontext context);
API CUresult cuCtxSynchronize(void);

API CUresult cuStreamCreate(CUstream *stream, unsigned flags);
API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
API CUresult cuStreamDestroy_v2(CUstream stream);
API CUresult cuStreamSynchronize(CUstream stream);
API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
API CUresult cuStreamQuery(CUstream stream);
API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,
                            void **extra);
API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra);
API CUresult cuEventCreate(CUevent *event, unsigned flags);
API CUresult cuEventRecord(CUevent event, CUstream stream);
API CUresult cuEventSynchronize(CUevent event);
API CUresult cuEventDestroy_v2(CUevent event);

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
API CUresult cuMemFree_v2(CUdeviceptr address);
API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags);
API CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
API CUresult cuMemFreeHost(void *address);
API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
API CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice to, CUstream stream);
API CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned flags,
                                      CUstream stream);

API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
/* Of a program that is compiled for a default stream per thread. */
API CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream);
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream);

/* libcudart: 1 and 2 mean what they mean in the driver API. */
API int cudaMalloc(void **address, size_t bytes);
API int cudaFree(void *address);
API int cudaMallocManaged(void **address, size_t bytes, unsigned flags);
API int cudaMallocHost(void **address, size_t bytes);
API int cudaFreeHost(void *address);
API int cudaMallocAsync(void **address, size_t bytes, CUstream stream);
API int cudaFreeAsync(void *address, CUstream stream);

#endif
