/* What the files of the fake driver share. README.md has the grammar of the state file. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stddef.h>

#define API __attribute__((visibility("default")))

enum { MAX_GPUS = 16, MAX_PROCESSES = 64, MAX_MIGS = 8, MAX_SPIKES = 64, MAX_XIDS = 64, MAX_RULES = 32, MAX_LINKS = 18 };

typedef int Return;
enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 18,
    ARGUMENT_VERSION_MISMATCH = 25,
};

typedef unsigned long long Wide;
static const unsigned NONE32 = 0xFFFFFFFFU;
static const Wide NONE64 = 0xFFFFFFFFFFFFFFFFULL;

typedef struct { char function[64]; int value; } Rule;
typedef struct { Rule list[MAX_RULES]; int count; } Rules;
typedef struct { int fail, hang; unsigned delay_us; Rules fails, hangs; } Behaviour;

typedef struct { unsigned pid; Wide memory; unsigned gi, ci; } Process;
typedef struct { Process list[MAX_PROCESSES]; int count; } Processes;
typedef struct { unsigned pid, sm, memory; } ProcessUse;
typedef struct { unsigned gi, ci; char uuid[96], profile[64]; Wide total, used; } Mig;
typedef struct { Wide sequence; unsigned code, gi, ci; } Xid;
typedef struct { double begin, width_ms, bytes; } Spike;
typedef struct { unsigned id, type; char value[32]; Return code; } FieldRule;

typedef struct {
    int present, removed;
    char name[96], uuid[96], busid[32], serial[32], addressing[16], mem_garbage[24];
    Wide total, reserved, used;
    double ramp_rate, ramp_begin, ramp_most;
    double spike_bytes, spike_period_ms, spike_width_ms;
    Spike spikes[MAX_SPIKES];
    int spike_count;
    unsigned util, memutil, enc, dec, temp, memtemp, fan, pstate, persistence;
    unsigned power_mw, power_instant_mw, limit_mw, enforced_limit_mw, sm, mem, gr, vid;
    Wide energy_mj, throttle, ecc[2][2]; /* volatile, aggregate; corrected, uncorrected */
    unsigned remap[4], recovery;
    unsigned pcie_tx_kb_s, pcie_rx_kb_s, pcie_delay_us;
    Wide pcie_tx_bytes, pcie_rx_bytes;
    unsigned nvlinks;
    Return nvlink_aggregate_ret;
    Wide nvlink_tx_kib, nvlink_rx_kib, link_tx_kib[MAX_LINKS], link_rx_kib[MAX_LINKS];
    FieldRule field_rules[MAX_RULES];
    int field_rule_count, field_overrun;
    Processes compute, graphics, mps, accounted;
    ProcessUse uses[MAX_PROCESSES];
    int use_count, accounting;
    char proc_layout[16];
    unsigned proc_count, proc_count_ret;
    unsigned mig;
    Mig migs[MAX_MIGS];
    int mig_count;
    Wide events, event_type;
    Xid xids[MAX_XIDS];
    int xid_count, xid_anonymous;
    Behaviour behaviour;
} Gpu;

typedef struct {
    char driver[64], nvml[64];
    int cuda, init_ret, init_hang, freeze, version_skew, strict_version;
    char absent[MAX_RULES][64];
    int absent_count;
    Behaviour behaviour;
    Gpu gpus[MAX_GPUS];
} State;

/* What enter() found out about a call. mig: the MIG device of the handle, NULL for a whole GPU's. */
typedef struct { int slot; Gpu *gpu; Mig *mig; } Call;

/* state.c: the state of the driver, to be used under its lock. */
extern State state;
void refresh(void);       /* reads the state file again if it is another one; takes the lock itself */
void lock_state(void);    /* for reading */
void unlock_state(void);
int upgraded(void);       /* whether the driver became another one since this process loaded the library */
int skewed(void);         /* whether version_skew is another one than when it did */
double now(void);

/* session.c */
Return enter_system(const char *function);                          /* a call about no GPU; on OK the lock is held */
Return enter(const char *function, void *handle, Call *call);       /* a call about a GPU; on OK the lock is held */
Return rule_of(const char *function, int slot);                     /* waits and fails as the state file says */
Return leave(Return code);                                          /* lets go of the lock */
void *handle_of(int slot, int mig);                                 /* mig: -1 for the whole GPU */
int visible(int slots[MAX_GPUS]);                                   /* the slots that have an index, in order */
int session(void);                                                  /* 0: none */
Return copy_text(char *to, unsigned size, const char *text);
void count_call(const char *function);                              /* trace.c */

/* The beginning of a call about the GPU of `handle`. */
#define ENTER(handle)                                   \
    Call call;                                          \
    Return refused = enter(__func__, (handle), &call);  \
    if (refused) return refused;                        \
    Gpu *gpu = call.gpu;                                \
    (void)gpu

#define ENTER_SYSTEM()                                  \
    Return refused = enter_system(__func__);            \
    if (refused) return refused

#endif
