/* Mappings and the break: the calls that make, change and end them. */

#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MAP_HUGETLB 0x40000
#define HUGE_SHIFT(flags) ((flags) >> 26 & 63)
#define MREMAP_FIXED 2
#define MREMAP_DONTUNMAP 4
#define MAP 0
#define UNMAP 1
#define REMAP 2
/* The newest part of the heap grows, and becomes young again, up to this share of the heap. */
#define HEAP_SHARE 10

struct heap {
    u64 base, end, last;
};

/* What is left to be taken back: too many mappings for one call, or with gaps. */
struct range {
    u32 owner;
    u32 unused;
    u64 from, to, when;
};

BPF_TABLE("hash", u32, struct heap, heaps, OWNERS);
BPF_RINGBUF_OUTPUT(ranges, RANGE_PAGES);

static __always_inline u64 round_up(u64 size, u64 unit) {
    return (size + unit - 1) & ~(unit - 1);
}

/* What is left of a range, mappings that are whole and gaps, is taken back by whoever reads this. */
static __always_inline void leave_rest(u32 owner, u64 from, u64 to, u64 now) {
    struct range range = {.owner = owner, .from = from, .to = to, .when = now};
    if (from < to && ranges.ringbuf_output(&range, sizeof(range), 0))
        lose(LOST_RANGES);
}

/* Takes back what is at the start of a range, from which on the rest is moved. */
static __always_inline u64 cut_start(u32 owner, u64 *from, u64 to, u64 now, struct call *call) {
    u64 first = *from, start, end;
    struct block block;
    call->from = first;
    call->to = to;
    call->pieces = 0;
    if (find(owner, first, &start, &block))
        return 0;
    end = start + block.size;
    *from = end < to ? end : to;
    return cut_one(owner, first, *from, start, &block, now, call);
}

static __always_inline u64 cut(u32 owner, u64 from, u64 to, u64 now, struct call *call) {
    u64 bytes = cut_start(owner, &from, to, now, call), start, first;
    struct block block;
    if (from < to && !find(owner, to - 1, &start, &block)) {
        first = start > from ? start : from;
        bytes += cut_one(owner, first, to, start, &block, now, call);
        to = first;
    }
    leave_rest(owner, from, to, now);
    return bytes;
}

/* The same for a call that gives a range back. */
static __always_inline u64 give_back(u32 owner, u64 from, u64 to, u64 now, struct call *call) {
    u64 bytes = cut(owner, from, to, now, call);
    struct count *count = count_of(owner, call->taken.kind ? call->taken.kind : MMAP);
    if (count && bytes)
        add(&count->frees, 1);
    return bytes;
}

/* It was not given back after all. Only a single mapping can be restored, and one is what a failing call is about. */
static __always_inline void restore(u32 owner, struct call *call, u64 now) {
    u64 end = call->start + call->taken.size;
    u64 first = call->start > call->from ? call->start : call->from, last = end < call->to ? end : call->to;
    struct count *count = count_of(owner, call->taken.kind);
    if (!call->pieces)
        return;
    if (call->pieces > 1) {
        lose(LOST_BLOCKS);
        return;
    }
    if (call->start < first)
        unmap(owner, call->start, first - call->start);
    if (last < end)
        unmap(owner, last, end - last);
    map_part(owner, call->start, call->taken.size, &call->taken);
    if (count) {
        add(&count->frees, -1);
        add(&count->freed_bytes, -(last - first));
        live(owner, count, &call->taken, now, last - first, 1 - (s64)(call->start < first) - (last < end));
    }
}

/* Anonymous memory, but for large reservations of addresses. */
static __always_inline u32 kind_of(u64 size, u64 protection, u64 flags) {
    return !(flags & MAP_ANONYMOUS) || (!(u32)protection && size >= RESERVATION) ? UNCOUNTED : MMAP;
}

int on_mmap(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid(), flags = PT_REGS_PARM4(ctx), unit = PAGE;
    u32 owner = owner_of(id);
    struct call call = {.sp = PT_REGS_SP(ctx)};
    if (flags & MAP_HUGETLB)
        unit = 1ULL << (HUGE_SHIFT(flags) ? HUGE_SHIFT(flags) : 21);
    call.size = round_up(PT_REGS_PARM2(ctx), unit);
    call.kind = kind_of(call.size, PT_REGS_PARM3(ctx), flags);
    call.fixed = flags & MAP_FIXED;
    if (owner)
        enter(id, owner, MAPPINGS, &call);
    return 0;
}

