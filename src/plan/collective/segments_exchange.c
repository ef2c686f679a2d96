/* Gathering descriptions of segments.
 *
 * A block has a fixed size, so that one all-gather is enough. What is wrong on one rank is a block,
 * too, in place of the description: then every rank sees the same fault and nobody waits. */
#include "lierne/segments.h"

#include "plan/host_gather.h"
#include "runtime/context/context.h"

#include <stdio.h>
#include <string.h>

/* The words of a block: a head, then those of each segment, then those of each run. */
enum { HEAD = 4, SEGMENT = 4, RUN = 5 };
/* A head: OK and three counts; or a status, the field at fault, its place and its value. */
enum { STATUS, NSEGMENTS, NRUNS, NIMAGES };
enum { FIELD = 1, PLACE, VALUE };

#define MOST_ROWS ((int64_t)1 << 60)

typedef enum fault_field {
    OWN,
    COUNT_OF_SEGMENTS,
    COUNT_OF_RUNS,
    COUNT_OF_IMAGES,
    NO_LENGTHS,
    NO_RUNS,
    LENGTH,
    LEAD,
    PADDED,
    RUN_SEGMENT,
    RUN_IMAGE,
    ALL
} fault_field;

struct lierne_segments_exchange {
    lierne_dependent dependent;
    lierne_context *context;
    lierne_host_gather gather;
    int64_t max_segments;
    int64_t max_runs;
    int64_t *cu;
    int64_t *padded;
    int64_t *lead;
    int32_t *owner;
    lierne_image_run *runs;
    int64_t *first;
};

/* ---- create ---- */

static lierne_status take_spec(lierne_segments_exchange_spec *spec,
                               const lierne_segments_exchange_spec *given,
                               const lierne_context *context) {
    int64_t words, all;
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    if (spec->max_segments < 0 || spec->max_runs < 0) {
        bool segments = spec->max_segments < 0;
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is %lld, must be at least 0",
                           segments ? "max_segments" : "max_runs",
                           (long long)(segments ? spec->max_segments : spec->max_runs));
    }
    bool fits = lierne_mul_i64(spec->max_segments, SEGMENT + 4, &words) &&
                lierne_mul_i64(spec->max_runs, 2 * RUN, &all) &&
                lierne_add_i64(words, all, &words) && lierne_add_i64(words, HEAD, &words) &&
                lierne_mul_i64(words, 8 * (int64_t)context->members.count, &all);
    return fits ? LIERNE_OK
                : LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                              "max_segments is %lld and max_runs %lld: blocks of %d ranks do not "
                              "fit",
                              (long long)spec->max_segments, (long long)spec->max_runs,
                              context->members.count);
}

static lierne_status alloc_arrays(lierne_segments_exchange *x) {
    size_t nranks = (size_t)x->context->members.count,
           words = HEAD + SEGMENT * (size_t)x->max_segments + RUN * (size_t)x->max_runs;
    size_t segments = nranks * (size_t)x->max_segments, runs = nranks * (size_t)x->max_runs;
    LIERNE_TRY(lierne_host_gather_open(&x->gather, x->context, words));
    LIERNE_TRY(lierne_alloc(&x->cu, segments + 1, sizeof *x->cu));
    LIERNE_TRY(lierne_alloc(&x->padded, segments + 1, sizeof *x->padded));
    LIERNE_TRY(lierne_alloc(&x->lead, segments + 1, sizeof *x->lead));
    LIERNE_TRY(lierne_alloc(&x->owner, segments + 1, sizeof *x->owner));
    LIERNE_TRY(lierne_alloc(&x->runs, runs + 1, sizeof *x->runs));
    return lierne_alloc(&x->first, nranks + 1, sizeof *x->first);
}

static lierne_status free_exchange(lierne_segments_exchange *x) {
    lierne_status status = lierne_host_gather_close(&x->gather);
    lierne_mem_free(x->cu);
    lierne_mem_free(x->padded);
    lierne_mem_free(x->lead);
    lierne_mem_free(x->owner);
    lierne_mem_free(x->runs);
    lierne_mem_free(x->first);
    lierne_mem_free(x);
    return status;
}

