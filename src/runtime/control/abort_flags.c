/* Abort flags in a memfd. It has no name, so nothing is left in the system when processes are
 * killed, and no other user can open it.
 *
 * The memory order is that of a seqlock's writer. The writer raises its flag, then executes a
 * release fence, then lets the caller write its buffers. The reader copies the data, then executes
 * an acquire fence, then reads the flag. One word says whether any flag is raised, so that a check
 * costs one load. */
#include "runtime/control/abort_flags.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct flag {
    _Alignas(64) atomic_int status;
    atomic_int left;
    lierne_rank_words words;
    char message[LIERNE_MESSAGE_SIZE];
} flag;

typedef struct shared {
    _Alignas(64) atomic_int any;
    lierne_common_words words;
    flag at[];
} shared;

struct lierne_abort_flags {
    shared *memory;
    char *boards; /* behind the flags */
    size_t board;
    size_t bytes;
};

/* Where the boards begin. */
static size_t flags_end(int n) {
    return sizeof(shared) + (size_t)n * sizeof(flag);
}

static size_t bytes_of(int n, size_t board) {
    return flags_end(n) + (size_t)n * board;
}

int lierne_abort_flags_open(int n, size_t board) {
    if (!lierne_file_may_have(bytes_of(n, board))) {
        return -1;
    }
    int descriptor = memfd_create("lierne-abort-flags", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return -1;
    }
    /* Without the seals, a process that shortens the file kills the others with SIGBUS. */
    if (ftruncate(descriptor, (off_t)bytes_of(n, board)) != 0 ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0 ||
        posix_fallocate(descriptor, 0, sizeof(shared)) != 0) {
        close(descriptor);
        return -1;
    }
    return descriptor;
}

static bool reserve_bytes(int descriptor, size_t at, size_t bytes) {
    return bytes == 0 || posix_fallocate(descriptor, (off_t)at, (off_t)bytes) == 0;
}

static shared *map_flags(int descriptor, int n, size_t board, int index) {
    const size_t i = (size_t)index;
    if (!reserve_bytes(descriptor, offsetof(shared, at) + i * sizeof(flag), sizeof(flag)) ||
        !reserve_bytes(descriptor, flags_end(n) + i * board, board)) {
        return NULL;
    }
    void *memory =
        mmap(NULL, bytes_of(n, board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

lierne_abort_flags *lierne_abort_flags_map(uint64_t process, int descriptor, int n, size_t board,
                                           int index) {
    char path[64];
    lierne_abort_flags *flags;
    snprintf(path, sizeof path, "/proc/%llu/fd/%d", (unsigned long long)process, descriptor);
    int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0 || lierne_alloc(&flags, 1, sizeof *flags) != LIERNE_OK) {
        if (opened >= 0) {
            close(opened);
        }
        return NULL;
    }
    flags->bytes = bytes_of(n, board);
    flags->memory = map_flags(opened, n, board, index);
    close(opened);
    if (!flags->memory) {
        lierne_mem_free(flags);
        return NULL;
    }
    flags->boards = (char *)flags->memory + flags_end(n);
    flags->board = board;
    return flags;
}

void lierne_abort_flags_unmap(lierne_abort_flags *flags) {
    if (flags) {
        munmap(flags->memory, flags->bytes);
        lierne_mem_free(flags);
    }
}

void lierne_abort_flags_raise(lierne_abort_flags *flags, int index, lierne_status status,
                              const char *message) {
    flag *own = &flags->memory->at[index];
    snprintf(own->message, sizeof own->message, "%s", message);
    atomic_store_explicit(&own->status, (int)status, memory_order_release);
    atomic_store_explicit(&flags->memory->any, 1, memory_order_release);
    atomic_thread_fence(memory_order_release);
}

void lierne_abort_flags_leave(lierne_abort_flags *flags, int index) {
    atomic_store_explicit(&flags->memory->at[index].left, 1, memory_order_release);
}

bool lierne_abort_flags_left(const lierne_abort_flags *flags, int index) {
    return atomic_load_explicit(&flags->memory->at[index].left, memory_order_acquire) != 0;
}

bool lierne_abort_flags_any(const lierne_abort_flags *flags) {
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&flags->memory->any, memory_order_acquire) != 0;
}

lierne_status lierne_abort_flags_get(const lierne_abort_flags *flags, int index,
                                     const char **message) {
    const flag *f = &flags->memory->at[index];
    *message = f->message;
    return (lierne_status)atomic_load_explicit(&f->status, memory_order_acquire);
}

lierne_common_words *lierne_abort_flags_common(const lierne_abort_flags *flags) {
    return &flags->memory->words;
}

lierne_rank_words *lierne_abort_flags_rank(const lierne_abort_flags *flags, int index) {
    return &flags->memory->at[index].words;
}

void *lierne_abort_flags_board(const lierne_abort_flags *flags, int index) {
    return flags->boards + (size_t)index * flags->board;
}
