/* What one GPU is and does. Each function that only hands out a value is one line. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

static const unsigned ADDRESSING_V1 = 0x1000008, TEMPERATURE_V1 = 0x100000C;

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busid[32]; } Pci;
typedef struct { unsigned version, value; } Addressing;
typedef struct { unsigned version, sensor; int temperature; } Temperature;

#define GIVE(function, type, value) \
    API Return function(void *handle, type *out) { ENTER(handle); *out = (type)(value); return leave(OK); }

static unsigned index_of(int slot) {
    int slots[MAX_GPUS], count = visible(slots);
    for (int i = 0; i < count; i++)
        if (slots[i] == slot) return (unsigned)i;
    return NONE32;
}

GIVE(nvmlDeviceGetIndex, unsigned, index_of(call.slot))
GIVE(nvmlDeviceGetMinorNumber, unsigned, call.slot)
GIVE(nvmlDeviceGetArchitecture, unsigned, 9)
GIVE(nvmlDeviceGetPersistenceMode, unsigned, gpu->persistence)
GIVE(nvmlDeviceGetComputeMode, unsigned, 0)
GIVE(nvmlDeviceGetPerformanceState, unsigned, gpu->pstate)
GIVE(nvmlDeviceGetPowerUsage, unsigned, gpu->power_mw)
GIVE(nvmlDeviceGetPowerManagementLimit, unsigned, gpu->limit_mw)
GIVE(nvmlDeviceGetEnforcedPowerLimit, unsigned, gpu->enforced_limit_mw)
GIVE(nvmlDeviceGetTotalEnergyConsumption, Wide, gpu->energy_mj)
GIVE(nvmlDeviceGetCurrentClocksEventReasons, Wide, gpu->throttle)
GIVE(nvmlDeviceGetCurrentClocksThrottleReasons, Wide, gpu->throttle)

API Return nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    ENTER(handle);
    char name[256];
    snprintf(name, sizeof name, "%s%s%s", gpu->name, call.mig ? " MIG " : "", call.mig ? call.mig->profile : "");
    return leave(copy_text(text, size, name));
}

API Return nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    ENTER(handle);
    return leave(copy_text(text, size, call.mig ? call.mig->uuid : gpu->uuid));
}

API Return nvmlDeviceGetSerial(void *handle, char *text, unsigned size) {
    ENTER(handle);
    return leave(copy_text(text, size, gpu->serial));
}

API Return nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
    ENTER(handle);
    memset(pci, 0, sizeof *pci);
    sscanf(gpu->busid, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->busid, sizeof pci->busid, "%s", gpu->busid);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF, pci->device & 0xFF);
    return leave(OK);
}

API Return nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    ENTER(handle);
    *major = 9, *minor = 0;
    return leave(OK);
}

API Return nvmlDeviceGetAddressingMode(void *handle, Addressing *mode) {
    static const char *const NAMES[] = { "none", "hmm", "ats" };
    ENTER(handle);
    if (mode->version != ADDRESSING_V1) return leave(ARGUMENT_VERSION_MISMATCH);
    for (unsigned i = 0; i < 3; i++)
        if (!strcmp(gpu->addressing, NAMES[i])) {
            mode->value = i;
            return leave(OK);
        }
    return leave(NOT_SUPPORTED);
}

API Return nvmlDeviceGetUtilizationRates(void *handle, unsigned rates[2]) {
    ENTER(handle);
    if (gpu->mig) return leave(NOT_SUPPORTED);
    rates[0] = gpu->util, rates[1] = gpu->memutil;
    return leave(OK);
}

static Return give_two(Gpu *gpu, unsigned *out, unsigned *period, unsigned value) {
    if (gpu->mig) return leave(NOT_SUPPORTED);
    *out = value, *period = 167000;
    return leave(OK);
}

API Return nvmlDeviceGetEncoderUtilization(void *handle, unsigned *use, unsigned *period) {
    ENTER(handle);
    return give_two(gpu, use, period, gpu->enc);
}

API Return nvmlDeviceGetDecoderUtilization(void *handle, unsigned *use, unsigned *period) {
    ENTER(handle);
    return give_two(gpu, use, period, gpu->dec);
}

API Return nvmlDeviceGetClockInfo(void *handle, unsigned type, unsigned *mhz) {
    ENTER(handle);
    const unsigned clocks[] = { gpu->gr, gpu->sm, gpu->mem, gpu->vid };
    if (type > 3) return leave(INVALID_ARGUMENT);
    *mhz = clocks[type];
    return leave(OK);
}

API Return nvmlDeviceGetMaxClockInfo(void *handle, unsigned type, unsigned *mhz) {
    static const unsigned CLOCKS[] = { 1980, 1980, 3201, 1545 };
    ENTER(handle);
    if (type > 3) return leave(INVALID_ARGUMENT);
    *mhz = CLOCKS[type];
    return leave(OK);
}

API Return nvmlDeviceGetTemperatureV(void *handle, Temperature *out) {
    ENTER(handle);
    if (out->version != TEMPERATURE_V1) return leave(ARGUMENT_VERSION_MISMATCH);
    if (out->sensor) return leave(INVALID_ARGUMENT);
    out->temperature = (int)gpu->temp;
    return leave(OK);
}

API Return nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
    ENTER(handle);
    if (sensor) return leave(INVALID_ARGUMENT);
    *celsius = gpu->temp;
    return leave(OK);
}

API Return nvmlDeviceGetFanSpeed(void *handle, unsigned *percent) {
    ENTER(handle);
    if (!gpu->fan) return leave(NOT_SUPPORTED);
    *percent = gpu->fan;
    return leave(OK);
}

API Return nvmlDeviceGetPcieThroughput(void *handle, unsigned counter, unsigned *kb_s) {
    ENTER(handle);
    unsigned delay = gpu->pcie_delay_us;
    *kb_s = counter ? gpu->pcie_rx_kb_s : gpu->pcie_tx_kb_s;
    leave(OK);
    if (delay) usleep(delay);
    return OK;
}

API Return nvmlDeviceGetEccMode(void *handle, unsigned *current, unsigned *pending) {
    ENTER(handle);
    *current = *pending = 1;
    return leave(OK);
}

API Return nvmlDeviceGetTotalEccErrors(void *handle, unsigned uncorrected, unsigned aggregate, Wide *count) {
    ENTER(handle);
    if (uncorrected > 1 || aggregate > 1) return leave(INVALID_ARGUMENT);
    *count = gpu->ecc[aggregate][uncorrected];
    return leave(OK);
}

API Return nvmlDeviceGetMemoryErrorCounter(void *handle, unsigned uncorrected, unsigned aggregate, unsigned location, Wide *count) {
    ENTER(handle);
    (void)location;
    if (uncorrected > 1 || aggregate > 1) return leave(INVALID_ARGUMENT);
    *count = gpu->ecc[aggregate][uncorrected];
    return leave(OK);
}

API Return nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ENTER(handle);
    if (gpu->mig) return leave(NOT_SUPPORTED);
    *corrected = gpu->remap[0], *uncorrected = gpu->remap[1], *pending = gpu->remap[2], *failed = gpu->remap[3];
    return leave(OK);
}
