/* bench COUNT [SIZE]: how long a malloc and its free take, the best of 5 rounds of COUNT pairs and their mean. Again at every step. */
#include "lab.h"

enum { ROUNDS = 5 };

static double round_ns(long pairs, size_t size) {
    unsigned long long begun = now_ns();
    for (long i = 0; i < pairs; i++) {
        void *block = malloc(size);
        *(volatile char *)block = 1;
        free(block);
    }
    return (double)(now_ns() - begun) / (double)pairs;
}

int main(int count, char **arguments) {
    long pairs = count > 1 ? atol(arguments[1]) : 1000000;
    size_t size = count > 2 ? strtoul(arguments[2], NULL, 10) : 64;
    if (pairs <= 0 || !size) return 2;
    say_ready();
    for (;;) {
        double best = round_ns(pairs, size), all = best;
        for (int i = 1; i < ROUNDS; i++) {
            double ns = round_ns(pairs, size);
            all += ns;
            if (ns < best) best = ns;
        }
        say("{\"phase\": \"bench\", \"pairs\": %ld, \"ns_per_pair\": %.2f, \"mean_ns_per_pair\": %.2f}", pairs * ROUNDS, best,
            all / ROUNDS);
        wait_for_step();
    }
}
