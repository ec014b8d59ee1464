/* What a process pays that is not followed: `bystander` answers each line "CALL COUNT" with nanoseconds of CPU time of one
 * of them, those of its children included. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 64 };

static void *volatile kept;

static void on_signal(int number) { (void)number; }

static void allocate(void) {
    kept = malloc(SIZE);
    free(kept);
}

static void map(void) {
    kept = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(kept, PAGE);
}

static void ask(void) { syscall(SYS_getpid); }

static void fork_and_wait(void) {
    pid_t child = fork();
    if (!child) {
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
}

static void fault(void) {
    static char *page;
    if (!page) page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char *)page = 1;
    madvise(page, PAGE, MADV_DONTNEED);
}

static void signal_self(void) { raise(SIGUSR1); }

static const struct {
    const char *name;
    void (*call)(void);
} CALLS[] = {{"malloc", allocate}, {"mmap", map}, {"getpid", ask}, {"fork", fork_and_wait}, {"fault", fault}, {"signal", signal_self}};

static double cpu_ns(void) {
    struct timespec own;
    struct rusage children;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return own.tv_sec * 1e9 + own.tv_nsec + (children.ru_utime.tv_sec + children.ru_stime.tv_sec) * 1e9 +
           (children.ru_utime.tv_usec + children.ru_stime.tv_usec) * 1e3;
}

int main(void) {
    char name[32];
    long count;
    signal(SIGUSR1, on_signal);
    while (scanf("%31s %ld", name, &count) == 2) {
        for (size_t i = 0; i < sizeof(CALLS) / sizeof(CALLS[0]); i++) {
            if (strcmp(name, CALLS[i].name)) continue;
            double begun = cpu_ns();
            for (long done = 0; done < count; done++) CALLS[i].call();
            printf("%.2f\n", (cpu_ns() - begun) / count);
            fflush(stdout);
        }
    }
    return 0;
}
