/* thrash FILE TOUCHES: reads so many single bytes all over a mapped file: major faults, where it does not fit. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	struct stat status;
	int file = argc == 3 ? open(argv[1], O_RDONLY) : -1;

	if (file < 0 || fstat(file, &status))
		return 2;
	volatile const char *map = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, file, 0);
	if (map == MAP_FAILED)
		return 3;
	uint64_t pages = status.st_size / 4096, place = 88172645463325252;
	for (int left = atoi(argv[2]); left > 0; left--) {
		place ^= place << 13;
		place ^= place >> 7;
		place ^= place << 17;
		map[place % pages * 4096];
	}
	return 0;
}
