/* A library that crashes, below a function of its own that no other file sees. */
__attribute__((noinline)) static int libcrash_read(const char *text) {
    return *(const volatile char *)text;
}

int libcrash_count;

void libcrash_parse(const char *text) {
    libcrash_count += libcrash_read(text);
}
