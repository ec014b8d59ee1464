#include <uapi/linux/ptrace.h>

struct fault {
    u64 inode;
    u64 index;
    u32 device;
    u32 pad;
};

struct file {
    u64 inode;
    u32 device;
    u32 pid;
};

/* A thread is about to look for a page of a file, for a fault. */
struct filemap_fault {
    u64 common;
    u64 inode;
    u32 device;
    u32 pad;
    u64 index;
};

/* Pages were not there and are about to be read: 2 to the power of `order`, from `index` on. */
struct page_added {
    u64 common;
    u64 frame;
    u64 inode;
    u64 index;
    u32 device;
    u8 order;
};

BPF_TABLE("hash", u32, u32, targets, MOST_TARGETS);
/* By thread. Most faults find their page and stay here until the thread's next one, so old ones make room. */
BPF_TABLE("lru_hash", u64, struct fault, faults, MOST_THREADS);
BPF_TABLE("hash", struct file, u64, files, MOST_FILES);
BPF_TABLE("array", u32, u64, lost, 1);

int on_fault(struct filemap_fault *args) {
    u64 thread = bpf_get_current_pid_tgid();
    u32 pid = thread >> 32;
    if (!targets.lookup(&pid))
        return 0;
    struct fault fault = {.inode = args->inode, .index = args->index, .device = args->device};
    faults.update(&thread, &fault);
    return 0;
}

int on_added(struct page_added *args) {
    u64 thread = bpf_get_current_pid_tgid();
    u32 pid = thread >> 32;
    if (!targets.lookup(&pid))
        return 0;
    struct fault *fault = faults.lookup(&thread);
    /* What is read ahead for a page that was there is behind that page, and no fault waits for it. */
    if (!fault || fault->inode != args->inode || fault->device != args->device ||
        fault->index - args->index >= 1UL << (args->order & 31))
        return 0;
    faults.delete(&thread);
    struct file file = {.inode = args->inode, .device = args->device, .pid = pid};
    u64 none = 0, *count = files.lookup_or_try_init(&file, &none);
    if (!count) {
        u32 first = 0;
        count = lost.lookup(&first);
    }
    if (count)
        __sync_fetch_and_add(count, 1);
    return 0;
}
