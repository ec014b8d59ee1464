/* Events: each Xid of the state file reaches every set once, if its sequence number is above what the set began with. */
#include <stdlib.h>
#include <unistd.h>

#include "fake.h"

enum { XID_EVENT = 8, POLL_US = 200000 };

typedef struct { int session, registered[MAX_GPUS]; Wide types[MAX_GPUS], seen[MAX_GPUS]; } Set;
typedef struct { void *device; Wide type, data; unsigned gi, ci; } Event;

API Return nvmlDeviceGetSupportedEventTypes(void *handle, Wide *types) {
    ENTER(handle);
    *types = gpu->events;
    return leave(OK);
}

API Return nvmlEventSetCreate(Set **set) {
    ENTER_SYSTEM();
    *set = calloc(1, sizeof **set);
    (*set)->session = session();
    return leave(OK);
}

API Return nvmlEventSetFree(Set *set) {
    ENTER_SYSTEM();
    free(set);
    return leave(OK);
}

API Return nvmlDeviceRegisterEvents(void *handle, Wide types, Set *set) {
    ENTER(handle);
    if (types & ~gpu->events) return leave(NOT_SUPPORTED);
    set->registered[call.slot] = 1;
    set->types[call.slot] = types;
    for (int i = 0; i < gpu->xid_count; i++)
        if (gpu->xids[i].sequence > set->seen[call.slot]) set->seen[call.slot] = gpu->xids[i].sequence;
    return leave(OK);
}

/* The next event of one GPU. */
static int take(Set *set, int slot, Event *event) {
    const Gpu *gpu = &state.gpus[slot];
    if (!set->registered[slot] || !(set->types[slot] & XID_EVENT)) return 0;
    for (int i = 0; i < gpu->xid_count; i++) {
        const Xid *xid = &gpu->xids[i];
        if (xid->sequence <= set->seen[slot]) continue;
        set->seen[slot] = xid->sequence;
        *event = (Event){ gpu->xid_anonymous ? NULL : handle_of(slot, -1), gpu->event_type, xid->code, xid->gi, xid->ci };
        return 1;
    }
    return 0;
}

API Return nvmlEventSetWait_v2(Set *set, Event *event, unsigned ms) {
    double end = now() + ms / 1000.0;
    for (int counted = 0;; counted = 1) {
        Return refused = counted ? rule_of(__func__, -1) : enter_system(__func__);
        if (refused) return refused;
        if (counted) lock_state();
        if (set->session != session()) return leave(UNINITIALIZED);
        int found = 0;
        for (int slot = 0; slot < MAX_GPUS && !found; slot++) found = take(set, slot, event);
        unlock_state();
        if (found) return OK;
        double left = end - now();
        if (left <= 0) return TIMEOUT;
        usleep(left * 1e6 < POLL_US ? (useconds_t)(left * 1e6) : POLL_US);
    }
}
