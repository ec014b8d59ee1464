/* forks [CHILDREN]: children that allocate, in the ways a process can come by them.
 *   parent     allocates itself, before any child
 *   forked     CHILDREN exist and wait      allocated  each allocated, all wait      exited  all are gone
 *   burst      CHILDREN are forked, allocate and exit, with no pause
 *   execed     one child executes this program again and waits, then as above: exec_allocated, exec_exited
 * "child" is what each of them allocates; "children" are their pids. */
#include <string.h>
#include <sys/wait.h>

#include "tally.h"

enum { MOST_CHILDREN = 64, PARENT_BLOCKS = 100, CHILD_BLOCKS = 70, SIZE = 1000 };

/* Pipes. A child waits for a byte in `starts` to allocate, says so in `answers`, and waits for one in `ends` to exit:
 * with one pipe for both it could take the order that another has not read yet. */
static int starts[2], ends[2], answers[2];
static int children;
static pid_t pids[MOST_CHILDREN];
static Tally tally;

static void allocate(int blocks) {
    for (int i = 0; i < blocks; i++) took(&tally, malloc(SIZE), SIZE);
}

static void obey(void) {
    char order;
    if (read(starts[0], &order, 1) != 1) _exit(1);
    allocate(CHILD_BLOCKS);
    if (write(answers[1], "a", 1) != 1 || read(ends[0], &order, 1) != 1) _exit(1);
    _exit(0);
}

static void order(const int pipe[2], int count) {
    for (int i = 0; i < count; i++)
        if (write(pipe[1], "o", 1) != 1) _exit(2);
}

static void await_answers(int count) {
    char answer;
    for (int i = 0; i < count; i++)
        if (read(answers[0], &answer, 1) != 1) _exit(2);
}

static void await_ends(int count) {
    int status;
    for (int i = 0; i < count; i++)
        if (waitpid(pids[i], &status, 0) != pids[i] || status) _exit(2);
}

static void say_children(const char *phase, int count) {
    char list[1024] = "";
    int length = 0;
    for (int i = 0; i < count; i++)
        length += snprintf(list + length, sizeof list - (size_t)length, "%s%d", i ? ", " : "", pids[i]);
    say("{\"phase\": \"%s\", " TALLY ", \"children\": [%s], \"child\": {\"allocs\": %d, \"bytes\": %d}}", phase,
        TALLY_VALUES(tally), list, CHILD_BLOCKS, CHILD_BLOCKS * SIZE);
    wait_for_step();
}

static void fork_one(int i, char **execute) {
    pids[i] = fork();
    if (pids[i] < 0) _exit(2);
    if (pids[i]) return;
    close(0);
    close(starts[1]); /* so that the parent's death ends a child that waits */
    close(ends[1]);
    if (!execute) obey();
    execv(execute[0], execute);
    _exit(127);
}

static void lead(int count, const char *allocated, const char *exited) {
    order(starts, count);
    await_answers(count);
    say_children(allocated, count);
    order(ends, count);
    await_ends(count);
    say_children(exited, count);
}

static void burst(void) {
    for (int i = 0; i < children; i++) {
        pids[i] = fork();
        if (pids[i] < 0) _exit(2);
        if (pids[i]) continue;
        allocate(CHILD_BLOCKS);
        _exit(0);
    }
    await_ends(children);
    say_children("burst", children);
}

static void execute(char *program) {
    char start[16], end[16], answer[16];
    snprintf(start, sizeof start, "%d", starts[0]);
    snprintf(end, sizeof end, "%d", ends[0]);
    snprintf(answer, sizeof answer, "%d", answers[1]);
    fork_one(0, (char *[]){ program, "obey", start, end, answer, NULL });
    await_answers(1); /* it is there once the new program says so */
    say_children("execed", 1);
    lead(1, "exec_allocated", "exec_exited");
}

int main(int count, char **arguments) {
    if (count == 5 && !strcmp(arguments[1], "obey")) {
        starts[0] = atoi(arguments[2]);
        ends[0] = atoi(arguments[3]);
        answers[1] = atoi(arguments[4]);
        if (write(answers[1], "h", 1) != 1) _exit(1);
        obey();
    }
    children = count > 1 ? atoi(arguments[1]) : 1;
    if (children < 1 || children > MOST_CHILDREN || pipe(starts) || pipe(ends) || pipe(answers)) return 2;
    say_ready();
    allocate(PARENT_BLOCKS);
    say_children("parent", 0);
    for (int i = 0; i < children; i++) fork_one(i, NULL);
    say_children("forked", children);
    lead(children, "allocated", "exited");
    burst();
    execute(arguments[0]);
    return 0;
}
