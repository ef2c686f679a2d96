/* What convolutions read: numbers of a halo. */
#include "layout/dense_halo.h"

#define MOST ((int64_t)1 << 60)

static lierne_status check_number(const char *name, int64_t value, int64_t least) {
    if (value < least) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is %lld, must be at least %lld", name,
                           (long long)value, (long long)least);
    }
    return value <= MOST ? LIERNE_OK
                         : LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "%s is %lld, must be at most %lld",
                                       name, (long long)value, (long long)MOST);
}

static lierne_status check_numbers(const lierne_convolution_spec *spec) {
    LIERNE_TRY(check_number("elements", spec->elements, 0));
    LIERNE_TRY(check_number("kernel", spec->kernel, 1));
    LIERNE_TRY(check_number("stride", spec->stride, 1));
    LIERNE_TRY(check_number("dilation", spec->dilation, 1));
    LIERNE_TRY(check_number("pad_lo", spec->pad_lo, 0));
    return check_number("pad_hi", spec->pad_hi, 0);
}

lierne_status lierne_halo_from_convolution(lierne_dense_halo *halo,
                                           const lierne_convolution_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_convolution_spec own, *spec = &own;
    int64_t reach;
    LIERNE_TRY(lierne_check_set(halo, "halo"));
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    LIERNE_TRY(check_numbers(spec));
    if (!lierne_mul_i64(spec->dilation, spec->kernel - 1, &reach) || reach > MOST) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                           "kernel is %lld and dilation %lld: the kernel must reach over at most "
                           "%lld elements",
                           (long long)spec->kernel, (long long)spec->dilation, (long long)MOST);
    }
    int64_t padded = spec->elements + spec->pad_lo + spec->pad_hi;
    if (reach >= padded) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "kernel is %lld and dilation %lld: the kernel reaches over %lld elements, "
            "but there are only %lld with padding: no output",
            (long long)spec->kernel, (long long)spec->dilation, (long long)reach + 1,
            (long long)padded);
    }
    halo->lo = spec->pad_lo;
    halo->hi = reach - spec->pad_lo;
    halo->stride = spec->stride;
    halo->outputs = (padded - reach - 1) / spec->stride + 1;
    return LIERNE_OK;
}
