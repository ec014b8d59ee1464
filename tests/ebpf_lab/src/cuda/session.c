/* Initialisation, contexts, streams and events of a driver with one device: handles that are checked, and no work that
 * would have to be waited for. */
#include "session.h"

#include <pthread.h>

enum { MOST_HANDLES = 256 };

/* A handle is the address of its byte, which says whether it is in use. */
typedef struct { char used[MOST_HANDLES]; } Handles;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialized, primary_users;
static char primary;
static Handles contexts, streams, events;
static __thread CUcontext current;

/* NULL where all are in use. */
static void *new_handle(Handles *handles) {
    void *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_HANDLES && !found; i++) {
        if (handles->used[i]) continue;
        handles->used[i] = 1;
        found = &handles->used[i];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int is_used(Handles *handles, const void *handle) {
    for (int i = 0; i < MOST_HANDLES; i++)
        if (handle == &handles->used[i]) return handles->used[i];
    return 0;
}

static CUresult drop_handle(Handles *handles, void *handle) {
    pthread_mutex_lock(&lock);
    int used = is_used(handles, handle);
    if (used) *(char *)handle = 0;
    pthread_mutex_unlock(&lock);
    return used ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult need_context(void) {
    if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
    int usable = current == (CUcontext)&primary ? primary_users : is_used(&contexts, current);
    return usable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult need_stream(CUstream stream) {
    CUresult code = need_context();
    if (code || !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return code;
    return is_used(&streams, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult need_event(CUevent event) {
    CUresult code = need_context();
    if (code) return code;
    return is_used(&events, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult need_device(CUdevice device) {
    if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

API CUresult cuInit(unsigned flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    initialized = 1;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUresult code = need_device(ordinal);
    if (!code) *device = ordinal;
    return code;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult code = need_device(device);
    if (code) return code;
    primary_users++;
    *context = (CUcontext)&primary;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUresult code = need_device(device);
    if (code) return code;
    if (!primary_users) return CUDA_ERROR_INVALID_CONTEXT;
    primary_users--;
    return CUDA_SUCCESS;
}

API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    (void)flags;
    CUresult code = need_device(device);
    if (code) return code;
    *context = current = new_handle(&contexts);
    return current ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuCtxDestroy_v2(CUcontext context) {
    if (drop_handle(&contexts, context)) return CUDA_ERROR_INVALID_CONTEXT;
    if (current == context) current = NULL;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext context) {
    if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
    current = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize(void) {
    return need_context();
}

static CUresult new_stream(CUstream *stream) {
    CUresult code = need_context();
    if (code) return code;
    *stream = new_handle(&streams);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    return flags > CU_STREAM_NON_BLOCKING ? CUDA_ERROR_INVALID_VALUE : new_stream(stream);
}

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    (void)priority; /* the real one takes the nearest that it has */
    return flags > CU_STREAM_NON_BLOCKING ? CUDA_ERROR_INVALID_VALUE : new_stream(stream);
}

API CUresult cuStreamDestroy_v2(CUstream stream) {
    return drop_handle(&streams, stream);
}

API CUresult cuStreamSynchronize(CUstream stream) {
    return need_stream(stream);
}

API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    CUresult code = need_stream(stream);
    return code ? code : need_event(event);
}

API CUresult cuStreamQuery(CUstream stream) {
    return need_stream(stream);
}

API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    (void)mode;
    return stream ? need_stream(stream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    *graph = NULL;
    return need_stream(stream);
}

API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,
                            void **extra) {
    (void)function, (void)shared_bytes, (void)parameters, (void)extra;
    return grid_x && grid_y && grid_z && block_x && block_y && block_z ? need_stream(stream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    (void)function, (void)parameters, (void)extra;
    return need_stream(config->stream);
}

API CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    CUresult code = need_context();
    if (code) return code;
    *event = new_handle(&events);
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) {
    CUresult code = need_stream(stream);
    return code ? code : need_event(event);
}

API CUresult cuEventSynchronize(CUevent event) {
    return need_event(event);
}

API CUresult cuEventDestroy_v2(CUevent event) {
    return drop_handle(&events, event);
}
