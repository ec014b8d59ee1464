#include <uapi/linux/ptrace.h>

/* Calls of the CUDA driver API that write to device memory or order streams. The numbers of what they do are constants
 * of the description's reader. A call is told when it has returned, so what one thread does before another hears of it
 * is told before what that does then. */

#define LEGACY 0
#define PER_THREAD 2
#define EXTERNAL 1
#define NON_BLOCKING 1
#define MEMORY_DEVICE 2
#define CAPTURE_UNMATCHED 903
#define CAPTURE_WRONG_THREAD 908

#define NOT_TOLD 0
#define IN_FLIGHT 1

struct call {
    u32 what;
    u32 unused;
    u64 stream;
    u64 handle; /* or where the call writes it */
    u64 address;
    u64 bytes;
    u64 function;
};

struct item {
    u64 time;
    u64 missed; /* calls that were not told, as far as this one could know */
    u32 pid;
    u32 tid;
    u32 what;
    s32 depth; /* bytes of stack, or an error */
    u64 stream;
    u64 handle;
    u64 address;
    u64 bytes;
    u64 function;
    u64 stack[FRAMES];
};

struct place {
    u64 id;
    u64 stack; /* of the return address: calls may be nested */
};

/* The size of a CUDA_MEMCPY2D, and where its fields are. */
struct copy2d {
    u64 source[7];
    u64 x, y;
    u32 type, unused;
    u64 host, device, array, pitch, width, height;
};

BPF_TABLE("lru_hash", struct place, struct call, in_flight, MOST_IN_FLIGHT);
BPF_TABLE("lru_hash", u32, u64, changes, MOST_PROCESSES);
BPF_TABLE("lru_hash", u32, u64, touched, MOST_THREADS);
BPF_TABLE("array", u32, u64, lost, 2);
BPF_RINGBUF_OUTPUT(calls, EVENT_PAGES);

static __always_inline void lose(u32 cause) {
    u64 *count = lost.lookup(&cause);
    if (count)
        __sync_fetch_and_add(count, 1);
}

static __always_inline u64 losses(void) {
    u32 told = NOT_TOLD, flight = IN_FLIGHT;
    u64 *first = lost.lookup(&told), *second = lost.lookup(&flight);
    return (first ? *first : 0) + (second ? *second : 0);
}

static __always_inline int tell(struct pt_regs *ctx, struct call *call) {
    u64 id = bpf_get_current_pid_tgid();
    struct item *item = calls.ringbuf_reserve(sizeof(struct item));
    if (!item) {
        lose(NOT_TOLD);
        return -1;
    }
    item->time = bpf_ktime_get_ns();
    item->missed = losses();
    item->pid = id >> 32;
    item->tid = id;
    item->what = call->what;
    item->depth = 0;
    item->stream = call->stream;
    item->handle = call->handle;
    item->address = call->address;
    item->bytes = call->bytes;
    item->function = call->function;
    if ((call->what == WRITE || call->what == WRITE_SOMEWHERE) && call->bytes)
        item->depth = bpf_get_stack(ctx, item->stack, sizeof(item->stack), BPF_F_USER_STACK);
    calls.ringbuf_submit(item, 0);
    return 0;
}

/* To be counted after it was told: whoever sees the count then knows that the item is there. */
static __always_inline void changed(void) {
    u32 pid = bpf_get_current_pid_tgid() >> 32;
    u64 first = 1, *count = changes.lookup(&pid);
    if (count)
        __sync_fetch_and_add(count, 1);
    else
        changes.update(&pid, &first);
}

static __always_inline int enter(struct pt_regs *ctx, struct call *call) {
    struct place place = {.id = bpf_get_current_pid_tgid(), .stack = PT_REGS_SP(ctx)};
    call->function = PT_REGS_IP(ctx);
    if (in_flight.update(&place, call))
        lose(IN_FLIGHT);
    return 0;
}

int on_leave(struct pt_regs *ctx) {
    struct place place = {.id = bpf_get_current_pid_tgid(), .stack = PT_REGS_SP(ctx) - sizeof(u64)};
    struct call *found = in_flight.lookup(&place);
    if (!found) {
        lose(IN_FLIGHT);
        return 0;
    }
    struct call call = *found;
    s32 result = PT_REGS_RC(ctx);
    in_flight.delete(&place);
    if (call.what == CAPTURE_ENDED ? result == CAPTURE_UNMATCHED || result == CAPTURE_WRONG_THREAD : result)
        return 0;
    if (call.what == CONTEXT_MADE || call.what == STREAM_MADE)
        bpf_probe_read_user(&call.handle, sizeof(call.handle), (void *)call.handle);
    if (call.what == ALLOCATED || call.what == ALLOCATED_MANAGED || call.what == ALLOCATED_IN_STREAM)
        bpf_probe_read_user(&call.address, sizeof(call.address), (void *)call.address);
    tell(ctx, &call);
    changed();
    return 0;
}

/* Which stream a handle means: in functions compiled for a default stream per thread 0 is that. */
static __always_inline u64 legacy(u64 handle) {
    return handle == 1 ? LEGACY : handle;
}

