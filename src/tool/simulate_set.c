/* lierne simulate --set: a tensor set that moves for the whole world in this process, and back,
 * each element compared as bits. What a rank has to hold comes from the definition of the
 * placements, not from the library's layouts. A set of one dtype is simulated after the other. */
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

typedef struct set_count {
    int64_t checked, wrong;
    int rank; /* of the first wrong element, and what it is */
    int64_t tensor, element;
} set_count;

typedef struct set_world {
    const set_file *file;
    char **argv;
    const int64_t *numbers; /* of the tensors of this dtype */
    int64_t n;
    lierne_dtype dtype;
    lierne_sim *sim;
    lierne_plan **plans;
    lierne_request **requests;
    char **buffers[2]; /* of each rank, on each side */
    set_count count[2];
} set_world;

/* --- elements --------------------------------------------------------------------------------- */

/* Bits that differ between tensors, elements and directions. */
static void write_element(char *to, size_t size, int64_t tensor, int64_t element, int direction) {
    uint64_t x = (uint64_t)tensor << 40 ^ (uint64_t)element << 1 ^ (uint64_t)direction;
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

/* What is done with the elements of a rank's buffer, one after the other. */
typedef void visit(set_world *w, int direction, int rank, char *at, int64_t tensor, int64_t place);

/* All of a buffer; the direction says which elements it is to hold. False: no memory. */
static bool visit_buffer(set_world *w, int direction, int rank, int side, visit *each) {
    size_t size = lierne_dtype_size(w->dtype);
    char *at = w->buffers[side][rank];
    for (int64_t i = 0; i < w->n; i++) {
        int coords[LIERNE_MAX_DIMS];
        int64_t *places, n;
        const lierne_layout_spec spec = set_file_spec(w->file, &w->file->at[w->numbers[i]], side);
        if (!has_part(&spec, rank, coords)) {
            continue;
        }
        if (!redistribution_places(&places, &n, &spec, coords, false)) {
            return false;
        }
        for (int64_t k = 0; k < n; k++, at += size) {
            each(w, direction, rank, at, w->numbers[i], places[k]);
        }
        free(places);
    }
    return true;
}

static void fill_element(set_world *w, int direction, int rank, char *at, int64_t tensor,
                         int64_t place) {
    (void)rank;
    write_element(at, lierne_dtype_size(w->dtype), tensor, place, direction);
}

static void compare(set_world *w, int direction, int rank, char *at, int64_t tensor,
                    int64_t place) {
    char element[ELEMENT];
    size_t size = lierne_dtype_size(w->dtype);
    set_count *count = &w->count[direction];
    write_element(element, size, tensor, place, direction);
    count->checked++;
    if (memcmp(element, at, size) != 0 && count->wrong++ == 0) {
        count->rank = rank, count->tensor = tensor, count->element = place;
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

static lierne_status create_plan(set_world *w, const lierne_layout **layouts, int rank) {
    for (int64_t i = 0; i < w->n; i++) {
        layouts[i] = w->file->at[w->numbers[i]].layouts[0];
        layouts[w->n + i] = w->file->at[w->numbers[i]].layouts[1];
    }
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = w->n,
                                  .src = layouts,
                                  .dst = layouts + w->n};
    return lierne_plan_create_set(&w->plans[rank], lierne_sim_get_context(w->sim, rank), &spec);
}

static int open_rank(set_world *w, const lierne_layout **layouts, int rank) {
    int64_t elements[2];
    if (create_plan(w, layouts, rank) != LIERNE_OK) {
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
    const lierne_layout **layouts = calloc(2 * (size_t)w->n, sizeof *layouts);
    int status = layouts ? -1 : no_memory(w);
    for (int r = 0; r < w->file->world && status < 0; r++) {
        tool_progress(w->argv, "planning", r, w->file->world);
        status = open_rank(w, layouts, r);
    }
    free(layouts);
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
    status = status < 0 ? open_ranks(w) : status;
    status = status < 0 ? move_all(w, FORWARD) : status;
    for (int r = 0; r < w->file->world && status < 0; r++) { /* what forward read is written now */
        int64_t elements;
        lierne_plan_get_elements(&elements, NULL, w->plans[r], LIERNE_DIRECTION_FORWARD);
        memset(w->buffers[0][r], NOTHING, (size_t)elements * lierne_dtype_size(w->dtype));
    }
    status = status < 0 ? move_all(w, ADJOINT) : status;
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

static int simulate_file(const set_file *file, set_count sums[2], char **argv) {
    int64_t *numbers = calloc((size_t)file->n, sizeof *numbers);
    int status = numbers ? -1 : tool_usage(argv, "no memory for %" PRId64 " tensors", file->n);
    for (int d = LIERNE_DTYPE_F64; d <= LIERNE_DTYPE_BITS128 && status < 0; d++) {
        set_world w = {.file = file, .argv = argv, .numbers = numbers, .dtype = (lierne_dtype)d};
        for (int64_t i = 0; i < file->n; i++) {
            if (file->at[i].dtype == w.dtype) {
                numbers[w.n++] = i;
            }
        }
        status = w.n > 0 ? simulate_dtype(&w) : status;
        add(&sums[FORWARD], &w.count[FORWARD]);
        add(&sums[ADJOINT], &w.count[ADJOINT]);
    }
    free(numbers);
    return status;
}

static void print_json(const set_file *file, const set_count sums[2]) {
    printf("{\"world\": %d, \"tensors\": %" PRId64, file->world, file->n);
    for (int d = 0; d < 2; d++) {
        printf(", \"%s\": {\"checked\": %" PRId64 ", \"wrong\": %" PRId64 "}", names[d],
               sums[d].checked, sums[d].wrong);
    }
    printf("}\n");
}

static void print_text(const set_file *file, const set_count sums[2]) {
    printf("set of %" PRId64 " tensors%s on %d simulated ranks\n", file->n,
           file->reduce ? ", even axes made smaller," : "", file->world);
    for (int d = 0; d < 2; d++) {
        printf("%s  %" PRId64 " elements checked, %" PRId64 " wrong\n", names[d], sums[d].checked,
               sums[d].wrong);
        if (sums[d].wrong > 0) {
            printf("  the first: rank %d, tensor %" PRId64 " of the set, element %" PRId64 "\n",
                   sums[d].rank, sums[d].tensor, sums[d].element);
        }
    }
}

int set_file_simulate(const char *path, bool full, bool json, char **argv) {
    set_file file = {.reduce = !full};
    set_count sums[2] = {{0}};
    int status = set_file_read(&file, path, argv);
    status = status < 0 ? simulate_file(&file, sums, argv) : status;
    if (status < 0) {
        (json ? print_json : print_text)(&file, sums);
        status = sums[0].wrong + sums[1].wrong == 0 ? TOOL_VALID : TOOL_INVALID;
    }
    set_file_close(&file);
    return status;
}
