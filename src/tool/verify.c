/* Every rank has its own four buffers, so that the same code checks a simulated world and a real
 * one. An output is filled before with a byte pattern that no element has, and has a guard behind
 * it. */
#include "verify.h"
#include "element.h"
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64 /* bytes behind a buffer that must stay as they are */

static void form_fill(const form *f, char *buffer) {
    size_t size = lierne_dtype_size(f->dtype);
    cursor c = {.form = f};
    for (int64_t i = 0; i < f->elements; i++, cursor_next(&c)) {
        char element[FORM_ELEMENT];
        cursor_expected(&c, element);
        memcpy(buffer + (size_t)i * size, element, size);
    }
}

static size_t buffer_bytes(const form *f) {
    return (size_t)f->elements * lierne_dtype_size(f->dtype);
}

static bool buffer_open(verify_rank *rank, int tensor) {
    const form *f = &rank->form[tensor];
    size_t bytes = buffer_bytes(f) + GUARD;
    char *buffer = malloc(bytes);
    if (!buffer) {
        return false;
    }
    memset(buffer, FORM_NOTHING, bytes);
    if (tensor == FORM_INPUT || tensor == FORM_GRADIENT) {
        form_fill(f, buffer);
    }
    rank->buffer[tensor] = buffer;
    return true;
}

bool verify_rank_open(verify_rank *rank, const lierne_bridge_spec *spec, const tool_packed *packed,
                      int number) {
    *rank = (verify_rank){.rank = number};
    for (int t = 0; t < FORM_TENSORS; t++) {
        form *f = &rank->form[t];
        form_tensor tensor = (form_tensor)t;
        bool opened = packed ? form_open_packed(f, packed, tensor, number)
                             : form_open(f, spec, tensor, number);
        if (!opened || !buffer_open(rank, t)) {
            verify_rank_close(rank);
            return false;
        }
    }
    return true;
}

void verify_rank_close(verify_rank *rank) {
    for (int t = 0; t < FORM_TENSORS; t++) {
        form_close(&rank->form[t]);
        free(rank->buffer[t]);
        rank->buffer[t] = NULL;
    }
}

static form_tensor tensor_in(lierne_direction direction) {
    return direction == LIERNE_DIRECTION_FORWARD ? FORM_INPUT : FORM_GRADIENT;
}

static form_tensor tensor_out(lierne_direction direction) {
    return direction == LIERNE_DIRECTION_FORWARD ? FORM_OUTPUT : FORM_RESULT;
}

int64_t verify_lists(const lierne_plan *plan, lierne_direction direction) {
    int64_t in[LIERNE_MAX_AXES], out[LIERNE_MAX_AXES], entries = 0;
    int naxes = 0;
    lierne_plan_get_shape(&naxes, in, out, plan, direction);
    for (int axis = 0; axis < naxes; axis++) {
        entries += in[axis] + out[axis];
    }
    return entries * (int64_t)sizeof(int64_t);
}

int64_t verify_rank_elements(const verify_rank *rank) {
    int64_t elements = 0;
    for (int t = 0; t < FORM_TENSORS; t++) {
        elements += rank->form[t].elements;
    }
    return elements;
}

lierne_status verify_rank_begin(const verify_rank *rank, lierne_request **request,
                                lierne_plan *plan, lierne_direction direction) {
    void *out = rank->buffer[tensor_out(direction)];
    const void *in = rank->buffer[tensor_in(direction)];
    return direction == LIERNE_DIRECTION_FORWARD
               ? lierne_plan_forward_begin(request, plan, out, in, NULL)
               : lierne_plan_adjoint_begin(request, plan, out, in, NULL);
}

void verify_rank_poison(const verify_rank *rank, lierne_direction direction) {
    form_tensor tensor = tensor_out(direction);
    memset(rank->buffer[tensor], FORM_NOTHING, buffer_bytes(&rank->form[tensor]) + GUARD);
}

