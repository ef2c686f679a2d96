/* The device itself: what the environment says of it, its errors, and the calls that concern a
 * thread and no stream. */
#include "internal.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

emulator_settings emulator;
pthread_mutex_t emulator_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t emulator_ended = PTHREAD_COND_INITIALIZER;
static _Atomic(cudaError_t) broken;
static atomic_uint peers[EMULATOR_MOST_DEVICES];
static _Thread_local int device;
static _Thread_local cudaError_t last;

static int setting(const char *name, int otherwise) {
    char full[64];
    snprintf(full, sizeof full, "EMULATOR_%s", name);
    const char *value = getenv(full);
    return value ? atoi(value) : otherwise;
}

static __attribute__((constructor)) void read_settings(void) {
    emulator = (emulator_settings){.devices = setting("DEVICES", 1),
                                   .connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS")
                                                      ? atoi(getenv("CUDA_DEVICE_MAX_CONNECTIONS"))
                                                      : 0,
                                   .check = setting("CHECK", 1),
                                   .seed = setting("SEED", 1),
                                   .delay = setting("DELAY", 0),
                                   .descriptors = setting("DESCRIPTORS", 1),
                                   .pools = setting("POOLS", 1),
                                   .sm = setting("SM", 100)};
}

/* Each thread has numbers of its own, the same in each run. */
unsigned emulator_draw(unsigned n) {
    static atomic_ullong threads;
    static _Thread_local unsigned long long state;
    if (state == 0) {
        state = (atomic_fetch_add(&threads, 1) + 1) * 0x9e3779b97f4a7c15u +
                (unsigned long long)emulator.seed * 0x2545f4914f6cdd1du + 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % n;
}

void emulator_say(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "emulated device: %s\n", text);
}

void emulator_break(cudaError_t error) {
    cudaError_t none = cudaSuccess;
    atomic_compare_exchange_strong(&broken, &none, error);
}

cudaError_t emulator_broken(void) {
    return atomic_load(&broken);
}

cudaError_t emulator_result(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        last = error;
    }
    return error;
}

cudaError_t emulator_ready(void) {
    return emulator.devices == 0 ? cudaErrorNoDevice : emulator_broken();
}

cudaError_t emulator_ready_outside_captures(void) {
    cudaError_t error = emulator_ready();
    return error == cudaSuccess && emulator_capture_forbids() ? cudaErrorStreamCaptureUnsupported
                                                              : error;
}

int emulator_device(void) {
    return device;
}

bool emulator_accesses(int one, int other) {
    return one == other || atomic_load(&peers[one]) >> other & 1;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last;
    last = cudaSuccess;
    return emulator_broken() ? emulator_broken() : error;
}

const char *cudaGetErrorName(cudaError_t error) {
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "emulated error %d", (int)error);
    return text;
}

const char *cudaGetErrorString(cudaError_t error) {
    return cudaGetErrorName(error);
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = emulator.devices;
    return emulator_result(emulator.devices ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *current) {
    EMULATOR_TRY(emulator_ready());
    *current = device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int wanted) {
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(wanted >= 0 && wanted < emulator.devices ? cudaSuccess : cudaErrorInvalidDevice);
    device = wanted;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int wanted) {
    EMULATOR_TRY(wanted >= 0 && wanted < emulator.devices ? cudaSuccess : cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "emulated device");
    properties->major = emulator.sm / 10;
    properties->minor = emulator.sm % 10;
    properties->unifiedAddressing = 1;
    properties->totalGlobalMem = (size_t)1 << 30;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    (void)flags;
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(peer >= 0 && peer < emulator.devices ? cudaSuccess : cudaErrorInvalidDevice);
    return emulator_result(atomic_fetch_or(&peers[device], 1u << peer) >> peer & 1
                               ? cudaErrorPeerAccessAlreadyEnabled
                               : cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void) {
    EMULATOR_TRY(emulator_ready_outside_captures());
    emulator_wait_device(device);
    return emulator_result(emulator_broken());
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = emulator.devices ? CUDART_VERSION : 0;
    return cudaSuccess;
}

/* The emulator is the driver's library, too. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    (void)version, (void)flags;
    *function = dlsym(RTLD_DEFAULT, symbol);
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
