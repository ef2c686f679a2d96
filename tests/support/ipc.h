/* Windows between processes of a node without a GPU: a device that is played on the host. Its
 * windows are shared memory, its flags are the kernel's own text compiled for the host, and its
 * memory records work (tasks.h). */
#ifndef LIERNE_TESTS_IPC_H
#define LIERNE_TESTS_IPC_H

#include "backend/cuda/ipc_context.h"
#include "runtime/execute/stream.h"

extern const lierne_ipc_driver test_ipc_driver;
/* Chunks of windows that are mapped, or not freed, in this process. */
int test_ipc_live(void);
/* Of them those that were freed where a peer might still have had them mapped. */
int test_ipc_unquiet(void);
/* How often this thread has written to a window from the host, as for each new mailbox. */
int test_ipc_writes(void);
/* Makes the k-th opening of a peer's chunk from now on fail (0: none). */
void test_ipc_fail_open(int k);

/* Makes a context one for the memory of that device, whose streams carry out at once what is
 * enqueued: any pointer is one. Collective. */
lierne_status test_ipc_use(lierne_context *context);
/* The same with streams that are threads (device_streams.h). */
lierne_status test_ipc_use_streams(lierne_context *context);
extern const lierne_ipc_driver test_ipc_stream_driver;

#endif
