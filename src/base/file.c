/* The limit on the size of files (RLIMIT_FSIZE, ulimit -f) holds for shared memory without a name,
 * too, and what grows a file beyond it is not an error but a signal, which ends the process. So
 * the library asks before. */
#include "base/base.h"

#include <sys/resource.h>

bool lierne_file_may_have(uint64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}
