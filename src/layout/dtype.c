/* The one table of element types. */
#include "base/base.h"
#include "lierne/layout.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [LIERNE_F64] = {"f64", 8}, [LIERNE_F32] = {"f32", 4}, [LIERNE_BF16] = {"bf16", 2},
    [LIERNE_F16] = {"f16", 2}, [LIERNE_I64] = {"i64", 8}, [LIERNE_I32] = {"i32", 4},
    [LIERNE_I8] = {"i8", 1},   [LIERNE_U8] = {"u8", 1},
};
#define NDTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))

size_t lierne_dtype_size(lierne_dtype dtype) {
    return (int)dtype >= 0 && (int)dtype < NDTYPES ? dtypes[dtype].size : 0;
}

const char *lierne_dtype_name(lierne_dtype dtype) {
    return (int)dtype >= 0 && (int)dtype < NDTYPES ? dtypes[dtype].name : NULL;
}

lierne_status lierne_dtype_parse(lierne_dtype *out, const char *name) {
    if (!out || !name) {
        return LIERNE_FAIL(LIERNE_INVALID, "%s is NULL", out ? "name" : "out");
    }
    for (int i = 0; i < NDTYPES; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (lierne_dtype)i;
            return LIERNE_OK;
        }
    }
    return LIERNE_FAIL(LIERNE_INVALID,
                       "no dtype '%s'; there are f64, f32, bf16, f16, i64, i32, i8, u8", name);
}
