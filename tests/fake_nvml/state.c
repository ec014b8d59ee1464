/* The state file: read again whenever it is another one, so that all processes see the same driver. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fake.h"

State state;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct { char driver[64]; int version_skew, known; } at_load;

typedef enum { TEXT, U32, U64 } Type;
typedef struct { const char *key; Type type; size_t offset, size; } Key;
#define GPU_KEY(type, key, member) { key, type, offsetof(Gpu, member), sizeof(((Gpu *)0)->member) }
#define SAME_KEY(type, name) GPU_KEY(type, #name, name)
#define STATE_KEY(type, name) { #name, type, offsetof(State, name), sizeof(((State *)0)->name) }

static const Key GPU_KEYS[] = {
    SAME_KEY(TEXT, name), SAME_KEY(TEXT, uuid), SAME_KEY(TEXT, busid), SAME_KEY(TEXT, serial),
    SAME_KEY(TEXT, addressing), SAME_KEY(TEXT, mem_garbage), SAME_KEY(TEXT, proc_layout), SAME_KEY(U32, removed),
    SAME_KEY(U64, total), SAME_KEY(U64, reserved), SAME_KEY(U64, used),
    SAME_KEY(U32, util), SAME_KEY(U32, memutil), SAME_KEY(U32, enc), SAME_KEY(U32, dec),
    SAME_KEY(U32, temp), SAME_KEY(U32, memtemp), SAME_KEY(U32, fan), SAME_KEY(U32, pstate), SAME_KEY(U32, persistence),
    SAME_KEY(U32, power_mw), SAME_KEY(U32, power_instant_mw), SAME_KEY(U32, limit_mw), SAME_KEY(U32, enforced_limit_mw),
    SAME_KEY(U32, sm), SAME_KEY(U32, mem), SAME_KEY(U32, gr), SAME_KEY(U32, vid), SAME_KEY(U64, energy_mj),
    SAME_KEY(U64, throttle), GPU_KEY(U64, "ecc_volatile_corrected", ecc[0][0]),
    GPU_KEY(U64, "ecc_volatile_uncorrected", ecc[0][1]), GPU_KEY(U64, "ecc_aggregate_corrected", ecc[1][0]),
    GPU_KEY(U64, "ecc_aggregate_uncorrected", ecc[1][1]), SAME_KEY(U32, recovery),
    SAME_KEY(U32, pcie_tx_kb_s), SAME_KEY(U32, pcie_rx_kb_s), SAME_KEY(U32, pcie_delay_us),
    SAME_KEY(U64, pcie_tx_bytes), SAME_KEY(U64, pcie_rx_bytes),
    SAME_KEY(U32, nvlinks), SAME_KEY(U32, nvlink_aggregate_ret), SAME_KEY(U64, nvlink_tx_kib), SAME_KEY(U64, nvlink_rx_kib),
    SAME_KEY(U32, field_overrun), SAME_KEY(U32, accounting), SAME_KEY(U32, mig), SAME_KEY(U64, events), SAME_KEY(U64, event_type),
    SAME_KEY(U32, xid_anonymous), GPU_KEY(U32, "fail", behaviour.fail), GPU_KEY(U32, "hang", behaviour.hang),
    GPU_KEY(U32, "delay_us", behaviour.delay_us), { 0 },
};
static const Key STATE_KEYS[] = {
    STATE_KEY(TEXT, driver), STATE_KEY(TEXT, nvml), STATE_KEY(U32, cuda), STATE_KEY(U32, init_ret),
    STATE_KEY(U32, init_hang), STATE_KEY(U32, freeze), STATE_KEY(U32, version_skew), STATE_KEY(U32, strict_version), { 0 },
};

static int set_key(const Key *keys, void *object, const char *key, const char *value) {
    for (; keys->key; keys++) {
        if (strcmp(keys->key, key)) continue;
        char *at = (char *)object + keys->offset;
        if (keys->type == TEXT) snprintf(at, keys->size, "%s", value);
        if (keys->type == U32) *(unsigned *)at = (unsigned)strtoull(value, NULL, 0);
        if (keys->type == U64) *(Wide *)at = strtoull(value, NULL, 0);
        return 1;
    }
    return 0;
}

static int add_rule(Rules *rules, const char *function, const char *value) {
    if (rules->count == MAX_RULES) return 0;
    Rule *rule = &rules->list[rules->count++];
    snprintf(rule->function, sizeof rule->function, "%s", function);
    rule->value = atoi(value);
    return 1;
}

static int set_behaviour(Behaviour *behaviour, const char *key, const char *value) {
    if (!strncmp(key, "fail.", 5)) return add_rule(&behaviour->fails, key + 5, value);
    if (!strncmp(key, "hang.", 5)) return add_rule(&behaviour->hangs, key + 5, value);
    return 0;
}

static void add_process(Processes *to, const char *value) {
    if (to->count == MAX_PROCESSES) return;
    Process *process = &to->list[to->count];
    char memory[32] = "";
    process->gi = process->ci = NONE32;
    if (sscanf(value, "%u,%31[^,],%u,%u", &process->pid, memory, &process->gi, &process->ci) < 2) return;
    process->memory = strcmp(memory, "NA") ? strtoull(memory, NULL, 0) : NONE64;
    to->count++;
}

static void add_field_rule(Gpu *gpu, const char *format, const char *value) {
    if (gpu->field_rule_count == MAX_RULES) return;
    FieldRule *rule = &gpu->field_rules[gpu->field_rule_count];
    int found = strchr(format, 's') ? sscanf(value, format, &rule->id, &rule->type, rule->value)
                                    : 1 + sscanf(value, format, &rule->id, &rule->code);
    gpu->field_rule_count += found == 3;
}

static void add_to_gpu(Gpu *gpu, const char *key, const char *value) {
    unsigned link;
    Wide tx, rx;
    if (!strcmp(key, "proc")) add_process(&gpu->compute, value);
    else if (!strcmp(key, "gproc")) add_process(&gpu->graphics, value);
    else if (!strcmp(key, "mpsproc")) add_process(&gpu->mps, value);
    else if (!strcmp(key, "acct")) add_process(&gpu->accounted, value), gpu->accounting = 1;
    else if (!strcmp(key, "field")) add_field_rule(gpu, "%u,%u,%31s", value);
    else if (!strcmp(key, "field_fail")) add_field_rule(gpu, "%u,%d", value);
    else if (!strcmp(key, "proc_count")) sscanf(value, "%u,%u", &gpu->proc_count, &gpu->proc_count_ret);
    else if (!strcmp(key, "ramp")) sscanf(value, "%lf,%lf,%lf", &gpu->ramp_rate, &gpu->ramp_begin, &gpu->ramp_most);
    else if (!strcmp(key, "spike"))
        sscanf(value, "%lf,%lf,%lf", &gpu->spike_bytes, &gpu->spike_period_ms, &gpu->spike_width_ms);
    else if (!strcmp(key, "spikeat") && gpu->spike_count < MAX_SPIKES) {
        Spike *spike = &gpu->spikes[gpu->spike_count];
        gpu->spike_count += sscanf(value, "%lf,%lf,%lf", &spike->begin, &spike->width_ms, &spike->bytes) == 3;
    } else if (!strcmp(key, "remap"))
        sscanf(value, "%u,%u,%u,%u", &gpu->remap[0], &gpu->remap[1], &gpu->remap[2], &gpu->remap[3]);
    else if (!strcmp(key, "nvlink")) {
        if (sscanf(value, "%u,%llu,%llu", &link, &tx, &rx) == 3 && link < MAX_LINKS)
            gpu->link_tx_kib[link] = tx, gpu->link_rx_kib[link] = rx;
    } else if (!strcmp(key, "procutil") && gpu->use_count < MAX_PROCESSES) {
        ProcessUse *use = &gpu->uses[gpu->use_count];
        gpu->use_count += sscanf(value, "%u,%u,%u", &use->pid, &use->sm, &use->memory) == 3;
    } else if (!strcmp(key, "migdev") && gpu->mig_count < MAX_MIGS) {
        Mig *mig = &gpu->migs[gpu->mig_count];
        gpu->mig_count += sscanf(value, "%u,%u,%95[^,],%63[^,],%llu,%llu", &mig->gi, &mig->ci, mig->uuid, mig->profile,
                                 &mig->total, &mig->used) == 6;
    } else if (!strcmp(key, "xid") && gpu->xid_count < MAX_XIDS) {
        Xid *xid = &gpu->xids[gpu->xid_count];
        xid->gi = xid->ci = NONE32;
        gpu->xid_count += sscanf(value, "%llu:%u:%u:%u", &xid->sequence, &xid->code, &xid->gi, &xid->ci) >= 2;
    }
}

static Gpu *begin_gpu(int slot) {
    Gpu *gpu = &state.gpus[slot];
    gpu->present = gpu->persistence = 1;
    snprintf(gpu->name, sizeof gpu->name, "NVIDIA H200");
    snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-00000000-0000-4000-8000-%012d", slot);
    snprintf(gpu->busid, sizeof gpu->busid, "00000000:%02X:00.0", 0x10 + slot);
    snprintf(gpu->serial, sizeof gpu->serial, "16500000%05d", slot);
    gpu->total = 150754820096ULL, gpu->reserved = 643825664ULL;
    gpu->temp = 40, gpu->memtemp = 45, gpu->power_mw = gpu->power_instant_mw = 120000;
    gpu->limit_mw = gpu->enforced_limit_mw = 700000;
    gpu->sm = gpu->gr = 1980, gpu->mem = 3201, gpu->vid = 1545, gpu->nvlinks = 18;
    gpu->event_type = 0x8; /* an Xid */
    gpu->events = 0xB; /* single and double bit ECC errors, Xids */
    return gpu;
}

