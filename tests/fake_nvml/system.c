/* Questions about no GPU, and from a name to a handle. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "fake.h"

API const char *nvmlErrorString(Return code) {
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "another error of the fake driver";
    }
}

API Return nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ENTER_SYSTEM();
    return leave(copy_text(text, size, state.driver));
}

API Return nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    ENTER_SYSTEM();
    return leave(copy_text(text, size, state.nvml));
}

API Return nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER_SYSTEM();
    *version = state.cuda;
    return leave(OK);
}

API Return nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER_SYSTEM();
    *version = state.cuda;
    return leave(OK);
}

API Return nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) {
    ENTER_SYSTEM();
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "r");
    if (!file) return leave(NOT_FOUND);
    if (!fgets(text, sizeof text, file)) text[0] = 0;
    fclose(file);
    text[strcspn(text, "\n")] = 0;
    return leave(copy_text(name, size, text));
}

API Return nvmlDeviceGetCount_v2(unsigned *count) {
    int slots[MAX_GPUS];
    ENTER_SYSTEM();
    *count = (unsigned)visible(slots);
    return leave(OK);
}

/* Gives the handle, unless the GPU's rules say otherwise. Comes with the lock held, and lets go of it. */
static Return look_up(const char *function, int slot, int mig, void **handle) {
    int lost = !state.gpus[slot].present || state.gpus[slot].removed;
    unlock_state();
    Return code = rule_of(function, slot);
    if (lost) return GPU_IS_LOST;
    if (!code) *handle = handle_of(slot, mig);
    return code;
}

API Return nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    int slots[MAX_GPUS];
    ENTER_SYSTEM();
    if (index >= (unsigned)visible(slots)) return leave(INVALID_ARGUMENT);
    return look_up(__func__, slots[index], -1, handle);
}

API Return nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    int slots[MAX_GPUS];
    ENTER_SYSTEM();
    int count = visible(slots);
    for (int i = 0; i < count; i++) {
        const Gpu *gpu = &state.gpus[slots[i]];
        if (!strcmp(gpu->uuid, uuid)) return look_up(__func__, slots[i], -1, handle);
        for (int mig = 0; mig < gpu->mig_count; mig++)
            if (!strcmp(gpu->migs[mig].uuid, uuid)) return look_up(__func__, slots[i], mig, handle);
    }
    return leave(NOT_FOUND);
}

API Return nvmlDeviceGetHandleByPciBusId_v2(const char *busid, void **handle) {
    int slots[MAX_GPUS];
    ENTER_SYSTEM();
    int count = visible(slots);
    for (int i = 0; i < count; i++)
        if (!strcasecmp(state.gpus[slots[i]].busid, busid)) return look_up(__func__, slots[i], -1, handle);
    return leave(NOT_FOUND);
}
