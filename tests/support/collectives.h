/* Specs of collectives of all ranks with the same count each, all else as default. */
#ifndef LIERNE_TESTS_COLLECTIVES_H
#define LIERNE_TESTS_COLLECTIVES_H

#include "lierne/collective.h"

static inline lierne_all_gather_spec all_gather_of(int64_t count, lierne_dtype dtype) {
    return (lierne_all_gather_spec){.size = sizeof(lierne_all_gather_spec),
                                    .count = count,
                                    .dtype = dtype};
}

static inline lierne_reduce_scatter_spec reduce_scatter_of(int64_t count, lierne_dtype dtype) {
    return (lierne_reduce_scatter_spec){.size = sizeof(lierne_reduce_scatter_spec),
                                        .count = count,
                                        .dtype = dtype};
}

static inline lierne_all_reduce_spec all_reduce_of(int64_t count, lierne_dtype dtype,
                                                   lierne_collective_algorithm algorithm) {
    return (lierne_all_reduce_spec){.size = sizeof(lierne_all_reduce_spec),
                                    .count = count,
                                    .dtype = dtype,
                                    .algorithm = algorithm};
}

static inline lierne_all_to_all_spec all_to_all_of(int64_t count, lierne_dtype dtype) {
    return (lierne_all_to_all_spec){.size = sizeof(lierne_all_to_all_spec),
                                    .count = count,
                                    .dtype = dtype};
}

static inline lierne_broadcast_spec broadcast_of(int64_t count, lierne_dtype dtype) {
    return (lierne_broadcast_spec){.size = sizeof(lierne_broadcast_spec),
                                   .count = count,
                                   .dtype = dtype};
}

#endif
