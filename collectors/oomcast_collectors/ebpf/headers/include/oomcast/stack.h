/* Where functions return to: by frame pointers, and the stack itself for those that have none. The program defines
 * FRAMES, and CHUNKS pieces of CHUNK words. */
#define USER_STACK 0x100

/* Members of an item, as BCC reads no structures within another. frames: bytes of addresses, the first is where the
 * thread is; below 0 an error. chunks: pieces of words that could be read, from the stack pointer on. */
#define STACK_MEMBERS                                                                                                  \
    s32 frames;                                                                                                        \
    u32 chunks;                                                                                                        \
    u64 addresses[FRAMES];                                                                                             \
    u64 words[CHUNKS * CHUNK];

/* The pieces that could be read, as the stack may end anywhere. sp: 0 where it is not known. */
static __always_inline u32 read_words(u64 *words, u64 sp) {
    if (!sp)
        return 0;
#pragma unroll
    for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
        u32 at = chunk * CHUNK;
        if (bpf_probe_read_user(&words[at], CHUNK * sizeof(u64), (void *)(sp + at * sizeof(u64))))
            return chunk;
    }
    return CHUNKS;
}

#define READ_STACK(ctx, item, sp)                                                                                      \
    ({                                                                                                                 \
        (item)->frames = bpf_get_stack(ctx, (item)->addresses, sizeof((item)->addresses), USER_STACK);                 \
        (item)->chunks = read_words((item)->words, sp);                                                                \
    })
