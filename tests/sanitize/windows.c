/* Ranks as threads of one process, in contexts over functions and in those of a node, over shared
 * memory and over sockets, for the thread sanitizer. It knows memory by address, and each rank maps
 * the segments of the others elsewhere; so here a file that is mapped again has the address that it
 * has already, and memory that is read across processes is read by plain loads. What one rank reads
 * while another writes it is then a race that the sanitizer sees.
 *
 * Linked with --wrap for mmap, munmap and process_vm_readv. Values are checked too. */
#include "base/base.h"
#include "lierne/collective.h"
#include "lierne/sparse.h"
#include "lierne/window.h"
#include "oob_ranks.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define RANKS  3
#define ROUNDS 60

/* --- one mapping per file and place --- */

typedef struct mapping {
    dev_t device;
    ino_t file;
    off_t offset;
    size_t bytes;
    void *at;
    int users;
} mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mapping mappings[1000];
static int nmappings;

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void *at, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *at, size_t bytes);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long nto,
                                const struct iovec *from, unsigned long nfrom, unsigned long flags);

static mapping *find(const struct stat *s, off_t offset, size_t bytes) {
    for (int i = 0; i < nmappings; i++) {
        mapping *m = &mappings[i];
        if (m->users > 0 && m->device == s->st_dev && m->file == s->st_ino && m->offset == offset &&
            m->bytes == bytes) {
            return m;
        }
    }
    return NULL;
}

static mapping *add(const struct stat *s, off_t offset, size_t bytes, void *at) {
    int i = 0;
    while (i < nmappings && mappings[i].users > 0) {
        i++;
    }
    if (i == (int)(sizeof mappings / sizeof *mappings)) {
        exit(2);
    }
    nmappings = i == nmappings ? i + 1 : nmappings;
    mappings[i] = (mapping){s->st_dev, s->st_ino, offset, bytes, at, 0};
    return &mappings[i];
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    struct stat s;
    if (file < 0 || !(flags & MAP_SHARED) || fstat(file, &s) != 0) {
        return __real_mmap(at, bytes, protection, flags, file, offset);
    }
    pthread_mutex_lock(&lock);
    mapping *m = find(&s, offset, bytes);
    if (!m) {
        void *mapped = __real_mmap(at, bytes, protection, flags, file, offset);
        m = mapped == MAP_FAILED ? NULL : add(&s, offset, bytes, mapped);
    }
    void *address = m ? m->at : MAP_FAILED;
    if (m) {
        m->users++;
    }
    pthread_mutex_unlock(&lock);
    return address;
}

int __wrap_munmap(void *at, size_t bytes) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < nmappings; i++) {
        if (mappings[i].users > 0 && mappings[i].at == at) {
            bool last = --mappings[i].users == 0;
            int code = last ? __real_munmap(at, bytes) : 0;
            pthread_mutex_unlock(&lock);
            return code;
        }
    }
    pthread_mutex_unlock(&lock);
    return __real_munmap(at, bytes);
}

static atomic_bool refuse_pull;

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long nto,
                                const struct iovec *from, unsigned long nfrom,
                                unsigned long flags) {
    size_t done = 0, t = 0, f = 0, at_to = 0, at_from = 0;
    (void)pid, (void)flags;
    if (refuse_pull) {
        errno = EPERM;
        return -1;
    }
    while (t < nto && f < nfrom) {
        size_t left_to = to[t].iov_len - at_to, left_from = from[f].iov_len - at_from;
        size_t n = left_to < left_from ? left_to : left_from;
        memcpy((char *)to[t].iov_base + at_to, (const char *)from[f].iov_base + at_from, n);
        done += n;
        at_to = n == left_to ? 0 : at_to + n;
        at_from = n == left_from ? 0 : at_from + n;
        t += n == left_to;
        f += n == left_from;
    }
    return (ssize_t)done;
}

/* --- ranks --- */

static atomic_long counts[2]; /* failed, passed */

#define CHECK(ok) check((ok), __LINE__, #ok)
static bool check(bool ok, int line, const char *text) {
    atomic_fetch_add(&counts[ok], 1);
    if (!ok) {
        fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, line, text, lierne_last_error());
    }
    return ok;
}

/* Elements per rank: packed, pulled or in pieces, long enough for several pieces. */
static const int sizes[] = {5, 6000, 50000};

static float value(int rank, int round, int i) {
    return (float)(1 + (rank * 131 + round * 17 + i) % 4096);
}

