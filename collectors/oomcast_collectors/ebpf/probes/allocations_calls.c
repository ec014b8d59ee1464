/* Calls of allocators: from where they begin to where they return. */

/* Calls within one that does not return: after so many it is taken for one that never will. */
#define MOST_INNER 8

struct call_key {
    u32 owner;
    u32 space;
    u32 thread;
    u32 unused;
};

/* A call that has not returned. sp: its frame. place: where it writes the address, factor: where it writes what its
 * size is multiplied by, 0 without. old: what it takes back if it succeeds; taken: that block, of kind 0 if it is not
 * known. inner: how many calls began within it. The rest is of mappings: what the call is and what it makes, how many
 * were in the range that it took back, and where the first of them, which is taken, starts. */
struct call {
    u64 sp, size, place, factor, old;
    struct block taken;
    u32 inner, what, kind, fixed, pieces;
    u64 start, from, to;
};

BPF_TABLE("hash", struct call_key, struct call, calls, 8192);

/* Remembers a call until it returns; 0 when it is to be followed. One within another of its space is not: that one
 * counts. Where the other has the same frame it went over to this one, and where it is below it was left by a jump. */
static __always_inline int enter(u64 id, u32 owner, u32 space, struct call *call) {
    struct call_key key = {.owner = owner, .space = space, .thread = id};
    struct call *outer;
    if (!calls.insert(&key, call))
        return 0;
    outer = calls.lookup(&key);
    if (outer && outer->sp > call->sp && outer->inner < MOST_INNER) {
        outer->inner++;
        return -1;
    }
    if (calls.update(&key, call)) {
        lose(LOST_CALLS);
        return -1;
    }
    return 0;
}

/* 0 when it is the call that returns. */
static __always_inline int leave(struct pt_regs *ctx, u64 id, u32 owner, u32 space, struct call *call) {
    struct call_key key = {.owner = owner, .space = space, .thread = id};
    struct call *entered = calls.lookup(&key);
    if (!entered || entered->sp + sizeof(u64) != PT_REGS_SP(ctx))
        return -1;
    *call = *entered;
    calls.delete(&key);
    return 0;
}

/* An allocating call begins. What it may take back is taken now, as the address may be another thread's at its end. */
static __always_inline int begin(struct pt_regs *ctx, u32 space, u64 size, u64 old, u64 place, u64 factor, u32 inner) {
    u64 id = bpf_get_current_pid_tgid();
    u32 owner = owner_of(id);
    struct call call = {.sp = PT_REGS_SP(ctx), .size = size, .old = old, .place = place, .factor = factor};
    struct block_key key = {.owner = owner, .space = space, .address = old};
    struct call_key own = {.owner = owner, .space = space, .thread = id};
    struct block *block;
    struct call *entered;
    call.inner = inner;
    if (!owner || enter(id, owner, space, &call) || !old)
        return 0;
    block = blocks.lookup(&key);
    entered = calls.lookup(&own);
    if (block && entered) {
        entered->taken = *block;
        blocks.delete(&key);
    }
    return 0;
}

/* The address that a call gave, 0 for none. result: what it returned. */
static __always_inline u64 given(u64 result, struct call *call) {
    u64 address = 0, factor = 0;
    if (call->factor) {
        bpf_probe_read_user(&factor, sizeof(factor), (void *)call->factor);
        call->size *= factor;
    }
    if (!call->place)
        return result;
    if (!(u32)result)
        bpf_probe_read_user(&address, sizeof(address), (void *)call->place);
    return address;
}

static __always_inline void freed_unseen(u32 owner, u32 kind, int keeps) {
    struct count *count = count_of(owner, kind);
    if (count && keeps)
        add(&count->unknown, 1);
    else if (count)
        add(&count->frees, 1);
}

/* It returns. keeps: whether blocks are followed, and not only counted. */
static __always_inline int end(struct pt_regs *ctx, u32 space, u32 kind, int keeps) {
    u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), result = PT_REGS_RC(ctx), address;
    u32 owner = owner_of(id);
    struct call call;
    struct block block = {.born = now, .kind = kind, .stack = -1};
    struct count *count;
    if (!owner || leave(ctx, id, owner, space, &call))
        return 0;
    address = given(result, &call);
    if (!address && !(call.old && !call.size)) {
        failed(owner, kind);
        if (call.taken.kind) {
            struct block_key key = {.owner = owner, .space = space, .address = call.old};
            if (blocks.update(&key, &call.taken)) {
                lose(LOST_BLOCKS);
                live(owner, count_of(owner, kind), &call.taken, now, -(s64)call.taken.size, -1);
            }
        }
        return 0;
    }
    if (call.taken.kind)
        freed(owner, &call.taken, now);
    else if (call.old)
        freed_unseen(owner, kind, keeps);
    if (!address)
        return 0;
    count = count_of(owner, kind);
    gave(count, call.size);
    block.size = call.size;
    if (keeps) {
        block.stack = stack_of(ctx);
        keep(owner, space, address, &block, count, now);
    }
    return 0;
}

static __always_inline int took(u32 space, u32 kind, u64 address, int keeps) {
    u64 id = bpf_get_current_pid_tgid();
    u32 owner = owner_of(id);
    struct block_key key = {.owner = owner, .space = space, .address = address};
    struct call_key own = {.owner = owner, .space = space, .thread = id};
    struct block *found, block;
    struct call *call;
    if (!owner || !address)
        return 0;
    if (!keeps) {
        freed_unseen(owner, kind, keeps);
        return 0;
    }
    found = blocks.lookup(&key);
    if (!found) {
        /* A call that takes the block back itself calls this one for it. */
        call = calls.lookup(&own);
        if (!call || call->old != address)
            freed_unseen(owner, kind, keeps);
        return 0;
    }
    block = *found;
    if (!blocks.delete(&key))
        freed(owner, &block, bpf_ktime_get_ns());
    return 0;
}

/* A call that leaves giving to another one returns: that it failed may have been counted by that one already. */
static __always_inline int end_failing(struct pt_regs *ctx, u32 space, u32 kind, int keeps) {
    u64 id = bpf_get_current_pid_tgid();
    u32 owner = owner_of(id);
    struct call call;
    if (owner && !leave(ctx, id, owner, space, &call) && !PT_REGS_RC(ctx))
        failed(owner, kind);
    return 0;
}
