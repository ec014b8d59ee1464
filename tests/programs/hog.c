/* hog STEP_MIB PERIOD_MS SIZE_MIB: takes STEP_MIB more memory every PERIOD_MS until it has SIZE_MIB, then keeps it.

The steps are due at fixed times, so that a slow machine does not change the rate. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	size_t step = (size_t)atoi(argv[1]) << 20, size = (size_t)atoi(argv[3]) << 20;
	long period = atol(argv[2]) * 1000000;
	struct timespec due;

	clock_gettime(CLOCK_MONOTONIC, &due);
	for (size_t held = 0; held < size; held += step) {
		char *memory = malloc(step);
		if (!memory)
			return 3;
		memset(memory, 0xa5, step);
		due.tv_nsec += period;
		due.tv_sec += due.tv_nsec / 1000000000;
		due.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
	}
	for (;;)
		pause();
}
