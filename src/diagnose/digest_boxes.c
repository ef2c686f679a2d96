/* What two ranks have in common of a box of a tensor set (plan/redistribute/frame.h). An element
 * counts by its index in the destination's tensor on both sides, so that what a rank has before the
 * move has the digest of what another one has after it. */
#include "diagnose/digest.h"

/* The same elements in a buffer and in the destination's tensor. */
typedef struct pair {
    lierne_block here, there;
    const lierne_digest_factors *factors;
    const unsigned char *data;
    size_t size; /* of an element */
} pair;

static int64_t place_of(const lierne_block *block, const int64_t *at, int naxes) {
    int64_t place = block->offset;
    for (int a = 0; a < naxes; a++) {
        place += at[a] * block->stride[a];
    }
    return place;
}

/* In runs that are contiguous on both sides. */
static uint64_t add_pair(const pair *p) {
    int64_t at[LIERNE_MAX_AXES] = {0}, run = 1;
    int outer = p->here.ndims, a;
    uint64_t sum = 0;
    while (outer > 0 && (p->here.count[outer - 1] == 1 ||
                         (p->here.stride[outer - 1] == run && p->there.stride[outer - 1] == run))) {
        run *= p->here.count[--outer];
    }
    do {
        size_t here = (size_t)place_of(&p->here, at, outer) * p->size;
        uint64_t there = (uint64_t)place_of(&p->there, at, outer) * p->size;
        sum += lierne_digest_bytes(p->factors, p->data + here, there, (size_t)run * p->size);
        for (a = outer - 1; a >= 0 && ++at[a] == p->here.count[a]; a--) {
            at[a] = 0;
        }
    } while (a >= 0);
    return sum;
}

/* Of a rank's buffer on one side of the frame, and its shape. */
static lierne_status list_common(lierne_overlaps *common, int64_t *shape,
                                 const lierne_digest_part *part, const lierne_frame *frame,
                                 int side) {
    lierne_boxes mine = {0}, theirs = {0};
    lierne_cell own, peers;
    if (!lierne_layout_cell(part->layout, part->rank, &own) ||
        !lierne_layout_cell(part->peer_layout, part->peer, &peers)) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_cell_boxes(part->layout, &own, &mine, shape);
    if (status == LIERNE_OK) {
        status = lierne_layout_cell_boxes(part->peer_layout, &peers, &theirs, NULL);
    }
    if (status == LIERNE_OK) {
        lierne_frame_clip(&mine, frame, side);
        lierne_frame_clip(&theirs, frame, !side);
        status = lierne_boxes_intersect(frame->naxes, &mine, &theirs, common);
    }
    lierne_mem_free(mine.at);
    lierne_mem_free(theirs.at);
    return status;
}

/* Where an overlap is in the destination's tensor. */
static lierne_block block_there(const lierne_frame *frame, const lierne_overlap *o,
                                const lierne_layout *dst) {
    int64_t at[LIERNE_MAX_AXES];
    for (int f = 0; f < frame->naxes; f++) {
        int a = frame->axis[1][f];
        at[f] = a < 0 ? 0 : o->start[f] + frame->start[1][a];
    }
    return lierne_frame_block(frame, 1, dst->shape, at, o->size);
}

lierne_status lierne_digest_add_box(uint64_t *digest, int64_t *elements,
                                    const lierne_digest_part *part, const lierne_frame *frame,
                                    int side, const lierne_digest_factors *factors,
                                    const void *data) {
    int64_t shape[LIERNE_MAX_AXES], all = 0;
    lierne_overlaps common = {0};
    lierne_status status = list_common(&common, shape, part, frame, side);
    for (size_t i = 0; i < common.count && status == LIERNE_OK; i++) {
        const lierne_overlap *o = &common.at[i];
        const pair p = {.here = lierne_frame_block(frame, side, shape, o->local_a, o->size),
                        .there = block_there(frame, o, side ? part->layout : part->peer_layout),
                        .factors = factors,
                        .data = data,
                        .size = lierne_dtype_size(part->layout->dtype)};
        int64_t n = lierne_block_elements(&p.here);
        *digest += data && n > 0 ? add_pair(&p) : 0;
        all += n;
    }
    lierne_mem_free(common.at);
    *elements += all;
    return status == LIERNE_OK ? lierne_digest_check_data(data, all, part->name) : status;
}
