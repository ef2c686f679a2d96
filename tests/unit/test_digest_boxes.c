/* Digests of tensor sets with boxes: random ones whose outputs a model has filled; every element
 * that is changed, and every two that are swapped, are found, with their tensor and rank. */
#include "base/base.h"
#include "lierne/digest.h"
#include "seeds.h"
#include "unit/boxes_case.h"
#include "unit/ranks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 6, SEEDS = 60, FAULTS = 6 };

typedef struct trial {
    uint64_t seed;
    boxes_case c;
    boxes_spec specs[MOST];
    int64_t *in[MOST], *out[MOST];
    int64_t nboxes;
    lierne_status wanted;
    char text[100];
    char what[MOST][400]; /* of a rank that saw something else */
} trial;

static uint64_t draw(uint64_t *seed) {
    *seed += 0x9e3779b97f4a7c15u;
    uint64_t x = (*seed ^ *seed >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void open_trial(trial *t, uint64_t seed) {
    t->seed = seed;
    random_boxes(&t->c, seed, 1 + (int)(seed % MOST));
    t->nboxes = t->c.nboxes;
    for (int r = 0; r < t->c.world; r++) {
        boxes_spec *s = &t->specs[r];
        boxes_open(s, &t->c, r);
        t->in[r] = malloc(((size_t)s->elements[0] + 1) * sizeof(int64_t));
        t->out[r] = malloc(((size_t)s->elements[1] + 1) * sizeof(int64_t));
        boxes_fill(t->in[r], s, &t->c, 0, r);
        boxes_expect(t->out[r], s, &t->c, 1, r);
    }
}

static void close_trial(trial *t) {
    for (int r = 0; r < t->c.world; r++) {
        boxes_close(&t->specs[r], &t->c);
        free(t->in[r]);
        free(t->out[r]);
    }
}

static void work(lierne_context *context, void *shared) {
    trial *t = shared;
    int rank = lierne_context_get_rank(context);
    const boxes_spec *s = &t->specs[rank];
    const void *data[2][BOXES_TENSORS];
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < t->c.n[side]; i++) {
            data[side][i] = (side ? t->out : t->in)[rank] + s->offsets[side][i];
        }
    }
    const lierne_digest_check_spec spec = {.size = sizeof spec,
                                           .ntensors = (int)s->spec.ntensors,
                                           .src = s->spec.src,
                                           .dst = s->spec.dst,
                                           .key = t->seed,
                                           .boxes = s->spec.boxes,
                                           .nboxes = t->nboxes,
                                           .ndst = s->spec.ndst};
    lierne_status status = lierne_digest_check(context, &spec, data[1], data[0]);
    if (status != t->wanted || (status && !strstr(lierne_last_error(), t->text))) {
        snprintf(t->what[rank], sizeof t->what[rank], "seed %d, rank %d: %s: %s, wanted %s",
                 (int)t->seed, rank, lierne_status_name(status), lierne_last_error(), t->text);
    }
}

static void check_all(trial *t, lierne_status wanted, const char *text) {
    t->wanted = wanted;
    snprintf(t->text, sizeof t->text, "%s", text);
    memset(t->what, 0, sizeof t->what);
    ranks_run(t->c.world, NULL, work, t);
    for (int r = 0; r < t->c.world; r++) {
        cr_expect_str_empty(t->what[r], "%s", t->what[r]);
    }
}

/* An element that a rank owns of a destination, and where its tensor's elements end; -1: none. */
static int64_t draw_element(const trial *t, int rank, int tensor, int64_t *end, uint64_t *seed) {
    const boxes_spec *s = &t->specs[rank];
    int64_t stored = 0, owned = 0, poison;
    memset(&poison, 0xa5, sizeof poison);
    lierne_layout_get_elements(&stored, &owned, s->layouts[1][tensor], rank);
    int64_t first = s->offsets[1][tensor];
    *end = first + stored;
    for (int tries = 0; owned > 0 && tries < 100; tries++) {
        int64_t at = first + (int64_t)(draw(seed) % (uint64_t)stored);
        if (t->out[rank][at] != poison) {
            return at;
        }
    }
    return -1;
}

/* Changes an element, or swaps two; false where there was none. */
static bool try_fault(trial *t, uint64_t *seed) {
    int rank = (int)(draw(seed) % (uint64_t)t->c.world);
    int tensor = (int)(draw(seed) % (uint64_t)t->c.n[1]);
    int64_t end, at = draw_element(t, rank, tensor, &end, seed);
    int64_t other = draw_element(t, rank, tensor, &end, seed), *out = t->out[rank];
    bool swaps = draw(seed) % 2;
    if (at < 0 || (swaps && (other < 0 || out[at] == out[other]))) {
        return false;
    }
    int64_t before[2] = {out[at], other < 0 ? 0 : out[other]};
    char text[100];
    out[at] = swaps ? before[1] : before[0] ^ (int64_t)((uint64_t)1 << draw(seed) % 64);
    if (swaps) {
        out[other] = before[0];
    }
    snprintf(text, sizeof text, "tensor %d: out of rank %d differs from in of rank ", tensor, rank);
    check_all(t, LIERNE_ERR_MISMATCH, text);
    if (swaps) {
        out[other] = before[1];
    }
    out[at] = before[0];
    return true;
}

Test(digest_boxes, every_fault_is_found_with_its_tensor_and_rank, .timeout = 600) {
    static trial t;
    seed_range seeds = test_seeds(SEEDS);
    int found = 0;
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        uint64_t random = seed;
        open_trial(&t, seed);
        check_all(&t, LIERNE_OK, "");
        for (int i = 0; i < FAULTS; i++) {
            found += try_fault(&t, &random);
        }
        close_trial(&t);
    }
    cr_expect(seeds.end - seeds.first < SEEDS || found > SEEDS, "%d faults", found);
}

Test(digest_boxes, boxes_that_are_rejected) {
    static trial t;
    open_trial(&t, 3);
    t.nboxes--;
    check_all(&t, LIERNE_ERR_INVALID, "in no box");
    t.nboxes = 0;
    check_all(&t, LIERNE_ERR_INVALID, "nboxes is 0");
    close_trial(&t);
}
