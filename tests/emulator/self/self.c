/* The emulated device, by kernels of known.ptx: what its instructions compute, and that each wrong
 * access ends the kernel with an error: out of bounds, misaligned, of memory that was not written,
 * in no order with another one. An error of a device stays, so each is in a process of its own;
 * what it prints is for people, and not shown here. Last line: N passed, N failed. */
#include "check.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1024 };

static unsigned char *allocate(bool defined) {
    void *memory = NULL;
    if (cudaMalloc(&memory, BYTES) != cudaSuccess ||
        (defined && cudaMemset(memory, 0, BYTES) != cudaSuccess) ||
        cudaDeviceSynchronize() != cudaSuccess) {
        printf("FAIL memory of the device\n");
        exit(1);
    }
    return memory;
}

static cudaStream_t create_stream(void) {
    cudaStream_t stream = NULL;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    return stream;
}

static cudaError_t launch(const char *kernel, unsigned threads, void *memory, cudaStream_t stream) {
    void *arguments[] = {&memory};
    return cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){threads, 1, 1}, arguments, 0, stream);
}

static void know_values(void) {
    static const uint64_t expected[] = {
        0xfffffffe,  0xfffffffffffffffe, 0xffffffffffffffff, 0x80000000,
        0x17ffffffb, 0x1ffffffff,        0x78563412fffffaff, 0x17ffffffff,
        0x40700000,  0x400c000000000000, 0x100000000,        0xffff00007856,
        10,          0x3c0400000,        0xfffffffe00000003,
    };
    uint64_t got[sizeof expected / sizeof *expected];
    void *memory = allocate(false);
    check(launch("known_values", 1, memory, NULL) == cudaSuccess, "a launch");
    check(cudaMemcpy(got, memory, sizeof got, cudaMemcpyDeviceToHost) == cudaSuccess, "a copy");
    for (size_t i = 0; i < sizeof got / sizeof *got; i++) {
        char text[80];
        snprintf(text, sizeof text, "value %zu is %#llx, not %#llx", i, (unsigned long long)got[i],
                 (unsigned long long)expected[i]);
        check(got[i] == expected[i], text);
    }
    check(cudaFree(memory) == cudaSuccess, "cudaFree");
}

/* Threads that meet at a barrier have what the others stored before it. */
static void know_barriers(void) {
    uint32_t got[2] = {0};
    void *memory = allocate(false);
    check(launch("known_meet", 2, memory, NULL) == cudaSuccess, "a launch");
    check(cudaMemcpy(got, memory, sizeof got, cudaMemcpyDeviceToHost) == cudaSuccess, "a copy");
    check(got[0] == 71 && got[1] == 70, "values of the other thread");
    check(cudaFree(memory) == cudaSuccess, "cudaFree");
}

/* Whether a scene, in a process of its own, leaves the device without an error. */
static bool is_right(bool (*scene)(const char *), const char *argument) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        _exit(scene(argument) ? 0 : 1);
    }
    waitpid(child, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) < 2, argument);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run_kernel(const char *kernel) {
    bool defined = strcmp(kernel, "known_undefined") != 0;
    return launch(kernel, 2, allocate(defined), NULL) == cudaSuccess &&
           cudaDeviceSynchronize() == cudaSuccess;
}

static bool load(const char *kernel) {
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess;
}

/* Data, and then a flag, on one stream; the other one waits for the flag and reads the data. All
 * are loaded before, because loading one waits for the device, and so for a kernel that waits. */
static bool meet(const char *setter, const char *waiter) {
    cudaStream_t streams[2] = {create_stream(), create_stream()};
    unsigned char *memory = allocate(true);
    bool right = load(waiter) && load("known_fill") && load(setter) &&
                 launch(waiter, 1, memory, streams[1]) == cudaSuccess &&
                 launch("known_fill", 1, memory, streams[0]) == cudaSuccess &&
                 launch(setter, 1, memory, streams[0]) == cudaSuccess;
    return right && cudaDeviceSynchronize() == cudaSuccess;
}

static bool meet_acquiring(const char *setter) {
    return meet(setter, "known_acquire");
}

static bool meet_peeking(const char *setter) {
    return meet(setter, "known_peek");
}

/* Two streams, without a flag, and with an event between them. */
static bool follow(const char *how) {
    cudaStream_t streams[2] = {create_stream(), create_stream()};
    unsigned char *memory = allocate(true);
    cudaEvent_t event = NULL;
    launch("known_fill", 1, memory, streams[0]);
    if (strcmp(how, "event") == 0) {
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        cudaEventRecord(event, streams[0]);
        cudaStreamWaitEvent(streams[1], event, 0);
    } else if (strcmp(how, "host") == 0) {
        cudaStreamSynchronize(streams[0]);
    }
    launch("known_fill", 1, memory, streams[1]);
    return cudaDeviceSynchronize() == cudaSuccess;
}

static bool copy_over(const char *how) {
    unsigned char *memory = allocate(true);
    size_t apart = strcmp(how, "apart") == 0 ? 64 : 32;
    return cudaMemcpy(memory + apart, memory, 64, cudaMemcpyDefault) == cudaSuccess;
}

static void fault(void) {
    static const char *const kernels[] = {"known_beyond",        "known_before",
                                          "known_misaligned",    "known_undefined",
                                          "known_two_stores",    "known_neighbours",
                                          "known_parameter",     "known_divided",
                                          "known_meet_late",     "known_shared_undefined",
                                          "known_shared_beyond", "known_meet_alone"};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        check(!is_right(run_kernel, kernels[i]), kernels[i]);
    }
    check(is_right(meet_acquiring, "known_release"), "a release and an acquire");
    check(is_right(meet_acquiring, "known_fenced"), "a fence before a store, and an acquire");
    check(!is_right(meet_acquiring, "known_relaxed"), "a store that releases nothing");
    check(!is_right(meet_peeking, "known_release"), "a load that acquires nothing");
    check(is_right(follow, "event"), "an event orders two streams");
    check(is_right(follow, "host"), "a host that waits orders two streams");
    check(!is_right(follow, "nothing"), "two streams without an order");
    check(is_right(copy_over, "apart"), "a copy");
    check(!is_right(copy_over, "overlapping"), "a copy onto itself");
}

/* The host has nothing at the device's address. */
static bool touch(const char *how) {
    return strcmp(how, "host") == 0 && allocate(true)[0] == 0;
}

static void crash(void) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        _exit(touch("host"));
    }
    waitpid(child, &status, 0);
    check(WIFSIGNALED(status), "a host that reads memory of the device crashes");
}

static void reject(void) {
    check(launch("no_kernel", 1, NULL, NULL) == cudaErrorInvalidDeviceFunction,
          "an unknown kernel");
    check(launch("known_values", 2, NULL, NULL) == cudaErrorInvalidConfiguration,
          "more threads than a kernel takes");
    check(cudaFree(&passed) == cudaErrorInvalidValue, "memory of the host is freed");
    check(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess,
          "an error of a call is found once");
    void *memory = allocate(false);
    cudaStream_t stream = create_stream();
    cudaGraph_t graph = NULL;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "a capture");
    check(cudaFree(memory) == cudaErrorStreamCaptureUnsupported, "cudaFree within a capture");
    check(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph,
          "a capture that is spoilt");
    check(cudaFree(memory) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess, "the end");
}

int main(void) {
    fault(); /* before this process has streams, which a fork would lack */
    crash();
    know_values();
    know_barriers();
    reject();
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
