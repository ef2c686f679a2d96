/* The flags by which the two ends of a message meet, and the steps that wait for them and set them.
 * On a device a step is a kernel of one small block; the host's compiler makes functions of the
 * same text, which the tests run.
 *
 * A flag is 0 while a mailbox is empty, and the call's key while it is full. The sender fills only
 * an empty mailbox, the receiver empties only a full one. Nothing else is counted, so that a step
 * can be repeated as it is.
 *
 * A rank whose step fails marks its window as broken before anything there can change, and a
 * receiver looks at the mark after it has copied: what it took was then whole. This is the order of
 * a seqlock. */
#ifndef LIERNE_IPC_FLAGS_H
#define LIERNE_IPC_FLAGS_H

#include <stdint.h>

#define LIERNE_IPC_FLAGS 64 /* of a step, which must fit into the arguments of a kernel */
#define LIERNE_IPC_POLLS                                                                           \
    64 /* of a flag, between looks at what ends a wait: far memory of a device */

/* What ended a step; the first one in a context stays. */
enum {
    LIERNE_IPC_LATE = 1,    /* the peer has not changed the flag in time */
    LIERNE_IPC_GAVE_UP = 2, /* the peer has failed */
    LIERNE_IPC_ABORTED = 3  /* this rank's host ended it */
};

/* In memory that host and device both read and write. */
typedef struct lierne_ipc_words {
    uint64_t failure; /* 0, or one of the above plus 4 times the peer */
    uint32_t abort;   /* the host wants every step to end */
} lierne_ipc_words;

typedef struct lierne_ipc_flag {
    uint32_t *at;
    const uint32_t *broken; /* of the peer's window */
    uint32_t value;         /* to wait for, or to set */
    int32_t peer;
} lierne_ipc_flag;

typedef struct lierne_ipc_step {
    lierne_ipc_flag flags[LIERNE_IPC_FLAGS];
    uint32_t *broken; /* of this rank's window */
    lierne_ipc_words *words;
    uint64_t nanoseconds; /* that it waits at most */
    int32_t n;
    int32_t waits; /* else it sets */
} lierne_ipc_step;

#ifdef __CUDACC__
#define LIERNE_IPC_INLINE static __device__ __forceinline__

LIERNE_IPC_INLINE uint32_t lierne_ipc_load(const uint32_t *at) {
    uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

LIERNE_IPC_INLINE uint32_t lierne_ipc_peek(const uint32_t *at) {
    uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

LIERNE_IPC_INLINE void lierne_ipc_store(uint32_t *at, uint32_t value) {
    asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
}

LIERNE_IPC_INLINE uint64_t lierne_ipc_load_failure(const uint64_t *at) {
    uint64_t value;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

LIERNE_IPC_INLINE void lierne_ipc_store_failure(uint64_t *at, uint64_t value) {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
}

LIERNE_IPC_INLINE uint64_t lierne_ipc_nanoseconds(void) {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

LIERNE_IPC_INLINE void lierne_ipc_pause(void) {
    __nanosleep(200);
}
#else
#include <sched.h>
#include <time.h>
#define LIERNE_IPC_INLINE static inline

LIERNE_IPC_INLINE uint32_t lierne_ipc_load(const uint32_t *at) {
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

LIERNE_IPC_INLINE uint32_t lierne_ipc_peek(const uint32_t *at) {
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

LIERNE_IPC_INLINE void lierne_ipc_store(uint32_t *at, uint32_t value) {
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}

LIERNE_IPC_INLINE uint64_t lierne_ipc_load_failure(const uint64_t *at) {
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

LIERNE_IPC_INLINE void lierne_ipc_store_failure(uint64_t *at, uint64_t value) {
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}

LIERNE_IPC_INLINE uint64_t lierne_ipc_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

LIERNE_IPC_INLINE void lierne_ipc_pause(void) {
    sched_yield();
}
#endif

/* Flags of one step may fail at once: each of their reasons is right. */
LIERNE_IPC_INLINE void lierne_ipc_fail(const lierne_ipc_step *s, uint64_t reason, int32_t peer) {
    lierne_ipc_store(s->broken, 1);
    if (lierne_ipc_load_failure(&s->words->failure) == 0) {
        lierne_ipc_store_failure(&s->words->failure, reason + 4 * (uint64_t)peer);
    }
}

/* Why a wait for a flag must end; 0: it goes on. */
LIERNE_IPC_INLINE uint64_t lierne_ipc_reason(const lierne_ipc_step *s, const lierne_ipc_flag *f,
                                             uint64_t start) {
    if (lierne_ipc_load(&s->words->abort) || lierne_ipc_load_failure(&s->words->failure)) {
        return LIERNE_IPC_ABORTED;
    }
    if (lierne_ipc_load(f->broken)) {
        return LIERNE_IPC_GAVE_UP;
    }
    return lierne_ipc_nanoseconds() - start > s->nanoseconds ? LIERNE_IPC_LATE : 0;
}

/* Polls have no order, which each of them would pay for; the last load has it. */
LIERNE_IPC_INLINE void lierne_ipc_await(const lierne_ipc_step *s, int32_t i) {
    const lierne_ipc_flag *f = &s->flags[i];
    uint64_t start = lierne_ipc_nanoseconds(), reason = 0;
    uint32_t polls = 0;
    while (reason == 0 && lierne_ipc_peek(f->at) != f->value) {
        lierne_ipc_pause();
        reason = ++polls % LIERNE_IPC_POLLS == 0 ? lierne_ipc_reason(s, f, start) : 0;
    }
    lierne_ipc_load(f->at);
    if (reason) {
        lierne_ipc_fail(s, reason, f->peer);
    }
}

/* After a failure nobody is told that a mailbox is full, or empty. */
LIERNE_IPC_INLINE void lierne_ipc_set(const lierne_ipc_step *s, int32_t i) {
    const lierne_ipc_flag *f = &s->flags[i];
    if (lierne_ipc_load_failure(&s->words->failure)) {
        return;
    }
    if (lierne_ipc_load(f->broken)) {
        lierne_ipc_fail(s, LIERNE_IPC_GAVE_UP, f->peer);
    } else {
        lierne_ipc_store(f->at, f->value);
    }
}

LIERNE_IPC_INLINE void lierne_ipc_run(const lierne_ipc_step *s, int32_t i) {
    if (s->waits) {
        lierne_ipc_await(s, i);
    } else {
        lierne_ipc_set(s, i);
    }
}

#endif
