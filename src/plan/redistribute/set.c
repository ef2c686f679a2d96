/* Which moves of a set are alike, and where each tensor is in this rank's buffers.
 *
 * Planning is done once per class: per pair of different layouts and, where boxes move, per place
 * of a box in its tensors. A large model has tens of thousands of tensors and a few hundred
 * classes. Layouts are compared by what they say and not by where they are, because classes must be
 * the same on every rank; a layout that is given again and again is looked at once. */
#include "plan/redistribute/set.h"
#include "layout/dense_halo.h"
#include "plan/redistribute/redistribute_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Numbers by key: open addressing, at most half full. A value of 0 is a free place. */
typedef struct table {
    lierne_keyed *at;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
} table;

static lierne_keyed *place_of(const table *t, uint64_t key) {
    uint64_t at = lierne_hash(0, &key, sizeof key);
    for (;; at++) {
        lierne_keyed *entry = &t->at[at & (t->capacity - 1)];
        if (entry->value == 0 || entry->key == key) {
            return entry;
        }
    }
}

static lierne_status grow(table *t) {
    table larger = {.capacity = t->capacity ? 2 * t->capacity : 64, .count = t->count};
    LIERNE_TRY(lierne_alloc(&larger.at, larger.capacity, sizeof *larger.at));
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->at[i].value) {
            *place_of(&larger, t->at[i].key) = t->at[i];
        }
    }
    lierne_mem_free(t->at);
    *t = larger;
    return LIERNE_OK;
}

/* *number becomes that of a key; of a new one `next`, and *is_new says so. */
static lierne_status number_of(table *t, uint64_t key, int64_t next, int64_t *number,
                               bool *is_new) {
    LIERNE_TRY(2 * t->count >= t->capacity ? grow(t) : LIERNE_OK);
    lierne_keyed *entry = place_of(t, key);
    *is_new = entry->value == 0;
    if (*is_new) {
        *entry = (lierne_keyed){key, next + 1};
        t->count++;
    }
    *number = entry->value - 1;
    return LIERNE_OK;
}

/* What the tensors are sorted with. */
typedef struct sorting {
    lierne_set *set;
    const lierne_set_spec *spec;
    table pointers; /* number of a layout by its address */
    table contents; /* the same by its hash */
    table pairs;    /* number of a class by its layouts, and where boxes are in them */
} sorting;

static lierne_status number_layout(sorting *s, const lierne_layout *layout, int64_t *number) {
    lierne_set *set = s->set;
    lierne_set_layout l = {.layout = layout};
    bool is_new;
    lierne_keyed *known = s->pointers.capacity ? place_of(&s->pointers, (uintptr_t)layout) : NULL;
    if (known && known->value) {
        *number = known->value - 1;
        return LIERNE_OK;
    }
    l.hash = lierne_layout_hash(layout);
    LIERNE_TRY(number_of(&s->contents, l.hash, (int64_t)set->layouts.count, number, &is_new));
    if (is_new) {
        LIERNE_TRY(lierne_layout_get_elements(&l.elements, NULL, layout, set->rank));
        LIERNE_TRY(LIERNE_VEC_PUSH(&set->layouts, l));
    }
    return number_of(&s->pointers, (uintptr_t)layout, *number, number, &is_new);
}

static lierne_status check_first(const lierne_layout *layout, const lierne_layout *first,
                                 const char *name) {
    if (layout->dtype != first->dtype) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s has dtype %s, src[0] has %s: a set has one dtype; plan another set "
                           "and coalesce them",
                           name, lierne_dtype_name(layout->dtype), lierne_dtype_name(first->dtype));
    }
    if (layout->world != first->world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the grid of %s has a world of %d ranks, that of src[0] one of %d: they "
                           "must be the same",
                           name, layout->world, first->world);
    }
    return LIERNE_OK;
}

