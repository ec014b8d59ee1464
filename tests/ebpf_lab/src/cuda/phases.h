/* The phases of the program `cuda`. */
#ifndef LAB_CUDA_PHASES_H
#define LAB_CUDA_PHASES_H

#include "../tally.h"
#include "driver.h"

enum { MOST_TALLIED = 256 };

typedef struct { CUstream first, second, third, non_blocking; } Streams;

/* Ends the program unless the call succeeded. */
static inline void must(CUresult code) {
    if (code) _exit(2);
}

void memory_phases(const Streams *streams); /* memory_phases.c */
void write_phases(const Streams *streams);  /* write_phases.c */

#endif
