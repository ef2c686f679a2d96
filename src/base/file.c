/* The limit on the size of files (RLIMIT_FSIZE, ulimit -f) holds for shared memory without a name,
 * too, and what grows a file beyond it is not an error but a signal, which ends the process. So
 * the library asks before. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

bool lierne_file_may_have(uint64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

int lierne_file_create(const char *path) {
    unlink(path);
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

int lierne_file_append(const char *path) {
    struct stat file;
    int opened = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (opened >= 0 &&
        (fstat(opened, &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid())) {
        close(opened);
        errno = EACCES;
        return -1;
    }
    return opened;
}
