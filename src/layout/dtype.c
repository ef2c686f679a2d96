/* The one table of element types. */
#include "layout/layout.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [LIERNE_DTYPE_F64] = {"f64", 8},
    [LIERNE_DTYPE_F32] = {"f32", 4},
    [LIERNE_DTYPE_BF16] = {"bf16", 2},
    [LIERNE_DTYPE_F16] = {"f16", 2},
    [LIERNE_DTYPE_I64] = {"i64", 8},
    [LIERNE_DTYPE_I32] = {"i32", 4},
    [LIERNE_DTYPE_I8] = {"i8", 1},
    [LIERNE_DTYPE_U8] = {"u8", 1},
    [LIERNE_DTYPE_BITS8] = {"bits8", 1},
    [LIERNE_DTYPE_BITS16] = {"bits16", 2},
    [LIERNE_DTYPE_BITS32] = {"bits32", 4},
    [LIERNE_DTYPE_BITS64] = {"bits64", 8},
    [LIERNE_DTYPE_BITS128] = {"bits128", 16},
};
#define NDTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))

size_t lierne_dtype_size(lierne_dtype dtype) {
    return (int)dtype >= 0 && (int)dtype < NDTYPES ? dtypes[dtype].size : 0;
}

lierne_status lierne_check_dtype(lierne_dtype dtype, int rank) {
    char who[32] = "";
    if (lierne_dtype_size(dtype) > 0) {
        return LIERNE_OK;
    }
    if (rank >= 0) {
        snprintf(who, sizeof who, "rank %d: ", rank);
    }
    return LIERNE_FAIL(LIERNE_ERR_INVALID,
                       "%sdtype is %d%s, must be one of lierne_dtype, as LIERNE_DTYPE_F32", who,
                       (int)dtype, dtype == LIERNE_DTYPE_NONE ? " (LIERNE_DTYPE_NONE)" : "");
}

bool lierne_dtype_is_opaque(lierne_dtype dtype) {
    return dtype >= LIERNE_DTYPE_BITS8;
}

const char *lierne_dtype_name(lierne_dtype dtype) {
    return (int)dtype >= 0 && (int)dtype < NDTYPES ? dtypes[dtype].name : NULL;
}

lierne_status lierne_dtype_parse(lierne_dtype *out, const char *name) {
    LIERNE_PUBLIC_CALL();
    if (!out || !name) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", out ? "name" : "out");
    }
    for (int i = LIERNE_DTYPE_F64; i < NDTYPES; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (lierne_dtype)i;
            return LIERNE_OK;
        }
    }
    return LIERNE_FAIL(
        LIERNE_ERR_INVALID,
        "no dtype '%s'; there are f64, f32, bf16, f16, i64, i32, i8, u8, bits8, bits16, "
        "bits32, bits64, bits128",
        name);
}
