/* Mappings and the break. A mapping may be given back in parts, so it has to be found by any address in it. */

#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MAP_HUGETLB 0x40000
#define HUGE_SHIFT(flags) ((flags) >> 26 & 63)
#define MREMAP_FIXED 2
#define MREMAP_DONTUNMAP 4
#define MAP 0
#define UNMAP 1
#define REMAP 2
#define LOWEST 12
#define HIGHEST 46
#define CHUNKS 5
/* The newest part of the heap grows, and becomes young again, up to this share of the heap. */
#define HEAP_SHARE 10

/* A mapping of 2^level bytes and more, level is even, touches up to five chunks of that size. In each it either holds the
 * first byte or starts behind it, and no other mapping of that level does the same: so each place is one mapping's. */
struct place_key {
    u64 level_side_owner;
    u64 chunk;
};

struct heap {
    u64 base, end, last;
};

/* What is left to be taken back: too many mappings for one call, or with gaps. */
struct range {
    u32 owner;
    u32 unused;
    u64 from, to, when;
};

BPF_TABLE("hash", struct place_key, u64, places, PLACES);
BPF_TABLE("hash", u32, struct heap, heaps, OWNERS);
BPF_RINGBUF_OUTPUT(ranges, RANGE_PAGES);

static __always_inline u64 round_up(u64 size, u64 unit) {
    return (size + unit - 1) & ~(unit - 1);
}

/* The logarithm, without the builtin that this compiler has no code for. */
static __always_inline u32 level_of(u64 size) {
    u32 level = 0;
#pragma unroll
    for (u32 bits = 32; bits; bits >>= 1)
        if (size >> (level + bits))
            level += bits;
    level &= ~1U;
    return level < LOWEST ? LOWEST : level > HIGHEST ? HIGHEST : level;
}

static __always_inline void place(u32 owner, u64 start, u64 size, int there) {
    u32 level = level_of(size);
#pragma nounroll
    for (u32 i = 0; i < CHUNKS; i++) {
        u64 chunk = (start >> level) + i;
        struct place_key key = {(u64)(level | (chunk << level < start)) << 32 | owner, chunk};
        if (chunk > (start + size - 1) >> level)
            break;
        if (!there)
            places.delete(&key);
        else if (places.update(&key, &start))
            lose(LOST_BLOCKS);
    }
}

static __always_inline int map(u32 owner, u64 start, struct block *block, u64 now) {
    if (keep(owner, MAPPINGS, start, block, now))
        return -1;
    place(owner, start, block->size, 1);
    return 0;
}

/* Of a mapping that is known; what is outstanding stays. */
static __always_inline void unmap(u32 owner, u64 start, u64 size) {
    struct block_key key = {.owner = owner, .space = MAPPINGS, .address = start};
    blocks.delete(&key);
    place(owner, start, size, 0);
}

/* The same without a count of what is outstanding, for a part of one. */
static __always_inline void map_part(u32 owner, u64 start, u64 size, struct block *whole) {
    struct block_key key = {.owner = owner, .space = MAPPINGS, .address = start};
    struct block part = *whole;
    part.size = size;
    if (blocks.update(&key, &part))
        lose(LOST_BLOCKS);
    else
        place(owner, start, size, 1);
}

/* The mapping that holds an address; 0 when there is one. */
static __always_inline int find(u32 owner, u64 address, u64 *start, struct block *block) {
    struct block_key key = {.owner = owner, .space = MAPPINGS, .address = address};
    struct block *found = blocks.lookup(&key);
    if (found) {
        *start = address;
        *block = *found;
        return 0;
    }
#pragma nounroll
    for (u32 i = LOWEST; i < HIGHEST + 2; i++) {
        struct place_key place = {(u64)i << 32 | owner, address >> (i & ~1U)};
        u64 *at = places.lookup(&place);
        if (!at || *at > address)
            continue;
        key.address = *at;
        found = blocks.lookup(&key);
        if (found && address - key.address < found->size) {
            *start = key.address;
            *block = *found;
            return 0;
        }
    }
    return -1;
}

/* Takes a range back from one mapping; the bytes, if its kind is counted. call: gets how many mappings there were so far,
 * counted or not, and the first, for restore(). */
static __always_inline u64 cut_one(u32 owner, u64 from, u64 to, u64 start, struct block *block, u64 now, struct call *call) {
    u64 end = start + block->size;
    struct count *count = count_of(owner, block->kind);
    unmap(owner, start, block->size);
    if (start < from)
        map_part(owner, start, from - start, block);
    if (to < end)
        map_part(owner, to, end - to, block);
    if (!call->pieces++) {
        call->start = start;
        call->taken = *block;
    }
    if (!count)
        return 0;
    count->freed_bytes += to - from;
    live(owner, block, now, from - to, (s64)(start < from) + (to < end) - 1);
    return to - from;
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
        count->frees++;
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
        count->frees--;
        count->freed_bytes -= last - first;
        live(owner, &call->taken, now, last - first, 1 - (s64)(call->start < first) - (last < end));
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
    gave(owner, block.kind, block.size);
    if (block.kind)
        block.stack = stack_of(ctx);
    map(owner, start, &block, now);
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
static __always_inline u64 newest(u32 owner, struct heap *heap, u64 now) {
    struct block_key key = {.owner = owner, .space = MAPPINGS, .address = heap->last};
    struct block *last = blocks.lookup(&key), block;
    if (!last || last->kind != BRK || heap->last + last->size != heap->end)
        return heap->end;
    if (last->size << HEAP_SHARE >= heap->end - heap->base && last->born >> EPOCH_SHIFT != now >> EPOCH_SHIFT)
        return heap->end;
    block = *last;
    unmap(owner, heap->last, block.size);
    live(owner, &block, now, -(s64)block.size, -1);
    return heap->last;
}

int on_brk_return(struct pt_regs *ctx) {
    u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), end;
    u32 owner = owner_of(id);
    struct call call;
    struct block block = {.born = now, .kind = BRK};
    struct heap *heap = heaps.lookup(&owner);
    if (!owner || !heap || leave(ctx, id, owner, MAPPINGS, &call))
        return 0;
    end = call.size;
    if (PT_REGS_RC(ctx)) {
        failed(owner, BRK);
    } else if (end > heap->end) {
        gave(owner, BRK, end - heap->end);
        heap->last = newest(owner, heap, now);
        block.size = end - heap->last;
        block.stack = stack_of(ctx);
        heap->end = end;
        map(owner, heap->last, &block, now);
    } else if (end && end < heap->end) {
        u64 from = end > heap->base ? end : heap->base, to = heap->end;
        struct count *count = count_of(owner, BRK);
        heap->end = end;
        heap->base = end < heap->base ? end : heap->base;
        if (from >= to || !cut_start(owner, &from, to, now, &call))
            unknown(owner, BRK);
        else if (count)
            count->frees++;
        leave_rest(owner, from, to, now);
    }
    return 0;
}
