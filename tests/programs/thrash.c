/* thrash FILE TOUCHES: reads so many single bytes all over a mapped file: major faults, where it does not fit.
   thrash FILE SECONDS code: the same for so many seconds, of a file that is mapped as programs are.
   thrash MIB SECONDS own: the same, with memory of its own that is written to: it goes to swap and comes back. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile char *map_file(const char *path, int protection, size_t *size)
{
	struct stat status;
	int file = open(path, O_RDONLY);

	if (file < 0 || fstat(file, &status))
		exit(2);
	*size = status.st_size;
	return mmap(NULL, *size, protection, MAP_SHARED, file, 0);
}

static uint64_t place = 88172645463325252;

static uint64_t next_place(void)
{
	place ^= place << 13;
	place ^= place >> 7;
	return place ^= place << 17;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	volatile char *map;
	size_t size;

	if (argc == 3) {
		map = map_file(argv[1], PROT_READ, &size);
	} else if (argc == 4 && !strcmp(argv[3], "code")) {
		map = map_file(argv[1], PROT_READ | PROT_EXEC, &size);
	} else if (argc == 4 && !strcmp(argv[3], "own")) {
		size = (size_t)atoi(argv[1]) << 20;
		map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	} else {
		return 2;
	}
	if (map == MAP_FAILED)
		return 3;
	uint64_t pages = size / 4096;
	if (argc == 3) {
		for (int left = atoi(argv[2]); left > 0; left--)
			map[next_place() % pages * 4096];
		return 0;
	}
	int writes = !strcmp(argv[3], "own");
	place += getpid(); /* several of them go different ways */
	for (double end = now() + atof(argv[2]); now() < end;) {
		volatile char *byte = map + next_place() % pages * 4096;
		if (writes)
			*byte = 1;
		else
			*byte;
	}
	return 0;
}
