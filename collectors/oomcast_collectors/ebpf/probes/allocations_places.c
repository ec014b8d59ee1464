/* Mappings, which may be given back in parts and so have to be found by any address in them. */

#define LOWEST 12
#define HIGHEST 46
#define CHUNKS 5

/* A mapping of 2^level bytes and more, level is even, touches up to five chunks of that size. In each it either holds
 * the first byte or starts behind it, and no other one of that level does the same: so each place is one mapping's. */
struct place_key {
    u64 level_side_owner;
    u64 chunk;
};

BPF_TABLE("hash", struct place_key, u64, places, PLACES);

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

static __always_inline void map(u32 owner, u64 start, struct block *block, struct count *count, u64 now) {
    if (!keep(owner, MAPPINGS, start, block, count, now))
        place(owner, start, block->size, 1);
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

/* Takes a range back from the mapping that is at `start`; the bytes, if its kind is counted. call: gets how many
 * mappings there were so far, counted or not, and the first, for restore(). */
static __always_inline u64 cut_one(
    u32 owner, u64 from, u64 to, u64 start, struct block *block, u64 now, struct call *call) {
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
    add(&count->freed_bytes, to - from);
    live(owner, count, block, now, from - to, (s64)(start < from) + (to < end) - 1);
    return to - from;
}
