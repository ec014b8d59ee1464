/* crash HOW: dies of a fault of that kind. */
#include <string.h>

int main(int argc, char **argv)
{
	const char *how = argc == 2 ? argv[1] : "";

	if (!strcmp(how, "write"))
		*(volatile int *)0xdead0 = 1;
	/* No canonical address: a general protection fault instead of a page fault. */
	if (!strcmp(how, "protection"))
		*(volatile int *)0xdeadbeefdeadbeef = 1;
	if (!strcmp(how, "instruction"))
		__builtin_trap();
	return 2;
}
