/* crash KIND [DELAY_MS]: crashes in the function crash_KIND, that long after it was told to. `handled` survives, and
 * says so. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "lab.h"

void libcrash_parse(const char *text); /* of libcrash.so */

typedef void Function(void);

static sigjmp_buf survived;

NOINLINE void crash_null_read(void) {
    (void)*(volatile int *)0;
}

NOINLINE void crash_null_write(void) {
    *(volatile int *)8 = 1;
}

NOINLINE void crash_wild_write(void) {
    *(volatile int *)0xdeadbeef0 = 1;
}

NOINLINE void crash_read_only_write(void) {
    static const char TEXT[] = "constant";
    *(volatile char *)(size_t)TEXT = 1;
}

/* The CPU refuses such an address with a general protection fault, which tells no address. */
NOINLINE void crash_noncanonical(void) {
    *(volatile int *)0xdeadbeefdeadbeef = 1;
}

NOINLINE void crash_exec_null(void) {
    ((Function *volatile)NULL)();
}

NOINLINE void crash_exec_data(void) {
    static char data[16];
    Function *volatile function = (Function *)(size_t)data;
    function();
}

NOINLINE int crash_stack_overflow_deeper(int depth) {
    volatile char frame[4096];
    frame[0] = (char)depth;
    return depth < 0 ? 0 : crash_stack_overflow_deeper(depth + 1) + frame[0];
}

NOINLINE void crash_stack_overflow(void) {
    crash_stack_overflow_deeper(0);
}

NOINLINE void crash_abort(void) {
    abort();
}

NOINLINE void crash_double_free(void) {
    char *volatile block = malloc(32);
    free(block);
    free(block);
}

NOINLINE void crash_raise(void) {
    raise(SIGSEGV);
}

NOINLINE void crash_bus(void) {
    int empty = memfd_create("empty", 0);
    volatile char *beyond = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
    beyond[0] = 1;
}

NOINLINE void crash_division(void) {
    volatile int some = 7, zero = 0;
    some /= zero;
}

NOINLINE void crash_illegal(void) {
    __asm__ volatile("ud2");
}

static void jump_back(int signal) {
    siglongjmp(survived, signal);
}

NOINLINE void crash_handled(void) {
    signal(SIGSEGV, jump_back);
    if (!sigsetjmp(survived, 1)) *(volatile int *)8 = 1;
    say("{\"phase\": \"survived\"}");
    wait_for_step();
}

static void raise_again(int number) {
    signal(number, SIG_DFL);
    raise(number);
}

NOINLINE void crash_reraised(void) {
    signal(SIGSEGV, raise_again);
    *(volatile int *)8 = 1;
}

static void *crash_in_thread(void *argument) {
    pthread_setname_np(pthread_self(), "tokio-runtime-w");
    *(volatile int *)8 = 1;
    return argument;
}

NOINLINE void crash_thread(void) {
    pthread_t thread;
    if (!pthread_create(&thread, NULL, crash_in_thread, NULL)) pthread_join(thread, NULL);
}

NOINLINE void crash_library(void) {
    libcrash_parse(NULL);
}

#define KIND(name) { #name, crash_##name }
static const struct { const char *name; Function *crash; } KINDS[] = {
    KIND(null_read), KIND(null_write),     KIND(wild_write), KIND(read_only_write), KIND(noncanonical),
    KIND(exec_null), KIND(exec_data),      KIND(abort),      KIND(double_free),     KIND(stack_overflow),
    KIND(raise),     KIND(bus),            KIND(division),   KIND(illegal),         KIND(handled),
    KIND(reraised),  KIND(thread),         KIND(library),
};

int main(int count, char **arguments) {
    useconds_t delay_ms = count > 2 ? (useconds_t)atoi(arguments[2]) : 0;
    for (size_t i = 0; count > 1 && i < sizeof KINDS / sizeof *KINDS; i++) {
        if (strcmp(KINDS[i].name, arguments[1])) continue;
        say_ready();
        usleep(delay_ms * 1000);
        KINDS[i].crash();
        return 0;
    }
    return 2;
}
