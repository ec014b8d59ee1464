/* MIG devices: one for each compute instance; those of one GPU instance share its memory. */
#include <stdint.h>
#include <string.h>

#include "fake.h"

API Return nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is_mig) {
    ENTER(handle);
    *is_mig = call.mig != NULL;
    return leave(OK);
}

API Return nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    ENTER(handle);
    if (call.mig) return leave(INVALID_ARGUMENT);
    *current = *pending = gpu->mig != 0;
    return leave(OK);
}

API Return nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    ENTER(handle);
    *count = gpu->mig ? 7 : 0;
    return leave(OK);
}

/* A device without a profile is an empty slot. */
API Return nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **mig) {
    ENTER(handle);
    if (index >= (unsigned)gpu->mig_count || !strcmp(gpu->migs[index].profile, "-")) return leave(NOT_FOUND);
    *mig = handle_of(call.slot, (int)index);
    return leave(OK);
}

API Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **whole) {
    ENTER(handle);
    if (!call.mig) return leave(INVALID_ARGUMENT);
    *whole = handle_of(call.slot, -1);
    return leave(OK);
}

API Return nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) {
    ENTER(handle);
    if (!call.mig) return leave(INVALID_ARGUMENT);
    *id = call.mig->gi;
    return leave(OK);
}

API Return nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) {
    ENTER(handle);
    if (!call.mig) return leave(INVALID_ARGUMENT);
    *id = call.mig->ci;
    return leave(OK);
}