static lierne_status check_plain(const lierne_layout *layout, const char *name) {
    LIERNE_TRY(lierne_redistribute_check_complete(layout, name));
    if (layout->packed) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "%s has a packing: sets have none, lierne_plan_create_redistribute does",
                           name);
    }
    for (int d = 0; d < layout->ndims; d++) {
        if (layout->placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                               "dim %d of %s is PARTIAL: sets do not sum, "
                               "lierne_plan_create_redistribute does",
                               d, name);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_pair(const lierne_set_spec *spec, int64_t i) {
    char src[32], dst[32];
    snprintf(src, sizeof src, "src[%lld]", (long long)i);
    snprintf(dst, sizeof dst, "dst[%lld]", (long long)i);
    LIERNE_TRY(check_first(spec->src[i], spec->src[0], src));
    LIERNE_TRY(lierne_redistribute_check_pair(spec->src[i], src, spec->dst[i], dst));
    LIERNE_TRY(lierne_redistribute_check_source(spec->src[i], src, spec->dst[i], dst));
    LIERNE_TRY(check_plain(spec->src[i], src));
    return check_plain(spec->dst[i], dst);
}

static lierne_status check_no_halo(const lierne_layout *layout, const char *name) {
    for (int a = 0; a < layout->naxes && layout->halos; a++) {
        if (lierne_halo_of(layout, a)) {
            return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                               "%s has a halo on axis %d: tensors of a set with boxes have none",
                               name, a);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_tensor(const sorting *s, int side, const lierne_layout *layout,
                                  int64_t i) {
    char name[32];
    snprintf(name, sizeof name, "%s[%lld]", side ? "dst" : "src", (long long)i);
    if (!layout) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", name);
    }
    if (!s->set->boxes) {
        return LIERNE_OK;
    }
    LIERNE_TRY(check_first(layout, s->spec->src[0], name));
    LIERNE_TRY(check_no_halo(layout, name));
    return check_plain(layout, name);
}

static lierne_status number_layouts(sorting *s, int side, const lierne_layout *const *layouts) {
    for (int64_t i = 0; i < s->set->n[side]; i++) {
        LIERNE_TRY(check_tensor(s, side, layouts[i], i));
        LIERNE_TRY(number_layout(s, layouts[i], &s->set->layout_of[side][i]));
    }
    return LIERNE_OK;
}

static lierne_status number_class(sorting *s, int64_t i) {
    lierne_set *set = s->set;
    lierne_set_class c = {0};
    bool is_new;
    if (set->boxes) {
        LIERNE_TRY(lierne_set_check_box(s->spec, i));
    }
    for (int side = 0; side < 2; side++) {
        c.layouts[side] = set->layout_of[side][lierne_set_tensor(set, i, side)];
    }
    uint64_t key = (uint64_t)c.layouts[LIERNE_SET_SRC] << 32 | (uint64_t)c.layouts[LIERNE_SET_DST];
    key = set->boxes ? lierne_set_hash_box(key, s->spec, i) : key;
    LIERNE_TRY(number_of(&s->pairs, key, (int64_t)set->classes.count, &set->class_of[i], &is_new));
    if (is_new) {
        LIERNE_TRY(set->boxes ? LIERNE_OK : check_pair(s->spec, i));
        LIERNE_TRY(LIERNE_VEC_PUSH(&set->classes, c));
    }
    set->classes.at[set->class_of[i]].count++;
    return LIERNE_OK;
}

static void list_members(lierne_set *set) {
    int64_t first = 0;
    for (size_t c = 0; c < set->classes.count; c++) {
        set->classes.at[c].first = first;
        first += set->classes.at[c].count;
        set->classes.at[c].count = 0;
    }
    for (int64_t i = 0; i < set->nmoves; i++) {
        lierne_set_class *c = &set->classes.at[set->class_of[i]];
        set->members[c->first + c->count++] = i;
    }
}

static lierne_status sort_moves(lierne_set *set, const lierne_set_spec *spec) {
    sorting s = {.set = set, .spec = spec};
    lierne_status status = number_layouts(&s, LIERNE_SET_SRC, spec->src);
    if (status == LIERNE_OK) {
        status = number_layouts(&s, LIERNE_SET_DST, spec->dst);
    }
    for (int64_t i = 0; i < set->nmoves && status == LIERNE_OK; i++) {
        status = number_class(&s, i);
    }
    lierne_mem_free(s.pointers.at);
    lierne_mem_free(s.contents.at);
    lierne_mem_free(s.pairs.at);
    if (status == LIERNE_OK) {
        list_members(set);
    }
    return status;
}

static const char *const sides[] = {"src", "dst"};

static int64_t elements_of(const lierne_set *set, int64_t tensor, int side) {
    return lierne_set_layout_of(set, tensor, side)->elements;
}

/* Whether no two tensors of a buffer overlap. items: two lists of as many as it has tensors. */
static lierne_status check_overlaps(const lierne_set *set, int side, lierne_keyed *items) {
    size_t n = 0;
    for (int64_t i = 0; i < set->n[side]; i++) {
        if (elements_of(set, i, side) > 0) {
            items[n++] = (lierne_keyed){(uint64_t)set->offsets[side][i], i};
        }
    }
    lierne_sort_keyed(items, items + set->n[side], n, (uint64_t)set->elements[side]);
    for (size_t k = 1; k < n; k++) {
        int64_t before = items[k - 1].value, end = set->offsets[side][before];
        end += elements_of(set, before, side);
        if (end > set->offsets[side][items[k].value]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: tensor %lld ends at element %lld of %s's buffer, tensor "
                               "%lld begins at %lld: tensors must not overlap",
                               set->rank, (long long)before, (long long)end, sides[side],
                               (long long)items[k].value, (long long)items[k].key);
        }
    }
    return LIERNE_OK;
}

/* The longest buffer: that of the largest layout. */
static int64_t most_elements(const lierne_set *set) {
    return ((int64_t)1 << 60) / (int64_t)lierne_dtype_size(set->layouts.at[0].layout->dtype);
}

static lierne_status place_tensors(lierne_set *set, int side, const int64_t *given) {
    for (int64_t i = 0; i < set->n[side]; i++) {
        int64_t elements = elements_of(set, i, side), end;
        int64_t offset = given ? given[i] : set->elements[side];
        if (elements == 0) {
            continue;
        }
        if (offset < 0) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: %s_offsets[%lld] is %lld, must be at least 0", set->rank,
                               sides[side], (long long)i, (long long)offset);
        }
        if (!lierne_add_i64(offset, elements, &end) || end > most_elements(set)) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                               "rank %d: tensor %lld of %lld elements at element %lld of %s's "
                               "buffer ends beyond 2^60 bytes",
                               set->rank, (long long)i, (long long)elements, (long long)offset,
                               sides[side]);
        }
        set->offsets[side][i] = offset;
        set->elements[side] = end > set->elements[side] ? end : set->elements[side];
    }
    return LIERNE_OK;
}

