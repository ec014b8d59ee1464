#include <uapi/linux/ptrace.h>

struct counts {
    u64 prefetches;
    u64 prefetched_bytes;
    u64 managed_bytes;
};

BPF_TABLE("hash", u32, struct counts, counts, MOST_PROCESSES);
/* A thread may end within the call, so old ones make room. */
BPF_TABLE("lru_hash", u64, u64, pending, MOST_THREADS);
BPF_TABLE("array", u32, u64, lost, 1);

static __always_inline void not_kept(void) {
    u32 first = 0;
    u64 *count = lost.lookup(&first);
    if (count)
        __sync_fetch_and_add(count, 1);
}

static __always_inline struct counts *counts_of(u32 pid) {
    struct counts none = {}, *found = counts.lookup_or_try_init(&pid, &none);
    if (!found)
        not_kept();
    return found;
}

/* (CUdeviceptr address, size_t bytes, ..) */
int on_prefetch(struct pt_regs *ctx) {
    struct counts *found = counts_of(bpf_get_current_pid_tgid() >> 32);
    if (found) {
        __sync_fetch_and_add(&found->prefetches, 1);
        __sync_fetch_and_add(&found->prefetched_bytes, PT_REGS_PARM2(ctx));
    }
    return 0;
}

/* (CUdeviceptr *address, size_t bytes, unsigned flags) */
int on_managed(struct pt_regs *ctx) {
    u64 thread = bpf_get_current_pid_tgid(), bytes = PT_REGS_PARM2(ctx);
    if (pending.update(&thread, &bytes))
        not_kept();
    return 0;
}

int on_managed_done(struct pt_regs *ctx) {
    u64 thread = bpf_get_current_pid_tgid(), *bytes = pending.lookup(&thread);
    if (!bytes)
        return 0;
    u64 size = *bytes;
    pending.delete(&thread);
    struct counts *found = (u32)PT_REGS_RC(ctx) ? 0 : counts_of(thread >> 32);
    if (found)
        __sync_fetch_and_add(&found->managed_bytes, size);
    return 0;
}
