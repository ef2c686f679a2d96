/* Which pairs of layouts a tensor can be moved between. */
#ifndef LIERNE_REDISTRIBUTE_CHECK_H
#define LIERNE_REDISTRIBUTE_CHECK_H

#include "layout/layout.h"
#include "lierne/redistribute.h"

/* Whether two layouts describe the same tensor: equal shape, dtype and world size, and equal
 * segments where both are packed. The names are those of the layouts in messages. */
lierne_status lierne_redistribute_check_tensor(const lierne_layout *a, const char *a_name,
                                               const lierne_layout *b, const char *b_name);
/* The same, and dst has no PARTIAL dim. */
lierne_status lierne_redistribute_check_pair(const lierne_layout *src, const char *src_name,
                                             const lierne_layout *dst, const char *dst_name);

/* Whether src may be moved from where one of the layouts has halos. */
lierne_status lierne_redistribute_check_source(const lierne_layout *src, const char *src_name,
                                               const lierne_layout *dst, const char *dst_name);
/* INVALID or UNSUPPORTED: what else of a spec does not fit its layouts' halos. */
lierne_status lierne_redistribute_check_halos(const lierne_redistribute_spec *spec);
/* UNSUPPORTED if a layout has halos, for functions that know none. */
lierne_status lierne_redistribute_check_plain(const lierne_layout *layout, const char *name);
/* UNSUPPORTED for a layout of survivors, for all else than a src; and what else of a spec does not
 * fit such a src. */
lierne_status lierne_redistribute_check_complete(const lierne_layout *layout, const char *name);
lierne_status lierne_redistribute_check_survivors(const lierne_redistribute_spec *spec);

#endif
