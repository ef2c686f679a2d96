/* Runs from token ids: image rows and image tokens are followed side by side. */
#include "layout/packed.h"
#include "lierne/packed_bridge.h"

typedef struct finder {
    const lierne_segments *segments;
    const lierne_segments *images;
    lierne_image_run *runs;
    size_t capacity;
    size_t count;
    int64_t segment;
    int64_t image;
    int64_t row; /* of all images */
} finder;

static lierne_status take_segments(lierne_segments *out, const lierne_segments *given,
                                   const char *name) {
    LIERNE_TRY(lierne_spec_take(out, sizeof *out, given, name));
    return lierne_segments_check(out);
}

static int64_t count_tokens(const int64_t *ids, int64_t n, int64_t id) {
    int64_t found = 0;
    for (int64_t t = 0; t < n; t++) {
        found += ids[t] == id;
    }
    return found;
}

/* Adds the run that begins with a token, and returns where it ends. */
static int64_t add_run(finder *f, const int64_t *ids, int64_t token, int64_t id) {
    const int64_t *cu = f->segments->cu_seqlens, *rows = f->images->cu_seqlens;
    int64_t end = token;
    while (cu[f->segment + 1] <= token) {
        f->segment++;
    }
    while (rows[f->image + 1] <= f->row) {
        f->image++;
    }
    int64_t most = rows[f->image + 1] - f->row, last = cu[f->segment + 1];
    while (end < last && end - token < most && ids[end] == id) {
        end++;
    }
    if (f->runs && f->count < f->capacity) {
        f->runs[f->count] = (lierne_image_run){.image = f->image,
                                               .row = f->row - rows[f->image],
                                               .segment = f->segment,
                                               .position = token - cu[f->segment],
                                               .length = end - token};
    }
    f->count++;
    f->row += end - token;
    return end;
}

lierne_status lierne_image_runs_find(lierne_image_run *runs, size_t capacity, size_t *count,
                                     const lierne_segments *segments, const lierne_segments *images,
                                     const int64_t *ids, int64_t image_id) {
    LIERNE_PUBLIC_CALL();
    lierne_segments tokens, rows;
    LIERNE_TRY(lierne_check_set(count, "count"));
    LIERNE_TRY(take_segments(&tokens, segments, "segments"));
    LIERNE_TRY(take_segments(&rows, images, "images"));
    LIERNE_TRY(lierne_check_set(ids, "ids"));
    finder f = {.segments = &tokens, .images = &rows, .runs = runs, .capacity = capacity};
    int64_t n = tokens.cu_seqlens[tokens.nsegments], wanted = rows.cu_seqlens[rows.nsegments];
    int64_t found = count_tokens(ids, n, image_id);
    if (found != wanted) {
        return LIERNE_FAIL(
            LIERNE_ERR_COUNT,
            "%lld tokens have the id %lld, and the images have %lld rows: there must "
            "be as many",
            (long long)found, (long long)image_id, (long long)wanted);
    }
    for (int64_t t = 0; t < n;) {
        t = ids[t] == image_id ? add_run(&f, ids, t, image_id) : t + 1;
    }
    *count = f.count;
    return LIERNE_OK;
}
