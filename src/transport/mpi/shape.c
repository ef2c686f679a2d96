/* Shapes of messages as derived datatypes.
 *
 * A message whose elements lie apart could be packed into memory of its own, sent, and unpacked:
 * three passes over it, each through main memory when it is large. MPI takes such a message
 * fragment by fragment, which stay in the cache between the sender's copy and the receiver's:
 * measured, half the time from 64 KiB on (docs/performance.md). Where runs are short its general
 * loops cost more than that gains, and a message in pieces cannot have a shape: those are packed.
 */
#include "transport/mpi/link.h"

#include <limits.h>

#define LEAST_RUN     256 /* bytes of a run, on average */
#define LEAST_MESSAGE ((size_t)64 << 10)

struct lierne_shape {
    MPI_Datatype type;
};

static int64_t run_of(const lierne_block *block) {
    int last = block->ndims - 1;
    return last >= 0 && block->stride[last] == 1 ? block->count[last] : 1;
}

static bool is_wanted(const lierne_message *m, size_t size, size_t chunk) {
    size_t bytes = (size_t)m->elements * size, runs = 0;
    for (size_t b = 0; b < m->blocks.count; b++) {
        const lierne_block *block = &m->blocks.at[b];
        runs += (size_t)(lierne_block_elements(block) / run_of(block));
    }
    return bytes >= LEAST_MESSAGE && bytes < chunk && bytes / LEAST_RUN >= runs;
}

/* Loops around a run, from the innermost outwards. Counts are below the bytes of the message, and
 * those below a chunk, which fits into int. */
static int type_of(const lierne_block *block, size_t size, MPI_Datatype *type) {
    int64_t run = run_of(block);
    int d = run == 1 ? block->ndims - 1 : block->ndims - 2;
    int code = MPI_Type_contiguous((int)(run * (int64_t)size), MPI_BYTE, type);
    for (; d >= 0 && code == MPI_SUCCESS; d--) {
        MPI_Datatype inner = *type;
        code = MPI_Type_create_hvector((int)block->count[d], 1,
                                       (MPI_Aint)(block->stride[d] * (int64_t)size), inner, type);
        MPI_Type_free(&inner);
    }
    return code;
}

/* The blocks of a message one after the other, at their places in the buffer. */
typedef struct parts {
    int n;
    int *ones;
    MPI_Aint *places;
    MPI_Datatype *types;
} parts;

static lierne_status open_parts(parts *p, size_t n) {
    LIERNE_TRY(lierne_alloc(&p->ones, n, sizeof *p->ones));
    LIERNE_TRY(lierne_alloc(&p->places, n, sizeof *p->places));
    return lierne_alloc(&p->types, n, sizeof *p->types);
}

static void close_parts(parts *p) {
    for (int i = 0; i < p->n; i++) {
        MPI_Type_free(&p->types[i]);
    }
    lierne_mem_free(p->ones);
    lierne_mem_free(p->places);
    lierne_mem_free(p->types);
}

static int join(parts *p, const lierne_message *m, size_t size, MPI_Datatype *type) {
    for (size_t b = 0; b < m->blocks.count; b++) {
        int code = type_of(&m->blocks.at[b], size, &p->types[b]);
        if (code != MPI_SUCCESS) {
            return code;
        }
        p->n++;
        p->ones[b] = 1;
        p->places[b] = (MPI_Aint)(m->blocks.at[b].offset * (int64_t)size);
    }
    int code = MPI_Type_create_struct(p->n, p->ones, p->places, p->types, type);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
}

lierne_status lierne_shape_new(lierne_shape **out, const lierne_link *l, const lierne_message *m,
                               size_t size, size_t chunk) {
    parts p = {0};
    lierne_shape *shape = NULL;
    *out = NULL;
    if (!is_wanted(m, size, chunk)) {
        return LIERNE_OK;
    }
    lierne_status status = open_parts(&p, m->blocks.count);
    if (status == LIERNE_OK) {
        status = lierne_alloc(&shape, 1, sizeof *shape);
    }
    if (status == LIERNE_OK) {
        int code = join(&p, m, size, &shape->type);
        status = code == MPI_SUCCESS ? status : lierne_link_failed(l, code, "a datatype");
    }
    close_parts(&p);
    if (status != LIERNE_OK) {
        lierne_mem_free(shape);
        return status;
    }
    *out = shape;
    return LIERNE_OK;
}

/* Not after MPI's end, which a dead context may outlive. */
void lierne_shape_free(lierne_shape *shape) {
    int finalized = 0;
    if (!shape) {
        return;
    }
    MPI_Finalized(&finalized);
    if (!finalized) {
        MPI_Type_free(&shape->type);
    }
    lierne_mem_free(shape);
}

MPI_Datatype lierne_shape_type(const lierne_shape *shape) {
    return shape ? shape->type : MPI_BYTE;
}
