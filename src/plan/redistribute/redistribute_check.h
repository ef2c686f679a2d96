/* Which pairs of layouts a tensor can be moved between. */
#ifndef LIERNE_REDISTRIBUTE_CHECK_H
#define LIERNE_REDISTRIBUTE_CHECK_H

#include "layout/layout.h"

/* Whether two layouts describe the same tensor: equal shape, dtype and world size, and equal
 * segments where both are packed. The names are those of the layouts in messages. */
lierne_status lierne_redistribute_check_tensor(const lierne_layout *a, const char *a_name,
                                               const lierne_layout *b, const char *b_name);
/* The same, and dst has no PARTIAL dim. */
lierne_status lierne_redistribute_check_pair(const lierne_layout *src, const char *src_name,
                                             const lierne_layout *dst, const char *dst_name);

#endif
