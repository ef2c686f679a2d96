/* lierne run: the program that needs MPI is a separate one beside this one, so that everything else
 * works where there is no MPI. */
#include "tool.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static const char program[] = "lierne-run";

int tool_run(int argc, char **argv) {
    char path[PATH_MAX + sizeof program];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    (void)argc;
    if (length < 0) {
        tool_say(argv, "cannot find this program: %s", strerror(errno));
        return TOOL_USAGE;
    }
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, program);
    execv(path, argv);
    tool_say(argv, "cannot execute %s: %s; it is built where mpicc is found", path,
             strerror(errno));
    return TOOL_USAGE;
}
