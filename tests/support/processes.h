/* Programs that start processes: checks with a place, memory that parent and children share, and
 * waits that end. */
#ifndef LIERNE_TESTS_PROCESSES_H
#define LIERNE_TESTS_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Counts a check, and prints the message of one that fails. */
#define CHECK(ok, ...) process_check((ok), __FILE__, __LINE__, __VA_ARGS__)
bool process_check(bool ok, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Prints "N passed, N failed"; returns the exit status of the program. */
int process_counts(void);

/* Zeroed memory that children share, which ends with the program. */
void *process_share(size_t bytes);
/* Whether a child ends within these seconds, and how (waitpid), unless status is NULL; kills one
 * that does not. */
bool process_await(pid_t pid, double seconds, int *status);

#endif
