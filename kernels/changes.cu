/* A block of threads per piece of a delta: what changed on the sender, and making it on the
 * receiver (runtime/memory/change.h). What comes between the barriers is decided by all threads of
 * a block alike. The host reads the slots when the stream has passed. */
#include "backend/cuda/launch_changes.h"

/* count, then list or make; a piece is read before its form is replaced. */
#define RUN_CHANGES(name, count_part, use_part)                                                    \
    extern "C" __global__ void __launch_bounds__(LIERNE_CHANGE_THREADS, LIERNE_CHANGE_BLOCKS)      \
        lierne_run_##name(const __grid_constant__ lierne_change_call call) {                       \
        __shared__ lierne_change_counts counts;                                                    \
        const int thread = (int)threadIdx.x;                                                       \
        for (int64_t number = blockIdx.x; number < call.npieces; number += gridDim.x) {            \
            const lierne_change_piece piece = call.pieces[number];                                 \
            count_part(&counts, &call, &piece, thread, LIERNE_CHANGE_THREADS);                     \
            __syncthreads();                                                                       \
            lierne_change_add_up(&counts, thread, LIERNE_CHANGE_THREADS);                          \
            __syncthreads();                                                                       \
            use_part;                                                                              \
            __syncthreads();                                                                       \
        }                                                                                          \
    }

RUN_CHANGES(find_changes, lierne_change_count,
            lierne_change_list(&counts, &call, &piece, thread, LIERNE_CHANGE_THREADS,
                               &call.pieces[number]))
RUN_CHANGES(make_changes, lierne_change_count_map,
            lierne_change_make(&counts, &call, &piece, thread, LIERNE_CHANGE_THREADS))

const void *const lierne_find_changes_kernel = (const void *)lierne_run_find_changes;
const void *const lierne_make_changes_kernel = (const void *)lierne_run_make_changes;
