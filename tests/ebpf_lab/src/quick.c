/* Ends as soon as it is told to. */
#include "lab.h"

int main(void) {
    say_ready();
    _exit(0);
}
