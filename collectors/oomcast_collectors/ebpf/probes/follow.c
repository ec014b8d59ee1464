#include <uapi/linux/ptrace.h>

#define CLONE_THREAD 0x00010000
#define FORKED 1
#define EXECUTED 2
#define ENDED 3

struct life {
    u32 what;
    u32 pid;
    u32 parent;
};

/* The fields of these tracepoints have been where they are since they exist. */
struct newtask {
    u64 common;
    s32 pid;
    char comm[16];
    u64 clone_flags;
};

struct executed {
    u64 common;
    u32 filename;
    s32 pid;
    s32 old_pid;
};

BPF_TABLE("hash", u32, u32, targets, MOST_TARGETS);
BPF_TABLE("array", u32, u64, lost, 1);
BPF_RINGBUF_OUTPUT(lives, EVENT_PAGES);

static __always_inline void tell(u32 what, u32 pid, u32 parent) {
    struct life life = {.what = what, .pid = pid, .parent = parent};
    if (lives.ringbuf_output(&life, sizeof(life), 0)) {
        u32 first = 0;
        u64 *count = lost.lookup(&first);
        if (count)
            __sync_fetch_and_add(count, 1);
    }
}

int on_newtask(struct newtask *args) {
    u32 parent = bpf_get_current_pid_tgid() >> 32, pid = args->pid, one = 1;
    if ((args->clone_flags & CLONE_THREAD) || !targets.lookup(&parent))
        return 0;
    /* Its own forks may come before anybody is told of this one. */
    targets.update(&pid, &one);
    tell(FORKED, pid, parent);
    return 0;
}

int on_exec(struct executed *args) {
    u32 pid = bpf_get_current_pid_tgid() >> 32;
    /* Where it is not the first thread that executes it, that one has ended before, and is no target any more. */
    if (targets.lookup(&pid) || args->old_pid != args->pid)
        tell(EXECUTED, pid, 0);
    return 0;
}

int on_exit(void *args) {
    u64 id = bpf_get_current_pid_tgid();
    u32 pid = id >> 32;
    if (pid == (u32)id && targets.lookup(&pid)) {
        targets.delete(&pid);
        tell(ENDED, pid, 0);
    }
    return 0;
}