static float *buffer(lierne_context *context, bool window, size_t elements) {
    void *memory = NULL;
    if (window) {
        CHECK(lierne_context_alloc(&memory, context, elements * sizeof(float)) == LIERNE_OK);
    } else {
        memory = malloc(elements * sizeof(float));
    }
    return memory;
}

static void drop(lierne_context *context, bool window, void *memory) {
    if (window) {
        CHECK(lierne_context_dealloc(context, memory) == LIERNE_OK);
    } else {
        free(memory);
    }
}

/* All ranks gather; the adjoint sums what they got. Every round writes in anew at once. */
static void gather(lierne_context *context, int n, bool window, int rounds) {
    lierne_all_gather_spec spec = {.size = sizeof spec, .count = n, .dtype = LIERNE_DTYPE_F32};
    lierne_plan *plan;
    int rank = lierne_context_get_rank(context);
    size_t all = (size_t)n * RANKS;
    float *in = buffer(context, window, (size_t)n), *out = buffer(context, window, all);
    CHECK(lierne_plan_create_all_gather(&plan, context, &spec) == LIERNE_OK);
    for (int round = 0; round < rounds; round++) {
        long wrong = 0;
        for (int i = 0; i < n; i++) {
            in[i] = value(rank, round, i);
        }
        if (!CHECK(lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK)) {
            exit(1);
        }
        for (int i = 0; i < n * RANKS; i++) {
            wrong += out[i] != value(i / n, round, i % n);
            out[i] = value(i / n + rank, round, i % n);
        }
        if (!CHECK(lierne_plan_adjoint(plan, in, out, NULL) == LIERNE_OK)) {
            exit(1);
        }
        for (int i = 0; i < n; i++) {
            float sum = value(rank, round, i);
            for (int r = 1; r < RANKS; r++) {
                sum += value(rank + r, round, i);
            }
            wrong += in[i] != sum;
        }
        CHECK(wrong == 0);
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK);
    drop(context, window, in);
    drop(context, window, out);
}

/* Every rank writes its window and reads those of the others, which write the next round at once.
 */
static void meet(lierne_context *context) {
    enum { WORDS = 500, MEETINGS = 2000 };
    const lierne_window_spec spec = {.size = sizeof spec, .bytes = (int64_t)sizeof(float) * WORDS};
    lierne_window *w;
    int rank = lierne_context_get_rank(context);
    long wrong = 0;
    if (!CHECK(lierne_window_create(&w, context, &spec) == LIERNE_OK)) {
        exit(1);
    }
    for (int round = 0; round < MEETINGS; round++) {
        float *own = lierne_window_get_writable(w, rank);
        for (int i = 0; i < WORDS; i++) {
            own[i] = value(rank, round, i);
        }
        if (!CHECK(lierne_window_notify(w, NULL) == LIERNE_OK) ||
            !CHECK(lierne_window_wait(w, NULL) == LIERNE_OK)) {
            exit(1);
        }
        for (int r = 0; r < RANKS; r++) {
            const float *theirs = lierne_window_get_readable(w, r);
            for (int i = 0; i < WORDS; i++) {
                wrong += theirs[i] != value(r, round, i);
            }
        }
    }
    CHECK(wrong == 0);
    CHECK(lierne_window_destroy(w) == LIERNE_OK);
}

static void work(lierne_context *context, void *shared) {
    char text[4096];
    (void)shared;
    for (int s = 0; s < 3; s++) {
        gather(context, sizes[s], false, ROUNDS >> s);
        gather(context, sizes[s], true, ROUNDS >> s);
    }
    CHECK(lierne_context_dump(text, sizeof text, context) == LIERNE_OK);
    if (getenv("LIERNE_TRANSPORTS")) {
        CHECK(strstr(text, "shm: ") == NULL);
        return;
    }
    meet(context);
    CHECK(strstr(text, "shm: 2 peers") != NULL);
    CHECK(strstr(text, ", 0 in pieces") == NULL || !refuse_pull);
}

int main(void) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 120};
    for (int i = 0; i < 2; i++) {
        refuse_pull = i;
        oob_ranks_run(OOB_CALLS, RANKS, &spec, work, NULL);
        oob_ranks_run(OOB_GATHER_ONLY, RANKS, &spec, work, NULL);
        oob_ranks_run(OOB_NODE, RANKS, &spec, work, NULL);
    }
    setenv("LIERNE_TRANSPORTS", "socket", 1);
    oob_ranks_run(OOB_NODE, RANKS, &spec, work, NULL);
    CHECK(lierne_mem_live() == 0);
    printf("%ld passed, %ld failed\n", counts[1], counts[0]);
    return counts[0] != 0;
}
