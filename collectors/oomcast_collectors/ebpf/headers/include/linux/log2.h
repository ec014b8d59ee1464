#define roundup_pow_of_two(n) ((n) <= 1 ? 1 : 1U << (32 - __builtin_clz((n) - 1)))