bool verify_rank_fits(const verify_rank *rank, const lierne_plan *plan,
                      lierne_direction direction) {
    int64_t in;
    int64_t out;
    return lierne_plan_get_elements(&in, &out, plan, direction) == LIERNE_OK &&
           in == rank->form[tensor_in(direction)].elements &&
           out == rank->form[tensor_out(direction)].elements;
}

static void count_wrong(verify_count *count, const verify_count *wrong) {
    if (count->wrong++ == 0) {
        int64_t checked = count->checked;
        *count = *wrong;
        count->checked = checked;
        count->wrong = 1;
    }
}

static void compare_buffer(const verify_rank *rank, form_tensor tensor, const char *buffer,
                           verify_where where, verify_count *count) {
    const form *f = &rank->form[tensor];
    lierne_dtype dtype = f->dtype;
    size_t size = lierne_dtype_size(dtype);
    const char zero[FORM_ELEMENT] = {0};
    cursor c = {.form = f};
    for (int64_t i = 0; i < f->elements; i++, cursor_next(&c)) {
        char element[FORM_ELEMENT];
        cursor_expected(&c, element);
        const char *got = buffer + (size_t)i * size;
        /* Of rows that a rank does not own an output keeps the pattern; an alias may hold any. */
        bool any = where == VERIFY_IN_ALIAS && !cursor_owns(&c);
        any = any || (cursor_may_be_zero(&c) && memcmp(zero, got, size) == 0);
        if (!any && memcmp(element, got, size) != 0) {
            verify_count wrong = {.rank = rank->rank,
                                  .index = i,
                                  .where = where,
                                  .expected = element_load(dtype, element),
                                  .got = element_load(dtype, got)};
            count_wrong(count, &wrong);
        }
    }
}

static void compare_guard(const verify_rank *rank, form_tensor tensor, verify_count *count) {
    const form *f = &rank->form[tensor];
    size_t bytes = buffer_bytes(f);
    for (size_t i = 0; i < GUARD; i++) {
        unsigned char got = (unsigned char)rank->buffer[tensor][bytes + i];
        if (got != FORM_NOTHING) {
            verify_count wrong = {.rank = rank->rank,
                                  .index = (int64_t)i,
                                  .where = VERIFY_PAST_OUTPUT,
                                  .expected = FORM_NOTHING,
                                  .got = got};
            count_wrong(count, &wrong);
        }
    }
}

void verify_rank_check(const verify_rank *rank, const lierne_plan *plan, lierne_direction direction,
                       verify_count *count) {
    form_tensor in = tensor_in(direction);
    form_tensor out = tensor_out(direction);
    int64_t offset;
    compare_buffer(rank, out, rank->buffer[out], VERIFY_IN_OUTPUT, count);
    compare_guard(rank, out, count);
    compare_buffer(rank, in, rank->buffer[in], VERIFY_IN_INPUT, count);
    if (lierne_plan_get_alias(&offset, plan, direction) == LIERNE_OK && offset >= 0) {
        size_t size = lierne_dtype_size(rank->form[in].dtype);
        compare_buffer(rank, out, rank->buffer[in] + (size_t)offset * size, VERIFY_IN_ALIAS, count);
    }
    count->checked += rank->form[out].elements;
}

/* Exact, unless an element is so wrong that it is no small integer: that one counts as zero. */
static int64_t small_integer(double value) {
    return value >= -1e6 && value <= 1e6 ? (int64_t)value : 0;
}

static int64_t form_dot(const form *f, const char *a, const char *b) {
    lierne_dtype dtype = f->dtype;
    size_t size = lierne_dtype_size(dtype);
    int64_t sum = 0;
    cursor c = {.form = f};
    for (int64_t i = 0; i < f->elements; i++, cursor_next(&c)) {
        int64_t product = small_integer(element_load(dtype, a + (size_t)i * size)) *
                          small_integer(element_load(dtype, b + (size_t)i * size));
        sum += cursor_owns(&c) ? product : 0;
    }
    return sum;
}

