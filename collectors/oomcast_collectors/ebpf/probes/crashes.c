#include <uapi/linux/ptrace.h>
#include <oomcast/stack.h>

#define SIG_DFL 0
#define SIG_IGN 1
#define SIGILL 4
#define SIGABRT 6
#define SIGBUS 7
#define SIGFPE 8
#define SIGSEGV 11

/* include/trace/events/signal.h; as it is since the tracepoint exists. */
struct delivered {
    u64 common;
    s32 signal;
    s32 error;
    s32 code;
    unsigned long handler;
    unsigned long flags;
};

struct fault {
    u64 when;
    u32 pid;
    u32 tid;
    s32 signal;
    s32 code;
    u64 handler;
    char comm[16];
    STACK_MEMBERS
};

struct source {
    u32 pid;
    s32 signal;
};

BPF_RINGBUF_OUTPUT(faults, EVENT_PAGES);
BPF_TABLE("array", u32, u64, lost, 2);
/* How often a process handled a signal, and when a thread was last told of. */
BPF_TABLE("percpu_hash", struct source, u64, handled, MOST_SOURCES);
BPF_TABLE("lru_hash", u32, u64, told, MOST_SOURCES);

static __always_inline void count_lost(u32 cause) {
    u64 *count = lost.lookup(&cause);
    if (count)
        __sync_fetch_and_add(count, 1);
}

/* Some runtimes take signals instead of checking pointers, thousands a second. They are counted, and of a thread one in
 * PAUSE is told. */
static __always_inline int is_news(u32 pid, u32 tid, s32 signal) {
    struct source source = {.pid = pid, .signal = signal};
    u64 now = bpf_ktime_get_ns(), zero = 0;
    u64 *count = handled.lookup_or_try_init(&source, &zero);
    if (count)
        (*count)++;
    else
        count_lost(1);
    u64 *last = told.lookup(&tid);
    if (last && now - *last < PAUSE)
        return 0;
    told.update(&tid, &now);
    return 1;
}

static __always_inline u64 user_sp(void) {
    struct pt_regs *regs = (void *)bpf_task_pt_regs((void *)bpf_get_current_task_btf());
    u64 sp = 0;
    bpf_probe_read_kernel(&sp, sizeof(sp), &regs->sp);
    return sp;
}

int on_signal(struct delivered *args) {
    s32 signal = args->signal;
    /* Whoever traces nothing gets its signals through here as well. */
    if (signal != SIGSEGV && signal != SIGABRT && signal != SIGBUS && signal != SIGFPE && signal != SIGILL)
        return 0;
    u64 id = bpf_get_current_pid_tgid(), handler = args->handler;
    if (handler == SIG_IGN || (handler != SIG_DFL && !is_news(id >> 32, id, signal)))
        return 0;
    struct fault *fault = faults.ringbuf_reserve(sizeof(struct fault));
    if (!fault) {
        count_lost(0);
        return 0;
    }
    fault->when = bpf_ktime_get_ns();
    fault->pid = id >> 32;
    fault->tid = id;
    fault->signal = signal;
    fault->code = args->code;
    fault->handler = handler;
    bpf_get_current_comm(&fault->comm, sizeof(fault->comm));
    READ_STACK(args, fault, REGISTERS ? user_sp() : 0);
    faults.ringbuf_submit(fault, 0);
    return 0;
}