static lierne_status place_side(lierne_set *set, int side, const int64_t *given) {
    lierne_keyed *items;
    LIERNE_TRY(place_tensors(set, side, given));
    if (!given) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc_unset(&items, 2 * (size_t)set->n[side], sizeof *items));
    lierne_status status = check_overlaps(set, side, items);
    lierne_mem_free(items);
    return status;
}

static lierne_status check_count(const char *name, int64_t n) {
    return n < 1 || n > INT_MAX ? LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is %lld, must be in 1 to %d",
                                              name, (long long)n, INT_MAX)
                                : LIERNE_OK;
}

static lierne_status check_spec(const lierne_set_spec *spec) {
    LIERNE_TRY(check_count("ntensors", spec->ntensors));
    LIERNE_TRY(spec->boxes ? check_count("ndst", spec->ndst) : LIERNE_OK);
    LIERNE_TRY(spec->boxes ? check_count("nboxes", spec->nboxes) : LIERNE_OK);
    LIERNE_TRY(lierne_check_set(spec->src, "src"));
    LIERNE_TRY(lierne_check_set(spec->dst, "dst"));
    LIERNE_TRY(lierne_check_set(spec->src[0], "src[0]"));
    return LIERNE_OK;
}

lierne_status lierne_set_describe(lierne_set *set, const lierne_set_spec *spec, int rank) {
    *set = (lierne_set){.rank = rank, .boxes = spec->boxes};
    LIERNE_TRY(check_spec(spec));
    set->n[LIERNE_SET_SRC] = spec->ntensors;
    set->n[LIERNE_SET_DST] = spec->boxes ? spec->ndst : spec->ntensors;
    set->nmoves = spec->boxes ? spec->nboxes : spec->ntensors;
    LIERNE_TRY(lierne_alloc(&set->class_of, (size_t)set->nmoves, sizeof *set->class_of));
    LIERNE_TRY(lierne_alloc(&set->members, (size_t)set->nmoves, sizeof *set->members));
    for (int side = 0; side < 2; side++) {
        LIERNE_TRY(lierne_alloc(&set->layout_of[side], (size_t)set->n[side], sizeof(int64_t)));
        LIERNE_TRY(lierne_alloc(&set->offsets[side], (size_t)set->n[side], sizeof(int64_t)));
    }
    LIERNE_TRY(sort_moves(set, spec));
    return set->boxes ? lierne_set_cover(set) : LIERNE_OK;
}

lierne_status lierne_set_create(lierne_set *set, const lierne_set_spec *spec, int rank) {
    LIERNE_TRY(lierne_set_describe(set, spec, rank));
    LIERNE_TRY(place_side(set, LIERNE_SET_SRC, spec->src_offsets));
    return place_side(set, LIERNE_SET_DST, spec->dst_offsets);
}

void lierne_set_destroy(lierne_set *set) {
    lierne_mem_free(set->layouts.at);
    lierne_mem_free(set->classes.at);
    lierne_mem_free(set->class_of);
    lierne_mem_free(set->members);
    for (int side = 0; side < 2; side++) {
        lierne_mem_free(set->layout_of[side]);
        lierne_mem_free(set->offsets[side]);
    }
    lierne_mem_free(set->gaps.at);
}
