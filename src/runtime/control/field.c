/* What ranks compare before they act together, and the message of the first difference. */
#include "runtime/control/field.h"

#include <stdio.h>
#include <string.h>

lierne_field lierne_field_list(const char *name, lierne_item_kind kind, const void *items,
                               size_t count) {
    lierne_field field = {.kind = kind, .list = true, .items = items, .count = items ? count : 0};
    snprintf(field.name, sizeof field.name, "%s", name);
    if (items) {
        field.value = (int64_t)lierne_hash(count, items, count * lierne_item_size(kind));
    }
    return field;
}

lierne_field lierne_field_text(const char *name, const char *text) {
    return lierne_field_list(name, LIERNE_ITEM_TEXT, text, text ? strlen(text) : 0);
}

size_t lierne_item_size(lierne_item_kind kind) {
    static const size_t sizes[] = {[LIERNE_ITEM_I64] = sizeof(int64_t),
                                   [LIERNE_ITEM_I32] = sizeof(int32_t),
                                   [LIERNE_ITEM_F64] = sizeof(double),
                                   [LIERNE_ITEM_TEXT] = 1};
    return sizes[kind];
}

/* Writes a number of the kind that is at `at`. */
static void print_item(char *text, size_t size, lierne_item_kind kind, const void *at) {
    int64_t wide;
    int32_t narrow;
    double real;
    switch (kind) {
    case LIERNE_ITEM_F64:
        memcpy(&real, at, sizeof real);
        snprintf(text, size, "%.17g", real);
        break;
    case LIERNE_ITEM_I32:
        memcpy(&narrow, at, sizeof narrow);
        snprintf(text, size, "%d", (int)narrow);
        break;
    default:
        memcpy(&wide, at, sizeof wide);
        snprintf(text, size, "%lld", (long long)wide);
    }
}

/* What a field is, as far as one line can say it. */
static void print_field(char *text, size_t size, const lierne_field *field) {
    if (!field) {
        snprintf(text, size, "none");
    } else if (field->items) {
        snprintf(text, size, "%zu entries", field->count);
    } else if (field->list) {
        snprintf(text, size, "NULL");
    } else {
        print_item(text, size, field->kind, &field->value);
    }
}

void lierne_fields_print(lierne_text *text, const lierne_field *fields, size_t n) {
    const char *between = "";
    for (size_t i = 0; i < n; i++) {
        const lierne_field *f = &fields[i];
        char value[48];
        if (f->list ? !f->items : f->value == 0) {
            continue;
        }
        lierne_text_add(text, "%s%s ", between, f->name);
        if (f->list && f->kind == LIERNE_ITEM_TEXT) {
            lierne_text_add(text, "'%.*s'", (int)f->count, (const char *)f->items);
        } else {
            print_field(value, sizeof value, f);
            lierne_text_add(text, "%s", value);
        }
        between = ", ";
    }
}

bool lierne_field_same_lists(const lierne_field *first, const lierne_field *mine) {
    return first && mine && first->items && mine->items && first->kind == mine->kind &&
           strcmp(first->name, mine->name) == 0 &&
           (first->kind == LIERNE_ITEM_TEXT || first->count == mine->count);
}

uint64_t lierne_fields_hash(const lierne_field *fields, size_t n) {
    uint64_t hash = lierne_hash(0, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        hash = lierne_hash(hash, fields[i].name, strlen(fields[i].name) + 1);
        hash = lierne_hash(hash, &fields[i].value, sizeof fields[i].value);
    }
    return hash;
}

lierne_status lierne_field_compare(size_t index, const lierne_field *first, int first_rank,
                                   const lierne_field *mine, int rank) {
    char theirs[48], own[48];
    bool same_name = first && mine && strcmp(first->name, mine->name) == 0;
    if (same_name && first->value == mine->value && !first->items == !mine->items) {
        return LIERNE_OK;
    }
    if (index == 0 && first && mine && !same_name) {
        return LIERNE_FAIL(
            LIERNE_ERR_MISMATCH,
            "ranks make different calls: %s on rank %d, %s on rank %d: all must make "
            "the same calls in the same order",
            first->name, first_rank, mine->name, rank);
    }
    print_field(theirs, sizeof theirs, first);
    print_field(own, sizeof own, mine);
    return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                       "%s differs between ranks: %s on rank %d, %s on rank %d",
                       mine ? mine->name : first->name, theirs, first_rank, own, rank);
}

lierne_status lierne_field_compare_items(const void *items, size_t start, size_t n, int first_rank,
                                         const lierne_field *mine, int rank) {
    size_t size = lierne_item_size(mine->kind);
    const char *own = (const char *)mine->items + start * size, *theirs = items;
    if (mine->kind == LIERNE_ITEM_TEXT) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "%s differs between ranks: '%.*s' on rank %d, '%.*s' on rank %d",
                           mine->name, (int)n, theirs, first_rank, (int)mine->count, own, rank);
    }
    for (size_t i = 0; i < n; i++) {
        if (memcmp(theirs + i * size, own + i * size, size) != 0) {
            char a[32], b[32];
            print_item(a, sizeof a, mine->kind, theirs + i * size);
            print_item(b, sizeof b, mine->kind, own + i * size);
            return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                               "%s[%zu] differs between ranks: %s on rank %d, %s on rank %d",
                               mine->name, start + i, a, first_rank, b, rank);
        }
    }
    return LIERNE_OK;
}
