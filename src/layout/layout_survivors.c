/* Layouts after ranks have died: who of the former ranks is which rank now, and which elements
 * nobody has any more.
 *
 * A rank that died is a place of the grid without a rank, so cells lose members and everything else
 * stays as it was: a redistribution takes what other replicas hold with no case of its own, but for
 * cells without a member. */
#include "layout/dense_halo.h"
#include "layout/layout.h"

#include <stdlib.h>
#include <string.h>

/* Former ranks ascend, and -1 is none; so the members of a cell ascend as they did. */
static lierne_status check_former(const int *former, int n, int world) {
    for (int r = 0, last = -1; r < n; r++) {
        if (former[r] < -1 || former[r] >= world || (former[r] >= 0 && former[r] <= last)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "former[%d] is %d, must be -1, or above the ones before (%d) and "
                               "below %d",
                               r, former[r], last, world);
        }
        last = former[r] >= 0 ? former[r] : last;
    }
    return LIERNE_OK;
}

static lierne_status check_list(const lierne_layout *layout, const int *former, int nranks) {
    LIERNE_TRY(lierne_check_set(layout, "layout"));
    LIERNE_TRY(lierne_check_set(former, "former"));
    if (nranks < 1 || nranks > LIERNE_MAX_RANKS) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nranks is %d, must be 1 to %d", nranks,
                           LIERNE_MAX_RANKS);
    }
    LIERNE_TRY(check_former(former, nranks, layout->world));
    return layout->halos ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                                       "the layout has a halo: give one without, of the cores")
                         : LIERNE_OK;
}

static lierne_status fill_survivors(lierne_layout *layout, const lierne_layout *old,
                                    const int *former, int nranks) {
    layout->world = nranks;
    LIERNE_TRY(lierne_survivors_alloc(layout));
    for (int i = 0; i < layout->nranks; i++) {
        layout->rank_at[i] = -1;
    }
    for (int r = 0; r < nranks; r++) {
        int place = former[r] < 0 ? -1 : lierne_layout_index(old, former[r]);
        layout->place_of[r] = place;
        if (place >= 0) {
            layout->rank_at[place] = r;
        }
    }
    return LIERNE_OK;
}

static void free_survivors(lierne_layout *layout) {
    lierne_mem_free(layout->place_of);
    lierne_mem_free(layout->rank_at);
    layout->place_of = layout->rank_at = NULL;
}

lierne_status lierne_layout_create_surviving(lierne_layout **out, const lierne_layout *layout,
                                             const int *former, int nranks) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    LIERNE_TRY(lierne_check_set(out, "out"));
    LIERNE_TRY(check_list(layout, former, nranks));
    lierne_layout *copy;
    LIERNE_TRY(lierne_layout_reshape(&copy, layout, layout->shape));
    free_survivors(copy);
    lierne_status status = fill_survivors(copy, layout, former, nranks);
    if (status != LIERNE_OK) {
        lierne_layout_destroy(copy);
        return status;
    }
    *out = copy;
    return LIERNE_OK;
}

lierne_status lierne_layout_survives(bool *survives, const lierne_layout *layout,
                                     const lierne_cell *cell) {
    lierne_ranks members = {0};
    lierne_status status = LIERNE_OK;
    *survives = true;
    for (int p = 0; layout->rank_at && p < layout->partials && status == LIERNE_OK; p++) {
        members.count = 0;
        status = lierne_layout_members(layout, cell, p, &members);
        *survives = *survives && members.count > 0;
    }
    lierne_mem_free(members.at);
    return status;
}

/* The next cell of a layout; false after the last one. */
static bool next_cell(const lierne_layout *layout, lierne_cell *cell) {
    for (int i = layout->ncuts - 1; i >= 0; i--) {
        int d = layout->cuts[i];
        if (++cell->coords[d] < layout->sizes[d]) {
            return true;
        }
        cell->coords[d] = 0;
    }
    return false;
}

static lierne_cell first_cell(const lierne_layout *layout) {
    lierne_cell cell;
    for (int d = 0; d < layout->ndims; d++) {
        cell.coords[d] = -1;
    }
    for (int i = 0; i < layout->ncuts; i++) {
        cell.coords[layout->cuts[i]] = 0;
    }
    return cell;
}

/* The boxes of all cells that do not survive, whose places are their global indices. */
static lierne_status list_lost(lierne_boxes *boxes, const lierne_layout *layout) {
    lierne_cell cell = first_cell(layout);
    do {
        bool survives;
        LIERNE_TRY(lierne_layout_survives(&survives, layout, &cell));
        if (!survives) {
            LIERNE_TRY(lierne_layout_cell_boxes(layout, &cell, boxes, NULL));
        }
    } while (next_cell(layout, &cell));
    for (size_t i = 0; i < boxes->count; i++) {
        memcpy(boxes->at[i].local, boxes->at[i].start, sizeof boxes->at[i].local);
    }
    return LIERNE_OK;
}

