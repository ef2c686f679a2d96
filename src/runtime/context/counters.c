/* Counters of a context.
 *
 * A program may make a plan in every step, and a summary comes when all plans are gone: so rows are
 * of names and kinds, of which there are few, and not of plans. Making a plan is collective, so
 * ranks have the same rows in the same order. */
#include "runtime/context/context.h"

#include <stdio.h>
#include <string.h>

enum { RESERVED = 24 }; /* rows: more than there are kinds */

lierne_status lierne_counters_reserve(lierne_context *context) {
    return lierne_alloc(&context->reserved_counters, RESERVED, sizeof(lierne_counters));
}

static bool is_reserved(const lierne_context *context, const lierne_counters *row) {
    const lierne_counters *first = context->reserved_counters;
    return first && row >= first && row < first + RESERVED;
}

static lierne_status take_row(lierne_counters **out, const lierne_context *context) {
    for (int i = 0; context->reserved_counters && i < RESERVED; i++) {
        if (!context->reserved_counters[i].kind) {
            *out = &context->reserved_counters[i];
            return LIERNE_OK;
        }
    }
    return lierne_alloc(out, 1, sizeof **out);
}

static void free_row(const lierne_context *context, lierne_counters *row) {
    if (is_reserved(context, row)) {
        *row = (lierne_counters){.kind = NULL};
    } else {
        lierne_mem_free(row);
    }
}

lierne_status lierne_counters_find(lierne_counters **out, lierne_context *context, const char *name,
                                   const char *kind) {
    lierne_counters **at = &context->counters;
    while (*at && (strcmp((*at)->name, name ? name : "") != 0 || strcmp((*at)->kind, kind) != 0)) {
        at = &(*at)->next;
    }
    if (!*at) {
        lierne_counters *row;
        LIERNE_TRY(take_row(&row, context));
        snprintf(row->name, sizeof row->name, "%s", name ? name : "");
        row->kind = kind;
        *at = row;
    }
    *out = *at;
    return LIERNE_OK;
}

void lierne_counters_release(lierne_context *context, lierne_counters *row) {
    lierne_counters **at = &context->counters;
    while (row && *at != row) {
        at = &(*at)->next;
    }
    if (row && row->plans == 0) {
        *at = row->next;
        free_row(context, row);
    }
}

void lierne_counters_drop(lierne_context *context) {
    while (context->counters) {
        lierne_counters *next = context->counters->next;
        free_row(context, context->counters);
        context->counters = next;
    }
    lierne_mem_free(context->reserved_counters);
}
