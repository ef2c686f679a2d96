/* A frame has the axes of both tensors, so that what cells of either have in common is found, cut
 * and listed as that of two cells of one tensor. Its order of axes is that of the set's destination
 * in both directions: sender and receiver list elements alike. */
#include "plan/redistribute/frame.h"

void lierne_frame_create(lierne_frame *frame, const lierne_set_box *box, int src_naxes,
                         int dst_naxes, int from) {
    int *src = frame->axis[from == 0 ? 0 : 1], *dst = frame->axis[from == 0 ? 1 : 0];
    uint32_t named = 0;
    frame->naxes = 0;
    for (int a = 0; a < dst_naxes; a++) {
        int axis = box->axes ? box->axes[a] : a;
        named |= axis < 0 ? 0 : 1u << axis;
    }
    for (int a = 0; a < src_naxes; a++) {
        if (!(named >> a & 1)) {
            src[frame->naxes] = a;
            dst[frame->naxes] = -1;
            frame->size[frame->naxes++] = 1;
        }
    }
    for (int a = 0; a < dst_naxes; a++) {
        src[frame->naxes] = box->axes ? box->axes[a] : a;
        dst[frame->naxes] = a;
        frame->size[frame->naxes++] = box->sizes[a];
    }
    for (int a = 0; a < LIERNE_MAX_AXES; a++) {
        frame->start[from == 0 ? 0 : 1][a] = box->src_start[a];
        frame->start[from == 0 ? 1 : 0][a] = box->dst_start[a];
    }
}

/* What a span has of an axis of the frame; false: nothing. */
static bool clip_span(lierne_span *span, const lierne_frame *frame, int side, int axis, int f) {
    int64_t begin = frame->start[side][axis], end = begin + frame->size[f];
    int64_t start = span->start > begin ? span->start : begin;
    int64_t stop = span->start + span->size < end ? span->start + span->size : end;
    span->local += start - span->start;
    span->start = start - begin;
    span->size = stop - start;
    return start < stop;
}

static bool clip_box(lierne_box *box, const lierne_frame *frame, int side) {
    lierne_box clipped = {0};
    for (int f = 0; f < frame->naxes; f++) {
        int a = frame->axis[side][f];
        lierne_span span = {.size = 1};
        if (a >= 0) {
            span = (lierne_span){box->start[a], box->size[a], box->local[a]};
            if (!clip_span(&span, frame, side, a, f)) {
                return false;
            }
        }
        clipped.start[f] = span.start;
        clipped.size[f] = span.size;
        clipped.local[f] = span.local;
    }
    *box = clipped;
    return true;
}

void lierne_frame_clip(lierne_boxes *boxes, const lierne_frame *frame, int side) {
    size_t count = 0;
    for (size_t b = 0; b < boxes->count; b++) {
        boxes->at[count] = boxes->at[b];
        count += clip_box(&boxes->at[count], frame, side);
    }
    boxes->count = count;
}

/* What a cell of the other side has of an axis of the frame, as indices of this side's axis a, if
 * it has that axis. */
static lierne_status want(lierne_spans *wanted, const lierne_spans *theirs,
                          const lierne_frame *frame, int side, int f) {
    int a = frame->axis[side][f], b = frame->axis[!side][f];
    const lierne_span one = {.start = b < 0 ? 0 : frame->start[!side][b], .size = 1};
    size_t n = b < 0 ? 1 : theirs[b].count;
    for (size_t i = 0; i < n; i++) {
        lierne_span span = b < 0 ? one : theirs[b].at[i];
        if (b < 0 || clip_span(&span, frame, !side, b, f)) {
            span.start += a < 0 ? 0 : frame->start[side][a];
            LIERNE_TRY(LIERNE_VEC_PUSH(&wanted->list, span));
        }
    }
    wanted->at = wanted->list.at;
    wanted->count = wanted->list.count;
    return LIERNE_OK;
}

/* Searches with what is wanted of each axis of the frame, if that is something. */
static lierne_status search_side(lierne_cells *cells, const lierne_frame *frame, int side,
                                 const lierne_layout *layout, const lierne_spans *wanted) {
    lierne_spans axes[LIERNE_MAX_AXES];
    for (int f = 0; f < frame->naxes; f++) {
        if (wanted[f].count == 0) {
            return LIERNE_OK;
        }
        if (frame->axis[side][f] >= 0) {
            axes[frame->axis[side][f]] = wanted[f];
        }
    }
    return lierne_layout_search(cells, layout, axes);
}

lierne_status lierne_frame_overlapping(lierne_cells *cells, const lierne_frame *frame, int side,
                                       const lierne_layout *layout, const lierne_layout *other,
                                       const lierne_cell *cell) {
    lierne_spans theirs[LIERNE_MAX_AXES], wanted[LIERNE_MAX_AXES] = {{0}};
    lierne_status status = lierne_spans_create(theirs, other, cell);
    for (int f = 0; f < frame->naxes && status == LIERNE_OK; f++) {
        status = want(&wanted[f], theirs, frame, side, f);
    }
    if (status == LIERNE_OK) {
        status = search_side(cells, frame, side, layout, wanted);
    }
    lierne_spans_destroy(wanted, frame->naxes);
    lierne_spans_destroy(theirs, other->naxes);
    return status;
}

lierne_block lierne_frame_block(const lierne_frame *frame, int side, const int64_t *shape,
                                const int64_t *local, const int64_t *size) {
    lierne_block block = {.ndims = frame->naxes};
    for (int f = 0; f < frame->naxes; f++) {
        int64_t stride = 1;
        for (int g = 0; g < frame->naxes; g++) {
            int a = frame->axis[side][g];
            stride *= a > frame->axis[side][f] ? shape[a] : 1;
        }
        block.count[f] = size[f];
        block.stride[f] = stride;
        block.offset += local[f] * stride;
    }
    return block;
}
