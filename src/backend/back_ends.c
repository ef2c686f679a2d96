/* All back ends of this version, a line each, whether or not a process has their libraries:
 * LIERNE_TRANSPORTS may name any of them. Nothing here but data, so that the core can read the list
 * and no object needs the other in a circle. */
#include "backend/cuda/device_pointer.h"
#include "runtime/context/back_end.h"

const lierne_back_end lierne_back_ends[] = {
    {.name = "self", .transport = "self"},
    {.name = "sim", .transport = "sim"},
    {.name = "shm", .transport = "shm", .priority = 1},
    {.name = "mpi", .transport = "mpi"},
    {.name = "oob", .transport = "oob"},
    {.name = "node", .transport = "socket"},
    {.name = "nccl", .transport = "nccl", .priority = 3},
    {.name = "cuda", .transport = "ipc", .priority = 2, .device_memory = &lierne_cuda_pointers},
    {.name = NULL},
};
