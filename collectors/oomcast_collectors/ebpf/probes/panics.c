#include <uapi/linux/ptrace.h>
#include <oomcast/stack.h>

struct panicked {
    u64 when;
    u32 pid;
    u32 tid;
    char comm[16];
    STACK_MEMBERS
};

BPF_RINGBUF_OUTPUT(panics, EVENT_PAGES);
BPF_TABLE("array", u32, u64, lost, 1);

int on_panic(struct pt_regs *ctx) {
    struct panicked *panicked = panics.ringbuf_reserve(sizeof(struct panicked));
    if (!panicked) {
        u32 first = 0;
        u64 *count = lost.lookup(&first);
        if (count)
            __sync_fetch_and_add(count, 1);
        return 0;
    }
    u64 id = bpf_get_current_pid_tgid();
    panicked->when = bpf_ktime_get_ns();
    panicked->pid = id >> 32;
    panicked->tid = id;
    bpf_get_current_comm(&panicked->comm, sizeof(panicked->comm));
    READ_STACK(ctx, panicked, ctx->sp);
    panics.ringbuf_submit(panicked, 0);
    return 0;
}
