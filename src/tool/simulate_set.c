/* lierne simulate --set: a tensor set that moves for the whole world in this process, and back,
 * each element compared as bits. What a rank has to hold comes from the definition of the
 * placements and boxes, not from the library's layouts. A set of one dtype is simulated after the
 * other. */
#include "set_file.h"

#include "redistribution_rows.h"

#include <lierne/redistribute.h>
#include <lierne/sim.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FORWARD = LIERNE_DIRECTION_FORWARD, ADJOINT = LIERNE_DIRECTION_ADJOINT };
static const char *const names[] = {"forward", "adjoint"};
enum { ELEMENT = 16, NOTHING = 0xa5 }; /* the most bytes of an element; what outputs hold before */
enum { ZERO = -1 };
#define MOST_ELEMENTS (INT64_C(1) << 59) /* of a side: each has a number of 8 bytes */

typedef struct set_count {
    int64_t checked, wrong;
    int rank; /* of the first wrong element, and what it is */
    int64_t tensor, element;
} set_count;

typedef struct set_world {
    const set_file *file;
    char **argv;
    set_selection set; /* the tensors of this dtype */
    lierne_dtype dtype;
    /* Elements of all tensors of a side have numbers, from first[side][i] on those of tensor i.
     * With boxes, origins has of each element of the side that a direction writes the number of
     * the one that comes there, or ZERO. */
    int64_t *first[2], *origins[2];
    bool shared; /* an element of a source is in two boxes: nothing moves back */
    lierne_sim *sim;
    lierne_plan **plans;
    lierne_request **requests;
    char **buffers[2]; /* of each rank, on each side */
    set_count count[2];
} set_world;

/* --- elements --------------------------------------------------------------------------------- */

/* Bits that differ between elements and directions, so that what forward has read is wrong where
 * the adjoint does not write; of no element zeros. */
static void write_element(char *to, size_t size, int64_t element, int direction) {
    uint64_t x = (uint64_t)element << 1 ^ (uint64_t)direction ^ UINT64_C(0x9e3779b97f4a7c15);
    if (element == ZERO) {
        memset(to, 0, size);
        return;
    }
    for (size_t i = 0; i < size; i++) {
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9) + i;
        to[i] = (char)(x >> 56);
    }
}

/* Whether a rank has a part of a tensor, and the coordinates by which it does. */
static bool has_part(const lierne_layout_spec *spec, int rank, int *coords) {
    int at = rank - lierne_grid_get_rank_offset(spec->grid);
    if (at < 0 || at >= lierne_grid_get_size(spec->grid) ||
        lierne_grid_get_coords(coords, spec->grid, NULL, rank) != LIERNE_OK) {
        return false;
    }
    for (int d = 0; d < lierne_grid_get_ndims(spec->grid, NULL); d++) {
        const lierne_placement *p = &spec->placements[d];
        if (p->kind == LIERNE_PLACEMENT_AT && p->at != coords[d]) {
            return false;
        }
    }
    return true;
}

static const set_tensor *tensor_of(const set_world *w, int side, int64_t i) {
    return &set_file_list(w->file, side)->at[w->set.numbers[side][i]];
}

/* What is done with the elements of a rank's buffer, one after the other. */
typedef void visit(set_world *w, int direction, int rank, char *at, int64_t tensor, int64_t place);

/* All of a buffer; the direction says which elements it is to hold. False: no memory. */
static bool visit_buffer(set_world *w, int direction, int rank, int side, visit *each) {
    size_t size = lierne_dtype_size(w->dtype);
    char *at = w->buffers[side][rank];
    for (int64_t i = 0; i < w->set.n[side]; i++) {
        int coords[LIERNE_MAX_DIMS];
        int64_t *places, n;
        const lierne_layout_spec spec = set_file_spec(w->file, tensor_of(w, side, i), side);
        if (!has_part(&spec, rank, coords)) {
            continue;
        }
        if (!redistribution_places(&places, &n, &spec, coords, false)) {
            return false;
        }
        for (int64_t k = 0; k < n; k++, at += size) {
            each(w, direction, rank, at, i, places[k]);
        }
        free(places);
    }
    return true;
}

static void fill_element(set_world *w, int direction, int rank, char *at, int64_t tensor,
                         int64_t place) {
    (void)rank;
    int from = direction == FORWARD ? 0 : 1;
    write_element(at, lierne_dtype_size(w->dtype), w->first[from][tensor] + place, direction);
}

static void compare(set_world *w, int direction, int rank, char *at, int64_t tensor,
                    int64_t place) {
    char element[ELEMENT];
    size_t size = lierne_dtype_size(w->dtype);
    set_count *count = &w->count[direction];
    int to = direction == FORWARD ? 1 : 0;
    int64_t number = w->first[to][tensor] + place;
    write_element(element, size, w->origins[to] ? w->origins[to][number] : number, direction);
    count->checked++;
    if (memcmp(element, at, size) != 0 && count->wrong++ == 0) {
        count->rank = rank, count->tensor = w->set.numbers[to][tensor], count->element = place;
    }
}

