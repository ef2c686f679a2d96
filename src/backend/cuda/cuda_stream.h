/* CUDA streams, for calls on one. */
#ifndef LIERNE_CUDA_STREAM_H
#define LIERNE_CUDA_STREAM_H

#include "runtime/execute/stream.h"

extern const lierne_stream_driver lierne_cuda_stream_driver;

#endif
