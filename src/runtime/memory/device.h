/* Recognising memory of a CUDA device in a process that has loaded CUDA, without linking it. */
#ifndef LIERNE_DEVICE_H
#define LIERNE_DEVICE_H

#include "base/base.h"

/* CUDA's cuPointerGetAttribute; NULL where the process has not loaded CUDA. */
typedef int lierne_device_query(void *data, int attribute, unsigned long long pointer);
lierne_device_query *lierne_device_query_find(void);

/* UNSUPPORTED for memory that only a device can read. query may be NULL. name: of the buffer. */
lierne_status lierne_device_reject(lierne_device_query *query, const void *buffer,
                                   const char *name);

#endif
