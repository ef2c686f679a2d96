/* Recognises memory of a CUDA device in a process that has loaded CUDA, without linking it. The
 * driver is CUDA's cuPointerGetAttribute. */
#ifndef LIERNE_DEVICE_POINTER_H
#define LIERNE_DEVICE_POINTER_H

#include "runtime/memory/device.h"

extern const lierne_device_memory lierne_cuda_pointers;

#endif