/* --- a set of one dtype ----------------------------------------------------------------------- */

static int failed(const set_world *w) {
    tool_failed(w->argv);
    return TOOL_INVALID;
}

static int no_memory(const set_world *w) {
    return tool_usage(w->argv, "no memory for the buffers of %d ranks", w->file->world);
}

/* Numbers elements; with boxes, nothing comes anywhere yet. */
static bool number_elements(set_world *w, int side) {
    int64_t n = w->set.n[side];
    w->first[side] = calloc((size_t)n + 1, sizeof **w->first);
    for (int64_t i = 0; w->first[side] && i < n; i++) {
        const set_tensor *t = tensor_of(w, side, i);
        int64_t elements = 1;
        for (int a = 0; a < t->naxes; a++) {
            elements *= t->shape[a];
        }
        if (elements > MOST_ELEMENTS - w->first[side][i]) {
            return false;
        }
        w->first[side][i + 1] = w->first[side][i] + elements;
    }
    int64_t all = w->first[side] ? w->first[side][n] : 0;
    if (w->first[side] && w->file->has_boxes) {
        w->origins[side] = malloc(((size_t)all + 1) * sizeof **w->origins);
    }
    for (int64_t k = 0; w->origins[side] && k < all; k++) {
        w->origins[side][k] = ZERO;
    }
    return w->first[side] && (w->origins[side] || !w->file->has_boxes);
}

/* The elements of a box, one by one as the file defines them. */
static void map_box(set_world *w, const lierne_set_box *box) {
    const set_tensor *t[2] = {tensor_of(w, 0, box->src), tensor_of(w, 1, box->dst)};
    int64_t n = 1;
    for (int a = 0; a < t[1]->naxes; a++) {
        n *= box->sizes[a];
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t left = k, src[LIERNE_MAX_AXES], at[2] = {0, 0}, dst[LIERNE_MAX_AXES];
        memcpy(src, box->src_start, sizeof src);
        for (int a = t[1]->naxes - 1; a >= 0; left /= box->sizes[a--]) {
            int axis = box->axes ? box->axes[a] : a;
            dst[a] = box->dst_start[a] + left % box->sizes[a];
            if (axis >= 0) {
                src[axis] += left % box->sizes[a];
            }
        }
        for (int a = 0; a < t[0]->naxes; a++) {
            at[0] = at[0] * t[0]->shape[a] + src[a];
        }
        for (int a = 0; a < t[1]->naxes; a++) {
            at[1] = at[1] * t[1]->shape[a] + dst[a];
        }
        int64_t from = w->first[0][box->src] + at[0], to = w->first[1][box->dst] + at[1];
        w->shared = w->shared || w->origins[0][from] != ZERO;
        w->origins[1][to] = from;
        w->origins[0][from] = to;
    }
}

static int open_elements(set_world *w) {
    if (!number_elements(w, 0) || !number_elements(w, 1)) {
        return tool_usage(w->argv, "no memory for the elements of a set");
    }
    for (int64_t i = 0; i < w->set.spec.nboxes; i++) {
        map_box(w, &w->set.boxes[i]);
    }
    return -1;
}

static int open_rank(set_world *w, int rank) {
    int64_t elements[2];
    if (lierne_plan_create_set(&w->plans[rank], lierne_sim_get_context(w->sim, rank),
                               &w->set.spec) != LIERNE_OK) {
        return failed(w);
    }
    lierne_plan_get_elements(&elements[0], &elements[1], w->plans[rank], LIERNE_DIRECTION_FORWARD);
    for (int side = 0; side < 2; side++) {
        size_t bytes = (size_t)elements[side] * lierne_dtype_size(w->dtype);
        w->buffers[side][rank] = malloc(bytes + 1);
        if (!w->buffers[side][rank]) {
            return no_memory(w);
        }
        memset(w->buffers[side][rank], NOTHING, bytes + 1);
    }
    return -1;
}

static int open_ranks(set_world *w) {
    int status = -1;
    for (int r = 0; r < w->file->world && status < 0; r++) {
        tool_progress(w->argv, "planning", r, w->file->world);
        status = open_rank(w, r);
    }
    return status;
}

static void begin(set_world *w, int direction, int rank, lierne_status *status) {
    void *src = w->buffers[0][rank], *dst = w->buffers[1][rank];
    if (*status == LIERNE_OK) {
        *status =
            direction == FORWARD
                ? lierne_plan_forward_begin(&w->requests[rank], w->plans[rank], dst, src, NULL)
                : lierne_plan_adjoint_begin(&w->requests[rank], w->plans[rank], src, dst, NULL);
    }
}

