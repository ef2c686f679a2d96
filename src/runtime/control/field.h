/* Values that must be equal on all ranks, with their names for the message if they are not. */
#ifndef LIERNE_FIELD_H
#define LIERNE_FIELD_H

#include "base/base.h"

typedef enum lierne_item_kind {
    LIERNE_ITEM_I64 = 0,
    LIERNE_ITEM_I32,
    LIERNE_ITEM_F64,
    LIERNE_ITEM_TEXT /* bytes */
} lierne_item_kind;

/* A value, or a list of items that is compared by its hash. The name of the first field that ranks
 * compare is that of the call. items must be readable while the ranks agree. */
typedef struct lierne_field {
    char name[32];
    int64_t value; /* bits of an F64; hash of a list, 0 for NULL */
    lierne_item_kind kind;
    bool list;
    const void *items; /* of a list, or NULL */
    size_t count;
} lierne_field;

lierne_field lierne_field_list(const char *name, lierne_item_kind kind, const void *items,
                               size_t count);
/* text may be NULL. */
lierne_field lierne_field_text(const char *name, const char *text);
LIERNE_PRIVATE size_t lierne_item_size(lierne_item_kind kind);

/* Adds "name value, name value" of those that are neither 0 nor NULL: texts in quotes, of other
 * lists the number of entries. */
void lierne_fields_print(lierne_text *text, const lierne_field *fields, size_t n);

/* Of names and values: equal on ranks whose fields are. */
LIERNE_PRIVATE uint64_t lierne_fields_hash(const lierne_field *fields, size_t n);

/* Compares field `index` of first_rank with that of rank; NULL: there is none. Reads no items.
 * Errors: MISMATCH, with both values. */
LIERNE_PRIVATE lierne_status lierne_field_compare(size_t index, const lierne_field *first,
                                                  int first_rank, const lierne_field *mine,
                                                  int rank);
/* Whether both are lists whose items can be compared one by one. */
LIERNE_PRIVATE bool lierne_field_same_lists(const lierne_field *first, const lierne_field *mine);
/* Compares n items of first_rank, from `start` of its list on, with those of mine. A text is
 * different as a whole. Errors: MISMATCH, with the first item that differs. */
LIERNE_PRIVATE lierne_status lierne_field_compare_items(const void *items, size_t start, size_t n,
                                                        int first_rank, const lierne_field *mine,
                                                        int rank);

#endif
