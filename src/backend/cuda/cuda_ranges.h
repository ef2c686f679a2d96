/* Ranges of calls for profilers (NVTX). */
#ifndef LIERNE_CUDA_RANGES_H
#define LIERNE_CUDA_RANGES_H

#include "runtime/execute/stream.h"

/* Whether the headers of NVTX were there when this was compiled. */
extern const bool lierne_cuda_has_ranges;
/* NULL where no tool is attached. */
const lierne_ranges *lierne_cuda_find_ranges(void);

#endif
