/* The kernels of the emulated device: those that lierne launches (kernels/), by their names in
 * place of addresses. KERNELS is a translation; tests build others of the same kernels, and broken
 * ones, as libraries that the emulator loads. */
#include "instructions.h"

#include KERNELS