int on_munmap(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid(), from = PT_REGS_PARM1(ctx), size = round_up(PT_REGS_PARM2(ctx), PAGE);
    u32 owner = owner_of(id);
    struct call call = {.sp = PT_REGS_SP(ctx)};
    if (!owner || from & (PAGE - 1) || !size || from + size < from)
        return 0;
    /* Before it is done, as the addresses may be another thread's at its end. */
    give_back(owner, from, from + size, bpf_ktime_get_ns(), &call);
    call.what = UNMAP;
    if (!call.pieces)
        unknown(owner, MMAP);
    else
        enter(id, owner, MAPPINGS, &call);
    return 0;
}

int on_mremap(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid(), from = PT_REGS_PARM1(ctx), size = round_up(PT_REGS_PARM2(ctx), PAGE);
    u64 flags = PT_REGS_PARM4(ctx);
    u32 owner = owner_of(id);
    struct call call = {.sp = PT_REGS_SP(ctx), .size = round_up(PT_REGS_PARM3(ctx), PAGE)};
    if (!owner)
        return 0;
    if (!(from & (PAGE - 1)) && size && from + size > from && !(flags & MREMAP_DONTUNMAP))
        give_back(owner, from, from + size, bpf_ktime_get_ns(), &call);
    call.what = REMAP;
    call.kind = call.pieces ? call.taken.kind : MMAP;
    call.fixed = flags & MREMAP_FIXED;
    enter(id, owner, MAPPINGS, &call);
    return 0;
}

int on_mapping_return(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), start = PT_REGS_RC(ctx);
    u32 owner = owner_of(id);
    struct call call;
    struct block block = {.born = now, .stack = -1};
    struct count *count;
    if (!owner || leave(ctx, id, owner, MAPPINGS, &call))
        return 0;
    block.kind = call.kind;
    block.size = call.size;
    if (start == ~0ULL || (call.what == UNMAP && (u32)start)) {
        if (call.what != UNMAP)
            failed(owner, block.kind);
        restore(owner, &call, now);
        return 0;
    }
    if (call.what == UNMAP)
        return 0;
    if (call.what == REMAP && !call.pieces)
        unknown(owner, MMAP);
    if (call.fixed)
        give_back(owner, start, start + block.size, now, &call);
    count = count_of(owner, block.kind);
    gave(count, block.size);
    if (count)
        block.stack = stack_of(ctx);
    map(owner, start, &block, count, now);
    return 0;
}

int on_brk(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid();
    u32 owner = owner_of(id);
    struct call call = {.sp = PT_REGS_SP(ctx), .size = PT_REGS_PARM1(ctx)};
    if (owner)
        enter(id, owner, MAPPINGS, &call);
    return 0;
}

/* The newest part, if it is to grow with the break: taken out, as it is young again. */
static __always_inline u64 newest(u32 owner, struct heap *heap, struct count *count, u64 now) {
    struct block_key key = {.owner = owner, .space = MAPPINGS, .address = heap->last};
    struct block *last = blocks.lookup(&key), block;
    if (!last || last->kind != BRK || heap->last + last->size != heap->end)
        return heap->end;
    if (last->size << HEAP_SHARE >= heap->end - heap->base && last->born >> EPOCH_SHIFT != now >> EPOCH_SHIFT)
        return heap->end;
    block = *last;
    unmap(owner, heap->last, block.size);
    live(owner, count, &block, now, -(s64)block.size, -1);
    return heap->last;
}

int on_brk_return(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), end;
    u32 owner = owner_of(id);
    struct call call;
    struct block block = {.born = now, .kind = BRK};
    struct heap *heap = heaps.lookup(&owner);
    struct count *count = count_of(owner, BRK);
    if (!owner || !heap || leave(ctx, id, owner, MAPPINGS, &call))
        return 0;
    end = call.size;
    if (PT_REGS_RC(ctx)) {
        failed(owner, BRK);
    } else if (end > heap->end) {
        gave(count, end - heap->end);
        heap->last = newest(owner, heap, count, now);
        block.size = end - heap->last;
        block.stack = stack_of(ctx);
        heap->end = end;
        map(owner, heap->last, &block, count, now);
    } else if (end && end < heap->end) {
        u64 from = end > heap->base ? end : heap->base, to = heap->end;
        heap->end = end;
        heap->base = end < heap->base ? end : heap->base;
        if (from >= to || !cut_start(owner, &from, to, now, &call))
            unknown(owner, BRK);
        else if (count)
            add(&count->frees, 1);
        leave_rest(owner, from, to, now);
    }
    return 0;
}
