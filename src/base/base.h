/* What every folder of the library uses: failing with a message, counted allocation, checked
 * arithmetic, growing text. Internal: nothing here is for users. */
#ifndef LIERNE_BASE_H
#define LIERNE_BASE_H

#include "lierne/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Exported, but only to lierne's own other libraries (liblierne_mpi). Needs a line in
 * src/liblierne.map too. */
#define LIERNE_PRIVATE LIERNE_API

/* The public function that this thread is in, NULL outside of them all. initial-exec: read and
 * written without a call. */
extern LIERNE_PRIVATE _Thread_local const char *lierne_call_name
    __attribute__((tls_model("initial-exec")));

static inline const char *lierne_call_enter(const char *name) {
    const char *outer = lierne_call_name;
    if (!outer) {
        lierne_call_name = name;
    }
    return outer;
}

static inline void lierne_call_leave(const char **outer) {
    lierne_call_name = *outer;
}

/* Begins every public function that can fail: until it returns, this thread's messages begin with
 * its name. Public functions that it calls itself keep its name. */
#define LIERNE_PUBLIC_CALL()                                                                       \
    __attribute__((cleanup(lierne_call_leave), unused)) const char *lierne_outer_call_ =           \
        lierne_call_enter(__func__)

/* Begins every public function that returns a handle, a text or a list through out: it is NULL
 * until the function succeeds, whatever else is wrong. out may be NULL. */
#define LIERNE_NULL_OUTPUT(out) ((void)((out) ? (*(out) = NULL) : NULL))

/* Sets the thread's message to "name of the public function: text" and returns status. Used as
 *   return LIERNE_FAIL(LIERNE_ERR_INVALID, "size of dim '%s' is %d, must be at least 1", name, n);
 */
#define LIERNE_FAIL(status, ...) lierne_fail((status), __VA_ARGS__)
LIERNE_PRIVATE lierne_status lierne_fail(lierne_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Errors: INVALID ("NAME is NULL") if it is. */
lierne_status lierne_check_set(const void *value, const char *name);

/* The name that a spec gives what it makes; NULL: none. Errors: INVALID (see LIERNE_MAX_NAME). */
lierne_status lierne_check_name(const char *name);

/* The text of the thread's message, without the function's name: to be kept or sent, for
 * lierne_set_error on another thread or rank, or in a later call. */
LIERNE_PRIVATE const char *lierne_error_text(void);
LIERNE_PRIVATE void lierne_set_error(const char *text);

/* Forwards a failure. */
#define LIERNE_TRY(call)                                                                           \
    do {                                                                                           \
        lierne_status lierne_try_ = (call);                                                        \
        if (lierne_try_ != LIERNE_OK) {                                                            \
            return lierne_try_;                                                                    \
        }                                                                                          \
    } while (0)

#define LIERNE_MESSAGE_SIZE 1024

/* Starts a thread in which all signals are blocked. Returns whether there was one. */
bool lierne_thread_start(pthread_t *thread, void *(*run)(void *), void *self);
/* Waits for a condition, whose clock is monotonic, at most so many nanoseconds; until when that is.
 */
void lierne_thread_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t nanoseconds);
struct timespec lierne_time_after(struct timespec now, int64_t nanoseconds);

/* Counted allocation. *out is zeroed memory for count items of size bytes each; with count or size
 * 0 it is a pointer that may be freed. On failure *out is NULL and the message has the size. */
LIERNE_PRIVATE lierne_status lierne_alloc(void *out, size_t count, size_t size);
/* The same without zeroing the memory. */
lierne_status lierne_alloc_unset(void *out, size_t count, size_t size);
/* Like realloc, for an array of items; new items are not zeroed. *ptr is unchanged on failure. */
LIERNE_PRIVATE lierne_status lierne_realloc(void *ptr, size_t count, size_t size);
/* A reusable workspace: a few slots of memory, each as large as its largest use. Zero-initialise.
 * take returns the memory of a slot for count items of size bytes; its former contents are lost.
 * *out belongs to the workspace. */
#define LIERNE_WORKSPACE_SLOTS 12
typedef struct lierne_workspace {
    void *at[LIERNE_WORKSPACE_SLOTS];
    size_t bytes[LIERNE_WORKSPACE_SLOTS];
} lierne_workspace;
lierne_status lierne_workspace_take(lierne_workspace *workspace, int slot, void *out, size_t count,
                                    size_t size);
void lierne_workspace_destroy(lierne_workspace *workspace);
lierne_status lierne_strdup(char **out, const char *text);
LIERNE_PRIVATE void lierne_mem_free(void *ptr);

/* Structs that begin with their size, of a caller compiled against another version of the headers.
 * take: reads spec into out, a struct of size bytes: what the caller does not have is zero, and
 * what the library does not know must be. name appears in messages ("spec"); take_at names the rank
 * too. out is zero on failure. give: writes from, a struct of size bytes, into the caller's as far
 * as it goes, and zero into what the library does not know; the caller's size stays. read_size: the
 * size that the caller's struct has. Errors: INVALID (NULL, a size that no version has, an unknown
 * field that is not zero). */