static int64_t find_value(const int64_t *list, int64_t length, int64_t value) {
    int64_t low = 0, high = length - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        low = list[middle] < value ? middle + 1 : low;
        high = list[middle] < value ? high : middle;
    }
    return low;
}

/* Where an element of the gradient is in the output: whose axes, if they are not those of the
 * gradient, are ascending lists. */
static int64_t output_index(const verify_rank *rank, const int64_t *global, int64_t i) {
    const form *f = &rank->form[FORM_OUTPUT];
    int64_t index = 0;
    if (f->same_rows) {
        return i;
    }
    for (int axis = 0; axis < FORM_AXES; axis++) {
        index = index * f->shape[axis] + find_value(f->global[axis], f->shape[axis], global[axis]);
    }
    return index;
}

/* <F x, y> over the gradient's own elements. */
static int64_t gradient_dot(const verify_rank *rank) {
    const form *f = &rank->form[FORM_GRADIENT];
    lierne_dtype dtype = f->dtype;
    size_t size = lierne_dtype_size(dtype);
    int64_t sum = 0;
    cursor c = {.form = f};
    for (int64_t i = 0; i < f->elements; i++, cursor_next(&c)) {
        int64_t global[FORM_AXES];
        cursor_global(&c, global);
        if (form_owns(f, global)) {
            int64_t index = output_index(rank, global, i);
            const char *fx = rank->buffer[FORM_OUTPUT] + (size_t)index * size;
            const char *y = rank->buffer[FORM_GRADIENT] + (size_t)i * size;
            sum += small_integer(element_load(dtype, fx)) * small_integer(element_load(dtype, y));
        }
    }
    return sum;
}

void verify_rank_dot(const verify_rank *rank, int64_t *lhs, int64_t *rhs) {
    const form *source = &rank->form[FORM_INPUT];
    *lhs = rank->form[FORM_GRADIENT].counts ? gradient_dot(rank) : 0;
    *rhs =
        source->counts ? form_dot(source, rank->buffer[FORM_INPUT], rank->buffer[FORM_RESULT]) : 0;
}

bool verify_is_right(const verify_count *counts, int64_t lhs, int64_t rhs) {
    return counts[LIERNE_DIRECTION_FORWARD].wrong == 0 &&
           counts[LIERNE_DIRECTION_ADJOINT].wrong == 0 && lhs == rhs;
}

static const char *const names[] = {"forward", "adjoint"};
static const char *const places[] = {"output", "byte past the output", "input", "alias"};

void verify_print_json(const verify_count *counts, int64_t lhs, int64_t rhs) {
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        printf(",\"%s\":{\"checked\":%" PRId64 ",\"wrong\":%" PRId64 "}", names[d],
               counts[d].checked, counts[d].wrong);
    }
    printf(",\"dot\":{\"lhs\":%" PRId64 ",\"rhs\":%" PRId64 "}", lhs, rhs);
}

void verify_print_text(const verify_count *counts, int64_t lhs, int64_t rhs) {
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        const verify_count *c = &counts[d];
        printf("%s  %" PRId64 " elements checked, %" PRId64 " wrong\n", names[d], c->checked,
               c->wrong);
        if (c->wrong > 0) {
            printf("  first: rank %d, %s %" PRId64 ": expected %g, got %g\n", c->rank,
                   places[c->where], c->index, c->expected, c->got);
        }
    }
    printf("dot test <F x, y> = %" PRId64 ", <x, F* y> = %" PRId64 "%s\n", lhs, rhs,
           lhs == rhs ? "" : ": not equal");
    bool right = verify_is_right(counts, lhs, rhs);
    tool_print_painted(right ? TOOL_GOOD : TOOL_BAD,
                       right ? "forward and adjoint are right" : "WRONG");
    putchar('\n');
}
