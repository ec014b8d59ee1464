/* Sessions, handles, and what every call begins with. A handle is a number, never a pointer into this library, and it
 * says which session gave it: one of an earlier session, or from nowhere, is refused. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

static const double SLICE = 0.005; /* seconds between two looks at a rule that makes a call wait */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users, last_session;
static int frozen[MAX_GPUS], frozen_count = -1;

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

Return copy_text(char *to, unsigned size, const char *text) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return OK;
}

Return leave(Return code) {
    unlock_state();
    return code;
}

/* ---- who waits, and who fails */

/* NVML keeps these, so a GPU that hangs does not hang them; hang.FUNC does. */
static int is_kept(const char *function) {
    static const char *const KEPT[] = { "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID",
                                        "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetUUID",
                                        "nvmlDeviceGetIndex", "nvmlDeviceGetPciInfo_v3", NULL };
    for (const char *const *kept = KEPT; *kept; kept++)
        if (!strcmp(*kept, function)) return 1;
    return 0;
}

static int rule(const Rules *rules, const char *function) {
    for (int i = 0; i < rules->count; i++)
        if (!strcmp(rules->list[i].function, function)) return rules->list[i].value;
    return 0;
}

/* The seconds to wait before looking again; 0 when the call may go on. */
static double wait_of(const Behaviour *behaviour, const char *function, double begun) {
    int kept = is_kept(function);
    if (rule(&behaviour->hangs, function) || (behaviour->hang && !kept)) return SLICE;
    if (!strcmp(function, "nvmlInitWithFlags") && state.init_hang) return SLICE;
    double left = kept ? 0 : begun + behaviour->delay_us / 1e6 - now();
    return left <= 0 ? 0 : left < SLICE ? left : SLICE;
}

Return rule_of(const char *function, int slot) {
    double begun = now();
    for (;;) {
        refresh();
        lock_state();
        const Behaviour *behaviour = slot < 0 ? &state.behaviour : &state.gpus[slot].behaviour;
        double seconds = wait_of(behaviour, function, begun);
        Return code = behaviour->fail ? behaviour->fail : rule(&behaviour->fails, function);
        unlock_state();
        if (seconds <= 0) return code;
        usleep((useconds_t)(seconds * 1e6));
    }
}

/* ---- sessions */

int session(void) {
    pthread_mutex_lock(&lock);
    int found = users ? last_session : 0;
    pthread_mutex_unlock(&lock);
    return found;
}

static int count_visible(int slots[MAX_GPUS]) {
    int count = 0;
    for (int i = 0; i < MAX_GPUS; i++)
        if (state.gpus[i].present && !state.gpus[i].removed) slots[count++] = i;
    return count;
}

int visible(int slots[MAX_GPUS]) {
    if (!state.freeze || frozen_count < 0) return count_visible(slots);
    memcpy(slots, frozen, sizeof frozen);
    return frozen_count;
}

static Return init(void) {
    Return code = rule_of("nvmlInitWithFlags", -1);
    if (code) return code;
    lock_state();
    code = state.init_ret ? state.init_ret : state.strict_version && upgraded() ? VERSION_MISMATCH : OK;
    if (code) return leave(code);
    pthread_mutex_lock(&lock);
    if (!users++) {
        last_session++;
        frozen_count = count_visible(frozen);
    }
    pthread_mutex_unlock(&lock);
    return leave(OK);
}

API Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    count_call(__func__);
    return init();
}

API Return nvmlInit_v2(void) {
    count_call(__func__);
    return init();
}

API Return nvmlShutdown(void) {
    count_call(__func__);
    if (!session()) return UNINITIALIZED;
    Return code = rule_of(__func__, -1);
    if (code) return code;
    pthread_mutex_lock(&lock);
    code = users ? OK : UNINITIALIZED;
    if (users) users--;
    pthread_mutex_unlock(&lock);
    return code;
}

/* ---- handles: session, slot + 1, MIG device + 1 */

void *handle_of(int slot, int mig) {
    return (void *)(((uintptr_t)session() << 16) | ((uintptr_t)(slot + 1) << 8) | (uintptr_t)(mig + 1));
}

static int read_handle(const void *handle, int *slot, int *mig) {
    uintptr_t bits = (uintptr_t)handle;
    *slot = (int)((bits >> 8) & 0xFF) - 1;
    *mig = (int)(bits & 0xFF) - 1;
    return bits >> 16 == (uintptr_t)session() && *slot >= 0 && *slot < MAX_GPUS && *mig < MAX_MIGS;
}

static Return usable(const char *function) {
    count_call(function);
    refresh();
    if (!session()) return UNINITIALIZED;
    lock_state();
    if (skewed() || (state.strict_version && upgraded())) return leave(VERSION_MISMATCH);
    for (int i = 0; i < state.absent_count; i++)
        if (!strcmp(state.absent[i], function)) return leave(FUNCTION_NOT_FOUND);
    return leave(OK);
}

Return enter_system(const char *function) {
    Return code = usable(function);
    if (!code) code = rule_of(function, -1);
    if (code) return code;
    if (!session()) return UNINITIALIZED; /* it was shut down while the call waited */
    lock_state();
    return OK;
}

Return enter(const char *function, void *handle, Call *call) {
    int mig;
    Return code = usable(function);
    if (code) return code;
    if (!read_handle(handle, &call->slot, &mig)) return INVALID_ARGUMENT;
    code = rule_of(function, call->slot);
    if (!session()) return UNINITIALIZED;
    lock_state();
    call->gpu = &state.gpus[call->slot];
    call->mig = mig >= 0 ? &call->gpu->migs[mig] : NULL;
    if (!call->gpu->present || call->gpu->removed) return leave(GPU_IS_LOST);
    if (code) return leave(code);
    if (mig >= call->gpu->mig_count) return leave(NOT_FOUND);
    return OK;
}
