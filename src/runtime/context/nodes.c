/* What the functions that create contexts over several processes have in common: which ranks are
 * on one node, and what the ranks compare before they begin. */
#include "runtime/context/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lierne_status own_node(int *node) {
    const char *text = getenv("LIERNE_NODE");
    size_t digits = text ? strspn(text, "0123456789") : 0;
    if (text && (digits == 0 || digits > 9 || text[digits])) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "LIERNE_NODE is '%s', must be a whole number from 0 to 999999999, in "
                           "digits only: the same on ranks of one node",
                           text);
    }
    *node = text ? atoi(text) : *node;
    return LIERNE_OK;
}

lierne_status lierne_context_node_id(uint64_t *id, const lierne_context_spec *spec, int index,
                                     const char *host) {
    int node = -1;
    LIERNE_TRY(own_node(&node));
    if (node >= 0) {
        *id = (uint64_t)node;
    } else if (spec->nodes) {
        *id = (uint64_t)spec->nodes[index];
    } else {
        *id = lierne_hash(0, host, strlen(host));
    }
    return LIERNE_OK;
}

static int by_node(const void *a, const void *b) {
    const lierne_rank_info *x = a, *y = b;
    int node = (x->node > y->node) - (x->node < y->node);
    return node ? node : (x->rank > y->rank) - (x->rank < y->rank);
}

void lierne_context_number_nodes(lierne_context *context, lierne_rank_info *infos, int world) {
    int node = 0;
    qsort(infos, (size_t)world, sizeof *infos, by_node);
    for (int i = 0; i < world; i++) {
        if (i == 0 || infos[i].node != infos[i - 1].node) {
            node = (int)infos[i].rank;
        }
        context->nodes[infos[i].rank] = node;
    }
    if (infos[0].node == infos[world - 1].node) {
        lierne_mem_free(context->nodes);
        context->nodes = NULL;
    }
}

lierne_status lierne_context_list_fields(lierne_field *fields, lierne_context *context,
                                         const lierne_context_spec *spec, const char *call) {
    const lierne_members *members = &context->members;
    const char *list = getenv("LIERNE_TRANSPORTS");
    size_t count = (size_t)members->count;
    snprintf(fields[0].name, sizeof fields[0].name, "%s", call);
    fields[1] = lierne_field_list("nodes", LIERNE_ITEM_I32, spec->nodes, count);
    fields[2] = (lierne_field){.name = "check", .value = context->check};
    fields[3] = lierne_field_text("LIERNE_TRANSPORTS", list && *list ? list : NULL);
    fields[4] = (lierne_field){.name = "world_size", .value = members->world};
    fields[5] = lierne_field_list("members", LIERNE_ITEM_I32, members->ranks, count);
    fields[6] = lierne_field_list("links", LIERNE_ITEM_I64, &context->links,
                                  sizeof context->links / sizeof(int64_t));
    fields[7] = lierne_field_text("name", context->name);
    fields[8] = (lierne_field){.name = "LIERNE_SUMMARY", .value = context->summary};
    return lierne_context_select_transports(context);
}