static __always_inline u64 own(u64 handle) {
    return handle == 0 ? PER_THREAD : legacy(handle);
}

/* Bytes of rows without gaps between them; others are not followed. */
static __always_inline u64 rows(u64 pitch, u64 width, u64 height) {
    return height == 1 || pitch == width ? width * height : 0;
}

#define P1 PT_REGS_PARM1(ctx)
#define P2 PT_REGS_PARM2(ctx)
#define P3 PT_REGS_PARM3(ctx)
#define P4 PT_REGS_PARM4(ctx)
#define P5 PT_REGS_PARM5(ctx)
#define P6 PT_REGS_PARM6(ctx)

/* One function each: BCC cannot tell apart two that one macro makes. _own: for a default stream per thread. */
#define CALL(name, does, ...)                                                                                          \
    int on_##name(struct pt_regs *ctx) {                                                                               \
        struct call call = {.what = does, __VA_ARGS__};                                                                \
        return enter(ctx, &call);                                                                                      \
    }

CALL(copy, WRITE, .stream = legacy(P4), .address = P1, .bytes = P3)
CALL(copy_own, WRITE, .stream = own(P4), .address = P1, .bytes = P3)
CALL(copy_somewhere, WRITE_SOMEWHERE, .stream = legacy(P4), .address = P1, .bytes = P3)
CALL(copy_somewhere_own, WRITE_SOMEWHERE, .stream = own(P4), .address = P1, .bytes = P3)
CALL(copy_peer, WRITE, .stream = legacy(P6), .address = P1, .bytes = P5)
CALL(copy_peer_own, WRITE, .stream = own(P6), .address = P1, .bytes = P5)
CALL(set8, WRITE, .stream = legacy(P4), .address = P1, .bytes = P3)
CALL(set8_own, WRITE, .stream = own(P4), .address = P1, .bytes = P3)
CALL(set16, WRITE, .stream = legacy(P4), .address = P1, .bytes = 2 * P3)
CALL(set16_own, WRITE, .stream = own(P4), .address = P1, .bytes = 2 * P3)
CALL(set32, WRITE, .stream = legacy(P4), .address = P1, .bytes = 4 * P3)
CALL(set32_own, WRITE, .stream = own(P4), .address = P1, .bytes = 4 * P3)
CALL(set2d8, WRITE, .stream = legacy(P6), .address = P1, .bytes = rows(P2, P4, P5))
CALL(set2d8_own, WRITE, .stream = own(P6), .address = P1, .bytes = rows(P2, P4, P5))
CALL(set2d16, WRITE, .stream = legacy(P6), .address = P1, .bytes = rows(P2, 2 * P4, P5))
CALL(set2d16_own, WRITE, .stream = own(P6), .address = P1, .bytes = rows(P2, 2 * P4, P5))
CALL(set2d32, WRITE, .stream = legacy(P6), .address = P1, .bytes = rows(P2, 4 * P4, P5))
CALL(set2d32_own, WRITE, .stream = own(P6), .address = P1, .bytes = rows(P2, 4 * P4, P5))

static __always_inline int copy2d(struct pt_regs *ctx, u64 stream) {
    struct call call = {.what = WRITE, .stream = stream};
    struct copy2d copy = {};
    if (!bpf_probe_read_user(&copy, sizeof(copy), (void *)P1) && copy.type == MEMORY_DEVICE) {
        call.address = copy.device + copy.y * copy.pitch + copy.x;
        call.bytes = rows(copy.pitch, copy.width, copy.height);
    }
    return enter(ctx, &call);
}

int on_copy2d(struct pt_regs *ctx) {
    return copy2d(ctx, legacy(P2));
}

int on_copy2d_own(struct pt_regs *ctx) {
    return copy2d(ctx, own(P2));
}

/* Copies and sets that the caller waits for. */
CALL(synchronous, STREAM_COMPLETE, .stream = LEGACY)
CALL(synchronous_own, STREAM_COMPLETE, .stream = PER_THREAD)

CALL(stream_complete, STREAM_COMPLETE, .stream = legacy(P1))
CALL(stream_complete_own, STREAM_COMPLETE, .stream = own(P1))
CALL(host_function, HOST_FUNCTION, .stream = legacy(P1))
CALL(host_function_own, HOST_FUNCTION, .stream = own(P1))
CALL(event_complete, EVENT_COMPLETE, .handle = P1)
CALL(context_complete, CONTEXT_COMPLETE)
CALL(complete, ALL_COMPLETE)
CALL(record, RECORDED, .stream = legacy(P2), .handle = P1)
CALL(record_own, RECORDED, .stream = own(P2), .handle = P1)
CALL(record_context, CONTEXT_RECORDED, .handle = P2)
CALL(wait_context, CONTEXT_WAITS, .handle = P2)
CALL(event_destroy, EVENT_DESTROYED, .handle = P1)
CALL(graph_launch, GRAPH_LAUNCHED, .stream = legacy(P2), .handle = P1)
CALL(graph_launch_own, GRAPH_LAUNCHED, .stream = own(P2), .handle = P1)
CALL(capture_begin, CAPTURE_BEGUN, .stream = legacy(P1))
CALL(capture_begin_own, CAPTURE_BEGUN, .stream = own(P1))
CALL(capture_end, CAPTURE_ENDED, .stream = legacy(P1))
CALL(capture_end_own, CAPTURE_ENDED, .stream = own(P1))

