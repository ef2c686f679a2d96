/* Status codes and the last error of a thread.
 *
 * Every function of lierne that can fail returns a lierne_status: 0 is success, every error is
 * negative. The numbers are part of the ABI: they never change, and gaps are left for new ones.
 * Beside the code, a thread-local message says which function refused what: the value, the
 * bound, and the rank or the place. docs/errors.md has a paragraph on each.
 *
 * Thread safety: every function here may be called from any thread at any time. */
#ifndef LIERNE_STATUS_H
#define LIERNE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LIERNE_API __attribute__((visibility("default")))
#else
#define LIERNE_API
#endif

#define LIERNE_VERSION_MAJOR  0
#define LIERNE_VERSION_MINOR  1
#define LIERNE_VERSION_PATCH  0
#define LIERNE_VERSION_STRING "0.1.0"

/* The one table of statuses: X(name, number, paragraph). The enum, lierne_status_name(), the text
 * of lierne_status_text() and docs/errors.md are all made from it. */
#define LIERNE_STATUS_TABLE(X)                                                                     \
    X(OK, 0, "The call did what it says.")                                                         \
    X(INVALID, -1,                                                                                 \
      "An argument is outside its documented range, or a pointer that may not be NULL is NULL. "   \
      "The message names the argument, the value and the bound.")                                  \
    X(NO_MEMORY, -2, "An allocation failed. Nothing was kept; the message says how many bytes.")   \
    X(OVERFLOW, -3,                                                                                \
      "A product or sum of sizes does not fit its type. The message names the factors.")           \
    X(IO, -4, "A file could not be read. The message has the path and the system's reason.")       \
    X(SYNTAX, -10,                                                                                 \
      "A text is not the JSON that lierne accepts (strict RFC 8259). The message has line and "    \
      "column.")                                                                                   \
    X(CONFIG, -11,                                                                                 \
      "A configuration file has findings of severity error. lierne_config_get_diagnostic() lists " \
      "them "                                                                                      \
      "all.")                                                                                      \
    X(DUPLICATE, -20, "A name stands twice where it may stand once (dim, view, group key).")       \
    X(UNKNOWN_DIM, -21, "A dim is not in the view. The message lists the dims that are.")          \
    X(UNKNOWN_VIEW, -22, "A view is not registered. The message lists the ones that are.")         \
    X(OVERSIZED, -23, "A grid reaches past the end of the world.")                                 \
    X(SIZE, -24, "A view does not have as many ranks as its grid.")                                \
    X(MEMBERSHIP, -25,                                                                             \
      "A dim that a view declares shared puts other ranks together than the dim of the same name " \
      "in the base view does.")                                                                    \
    X(NOT_CREATED, -26, "A group key was asked for before it was created.")                        \
    X(INDIVISIBLE, -40,                                                                            \
      "A size is not divisible by what must divide it: the batch by the scale, the sequence by "   \
      "2 x cp for zigzag, data parallel sizes where require_divisible is set.")                    \
    X(MISALIGNED, -41,                                                                             \
      "The data lanes of the two grids do not line up on every rank, and the collective "          \
      "algorithm would deliver another lane's samples. The message names the ranks. The direct "   \
      "algorithm serves such grids.")                                                              \
    X(UNSUPPORTED, -42,                                                                            \
      "The grids are outside the domain of the algorithm asked for. The message names the dim, "   \
      "its size and the bound.")                                                                   \
    X(MISMATCH, -60,                                                                               \
      "Ranks called a collective function with different arguments. The message names a rank, "    \
      "the field, the value of rank 0 and the value of that rank.")                                \
    X(TIMEOUT, -61,                                                                                \
      "A wait reached its deadline. The context is dead from then on: every further call that "    \
      "communicates returns this error.")                                                          \
    X(BUSY, -62,                                                                                   \
      "A request of the plan or exchange is in flight that must end first: as many as may be, or " \
      "one begun 64 calls ago; or an exchange holds the plan.")                                    \
    X(TRANSPORT, -63, "The transport (MPI) reported an error. The message has its text.")          \
    X(PEER_FAILED, -64,                                                                            \
      "The process of a rank that this rank waits for has ended. The context is dead from then "   \
      "on. Found for processes of the same host; on other hosts a dead peer is a TIMEOUT.")        \
    X(INDEX_RANGE, -80,                                                                            \
      "A row's number is outside the array or graph that it points into, or a point outside its "  \
      "brick. The message names rank, list and entry, the value and the bound.")                   \
    X(OWNER_RANGE, -81, "A row's owner is no rank of the world. The message names the row.")       \
    X(EDGE_TARGET_NOT_OWNED, -82,                                                                  \
      "The target of an edge belongs to another rank, where its sum would be lost. The message "   \
      "names the edge, its target and the owner.")                                                 \
    X(ROW_NOT_YET_FILLED, -83,                                                                     \
      "A swap sends a ghost row that no earlier swap fills. The message names rank, swap, entry "  \
      "and row, and how many rows are filled by then.")                                            \
    X(GHOST_COUNT, -84,                                                                            \
      "The rows that all swaps receive do not add up to the number of ghosts, or the kept ones "   \
      "do not.")                                                                                   \
    X(SELF_COUNT, -85, "A swap of a rank with itself sends another number of rows than it takes.") \
    X(SELF_ASYM, -86,                                                                              \
      "A swap sends to the rank itself but receives from another one, or the reverse.")            \
    X(PEER_RANGE, -87, "A peer is no rank of the world. The message names rank, entry and value.") \
    X(PEER_COUNT, -88,                                                                             \
      "A swap's receiver expects another number of rows than its sender sends. The message names " \
      "both ranks, the swap and both numbers.")                                                    \
    X(PLAN_DEPTH, -89,                                                                             \
      "Ranks have different numbers of swaps. The message names two of them and their numbers.")   \
    X(COUNT_RANGE, -90,                                                                            \
      "A count is negative, or rows times width times the size of an element does not fit.")

typedef enum lierne_status {
#define LIERNE_STATUS_ENUM(name, number, text) LIERNE_##name = number,
    LIERNE_STATUS_TABLE(LIERNE_STATUS_ENUM)
#undef LIERNE_STATUS_ENUM
} lierne_status;

/* "LIERNE_INVALID" for LIERNE_INVALID; "unknown status" for a number that is not in the table.
 * Static storage, never NULL. */
LIERNE_API const char *lierne_status_name(int status);

/* The paragraph of the table for a status, as docs/errors.md has it. Static storage, never NULL. */
LIERNE_API const char *lierne_status_text(int status);

/* What the last failed call of this thread said: one line of UTF-8 without a line feed, such as
 *   lierne_grid_create: size of dim 'tp' is 0, must be at least 1
 * Valid until the next call of lierne on this thread. "" when nothing failed yet. Read it only
 * after a failure: success does not clear it. */
LIERNE_API const char *lierne_last_error(void);

/* Version of the library that runs, "major.minor.patch"; compare with LIERNE_VERSION_STRING, the
 * version of the headers. Static storage. */
LIERNE_API const char *lierne_version(void);

/* A list of items of one type: at[0] to at[count - 1]. */
#define LIERNE_VEC(type)                                                                           \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t count;                                                                              \
        size_t capacity;                                                                           \
    }

#ifdef __cplusplus
}
#endif
#endif