lierne_status lierne_spec_read_size(size_t *given, const void *spec, size_t size, const char *name);
lierne_status lierne_spec_take(void *out, size_t size, const void *spec, const char *name);
lierne_status lierne_spec_take_at(void *out, size_t size, const void *spec, int rank);
lierne_status lierne_spec_give(void *to, const void *from, size_t size, const char *name);

/* For leak tests: the number of allocations that are alive, of all threads. */
size_t lierne_mem_live(void);
/* For tests of allocation failure: makes the k-th allocation from now on fail (1: the next one; 0:
 * none). */
void lierne_mem_fail_at(size_t k);

/* Checked arithmetic: false when the result does not fit. */
bool lierne_mul_size(size_t a, size_t b, size_t *out);
static inline bool lierne_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool lierne_add_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* Whether the system lets a file of this process grow to bytes. */
bool lierne_file_may_have(uint64_t bytes);
/* Files whose names lierne makes, perhaps in a folder that others may write; -1, and errno. create:
 * a new file, in place of what has the name, which is removed and not opened. append: to a regular
 * file of this user; a link is not followed, and a pipe not waited for. */
int lierne_file_create(const char *path);
int lierne_file_append(const char *path);

/* Continues a hash (0 at first) over bytes; the same on every machine. */
uint64_t lierne_hash(uint64_t hash, const void *data, size_t bytes);

/* Sorts items by ascending key; equal keys keep their order. spare has space for n items. No key is
 * larger than most. */
typedef struct lierne_keyed {
    uint64_t key;
    int64_t value;
} lierne_keyed;
void lierne_sort_keyed(lierne_keyed *items, lierne_keyed *spare, size_t n, uint64_t most);
/* The index of a number in an ascending list; -1: it is not there. */
int lierne_search_int(const int *list, int n, int number);

/* Growing text. Zero-initialise. text.data is a string once something was added. A failed
 * allocation sets text.failed, and further additions do nothing. */
typedef struct lierne_text {
    char *data;
    size_t length;
    size_t capacity;
    bool failed;
} lierne_text;
void lierne_text_add(lierne_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds nanoseconds as microseconds with all their decimals, "-3.021": no double holds those of a
 * calendar. */
void lierne_text_microseconds(lierne_text *text, int64_t nanoseconds);
/* Adds numbers as a JSON array. */
void lierne_text_numbers(lierne_text *text, const int64_t *numbers, int64_t n);
/* Moves the string to the caller, who frees it with lierne_mem_free. Errors: NO_MEMORY. */
lierne_status lierne_text_take(lierne_text *text, char **out);
void lierne_text_clear(lierne_text *text);

/* Bytes of the UTF-8 sequence at text; 0 if there is none, or at the end. Never reads past a zero
 * byte. */
int lierne_utf8_length(const char *text);

/* Seconds of a monotonic clock, with a resolution of 10 ms or better. */
LIERNE_PRIVATE double lierne_now(void);

/* The deadline of a wait that checks the clock repeatedly, in seconds. If the process did not run
 * for more than half of the timeout (it was stopped, or the machine slept), messages may have
 * arrived meanwhile; the deadline is then extended once, by half of the timeout. */
typedef struct lierne_deadline {
    double timeout;
    double at;
    double last_check;
    bool extended;
} lierne_deadline;
LIERNE_PRIVATE void lierne_deadline_start(lierne_deadline *deadline, double timeout, double now);
LIERNE_PRIVATE bool lierne_deadline_passed(lierne_deadline *deadline, double now);

/* A growing array, at[0] to at[count - 1]: LIERNE_VEC(int) v = {0}; LIERNE_VEC_PUSH(&v, i). */
#define LIERNE_VEC(type)                                                                           \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t count;                                                                              \
        size_t capacity;                                                                           \
    }
lierne_status lierne_vec_grow(void *at, size_t count, size_t *capacity, size_t size);
#define LIERNE_VEC_PUSH(vec, item)                                                                 \
    ((vec)->count < (vec)->capacity || lierne_vec_grow(&(vec)->at, (vec)->count, &(vec)->capacity, \
                                                       sizeof *(vec)->at) == LIERNE_OK             \
         ? ((vec)->at[(vec)->count++] = (item), LIERNE_OK)                                         \
         : LIERNE_ERR_NO_MEMORY)

/* The lists of public structs have no capacity: it follows from the count. Only for lists that are
 * made by nothing else than this. */
lierne_status lierne_list_grow(void *at, size_t count, size_t size);
#define LIERNE_LIST_PUSH(list, item)                                                               \
    (lierne_list_grow(&(list)->at, (list)->count, sizeof *(list)->at) == LIERNE_OK                 \
         ? ((list)->at[(list)->count++] = (item), LIERNE_OK)                                       \
         : LIERNE_ERR_NO_MEMORY)

#endif
