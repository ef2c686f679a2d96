/* Reading the private memory of another process of this machine. */
#ifndef LIERNE_PULL_H
#define LIERNE_PULL_H

#include "runtime/transport/transport.h"

#include <sys/types.h>

/* Copies from parts of another process, whose bases are addresses there, into own parts with as
 * many bytes, however they are cut. Returns 0, or an errno: the process has ended (ESRCH), the
 * memory is gone (EFAULT), the system does not allow it (EPERM, ENOSYS). */
int lierne_pull(pid_t process, const lierne_part *to, size_t nto, const lierne_part *from,
                size_t nfrom);

#endif
