/* Memory taken from the kernel: anonymous mappings in every shape, mappings of a file, and the break. mmap over an old
 * mapping unmaps what was there; mremap unmaps the old size and maps the new one. Allocates nothing with malloc. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "lab.h"

enum { PAGE = 4096 };
#define MIB ((size_t)1 << 20)

typedef struct { unsigned long mapped, unmapped, failures; } Flow;

static Flow anonymous, file;
static long broken_up, broken_down;

static char *map_at(char *place, size_t size, int flags) {
    char *at = mmap(place, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at == MAP_FAILED) {
        anonymous.failures++;
        return NULL;
    }
    anonymous.mapped += size;
    return at;
}

static char *map(size_t size) {
    char *at = map_at(NULL, size, 0);
    if (!at) _exit(2);
    return at;
}

/* bytes: how many of them are mapped. */
static void unmap(char *at, size_t size, size_t bytes) {
    if (munmap(at, size)) _exit(2);
    anonymous.unmapped += bytes;
}

static char *remap(char *at, size_t from, size_t to, int flags, char *place) {
    char *moved = mremap(at, from, to, flags, place);
    if (moved == MAP_FAILED) _exit(2);
    anonymous.unmapped += from;
    anonymous.mapped += to;
    return moved;
}

static void whole(void) {
    map(2 * MIB);
    unmap(map(MIB), MIB, MIB);
}

static void parts(void) {
    unmap(map(MIB), 16 * PAGE, 16 * PAGE);                     /* head */
    unmap(map(MIB) + MIB - 32 * PAGE, 32 * PAGE, 32 * PAGE);   /* tail */
    unmap(map(MIB) + MIB / 2, PAGE, PAGE);                     /* a hole */
}

static void neighbours(void) {
    char *place = map(4 * MIB);
    unmap(place, 4 * MIB, 4 * MIB);
    map_at(place, MIB, MAP_FIXED);
    map_at(place + MIB, MIB, MAP_FIXED | MAP_NORESERVE); /* other flags, so the kernel keeps the two apart */
    unmap(place + MIB / 2, MIB, MIB);                    /* the end of one and the beginning of the other */
    map_at(place + 3 * MIB, MIB, MAP_FIXED);
    unmap(place, 4 * MIB, 2 * MIB); /* what is left of both, with a gap that is not mapped */
    map_at(place, MIB, MAP_FIXED);
    map_at(place + MIB, MIB, MAP_FIXED | MAP_NORESERVE);
    unmap(place + MIB / 4, MIB, MIB); /* and stays */
}

static void remapped(void) {
    char *at = remap(map(MIB), MIB, 3 * MIB, MREMAP_MAYMOVE, NULL);
    at = remap(at, 3 * MIB, 2 * MIB, 0, NULL);
    char *place = map(2 * MIB);
    anonymous.unmapped += 2 * MIB; /* by the next line */
    remap(at, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, place);
}

static void fixed(void) {
    char *old = map(2 * MIB);
    map_at(old + MIB / 2, MIB, MAP_FIXED);
    anonymous.unmapped += MIB;
}

static void of_file(void) {
    int fd = memfd_create("flows", 0);
    if (fd < 0 || ftruncate(fd, (off_t)MIB)) _exit(2);
    char *kept = mmap(NULL, MIB, PROT_READ, MAP_PRIVATE, fd, 0);
    char *gone = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
    if (kept == MAP_FAILED || gone == MAP_FAILED || munmap(gone, MIB)) _exit(2);
    file.mapped += 2 * MIB;
    file.unmapped += MIB;
    if (mmap(NULL, MIB, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED) file.failures++;
    close(fd);
}

static void failing(void) {
    if (map_at(NULL, (size_t)1 << 60, 0) || map_at(NULL, 0, 0)) _exit(2);
    char *at = map(MIB);
    if (!munmap(at + 1, MIB)) _exit(2); /* misaligned: stays mapped */
    /* too much: stays as it is, whole or what is around that part */
    if (mremap(at + PAGE, PAGE, (size_t)1 << 60, MREMAP_MAYMOVE) != MAP_FAILED) _exit(2);
    if (mremap(at, MIB, (size_t)1 << 60, MREMAP_MAYMOVE) != MAP_FAILED) _exit(2);
    anonymous.failures += 2;
}

static void the_break(void) {
    if (sbrk(4 * MIB) == (void *)-1 || sbrk(-(long)MIB) == (void *)-1) _exit(2);
    broken_up += 4 * MIB;
    broken_down += MIB;
    if (sbrk((long)1 << 60) != (void *)-1) _exit(2);
    for (int i = 0; i < 6; i++) { /* so far apart that each is of another age */
        usleep(50000);
        if (sbrk((long)MIB) == (void *)-1) _exit(2);
    }
    if (sbrk(-(long)(4 * MIB + MIB / 2)) == (void *)-1) _exit(2);
    broken_up += 6 * MIB;
    broken_down += 4 * MIB + MIB / 2;
}

static void say_flows(const char *phase) {
    say("{\"phase\": \"%s\", "
        "\"anonymous\": {\"mapped_bytes\": %lu, \"unmapped_bytes\": %lu, \"live_bytes\": %lu, \"failures\": %lu}, "
        "\"file\": {\"mapped_bytes\": %lu, \"unmapped_bytes\": %lu, \"live_bytes\": %lu, \"failures\": %lu}, "
        "\"brk\": {\"grown_bytes\": %ld, \"shrunk_bytes\": %ld, \"live_bytes\": %ld}}",
        phase, anonymous.mapped, anonymous.unmapped, anonymous.mapped - anonymous.unmapped, anonymous.failures,
        file.mapped, file.unmapped, file.mapped - file.unmapped, file.failures,
        broken_up, broken_down, broken_up - broken_down);
}

int main(void) {
    static const struct { const char *name; void (*run)(void); } PHASES[] = {
        { "whole", whole }, { "parts", parts },     { "neighbours", neighbours }, { "remapped", remapped },
        { "fixed", fixed }, { "of_file", of_file }, { "failing", failing },       { "break", the_break },
    };
    say_ready();
    for (size_t i = 0; i < sizeof PHASES / sizeof *PHASES; i++) {
        PHASES[i].run();
        say_flows(PHASES[i].name);
        wait_for_step();
    }
    return 0;
}
