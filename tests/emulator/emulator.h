/* Between translated kernels and the emulated device that runs them. A thread of a kernel is a call
 * of a function; the threads of a launch run one after another, in an order drawn at random. Where
 * they meet at a barrier, each returns there, with its registers in memory, and is called again
 * when all have come to the same one. */
#ifndef LIERNE_TESTS_EMULATOR_H
#define LIERNE_TESTS_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

typedef struct emulator_thread {
    uint32_t thread, threads, block, blocks;
    uint32_t number;           /* 1 + its number among the threads of the launch */
    unsigned char *parameters; /* of the launch */
    unsigned char *local;      /* its own memory */
    size_t parameter_bytes, local_bytes;
    uint32_t barrier;               /* at which it waits; 0: at none */
    void *registers;                /* of a thread of a kernel with barriers */
    struct emulator_shared *shared; /* memory of its block */
    uint64_t loads, stores;         /* of global memory, of the launch so far */
    uint64_t instructions;          /* about as many as a processor executes for them */
    struct CUstream_st *stream;     /* that the launch is on */
    const char *kernel;
} emulator_thread;

#define EMULATOR_LOCAL 1024 /* most bytes of local memory */

/* Where a parameter lies among the parameters of its kernel. */
typedef struct emulator_span {
    uint32_t offset, bytes;
} emulator_span;

typedef struct emulator_entry {
    const char *name; /* NULL: after the last entry */
    void (*run)(emulator_thread *t);
    const emulator_span *parameters;
    uint32_t nparameters, parameter_bytes, local_bytes;
    uint32_t threads; /* most of a block */
    uint32_t shared_bytes, register_bytes;
} emulator_entry;

/* Of a set of translated kernels. */
extern const emulator_entry emulator_entries[];

/* Ends the kernel, and leaves an error in the device, as an illegal access does. */
_Noreturn void emulator_fault(const emulator_thread *t, const char *what, uint64_t address,
                              size_t bytes);
/* The host's address of bytes that a thread loads or stores. Each access is checked: it is within
 * one allocation, aligned, of memory that was written, and ordered with the accesses of other
 * threads and streams to the same bytes. */
void *emulator_global(emulator_thread *t, uint64_t address, size_t bytes, bool store);
/* The same for the parameters of the launch, and for memory of one thread. */
void *emulator_param(emulator_thread *t, uint64_t address, size_t bytes, bool store);
void *emulator_local_at(emulator_thread *t, uint64_t address, size_t bytes, bool store);
/* Of the block: it is also checked that threads meet at a barrier between a store and other
 * accesses to the same bytes. */
void *emulator_shared_at(emulator_thread *t, uint64_t address, size_t bytes, bool store);
uint64_t emulator_parameter(emulator_thread *t, size_t offset);
uint64_t emulator_local(emulator_thread *t);
/* Loads and stores of global memory by all kernels, a vector as one, about as many instructions as
 * a processor executes (ptx2c.py), and streams that were created, since the last call. */
typedef struct emulator_counts {
    uint64_t loads, stores, instructions, streams;
} emulator_counts;
emulator_counts emulator_take_counts(void);
/* Accesses by which threads of several launches meet. */
typedef enum emulator_order { EMULATOR_RELAXED, EMULATOR_ORDERED } emulator_order;
uint64_t emulator_load(emulator_thread *t, uint64_t address, size_t bytes, emulator_order order);
void emulator_store(emulator_thread *t, uint64_t address, size_t bytes, emulator_order order,
                    uint64_t value);
void emulator_fence(emulator_thread *t);
uint64_t emulator_nanoseconds(void);
void emulator_pause(void);

#endif
