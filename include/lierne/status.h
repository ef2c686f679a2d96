/* Status codes and the last error of a thread.
 *
 * Every function of lierne that can fail returns a lierne_status: 0 is success, every error is
 * negative. The numbers are part of the ABI: they never change, and gaps are left for new ones. A
 * thread-local message adds which function failed, the value, the bound, the rank or the place, and
 * what to do. docs/errors.md has a paragraph on each status.
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

/* Names that specs give to contexts, grids and plans: 1 to LIERNE_MAX_NAME bytes of UTF-8 without
 * control characters. Names need not differ. */
#define LIERNE_MAX_NAME 128

/* The table of statuses: X(name, number, paragraph). The enum, lierne_status_name,
 * lierne_status_text and docs/errors.md are made from it. */
#define LIERNE_STATUS_TABLE(X)                                                                     \
    X(LIERNE_OK, 0, "The call succeeded: it did what its header says.")                            \
    X(LIERNE_ERR_INVALID, -1,                                                                      \
      "An argument is outside its documented range, or a pointer that may not be NULL is NULL. "   \
      "The message names the argument, the value and the bound.")                                  \
    X(LIERNE_ERR_NO_MEMORY, -2,                                                                    \
      "An allocation failed. Nothing was kept; the message says how many bytes.")                  \
    X(LIERNE_ERR_OVERFLOW, -3,                                                                     \
      "A product or sum of sizes does not fit its type. The message names the factors.")           \
    X(LIERNE_ERR_IO, -4,                                                                           \
      "A file could not be read or written. The message has the path and the system's reason.")    \
    X(LIERNE_ERR_SYNTAX, -10,                                                                      \
      "A text is not the JSON that lierne accepts (strict RFC 8259). The message has line and "    \
      "column.")                                                                                   \
    X(LIERNE_ERR_CONFIG, -11,                                                                      \
      "A configuration file has diagnostics of severity error. lierne_config_get_diagnostic "      \
      "returns all of them.")                                                                      \
    X(LIERNE_ERR_DUPLICATE, -20,                                                                   \
      "A name appears twice where it must be unique (dim, view, group key).")                      \
    X(LIERNE_ERR_UNKNOWN_DIM, -21,                                                                 \
      "The view has no such dim. The message lists the dims that it has.")                         \
    X(LIERNE_ERR_UNKNOWN_VIEW, -22,                                                                \
      "The grid has no such view. The message lists the views that it has.")                       \
    X(LIERNE_ERR_OVERSIZED, -23, "A grid reaches past the last rank of the world.")                \
    X(LIERNE_ERR_SIZE, -24, "A view and its grid have different numbers of ranks.")                \
    X(LIERNE_ERR_MEMBERSHIP, -25,                                                                  \
      "A dim that a view shares with another view forms other groups than the dim of the same "    \
      "name in that view.")                                                                        \
    X(LIERNE_ERR_NAME, -27,                                                                        \
      "The name of a dim or view is empty, is not UTF-8, or has a character that keys reserve. "   \
      "The message names it.")                                                                     \
    X(LIERNE_ERR_DIM_SIZE, -28,                                                                    \
      "The size of a dim is below 1. The message names the dim and its size.")                     \
    X(LIERNE_ERR_RANK_OFFSET, -29, "The first rank of a grid is negative. The message has it.")    \
    X(LIERNE_ERR_WORLD_SIZE, -30,                                                                  \
      "The number of ranks of the world is out of range. The message has it and the bound.")       \
    X(LIERNE_ERR_INDIVISIBLE, -40,                                                                 \
      "A size is not divisible as it must be: the batch by the dp ratio, the sequence by 2 x cp "  \
      "for zigzag, or one dp size by the other where require_divisible is set.")                   \
    X(LIERNE_ERR_MISALIGNED, -41,                                                                  \
      "The dp ranks of the two grids do not line up on every rank, and the collective algorithm "  \
      "would deliver the samples of another dp rank. The message names the ranks. The direct "     \
      "algorithm has no such restriction.")                                                        \
    X(LIERNE_ERR_UNSUPPORTED, -42,                                                                 \
      "The requested algorithm is not defined for these grids. The message names the dim, its "    \
      "size and the bound.")                                                                       \
    X(LIERNE_ERR_MISMATCH, -60,                                                                    \
      "Ranks called a collective function with different arguments. The message names a rank, "    \
      "the field, the value of rank 0 and the value of that rank.")                                \
    X(LIERNE_ERR_TIMEOUT, -61,                                                                     \
      "A wait reached its deadline. The context is dead: every further call that communicates "    \
      "returns this error.")                                                                       \
    X(LIERNE_ERR_BUSY, -62,                                                                        \
      "Requests in flight must end first: max_inflight of them, or one that was begun 64 calls "   \
      "ago; or the plan is part of coalesced plans.")                                              \
    X(LIERNE_ERR_TRANSPORT, -63,                                                                   \
      "The transport (MPI) reported an error. The message has its text. The context is dead.")     \
    X(LIERNE_ERR_PEER_FAILED, -64,                                                                 \
      "The process of a rank that this rank waits for has ended, or the rank has destroyed its "   \
      "context. The context is dead. Detected for processes of the same host; another host is a "  \
      "TIMEOUT.")                                                                                  \
    X(LIERNE_ERR_NO_RESOURCE, -65,                                                                 \
      "A budget is used up: the context has max_groups groups on this rank. The message names "    \
      "purpose, size and number of those that are alive.")                                         \
    X(LIERNE_ERR_CAPACITY, -66,                                                                    \
      "An update needs more than the plan was made for: more segments, or more rows in the "       \
      "buffer of some rank, or more runs. The message names the number and the bound. The plan "   \
      "stays as it was; a new one with greater bounds serves.")                                    \
    X(LIERNE_ERR_INDEX_RANGE, -80,                                                                 \
      "A row number is outside of its array or graph, or a point is outside of its brick. The "    \
      "message names rank, list and entry, the value and the bound.")                              \
    X(LIERNE_ERR_OWNER_RANGE, -81,                                                                 \
      "The owner of a row is not a rank of the world. The message names the row.")                 \
    X(LIERNE_ERR_EDGE_TARGET_NOT_OWNED, -82,                                                       \
      "Another rank owns the target of an edge, so that the edge's sum would be lost. The "        \
      "message names the edge, its target and the owner.")                                         \
    X(LIERNE_ERR_ROW_NOT_YET_FILLED, -83,                                                          \
      "A swap sends a ghost row that no earlier swap fills. The message names rank, swap, entry "  \
      "and row, and the number of rows filled by then.")                                           \
    X(LIERNE_ERR_GHOST_COUNT, -84,                                                                 \
      "The rows that all swaps receive, or the ghosts that are kept, do not add up to the number " \
      "of ghosts.")                                                                                \
    X(LIERNE_ERR_SELF_COUNT, -85,                                                                  \
      "A swap of a rank with itself sends and receives different numbers of rows.")                \
    X(LIERNE_ERR_SELF_ASYM, -86,                                                                   \
      "A swap sends to the rank itself but receives from another rank, or the reverse.")           \
    X(LIERNE_ERR_PEER_RANGE, -87,                                                                  \
      "A peer is not a rank of the world. The message names rank, entry and value.")               \
    X(LIERNE_ERR_PEER_COUNT, -88,                                                                  \
      "A swap's receiver expects another number of rows than its sender sends. The message names " \
      "both ranks, the swap and both numbers.")                                                    \
    X(LIERNE_ERR_PLAN_DEPTH, -89,                                                                  \
      "Ranks have different numbers of swaps. The message names two of them and their numbers.")   \
    X(LIERNE_ERR_COUNT_RANGE, -90,                                                                 \
      "A count is negative, or rows times width times the size of an element does not fit.")       \
    X(LIERNE_ERR_INFEASIBLE, -91,                                                                  \
      "No assignment of items to ranks keeps the caps, or none was found that does. The message "  \
      "names the item, its home and the cap.")                                                     \
    X(LIERNE_ERR_OVERLAP, -92,                                                                     \
      "Two runs of a packed bridge name one token. The message names the run that comes later in " \
      "the list.")                                                                                 \
    X(LIERNE_ERR_COUNT, -93,                                                                       \
      "Image rows and image tokens do not match: a row goes to two tokens without allow_repeat, "  \
      "rows are left over without allow_unused, or there are more or fewer image tokens than "     \
      "rows. The message names the run, or both numbers.")

typedef enum lierne_status {
#define LIERNE_STATUS_ENUM(name, number, text) name = number,
    LIERNE_STATUS_TABLE(LIERNE_STATUS_ENUM)
#undef LIERNE_STATUS_ENUM
} lierne_status;

/* "LIERNE_ERR_INVALID" for LIERNE_ERR_INVALID; "unknown status" for a number that is not in the
 * table. Static storage, never NULL. */
LIERNE_API const char *lierne_status_name(int status);

/* The paragraph of the table for a status, as docs/errors.md has it. Static storage, never NULL. */
LIERNE_API const char *lierne_status_text(int status);

/* The message of the last failed call of this thread: one line of UTF-8 without a line feed, which
 * begins with the function that the caller called, such as
 *   lierne_grid_create: size of dim 'tp' is 0, must be at least 1
 * Valid until the next call of lierne on this thread. "" if no call has failed. Read it only after
 * a failure: success does not clear it. */
LIERNE_API const char *lierne_last_error(void);

/* The version of the loaded library, "major.minor.patch"; LIERNE_VERSION_STRING is the version of
 * the headers. Static storage. */
LIERNE_API const char *lierne_version(void);

#ifdef __cplusplus
}
#endif
#endif
