/* How memory of a device is recognised in a process that has loaded the device's driver, by code
 * that does not link it. */
#ifndef LIERNE_DEVICE_H
#define LIERNE_DEVICE_H

#include "base/base.h"

typedef struct lierne_device_memory {
    /* What reject asks; NULL where the process has not loaded the driver. */
    void *(*find_driver)(void);
    /* UNSUPPORTED for memory that only a device can read. name: of the buffer. */
    lierne_status (*reject)(void *driver, const void *buffer, const char *name);
} lierne_device_memory;

#endif
