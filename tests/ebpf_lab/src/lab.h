/* What the programs share: phases that are steered over stdin, and a line of JSON for each over stdout. Neither read()
 * nor vsnprintf() into an array allocates, so a program allocates what it says and nothing else. */
#ifndef LAB_H
#define LAB_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

/* Returns at the next newline. Ends the program when nobody is left to send one. */
static inline void wait_for_step(void) {
    char byte;
    if (read(0, &byte, 1) != 1) _exit(0);
}

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...) {
    char line[4096];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line - 1, format, values);
    va_end(values);
    if (length < 0 || length >= (int)sizeof line - 1) _exit(2);
    line[length] = '\n';
    if (write(1, line, (size_t)length + 1) != length + 1) _exit(2);
}

static inline void say_ready(void) {
    say("{\"phase\": \"ready\", \"pid\": %d}", getpid());
    wait_for_step();
}

/* The clock of bpf_ktime_get_ns(). */
static inline unsigned long long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (unsigned long long)time.tv_sec * 1000000000ULL + (unsigned long long)time.tv_nsec;
}

#endif
