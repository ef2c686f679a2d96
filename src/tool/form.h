/* The closed form of a bridge: what one rank's buffer of one of the four tensors must hold,
 * computed from the spec alone.
 *
 * Every value is a small integer that depends on the element's global index, is never zero, and is
 * exact in every dtype; so are all sums. Where the gradient is partial, every cp rank has another
 * nonzero contribution to every element, so that a dropped, doubled or misplaced contribution gives
 * a wrong result. */
#ifndef LIERNE_TOOL_FORM_H
#define LIERNE_TOOL_FORM_H

#include "packed_rows.h"
#include "place.h"

#define FORM_AXES               PLACE_AXES
#define FORM_ELEMENT            8    /* bytes of the largest dtype */
#define FORM_MOST_CONTRIBUTIONS 120  /* in one sum of a packed bridge */
#define FORM_NOTHING            0x7f /* byte that no element of a closed form consists of */

typedef enum form_tensor {
    FORM_INPUT = 0,    /* x, on the source */
    FORM_OUTPUT = 1,   /* F x, on the destination */
    FORM_GRADIENT = 2, /* y, on the destination */
    FORM_RESULT = 3,   /* F* y, on the source */
    FORM_TENSORS = 4
} form_tensor;

typedef struct form {
    const lierne_bridge_spec *spec; /* NULL of a packed bridge */
    const tool_packed *packed;      /* NULL of any other */
    lierne_dtype dtype;
    form_tensor tensor;
    bool counts; /* in a dot product: one of the replicas does */
    int cp;      /* of the destination: coordinate and size */
    int ncp;
    bool owned;      /* cp ranks have rows of their own */
    bool same_rows;  /* of an output: its rows are those of the gradient */
    place_axes axes; /* of the whole tensor */
    int64_t shape[FORM_AXES];
    int64_t elements;
    int64_t *global[FORM_AXES]; /* global index of each local one */
    bool *own; /* of a sequence stored whole, by global index; NULL: all that is stored */
    bool rows; /* batch and sequence are one list of (b, s), along the batch axis */
} form;

/* The same of a packed bridge: rows that it neither reads nor writes are not owned. Padding of an
 * output may be zero or as it was. */
bool form_open_packed(form *f, const tool_packed *packed, form_tensor tensor, int rank);
bool form_is_exact_packed(const tool_packed *packed);

/* Whether sums over this many cp ranks are exact in the spec's dtype; all are but in u8. */
bool form_is_exact(const lierne_bridge_spec *spec);

/* Makes the form of a tensor on a rank. False: no memory, and nothing is kept. spec must outlive
 * it. */
bool form_open(form *f, const lierne_bridge_spec *spec, form_tensor tensor, int rank);
void form_close(form *f);

/* Whether the rank owns the element with these global indices, of those that its buffer has: all
 * but in a gradient or an output of own rows that stores whole sequences. */
bool form_owns(const form *f, const int64_t *global);

/* Walks over the elements of a buffer in their order: start with {.form = f}. */
typedef struct cursor {
    const form *form;
    int64_t at[FORM_AXES];
} cursor;
void cursor_next(cursor *c);
bool cursor_owns(const cursor *c);
/* Whether an element that is not owned may also be zero: padding. */
bool cursor_may_be_zero(const cursor *c);
/* Global index of each axis. */
void cursor_global(const cursor *c, int64_t *global);
/* The element that must stand there: FORM_NOTHING where the rank does not own it. */
void cursor_expected(const cursor *c, char *element);

/* Of packed bridges: whether a row is owned, and a value, from numbers that `mixed` makes: an
 * input's of an index, or, with a contribution c >= 0, one of 1 to most. */
typedef int (*form_mixed)(const form *f, uint64_t index, int c, int most);
bool form_owns_packed(const form *f, int64_t id);
int form_value_packed(const form *f, const int64_t *global, form_mixed mixed);

#endif
