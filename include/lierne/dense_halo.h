/* Dense halos: parts of a tensor that overlap. A convolution, a stencil or a sliding attention
 * window at the edge of a rank's part needs elements of its neighbours: the margins.
 *
 * A halo is a property of a layout (lierne/layout.h, halos). It extends the rank's part of one axis
 * before anything is moved. lierne/redistribute.h then fills the margins in one exchange, together
 * with any other change of layout, and its adjoint sends their gradients back and adds them at the
 * owners. For lists of rows instead of boxes see lierne/halo.h and lierne/sparse.h.
 *
 * Windows. What the placements leave a rank of an axis is a list of spans of consecutive indices
 * (zigzag: two, or one where its chunks touch; a map: any number). With margins lo and hi, the span
 * [s, e) has the window [s - lo, e + hi), a range of positions, which may reach below 0 and beyond
 * the axis. The positions [s, e) are its core. An empty part has no window. Margins may be wider
 * than the parts of neighbours and than the axis. lo and hi may be negative as long as lo + hi is
 * not: with lo = k, hi = -k and boundary PERIODIC the output is rolled by k. A window then has no
 * core.
 *
 * Strided windows. With a stride t of at least 1, the placements cut `outputs` instead of the axis,
 * and the span [s, e) of outputs has the window [t s - lo, t (e - 1) + hi + 1): what a convolution
 * reads for them, so the shares of outputs need not match those of inputs. Such windows have no
 * core. lierne_halo_from_convolution computes lo, hi and outputs.
 *
 * Windows of your own. With `starts` and `ends`, coordinate c of the dim that cuts the axis has the
 * window [starts[c], ends[c]), whatever its share of the axis is, also where that is empty: for
 * widths that differ from rank to rank, transposed convolutions and resampling. Only one dim may
 * cut the axis, with SHARD; if none does, there is one window. Such windows have no core.
 *
 * Documents. `segments` divide the axis into nsegments documents, as cu_seqlens do. The margin
 * below a span belongs to the document of the span's first element, the margin above to that of its
 * last one; what lies outside of this document shows what the boundary says, of the document
 * instead of the axis. So nothing crosses into another document, and nothing is received for it.
 * Borders within a core are the caller's business.
 *
 * Several axes. A buffer has the product of the windows of its axes. With LIERNE_STENCIL_BOX, also
 * corners hold their element, which comes directly from a rank that holds it. With
 * LIERNE_STENCIL_STAR, positions that lie in the margins of more than one axis are zero; nothing is
 * moved for them in either direction.
 *
 * A position that an axis with boundary KEEP has outside of the tensor is neither written nor read.
 * Else, a position outside on an axis with boundary ZERO, and a corner of a star, is zero. Else it
 * shows the element that the axes name; several positions may show one element.
 *
 * Storage. PADDED: the local tensor has, per axis, the windows one after the other in the order of
 * their spans. MARGINS, for kernels that take the halo beside the part: the margins alone in a
 * buffer of shape [total, 1, ...], which has one dense row-major box after the other: for every
 * combination of the windows of the axes (first axis slowest), and of the zones lo, core, hi of the
 * axes with a halo (first axis slowest), but for that which is core on all of them; for a star only
 * those with one axis that is not core. Empty boxes take no space. An axis without a halo is one
 * window. lierne_layout_get_margins lists the boxes. */
#ifndef LIERNE_DENSE_HALO_H
#define LIERNE_DENSE_HALO_H

#include "lierne/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What positions outside of the axis show. n is the size of the axis, mod is never negative, so
 * every width is defined. NumPy's and PyTorch's names are of their pad functions. */
typedef enum lierne_boundary {
    LIERNE_BOUNDARY_NONE = 0,      /* there are none: the window ends at the border */
    LIERNE_BOUNDARY_ZERO = 1,      /* zero (torch: constant) */
    LIERNE_BOUNDARY_KEEP = 2,      /* not written, not read: the caller's values stay */
    LIERNE_BOUNDARY_PERIODIC = 3,  /* i mod n (numpy: wrap, torch: circular) */
    LIERNE_BOUNDARY_MIRROR = 4,    /* reflected at the edge element (numpy, torch: reflect): with
                                      m = i mod 2(n-1), min(m, 2(n-1) - m); n = 1: 0 */
    LIERNE_BOUNDARY_SYMMETRIC = 5, /* reflected between elements (numpy: symmetric, scipy: reflect):
                                      with m = i mod 2n, min(m, 2n - 1 - m) */
    LIERNE_BOUNDARY_REPLICATE = 6  /* the edge element (numpy: edge) */
} lierne_boundary;

/* Which positions of several axes hold their element. */
typedef enum lierne_stencil { LIERNE_STENCIL_BOX = 0, LIERNE_STENCIL_STAR = 1 } lierne_stencil;

/* What a buffer has. */
typedef enum lierne_halo_storage {
    LIERNE_HALO_STORAGE_PADDED = 0,
    LIERNE_HALO_STORAGE_MARGINS = 1
} lierne_halo_storage;

/* The halo of one axis. */
typedef struct lierne_dense_halo {
    int axis;
    lierne_boundary boundary;
    int64_t lo; /* elements below and above each span; lo + hi is at least 0 */
    int64_t hi;
    int64_t stride;          /* 0: the placements cut the axis itself; else they cut `outputs` */
    int64_t outputs;         /* only with a stride */
    int64_t nsegments;       /* documents; 0: the axis is one, segments is NULL */
    const int64_t *segments; /* nsegments + 1 offsets that do not descend, 0 first, the size of the
                                axis last; copied with the layout */
    const int64_t *starts;   /* a window per coordinate, or NULL; lo, hi, stride and nsegments are
                                0 then; copied with the layout */
    const int64_t *ends;     /* with starts, at none below it */
} lierne_dense_halo;

/* A convolution or pooling over an axis of `size` elements. Begin with
 * LIERNE_CONVOLUTION_SPEC_INIT, or set size to sizeof(lierne_convolution_spec), kernel, stride and
 * dilation to 1 and the rest to zero. */
typedef struct lierne_convolution_spec {
    size_t size;
    int64_t elements; /* of the axis */
    int64_t kernel;
    int64_t stride;
    int64_t dilation;
    int64_t pad_lo; /* padding below and above the axis */
    int64_t pad_hi;
} lierne_convolution_spec;
#define LIERNE_CONVOLUTION_SPEC_INIT                                                               \
    { .size = sizeof(lierne_convolution_spec), .kernel = 1, .stride = 1, .dilation = 1 }

/* Sets lo, hi, stride and outputs of a halo, and nothing else of it, to what a convolution reads:
 * each rank then runs it without padding on its padded tensor, and has its share of the outputs.
 * hi may be negative. Pure. Errors: INVALID (NULL, spec->size; kernel, stride or dilation below 1;
 * elements or padding below 0; no output), OVERFLOW (numbers beyond 2^60). */
LIERNE_API lierne_status lierne_halo_from_convolution(lierne_dense_halo *halo,
                                                      const lierne_convolution_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
