#include <uapi/linux/ptrace.h>

#define SIGKILL 9
#define SI_KERNEL 0x80

/* include/trace/events/signal.h */
struct generated {
    u64 common;
    s32 signal;
    s32 error;
    s32 code;
    char comm[16];
    s32 pid;
};

/* include/trace/events/oom.h; newer kernels have all of it, older ones the pid; sizes are in KiB. */
struct marked {
    u64 common;
    s32 pid;
    u32 comm;
    u64 total_vm;
    u64 anon;
    u64 file;
    u64 shmem;
    u32 uid;
};

/* detailed: whether more than the pid is known. */
struct victim {
    u64 when;
    u32 pid;
    u32 detailed;
    u64 anon;
    u64 file;
    u64 shmem;
    u32 uid;
    char comm[16];
};

BPF_RINGBUF_OUTPUT(victims, EVENT_PAGES);
BPF_TABLE("array", u32, u64, lost, 1);
BPF_TABLE("array", u32, u64, kills, 1);
/* Whom the kernel has just killed, by the thread that it did it in. */
BPF_TABLE("lru_hash", u32, u32, killed, MOST_KILLERS);

static __always_inline void count(u64 *number) {
    if (number)
        __sync_fetch_and_add(number, 1);
}

int on_signal(struct generated *args) {
    if (args->signal != SIGKILL || args->code != SI_KERNEL)
        return 0;
    u32 killer = bpf_get_current_pid_tgid(), pid = args->pid;
    killed.update(&killer, &pid);
    return 0;
}

/* Processes that are ending anyhow are marked too, without a kill: the mark only lets them have the last memory. */
int on_mark(struct marked *args) {
    u32 killer = bpf_get_current_pid_tgid(), pid = args->pid, first = 0;
    u32 *last = killed.lookup(&killer);
    if (!last || *last != pid)
        return 0;
    killed.delete(&killer);
    count(kills.lookup(&first));
    struct victim *victim = victims.ringbuf_reserve(sizeof(struct victim));
    if (!victim) {
        count(lost.lookup(&first));
        return 0;
    }
    victim->when = bpf_ktime_get_ns();
    victim->pid = pid;
    victim->detailed = DETAILED;
    victim->comm[0] = 0;
#if DETAILED
    victim->anon = args->anon;
    victim->file = args->file;
    victim->shmem = args->shmem;
    victim->uid = args->uid;
    bpf_probe_read_kernel_str(victim->comm, sizeof(victim->comm), (char *)args + (args->comm & 0xffff));
#endif
    victims.ringbuf_submit(victim, 0);
    return 0;
}