static int move_all(set_world *w, int direction) {
    int from = direction == FORWARD ? 0 : 1;
    lierne_status status = LIERNE_OK;
    for (int r = 0; r < w->file->world; r++) {
        if (!visit_buffer(w, direction, r, from, fill_element)) {
            return no_memory(w);
        }
    }
    for (int r = 0; r < w->file->world; r++) {
        begin(w, direction, r, &status);
    }
    for (int r = 0; r < w->file->world; r++) {
        lierne_status ended = w->requests[r] ? lierne_request_end(w->requests[r]) : status;
        status = status == LIERNE_OK ? ended : status;
        w->requests[r] = NULL;
    }
    for (int r = 0; r < w->file->world && status == LIERNE_OK; r++) {
        tool_progress(w->argv, "checking", r, w->file->world);
        if (!visit_buffer(w, direction, r, 1 - from, compare)) {
            return no_memory(w);
        }
    }
    return status == LIERNE_OK ? -1 : failed(w);
}

static void close_world(set_world *w) {
    for (int r = 0; w->plans && w->requests && r < w->file->world; r++) {
        lierne_plan_destroy(w->plans[r]);
    }
    for (int side = 0; side < 2; side++) {
        for (int r = 0; w->buffers[side] && r < w->file->world; r++) {
            free(w->buffers[side][r]);
        }
        free(w->buffers[side]);
        free(w->first[side]);
        free(w->origins[side]);
    }
    lierne_sim_destroy(w->sim);
    free(w->plans);
    free(w->requests);
    tool_progress_end();
}

static int simulate_dtype(set_world *w) {
    size_t world = (size_t)w->file->world;
    w->plans = calloc(world, sizeof *w->plans);
    w->requests = calloc(world, sizeof *w->requests);
    for (int side = 0; side < 2; side++) {
        w->buffers[side] = calloc(world, sizeof *w->buffers[side]);
    }
    int status = w->plans && w->requests && w->buffers[0] && w->buffers[1] ? -1 : no_memory(w);
    if (status < 0 && lierne_sim_create(&w->sim, w->file->world, NULL) != LIERNE_OK) {
        status = failed(w);
    }
    status = status < 0 ? open_elements(w) : status;
    status = status < 0 ? open_ranks(w) : status;
    status = status < 0 ? move_all(w, FORWARD) : status;
    status = status < 0 && !w->shared ? move_all(w, ADJOINT) : status;
    close_world(w);
    return status;
}

/* --- all of it -------------------------------------------------------------------------------- */

static void add(set_count *sum, const set_count *count) {
    if (sum->wrong == 0 && count->wrong > 0) {
        sum->rank = count->rank, sum->tensor = count->tensor, sum->element = count->element;
    }
    sum->checked += count->checked;
    sum->wrong += count->wrong;
}

static int simulate_file(const set_file *file, set_count sums[2], bool *moves_back, char **argv) {
    int status = -1;
    for (int d = LIERNE_DTYPE_F64; d <= LIERNE_DTYPE_BITS128 && status < 0; d++) {
        set_world w = {.file = file, .argv = argv, .dtype = (lierne_dtype)d};
        status = set_select(&w.set, file, w.dtype);
        status = status < 0 && w.set.spec.ntensors > 0 ? simulate_dtype(&w) : status;
        set_selection_free(&w.set);
        *moves_back = *moves_back && !w.shared;
        add(&sums[FORWARD], &w.count[FORWARD]);
        add(&sums[ADJOINT], &w.count[ADJOINT]);
    }
    return status;
}

static void print_json(const set_file *file, const set_count sums[2], bool moves_back) {
    printf("{\"world\": %d, \"tensors\": %" PRId64, file->world, set_file_list(file, 1)->n);
    for (int d = 0; d < 2; d++) {
        printf(", \"%s\": {\"checked\": %" PRId64 ", \"wrong\": %" PRId64 "}", names[d],
               sums[d].checked, sums[d].wrong);
    }
    printf("%s}\n", moves_back ? "" : ", \"shared\": true");
}

static void print_text(const set_file *file, const set_count sums[2], bool moves_back) {
    printf("set of %" PRId64 " tensors%s on %d simulated ranks\n", set_file_list(file, 1)->n,
           file->reduced ? ", even axes made smaller," : "", file->world);
    for (int d = 0; d < 2; d++) {
        printf("%s  %" PRId64 " elements checked, %" PRId64 " wrong\n", names[d], sums[d].checked,
               sums[d].wrong);
        if (sums[d].wrong > 0) {
            const set_list *list = set_file_list(file, d == FORWARD ? 1 : 0);
            printf("  the first: rank %d, tensor ", sums[d].rank);
            tool_print_string(stdout, list->at[sums[d].tensor].name);
            printf(", element %" PRId64 "\n", sums[d].element);
        }
    }
    if (!moves_back) {
        printf("  a dtype whose boxes share an element of a source has no adjoint\n");
    }
}

int set_file_simulate(const char *path, bool full, bool json, char **argv) {
    set_file file = {.reduce = !full};
    set_count sums[2] = {{0}};
    bool moves_back = true;
    int status = set_file_read(&file, path, argv);
    status = status < 0 ? simulate_file(&file, sums, &moves_back, argv) : status;
    if (status < 0) {
        (json ? print_json : print_text)(&file, sums, moves_back);
        status = sums[0].wrong + sums[1].wrong == 0 ? TOOL_VALID : TOOL_INVALID;
    }
    set_file_close(&file);
    return status;
}
