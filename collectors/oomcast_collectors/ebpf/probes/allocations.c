/* What calls gave and others took back. A block is what one call gave, found by its address; its owner is a number for
 * each process that is followed, never used again, so that nothing is left of a process to the next with its pid. */
#include <uapi/linux/ptrace.h>

#define EPOCH_SHIFT 25 /* of nanoseconds: 34 ms */
#define PAGE 4096ULL
#define MAPPINGS 0 /* The space of mappings and of the break. Each allocator has another. */
#define UNCOUNTED 0 /* The kind of mappings that are no memory. */
#define BRK 1
#define MMAP 2

enum loss { LOST_BLOCKS, LOST_CALLS, LOST_STACKS, LOST_AGES, LOST_RANGES, LOSSES };

struct block {
    u64 size;
    u64 born;
    s32 stack;
    u32 kind;
};

struct block_key {
    u32 owner;
    u32 space;
    u64 address;
};

struct count_key {
    u32 owner;
    u32 kind;
};

struct count {
    u64 calls, bytes, frees, freed_bytes, failures, unknown, live_bytes, live_blocks;
};

struct age_key {
    u32 owner;
    u32 kind;
    u32 epoch;
    u32 side;
};

struct age {
    u64 bytes, blocks;
};

struct stack_addresses {
    u64 ip[FRAMES];
};

BPF_TABLE("hash", u32, u32, owners, OWNERS);
BPF_TABLE("hash", struct block_key, struct block, blocks, LIVE);
BPF_TABLE("percpu_hash", struct count_key, struct count, counts, COUNTS);
/* Not per CPU: with hundreds of them an entry would take kilobytes. */
BPF_TABLE("hash", struct age_key, struct age, ages, AGES);
/* Which side of the ages changes now: the other one can be read and emptied. */
BPF_TABLE("array", u32, u32, sides, 1);
BPF_TABLE("stacktrace", int, struct stack_addresses, stacks, STACKS);
BPF_TABLE("array", u32, u64, lost, LOSSES);

/* Atomic even for one CPU's own counts: another thread's program may run there in the midst of this one. */
static __always_inline void add(u64 *sum, u64 number) {
    __sync_fetch_and_add(sum, number);
}

static __always_inline void lose(u32 what) {
    u64 *count = lost.lookup(&what);
    if (count)
        add(count, 1);
}

static __always_inline u32 owner_of(u64 id) {
    u32 pid = id >> 32;
    u32 *owner = owners.lookup(&pid);
    return owner ? *owner : 0;
}

static __always_inline struct count *count_of(u32 owner, u32 kind) {
    struct count_key key = {.owner = owner, .kind = kind};
    return counts.lookup(&key);
}

/* The older a birth, the coarser: what is told of it is a share of its age, and there are few epochs to tell of. */
static __always_inline u32 epoch_of(u64 born, u64 now) {
    u32 epoch = born >> EPOCH_SHIFT, age = (u32)(now >> EPOCH_SHIFT) - epoch;
    if (age >= 1 << 20)
        return epoch & ~0x7fffU;
    if (age >= 1 << 15)
        return epoch & ~0x3ffU;
    return age >= 1 << 10 ? epoch & ~0x1fU : epoch;
}

/* Changes what is outstanding. count: of the block's owner and kind. */
static __always_inline void live(u32 owner, struct count *count, struct block *block, u64 now, s64 bytes, s64 pieces) {
    u32 first = 0, *side = sides.lookup(&first);
    struct age_key key = {.owner = owner, .kind = block->kind, .epoch = epoch_of(block->born, now)};
    struct age zero = {}, *age;
    if (!count)
        return;
    add(&count->live_bytes, bytes);
    add(&count->live_blocks, pieces);
    key.side = side ? *side : 0;
    age = ages.lookup_or_try_init(&key, &zero);
    if (!age) {
        lose(LOST_AGES);
        return;
    }
    add(&age->bytes, bytes);
    add(&age->blocks, pieces);
}

static __always_inline void freed(u32 owner, struct block *block, u64 now) {
    struct count *count = count_of(owner, block->kind);
    if (!count)
        return;
    add(&count->frees, 1);
    add(&count->freed_bytes, block->size);
    live(owner, count, block, now, -(s64)block->size, -1);
}

static __always_inline void unknown(u32 owner, u32 kind) {
    struct count *count = count_of(owner, kind);
    if (count)
        add(&count->unknown, 1);
}

static __always_inline void failed(u32 owner, u32 kind) {
    struct count *count = count_of(owner, kind);
    if (count)
        add(&count->failures, 1);
}

static __always_inline void gave(struct count *count, u64 size) {
    if (count) {
        add(&count->calls, 1);
        add(&count->bytes, size);
    }
}

static __always_inline s32 stack_of(struct pt_regs *ctx) {
    s32 stack = stacks.get_stackid(ctx, BPF_F_USER_STACK);
    if (stack < 0)
        lose(LOST_STACKS);
    return stack;
}

/* 0 when it is kept. */
static __always_inline int keep(u32 owner, u32 space, u64 address, struct block *block, struct count *count, u64 now) {
    struct block_key key = {.owner = owner, .space = space, .address = address};
    if (blocks.insert(&key, block)) {
        struct block *stale = blocks.lookup(&key), old;
        if (!stale) {
            lose(LOST_BLOCKS);
            return -1;
        }
        /* It was given back where nobody looked. */
        old = *stale;
        blocks.update(&key, block);
        freed(owner, &old, now);
    }
    live(owner, count, block, now, block->size, 1);
    return 0;
}
