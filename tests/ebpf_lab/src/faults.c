/* faults FILE...: reads each page of a file that is not in the page cache, through a private mapping, one file a step.
 * Says how many faults that took, by the kernel's count. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "lab.h"

static volatile char seen;

static struct rusage usage(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage;
}

/* The file's mapping, with nothing of it in memory. */
static volatile char *map_cold(const char *path, size_t *size) {
    struct stat status;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status)) _exit(2);
    *size = (size_t)status.st_size;
    char *at = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    /* Random: neither reads ahead nor maps what is around, so each page is a fault. Only clean pages can be dropped. */
    if (at == MAP_FAILED || madvise(at, *size, MADV_RANDOM) || fsync(fd)) _exit(2);
    if (posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)) _exit(2);
    close(fd);
    return at;
}

NOINLINE void touch_pages(volatile char *at, size_t size, size_t page) {
    for (size_t i = 0; i < size; i += page) seen = at[i];
}

int main(int count, char **arguments) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size;
    say_ready();
    for (int i = 1; i < count; i++) {
        volatile char *at = map_cold(arguments[i], &size);
        struct rusage before = usage();
        touch_pages(at, size, page);
        struct rusage after = usage();
        say("{\"phase\": \"faults\", \"file\": %d, \"pages\": %zu, \"major_faults\": %ld, \"minor_faults\": %ld}",
            i - 1, (size + page - 1) / page, after.ru_majflt - before.ru_majflt, after.ru_minflt - before.ru_minflt);
        wait_for_step();
    }
    return 0;
}