static lierne_status prepare(lierne_segments_exchange **out, lierne_context *context,
                             const lierne_segments_exchange_spec *given) {
    lierne_segments_exchange_spec spec;
    lierne_segments_exchange *x;
    LIERNE_TRY(take_spec(&spec, given, context));
    LIERNE_TRY(lierne_alloc(out, 1, sizeof **out));
    x = *out;
    x->context = context;
    x->max_segments = spec.max_segments;
    x->max_runs = spec.max_runs;
    return alloc_arrays(x);
}

/* Gathering is blocking. */
static bool is_busy(const lierne_dependent *dependent) {
    (void)dependent;
    return false;
}

static lierne_status destroy_dependent(lierne_dependent *dependent) {
    lierne_segments_exchange *x = (lierne_segments_exchange *)dependent;
    x->context->nplans -= lierne_context_remove_dependent(x->context, dependent);
    return free_exchange(x);
}

lierne_status lierne_segments_exchange_create(lierne_segments_exchange **out,
                                              lierne_context *context,
                                              const lierne_segments_exchange_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_segments_exchange *x = NULL;
    lierne_field fields[2] = {{.name = "max_segments"}, {.name = "max_runs"}};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? prepare(&x, context, spec)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    fields[0].value = x ? x->max_segments : 0;
    fields[1].value = x ? x->max_runs : 0;
    status = lierne_context_agree_all(context, status, fields, 2, NULL);
    if (status == LIERNE_OK) {
        status = lierne_host_gather_plan(&x->gather, NULL);
    }
    if (status != LIERNE_OK) {
        if (x) {
            (void)free_exchange(x);
        }
        return status;
    }
    x->dependent = (lierne_dependent){.busy = is_busy, .destroy = destroy_dependent};
    lierne_context_add_dependent(context, &x->dependent);
    context->nplans++;
    *out = x;
    return LIERNE_OK;
}

lierne_status lierne_segments_exchange_destroy(lierne_segments_exchange *x) {
    LIERNE_PUBLIC_CALL();
    return x ? destroy_dependent(&x->dependent) : LIERNE_OK;
}

/* ---- a rank's block ---- */

static bool fault(int64_t *head, lierne_status status, fault_field field, int64_t place,
                  int64_t value) {
    head[STATUS] = (int64_t)status;
    head[FIELD] = (int64_t)field;
    head[PLACE] = place;
    head[VALUE] = value;
    return false;
}

static bool check_counts(const lierne_segments_exchange *x, int64_t *head,
                         const lierne_own_segments *own) {
    const lierne_status invalid = LIERNE_ERR_INVALID, capacity = LIERNE_ERR_CAPACITY;
    if (own->nsegments < 0 || own->nsegments > x->max_segments) {
        return fault(head, own->nsegments < 0 ? invalid : capacity, COUNT_OF_SEGMENTS, 0,
                     own->nsegments);
    }
    if (own->nruns < 0 || own->nruns > x->max_runs) {
        return fault(head, own->nruns < 0 ? invalid : capacity, COUNT_OF_RUNS, 0, own->nruns);
    }
    if (own->nimages < 0) {
        return fault(head, invalid, COUNT_OF_IMAGES, 0, own->nimages);
    }
    if (own->nsegments > 0 && !own->lengths) {
        return fault(head, invalid, NO_LENGTHS, 0, own->nsegments);
    }
    return own->nruns == 0 || own->runs || fault(head, invalid, NO_RUNS, 0, own->nruns);
}

static bool put_segment(int64_t *head, int64_t *words, const lierne_own_segments *own, int64_t i) {
    int64_t lead = own->lead ? own->lead[i] : 0, need;
    if (own->lengths[i] < 0 || own->lengths[i] > MOST_ROWS) {
        return fault(head, LIERNE_ERR_INVALID, LENGTH, i, own->lengths[i]);
    }
    if (lead < 0 || lead > MOST_ROWS) {
        return fault(head, LIERNE_ERR_INVALID, LEAD, i, lead);
    }
    need = lead + own->lengths[i];
    int64_t padded = own->padded ? own->padded[i] : need;
    if (padded < need || padded > MOST_ROWS) {
        return fault(head, LIERNE_ERR_INVALID, PADDED, i, padded);
    }
    words[0] = own->lengths[i];
    words[1] = padded;
    words[2] = lead;
    words[3] = own->owner ? own->owner[i] : 0;
    return true;
}

