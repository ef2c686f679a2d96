/* Counters of a context.
 *
 * A program may make a plan in every step, and a summary comes when all plans are gone: so rows are
 * of names and kinds, of which there are few, and not of plans. Making a plan is collective, so
 * ranks have the same rows in the same order. */
#include "runtime/context/context.h"

#include <stdio.h>
#include <string.h>

lierne_status lierne_counters_find(lierne_counters **out, lierne_context *context, const char *name,
                                   const char *kind) {
    lierne_counters **at = &context->counters;
    while (*at && (strcmp((*at)->name, name ? name : "") != 0 || strcmp((*at)->kind, kind) != 0)) {
        at = &(*at)->next;
    }
    if (!*at) {
        lierne_counters *row;
        LIERNE_TRY(lierne_alloc(&row, 1, sizeof *row));
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
        lierne_mem_free(row);
    }
}

void lierne_counters_drop(lierne_context *context) {
    while (context->counters) {
        lierne_counters *next = context->counters->next;
        lierne_mem_free(context->counters);
        context->counters = next;
    }
}