static void parse(FILE *file) {
    char line[1024];
    Gpu *gpu = NULL;
    int slot;
    memset(&state, 0, sizeof state);
    snprintf(state.driver, sizeof state.driver, "580.95.05");
    snprintf(state.nvml, sizeof state.nvml, "13.580.95.05");
    state.cuda = 13000;
    while (fgets(line, sizeof line, file)) {
        char *key = line + strspn(line, " \t");
        key[strcspn(key, "\r\n")] = 0;
        if (sscanf(key, "[gpu %d]", &slot) == 1) {
            if (slot < 0 || slot >= MAX_GPUS) return;
            gpu = begin_gpu(slot);
            continue;
        }
        char *value = strchr(key, '=');
        if (*key == '#' || !value) continue;
        *value++ = 0;
        if (gpu) {
            if (!set_key(GPU_KEYS, gpu, key, value) && !set_behaviour(&gpu->behaviour, key, value))
                add_to_gpu(gpu, key, value);
        } else if (!strcmp(key, "absent") && state.absent_count < MAX_RULES)
            snprintf(state.absent[state.absent_count++], sizeof state.absent[0], "%s", value);
        else if (!set_key(STATE_KEYS, &state, key, value))
            set_behaviour(&state.behaviour, key, value);
    }
}

static int same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

void refresh(void) {
    static struct stat last;
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat found;
    if (!path || stat(path, &found)) return;
    lock_state();
    int known = same_file(&found, &last);
    unlock_state();
    if (known) return;
    pthread_rwlock_wrlock(&lock);
    FILE *file = fopen(path, "r");
    if (file) {
        parse(file);
        fclose(file);
        last = found;
        if (!at_load.known) {
            memcpy(at_load.driver, state.driver, sizeof at_load.driver);
            at_load.version_skew = state.version_skew, at_load.known = 1;
        }
    }
    pthread_rwlock_unlock(&lock);
}

/* So that what the file says at the moment of loading is known as that. */
static void __attribute__((constructor)) loaded(void) { refresh(); }

void lock_state(void) { pthread_rwlock_rdlock(&lock); }
void unlock_state(void) { pthread_rwlock_unlock(&lock); }

int upgraded(void) { return at_load.known && strcmp(at_load.driver, state.driver) != 0; }
int skewed(void) { return at_load.known && at_load.version_skew != state.version_skew; }