static bool put_run(int64_t *head, int64_t *words, const lierne_own_segments *own, int64_t i) {
    const lierne_image_run *run = &own->runs[i];
    if (run->segment < 0 || run->segment >= own->nsegments) {
        return fault(head, LIERNE_ERR_INDEX_RANGE, RUN_SEGMENT, i, run->segment);
    }
    if (run->image < 0 || run->image >= own->nimages) {
        return fault(head, LIERNE_ERR_INDEX_RANGE, RUN_IMAGE, i, run->image);
    }
    memcpy(words, run, sizeof *run);
    return true;
}

/* Writes the block, or what is wrong with it. */
static void put_block(const lierne_segments_exchange *x, const lierne_own_segments *given) {
    lierne_own_segments own;
    int64_t *head = x->gather.own;
    if (lierne_spec_take(&own, sizeof own, given, "own") != LIERNE_OK) {
        (void)fault(head, LIERNE_ERR_INVALID, OWN, 0, 0);
        return;
    }
    bool good = check_counts(x, head, &own);
    for (int64_t i = 0; good && i < own.nsegments; i++) {
        good = put_segment(head, head + HEAD + SEGMENT * i, &own, i);
    }
    for (int64_t i = 0; good && i < own.nruns; i++) {
        good = put_run(head, head + HEAD + SEGMENT * own.nsegments + RUN * i, &own, i);
    }
    if (good) {
        head[STATUS] = LIERNE_OK;
        head[NSEGMENTS] = own.nsegments;
        head[NRUNS] = own.nruns;
        head[NIMAGES] = own.nimages;
    }
}

/* ---- all blocks ---- */

static const int64_t *block_of(const lierne_segments_exchange *x, size_t i) {
    return x->gather.blocks + i * x->gather.words;
}

/* The name of a field at fault, and the bounds of its values; most below least: none. */
typedef struct field_text {
    const char *name;
    bool listed;
    int64_t least;
    int64_t most;
} field_text;

static field_text text_of(const lierne_segments_exchange *x, fault_field field) {
    const field_text texts[] = {[OWN] = {"own", false, 0, -1},
                                [COUNT_OF_SEGMENTS] = {"nsegments", false, 0, x->max_segments},
                                [COUNT_OF_RUNS] = {"nruns", false, 0, x->max_runs},
                                [COUNT_OF_IMAGES] = {"nimages", false, 0, INT64_MAX},
                                [NO_LENGTHS] = {"lengths is NULL: nsegments", false, 0, 0},
                                [NO_RUNS] = {"runs is NULL: nruns", false, 0, 0},
                                [LENGTH] = {"lengths", true, 0, MOST_ROWS},
                                [LEAD] = {"lead", true, 0, MOST_ROWS},
                                [PADDED] = {"padded", true, 0, -1},
                                [RUN_SEGMENT] = {"segment of runs", true, 0, -1},
                                [RUN_IMAGE] = {"image of runs", true, 0, -1},
                                [ALL] = {"all->size", false, 0, -1}};
    return texts[field];
}

static lierne_status report_fault(const lierne_segments_exchange *x, size_t i) {
    const int64_t *head = block_of(x, i);
    const field_text text = text_of(x, (fault_field)head[FIELD]);
    int rank = lierne_members_rank(&x->context->members, (int)i);
    char place[24] = "", bound[64];
    if (text.listed) {
        snprintf(place, sizeof place, "[%lld]", (long long)head[PLACE]);
    }
    snprintf(bound, sizeof bound, "in %lld to %lld", (long long)text.least, (long long)text.most);
    switch ((fault_field)head[FIELD]) {
    case ALL:
        return LIERNE_FAIL((lierne_status)head[STATUS], "rank %d: all->size is %lld, must be %zu",
                           rank, (long long)head[VALUE], sizeof(lierne_gathered_segments));
    case OWN:
        return LIERNE_FAIL((lierne_status)head[STATUS], "rank %d: own is NULL, or of another size",
                           rank);
    case PADDED:
        snprintf(bound, sizeof bound, "at least lead and length, and at most %lld",
                 (long long)MOST_ROWS);
        break;
    case RUN_SEGMENT:
    case RUN_IMAGE:
        snprintf(bound, sizeof bound, "one of the rank's own, counted from 0");
        break;
    default:
        break;
    }
    return LIERNE_FAIL((lierne_status)head[STATUS], "rank %d: %s%s is %lld, must be %s", rank,
                       text.name, place, (long long)head[VALUE], bound);
}

