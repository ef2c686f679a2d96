/* Samples without a capacity of items: memory and plans grow with them.
 *
 * Ranks know the sizes of all, and have had as many before, so all of them grow in the same step,
 * and agree that each of them could. */
#include "plan/samples/sample_routing.h"

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static bool fits(lierne_sample_size size, lierne_sample_size most) {
    return size.items <= most.items && size.segments <= most.segments;
}

/* What all ranks have, and where their blocks begin. */
static lierne_sample_size add_sizes(lierne_samples *s, int64_t *most_words, int64_t *words) {
    lierne_sample_size all = {0, 0};
    *words = *most_words = 0;
    for (int p = 0; p < s->nranks; p++) {
        int64_t own = lierne_sample_block_words(&s->spec, s->sizes[p]);
        s->first_word[p] = *words;
        *words += own;
        *most_words = larger(own, *most_words);
        all.items += s->sizes[p].items;
        all.segments += s->sizes[p].segments;
    }
    return all;
}

/* A half more than this step needs, so that steps that grow slowly are few. */
static lierne_status reserve_lists(lierne_samples *s, lierne_sample_routing *r,
                                   lierne_sample_size all, int64_t most_words, int64_t words) {
    s->most.items = larger(s->most.items, all.items + all.items / 2);
    s->most.segments = larger(s->most.segments, all.segments + all.segments / 2);
    LIERNE_TRY(lierne_samples_check_bytes(s, words));
    LIERNE_TRY(lierne_host_gather_grow(&s->gather, (size_t)(most_words + most_words / 2),
                                       (size_t)(words + words / 2)));
    LIERNE_TRY(lierne_samples_reserve_items(s));
    return lierne_samples_reserve_routing(s, r);
}

lierne_status lierne_samples_grow_lists(lierne_samples *s) {
    const lierne_field field = {.name = "lierne_samples_update"};
    lierne_sample_routing *next = &s->routings[!s->current];
    int64_t most_words, words;
    const lierne_sample_size all = add_sizes(s, &most_words, &words), before = s->most;
    if (fits(all, next->most) && (size_t)most_words <= s->gather.words &&
        (size_t)words <= s->gather.all) {
        return LIERNE_OK;
    }
    lierne_status status = reserve_lists(s, next, all, most_words, words);
    status = lierne_context_agree_all(s->context, status, &field, 1, NULL);
    if (status != LIERNE_OK) {
        next->most = (lierne_sample_size){-1, -1}; /* on all ranks: the next step tries again, */
        s->most = before;                          /* with no more than that one needs */
    }
    return status;
}

static lierne_status replace_plan(lierne_samples *s, int i) {
    lierne_plan *next;
    LIERNE_TRY(lierne_samples_create_plan(&next, s, i));
    lierne_plan_exchange(s->plans[i], next);
    (void)lierne_plan_destroy(next);
    return lierne_samples_update_plan(s, &s->routings[s->current], i);
}

lierne_status lierne_samples_grow_plans(lierne_samples *s) {
    const lierne_sample_routing *r = &s->routings[!s->current];
    if (fits((lierne_sample_size){r->n, r->boundaries[LIERNE_SAMPLES_SEGMENTS][r->n]},
             s->planned)) {
        return LIERNE_OK;
    }
    for (int i = 0; i < s->ntensors; i++) {
        LIERNE_TRY(replace_plan(s, i));
    }
    s->planned = s->most;
    return LIERNE_OK;
}
