/* storm BLOCKS [PER_SECOND]: that many blocks of 64 bytes, never freed, 100,000 a second unless said otherwise. */
#include "tally.h"

enum { SIZE = 64, BATCHES_PER_SECOND = 1000 };

int main(int count, char **arguments) {
    unsigned long blocks = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    unsigned long batch = (count > 2 ? strtoul(arguments[2], NULL, 10) : 100000) / BATCHES_PER_SECOND;
    Tally tally = { 0 };
    if (!blocks || !batch) return 2;
    say_ready();
    unsigned long long begun = now_ns(), due = begun;
    while (tally.allocs < blocks) {
        for (unsigned long i = 0; i < batch && tally.allocs < blocks; i++) took(&tally, malloc(SIZE), SIZE);
        due += 1000000000ULL / BATCHES_PER_SECOND;
        struct timespec until = { (time_t)(due / 1000000000ULL), (long)(due % 1000000000ULL) };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    say("{\"phase\": \"storm\", " TALLY ", \"ns\": %llu}", TALLY_VALUES(tally), now_ns() - begun);
    wait_for_step();
    return 0;
}