static lierne_status check_blocks(const lierne_segments_exchange *x) {
    int64_t rows = 0, images = 0;
    for (size_t i = 0; i < x->gather.nranks; i++) {
        LIERNE_TRY(block_of(x, i)[STATUS] == LIERNE_OK ? LIERNE_OK : report_fault(x, i));
    }
    for (size_t i = 0; i < x->gather.nranks; i++) {
        const int64_t *head = block_of(x, i);
        bool fits = lierne_add_i64(images, head[NIMAGES], &images);
        for (int64_t k = 0; k < head[NSEGMENTS]; k++) {
            fits = fits && lierne_add_i64(rows, head[HEAD + SEGMENT * k + 1], &rows) &&
                   rows <= MOST_ROWS;
        }
        if (!fits) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                               "the segments of the ranks up to rank %d have more than %lld rows, "
                               "or images beyond 2^63",
                               lierne_members_rank(&x->context->members, (int)i),
                               (long long)MOST_ROWS);
        }
    }
    return LIERNE_OK;
}

static void take_segment(lierne_segments_exchange *x, int64_t k, const int64_t *words) {
    x->cu[k + 1] = x->cu[k] + words[0];
    x->padded[k + 1] = x->padded[k] + words[1];
    x->lead[k] = words[2];
    x->owner[k] = (int32_t)words[3];
}

/* Numbers segments, runs and images by rank. */
static lierne_gathered_segments take_blocks(lierne_segments_exchange *x) {
    lierne_gathered_segments all = {.size = sizeof all,
                                    .cu_seqlens = x->cu,
                                    .cu_seqlens_padded = x->padded,
                                    .lead = x->lead,
                                    .owner = x->owner,
                                    .runs = x->runs,
                                    .first_segment = x->first};
    for (size_t i = 0; i < x->gather.nranks; i++) {
        const int64_t *head = block_of(x, i), *runs = head + HEAD + SEGMENT * head[NSEGMENTS];
        x->first[i] = all.nsegments;
        for (int64_t k = 0; k < head[NRUNS]; k++) {
            lierne_image_run *run = &x->runs[all.nruns++];
            memcpy(run, runs + RUN * k, sizeof *run);
            run->segment += all.nsegments;
            run->image += all.nimages;
        }
        for (int64_t k = 0; k < head[NSEGMENTS]; k++) {
            take_segment(x, all.nsegments++, head + HEAD + SEGMENT * k);
        }
        all.nimages += head[NIMAGES];
    }
    x->first[x->gather.nranks] = all.nsegments;
    return all;
}

lierne_status lierne_segments_gather(lierne_gathered_segments *out, lierne_segments_exchange *x,
                                     const lierne_own_segments *own) {
    LIERNE_PUBLIC_CALL();
    lierne_gathered_segments all;
    size_t given = 0;
    LIERNE_TRY(lierne_check_set(out, "all"));
    LIERNE_TRY(lierne_check_set(x, "exchange"));
    LIERNE_TRY(lierne_context_alive(x->context));
    if (lierne_spec_read_size(&given, out, sizeof all, "all") == LIERNE_OK) {
        put_block(x, own);
    } else {
        (void)fault(x->gather.own, LIERNE_ERR_INVALID, ALL, 0, (int64_t)given);
    }
    LIERNE_TRY(lierne_host_gather_run(&x->gather));
    LIERNE_TRY(check_blocks(x));
    all = take_blocks(x);
    return lierne_spec_give(out, &all, sizeof all, "all");
}