/* With the flag, the event is one of the graph that is being captured. */
#define UNLESS_EXTERNAL(flags, does) ((u32)(flags)&EXTERNAL ? NOT_FOLLOWED : does)
CALL(record_flags, UNLESS_EXTERNAL(P3, RECORDED), .stream = legacy(P2), .handle = P1)
CALL(record_flags_own, UNLESS_EXTERNAL(P3, RECORDED), .stream = own(P2), .handle = P1)
CALL(wait, UNLESS_EXTERNAL(P3, STREAM_WAITS), .stream = legacy(P1), .handle = P2)
CALL(wait_own, UNLESS_EXTERNAL(P3, STREAM_WAITS), .stream = own(P1), .handle = P2)

CALL(stream_create, STREAM_MADE, .handle = P1, .bytes = !((u32)P2 & NON_BLOCKING))
CALL(green_stream_create, STREAM_MADE, .handle = P1, .bytes = !((u32)P3 & NON_BLOCKING))
CALL(stream_destroy, STREAM_DESTROYED, .stream = P1)
CALL(context_create, CONTEXT_MADE, .handle = P1)
CALL(context_destroy, CONTEXT_DESTROYED, .handle = P1)
CALL(primary_retain, PRIMARY_RETAINED, .handle = (u32)P2)
CALL(primary_release, PRIMARY_RELEASED, .handle = (u32)P1)
CALL(primary_reset, PRIMARY_RESET, .handle = (u32)P1)

CALL(allocate, ALLOCATED, .address = P1, .bytes = P2)
CALL(allocate_managed, ALLOCATED_MANAGED, .address = P1, .bytes = P2)
CALL(allocate_in_stream, ALLOCATED_IN_STREAM, .stream = legacy(P3), .address = P1, .bytes = P2)
CALL(allocate_in_stream_own, ALLOCATED_IN_STREAM, .stream = own(P3), .address = P1, .bytes = P2)
CALL(allocate_from_pool, ALLOCATED_IN_STREAM, .stream = legacy(P4), .address = P1, .bytes = P2)
CALL(allocate_from_pool_own, ALLOCATED_IN_STREAM, .stream = own(P4), .address = P1, .bytes = P2)
CALL(map, MAPPED, .address = P1, .bytes = P2)
CALL(free, FREED, .address = P1)
CALL(free_in_stream, FREED_IN_STREAM, .stream = legacy(P2), .address = P1)
CALL(free_in_stream_own, FREED_IN_STREAM, .stream = own(P2), .address = P1)

/* What orders by means that cannot be followed. */
int on_not_followed(struct pt_regs *ctx) {
    struct call call = {.what = NOT_FOLLOWED};
    tell(ctx, &call);
    changed();
    return 0;
}

/* Any other work in the legacy default stream orders what blocking streams do; told once between two other calls. */
static __always_inline int touch(struct pt_regs *ctx, u64 stream) {
    u64 id = bpf_get_current_pid_tgid();
    u32 pid = id >> 32, tid = id;
    if (stream != LEGACY)
        return 0;
    u64 *count = changes.lookup(&pid), *last = touched.lookup(&tid);
    u64 now = count ? *count : 0;
    if (last && *last == now)
        return 0;
    struct call call = {.what = TOUCHED, .stream = stream};
    if (!tell(ctx, &call))
        touched.update(&tid, &now);
    return 0;
}

static __always_inline u64 read64(u64 address) {
    u64 value = LEGACY;
    bpf_probe_read_user(&value, sizeof(value), (void *)address);
    return value;
}

#define TOUCH(name, handle)                                                                                            \
    int on_##name(struct pt_regs *ctx) {                                                                               \
        return touch(ctx, handle);                                                                                     \
    }

TOUCH(first, legacy(P1))
TOUCH(first_own, own(P1))
TOUCH(second, legacy(P2))
TOUCH(second_own, own(P2))
TOUCH(third, legacy(P3))
TOUCH(third_own, own(P3))
TOUCH(fourth, legacy(P4))
TOUCH(fourth_own, own(P4))
TOUCH(fifth, legacy(P5))
TOUCH(fifth_own, own(P5))
TOUCH(ninth, legacy(read64(PT_REGS_SP(ctx) + 3 * sizeof(u64))))
TOUCH(ninth_own, own(read64(PT_REGS_SP(ctx) + 3 * sizeof(u64))))
TOUCH(config, legacy(read64(P1 + 32)))
TOUCH(config_own, own(read64(P1 + 32)))

int on_any(struct pt_regs *ctx) {
    return touch(ctx, LEGACY);
}