lierne_status lierne_layout_find_lost(lierne_box *boxes, size_t capacity, size_t *count,
                                      const lierne_layout *layout, const int *former, int nranks) {
    LIERNE_PUBLIC_CALL();
    lierne_boxes found = {0};
    LIERNE_TRY(lierne_check_set(count, "count"));
    *count = 0;
    LIERNE_TRY(check_list(layout, former, nranks));
    lierne_layout left = *layout;
    left.place_of = left.rank_at = NULL;
    lierne_status status = fill_survivors(&left, layout, former, nranks);
    status = status == LIERNE_OK ? list_lost(&found, &left) : status;
    status = status == LIERNE_OK ? lierne_boxes_join(&found, layout->naxes) : status;
    free_survivors(&left);
    *count = status == LIERNE_OK ? found.count : 0;
    for (size_t i = 0; boxes && i < *count && i < capacity; i++) {
        boxes[i] = found.at[i];
        memset(boxes[i].local, 0, sizeof boxes[i].local);
    }
    lierne_mem_free(found.at);
    return status;
}

/* Adds what a cell of another layout has of boxes, by its places in these. */
static lierne_status add_common(lierne_boxes *common, const lierne_layout *other,
                                const lierne_cell *cell, const lierne_boxes *boxes) {
    lierne_boxes others = {0};
    lierne_overlaps both = {0};
    lierne_status status = lierne_layout_cell_boxes(other, cell, &others, NULL);
    status =
        status == LIERNE_OK ? lierne_boxes_intersect(other->naxes, &others, boxes, &both) : status;
    for (size_t i = 0; i < both.count && status == LIERNE_OK; i++) {
        lierne_box box = {0};
        memcpy(box.start, both.at[i].start, sizeof box.start);
        memcpy(box.size, both.at[i].size, sizeof box.size);
        memcpy(box.local, both.at[i].local_b, sizeof box.local);
        status = LIERNE_VEC_PUSH(common, box);
    }
    lierne_mem_free(both.at);
    lierne_mem_free(others.at);
    return status;
}

lierne_status lierne_layout_common(lierne_boxes *common, const lierne_layout *layout,
                                   const lierne_cell *cell, const lierne_layout *other,
                                   bool survives) {
    lierne_cells cells = {0};
    lierne_boxes boxes = {0};
    lierne_status status = lierne_layout_cell_boxes(layout, cell, &boxes, NULL);
    status = status == LIERNE_OK ? lierne_layout_overlapping(&cells, other, layout, cell) : status;
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        bool has;
        status = lierne_layout_survives(&has, other, &cells.at[i]);
        if (status == LIERNE_OK && has == survives) {
            status = add_common(common, other, &cells.at[i], &boxes);
        }
    }
    lierne_mem_free(cells.at);
    lierne_mem_free(boxes.at);
    return status;
}

/* A box that is joined along an axis. */
typedef struct joined {
    lierne_box box;
    int axis;
} joined;

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

/* Boxes that may continue each other along their axis next to each other. */
static int compare_lines(const void *a, const void *b) {
    const joined *x = a, *y = b;
    int order = 0;
    for (int k = 0; order == 0 && k < LIERNE_MAX_AXES; k++) {
        order = k == x->axis ? 0 : compare(x->box.start[k], y->box.start[k]);
    }
    return order ? order : compare(x->box.start[x->axis], y->box.start[x->axis]);
}

/* By the first axis, then the second, and so on. */
static int compare_starts(const void *a, const void *b) {
    const joined *x = a, *y = b;
    int order = 0;
    for (int k = 0; order == 0 && k < LIERNE_MAX_AXES; k++) {
        order = compare(x->box.start[k], y->box.start[k]);
    }
    return order;
}

static bool continues(const lierne_box *a, const lierne_box *b, int naxes, int axis) {
    bool same = true;
    for (int k = 0; k < naxes; k++) {
        int64_t step = k == axis ? a->size[k] : 0;
        same = same && b->start[k] == a->start[k] + step && b->local[k] == a->local[k] + step &&
               (k == axis || a->size[k] == b->size[k]);
    }
    return same;
}

static size_t join_along(joined *boxes, size_t count, int naxes, int axis) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        boxes[i].axis = axis;
    }
    qsort(boxes, count, sizeof *boxes, compare_lines);
    for (size_t i = 1; i < count; i++) {
        if (continues(&boxes[kept].box, &boxes[i].box, naxes, axis)) {
            boxes[kept].box.size[axis] += boxes[i].box.size[axis];
        } else {
            boxes[++kept] = boxes[i];
        }
    }
    return kept + 1;
}

lierne_status lierne_boxes_join(lierne_boxes *boxes, int naxes) {
    joined *lines;
    if (boxes->count == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&lines, boxes->count, sizeof *lines));
    for (size_t i = 0; i < boxes->count; i++) {
        lines[i] = (joined){.box = boxes->at[i]};
    }
    for (int a = naxes - 1; a >= 0; a--) {
        boxes->count = join_along(lines, boxes->count, naxes, a);
    }
    qsort(lines, boxes->count, sizeof *lines, compare_starts);
    for (size_t i = 0; i < boxes->count; i++) {
        boxes->at[i] = lines[i].box;
    }
    lierne_mem_free(lines);
    return LIERNE_OK;
}
