/* The diagnostics that reading a configuration can give: X(number, NAME, paragraph). Number 001 is
 * code "LG001"; the numbers never change, and gaps are left for new ones. From 101 on a diagnostic
 * is a warning. The enum, the codes of lierne_diagnostic and docs/errors.md are all made from it.
 */
#ifndef LIERNE_DIAGNOSTICS_H
#define LIERNE_DIAGNOSTICS_H

/* clang-format off */
#define LIERNE_DIAGNOSTIC_TABLE(X)                                                                 \
    X(001, SYNTAX,                                                                                 \
      "The text is not JSON: a value, a key, a comma, a colon or a closing bracket is missing, "   \
      "or the text ends too early. Reading stops there.")                                          \
    X(002, TRAILING,                                                                               \
      "Text follows the one value of the file. Only white space may follow it.")                   \
    X(003, NUMBER,                                                                                 \
      "A number is not written as JSON writes numbers (no sign '+', no leading zero, a digit on "  \
      "both sides of the point), or its magnitude is 1e308 or more.")                              \
    X(004, UTF8,                                                                                   \
      "A string holds bytes that are not UTF-8: overlong forms, surrogates and code points past "  \
      "U+10FFFF are rejected too.")                                                                \
    X(005, CONTROL,                                                                                \
      "A string holds a control character (below U+0020) that is not written as an escape.")       \
    X(006, BYTE_ORDER_MARK, "The file begins with a byte-order mark. JSON has none.")              \
    X(007, NUL,                                                                                    \
      "A string holds \\u0000. It would end the string early wherever C reads it.")                \
    X(008, SURROGATE,                                                                              \
      "An escape is one half of a surrogate pair without the other.")                              \
    X(009, ESCAPE, "A backslash is not followed by one of the escapes of JSON.")                   \
    X(010, DEPTH, "Arrays and objects are nested more than 64 deep.")                              \
    X(011, SIZE, "The text is larger than 16 MiB.")                                                \
    X(012, VALUES, "The text holds more than 1000000 values.")                                     \
    X(013, LENGTH, "A key or a string takes more than 65536 bytes.")                               \
    X(014, DUPLICATE_KEY,                                                                          \
      "A key appears twice in one object. Most readers would silently take one of the two. "        \
      "Keys are compared after their escapes are resolved.")                                       \
    X(020, TYPE, "A value does not have the JSON type that the key needs.")                        \
    X(021, UNKNOWN_KEY,                                                                            \
      "The format has no such key in this object. Keys are case-sensitive; $schema, comment and "  \
      "source are allowed anywhere and ignored.")                                                  \
    X(022, MISSING_KEY, "A required key is missing.")                                              \
    X(023, INTEGER,                                                                                \
      "A number is not an integer: it has a fraction or an exponent, or does not fit 64 bits.")    \
    X(024, RANGE, "An integer is outside its range. The message has the bounds.")                  \
    X(025, NAME,                                                                                   \
      "A name is empty, longer than 128 bytes or holds a control character. The name of a dim or " \
      "view must not hold '-', ',' or ':', which separate the parts of group keys.")               \
    X(026, CHOICE, "A value is none of the words that the key takes. The hint lists them.")        \
    X(027, LIMIT,                                                                                  \
      "There are more than 256 grids, 1024 bridges of a kind, 16 dims of a grid or 32 views of a grid, or "  \
      "there is no grid.")                                                                         \
    X(028, TOO_MANY, "The file has more errors than are listed. The first 1000 are listed.")       \
    X(040, ORDER_DUPLICATE, "A dim appears twice in an order.")                                    \
    X(041, ORDER_MISSING,                                                                          \
      "A dim has a size in the shape but no place in the order. The order is never guessed: it "   \
      "decides which ranks are neighbours.")                                                       \
    X(042, SHAPE_MISSING, "A dim is in the order but has no size in the shape.")               \
    X(043, GRID_OVERFLOW, "The product of a shape's sizes does not fit 64 bits.")                  \
    X(044, GRID_OVERSIZED, "A grid reaches past the last rank of the world.")                      \
    X(045, VIEW_RESERVED, "A view is named 'base', which is the name of the grid's own dims.")     \
    X(046, VIEW_SIZE, "A view and its grid have different numbers of ranks.")                      \
    X(047, WITH_UNKNOWN,                                                                           \
      "A view shares dims with a view that does not exist, or comes after it in the file.")       \
    X(048, SHARED_DUPLICATE, "A dim appears twice among the shared dims of a view.")                \
    X(049, SHARED_UNKNOWN,                                                                         \
      "A shared dim is missing in the view or in the view that it is shared with.")                \
    X(050, SHARED_MEMBERSHIP,                                                                      \
      "A shared dim puts other ranks together in the view than in the view that it is shared "     \
      "with. One communicator cannot be both.")                                                    \
    X(051, HEADS, "The attention heads of a grid's model are not divisible by its tp.")            \
    X(052, UNCOVERED,                                                                              \
      "cover_world is true and some ranks of the world are in no grid.")                           \
    X(053, NODES, "nodes is a list and does not have one node for each rank of the world.")        \
    X(060, BRIDGE_DUPLICATE, "Two bridges have the same name.")                                    \
    X(061, GRID_UNKNOWN, "A bridge names a grid that the file does not have.")                     \
    X(062, DIM_MISSING, "A grid of a bridge has no dim 'tp' or no dim 'dp'.")                      \
    X(063, SOURCE_CP,                                                                              \
      "The source grid of a bridge has cp larger than 1, and the bridge has no placement for it.") \
    X(064, AXES, "The axes of a tensor are not 2 or 3 different ones of b, s and h.")              \
    X(065, AXIS_UNKNOWN,                                                                           \
      "batch, sequence or a placement does not name an axis of the tensor, or batch and "          \
      "sequence name the same.")                                                                   \
    X(066, AXIS_SIZE, "The shape of a tensor lacks the size of an axis.")                          \
    X(067, ELEMENTS, "The number of bytes of a tensor does not fit 64 bits.")                      \
    X(068, OWNER_SEQUENCE,                                                                         \
      "The owner of a gradient row follows from its position in the sequence, and the bridge "     \
      "names no sequence axis.")                                                                   \
    X(069, STORAGE,                                                                                \
      "storage is compact where it cannot be: the owner is partial, so every rank has every row; " \
      "or the owner is rows, and batch and sequence are not neighbouring axes.")                   \
    X(070, ROWS,                                                                                   \
      "rows is missing although the owner is rows, is given with another owner, or is not a list " \
      "of one cp coordinate for each row (b, s).")                                                 \
    X(071, ZIGZAG,                                                                                 \
      "An owner or a placement cuts an axis zigzag over n ranks, and the axis is not divisible "   \
      "by 2 x n, times the sizes of the slower dims that cut it. With n = 1 any size will do.")    \
    X(072, COUNTS,                                                                                 \
      "The counts of a side are not one for each dp rank, or do not add up to the batch.")         \
    X(073, INDIVISIBLE,                                                                            \
      "require_divisible is true, and neither dp size divides the other, or one of them does not " \
      "divide the batch.")                                                                         \
    X(074, ALGORITHM,                                                                              \
      "The algorithm that the bridge names is not defined for this pair of grids. The message "    \
      "says why. The direct algorithm is defined for every pair.")                                 \
    X(075, VIEW_UNKNOWN,                                                                           \
      "A bridge names a view that its grid does not have.")                                        \
    X(076, PLACEMENT_DIM,                                                                          \
      "A placement names a dim that the view does not have, or one whose placement is fixed: dp "  \
      "(shards the batch), pp (one pipeline stage), and the destination's cp (the owner of the "   \
      "gradient and output).")                                                                     \
    X(077, PLACEMENT,                                                                              \
      "A placement does not have exactly one of the keys shard and zigzag, it cuts the batch "     \
      "axis, or two dims cut one axis zigzag.")                                                    \
    X(078, OUTPUT,                                                                                 \
      "output is sharded, and the owner of the gradient is partial, so that no cp rank has rows "  \
      "of its own. Or output is whole, and a dim of the destination cuts the sequence, which the " \
      "owner cuts over cp.")                                                                       \
    X(079, SAMPLE_ROWS,                                                                            \
      "rows_per_sample does not fit the tensor: it needs two axes, neither of them s, no "         \
      "sequence, and a whole number of samples. Or row_order is given without it.")                \
    X(080, PACKED,                                                                                 \
      "A packed bridge is described wrongly: the axes of its tensor are not s and h, a list has "  \
      "another length than its segments ask for, a run is not five numbers, or what belongs to "   \
      "images is given without them, or they without runs.")                                       \
    X(101, EMPTY_DP_RANKS,                                                                         \
      "The batch is smaller than dp: some dp ranks have no sample. That is legal and seldom "      \
      "meant.")                                                                                    \
    X(102, UNEVEN_CHUNKS,                                                                          \
      "The sequence is not divisible by cp: with a contiguous owner the first cp ranks own one "   \
      "row more than the others.")                                                                 \
    X(103, REJECTED,                                                                               \
      "Megatron-LM's colocated bridge rejects this pair of grids. lierne's direct algorithm "      \
      "is defined for it.")                                                                        \
    X(104, MISALIGNED,                                                                             \
      "On some ranks the dp ranks of the two grids are misaligned. Megatron-LM would deliver "     \
      "another dp rank's samples there without an error. lierne's direct algorithm delivers the "  \
      "right ones.")                                                                               \
    X(105, ORDER_REVERSED,                                                                         \
      "An order is one of Megatron-LM's reversed: it seems to list the slowest dim first, as "     \
      "torch does for a device mesh. Here the fastest dim, whose neighbours are neighbouring "     \
      "ranks, comes first. With this order tp groups would be spread over nodes.")                \
    X(106, IDLE_RANKS,                                                                             \
      "Some ranks of the world are in no grid: world_size may be too large. If it is meant, say "  \
      "so with \"cover_world\": false.")                                                           \
    X(107, OFFSET,                                                                                 \
      "Grids that begin at rank 0 have together as many ranks as the world, and some ranks are "   \
      "in no grid. If the grids are meant to be disjoint, a rank_offset is missing. If they are "  \
      "meant to share ranks, world_size is too large.")                                            \
    X(108, DEFAULT_OWNER,                                                                          \
      "The destination has context parallelism, and the bridge has no gradient: it is taken as "   \
      "partial, every cp rank has a part of every row's gradient, and the parts are added. Where " \
      "each cp rank has the gradients of its own rows only, name the owner. If partial is meant, " \
      "write it.")                                                                                 \
    X(109, BATCH_AXIS,                                                                             \
      "The batch of a bridge is another axis than the tensor's b: dp would shard that axis. "      \
      "Sequences would be cut where samples are meant to be.")                                     \
    X(110, SAME_LAYOUT,                                                                            \
      "The source and the destination of a bridge are one grid, in one layout: nothing moves. "    \
      "One of the two names is probably wrong.")                                                   \
    X(111, TOO_MANY_WARNINGS,                                                                      \
      "The file has more warnings than are listed. The first 1000 are listed. Errors are listed "  \
      "all the same.")
/* clang-format on */

#define LIERNE_DIAGNOSTIC_NUMBER(number) (1##number - 1000)
#define LIERNE_DIAGNOSTIC_CODE(number)   "LG" #number
#define LIERNE_DIAGNOSTIC_WARNING        101 /* the first that is a warning */

typedef enum lierne_diagnostic_number {
#define LIERNE_DIAGNOSTIC_ENUM(number, name, text)                                                 \
    LIERNE_DIAGNOSTIC_##name = LIERNE_DIAGNOSTIC_NUMBER(number),
    LIERNE_DIAGNOSTIC_TABLE(LIERNE_DIAGNOSTIC_ENUM)
#undef LIERNE_DIAGNOSTIC_ENUM
} lierne_diagnostic_number;

#endif
