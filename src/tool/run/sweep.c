/* The sizes of lierne run: one axis of the tensor is made longer or shorter, all else stays, so
 * that every size is a bridge between the same layouts. */
#include "tool/run.h"

#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Digits, and K, M or G for their binary multiples. */
static bool is_size(const char *text) {
    size_t digits = strspn(text, "0123456789");
    const char *unit = text + digits;
    return digits > 0 && (*unit == '\0' || (strchr("KMGkmg", *unit) && unit[1] == '\0'));
}

static int read_size(char **argv, const char *option, const char *text, int64_t *out) {
    char *unit;
    if (!text) {
        return -1;
    }
    if (!is_size(text)) {
        return tool_usage(argv, "%s is '%s', must be bytes in digits, as 4096, 512K, 8M or 1G",
                          option, text);
    }
    int64_t size = strtoll(text, &unit, 10);
    const char *units = "KMG", *found = *unit ? strchr(units, toupper(*unit)) : NULL;
    int shift = found ? 10 * (int)(found - units + 1) : 0;
    if (size == 0 || size > INT64_MAX >> shift >> 10) {
        return tool_usage(argv, "%s is '%s', must be from 1 to %" PRId64 "G", option, text,
                          INT64_MAX >> 40);
    }
    *out = size << shift;
    return -1;
}

int run_sweep_parse(char **argv, const char *least, const char *most, const char *factor,
                    run_sweep *sweep) {
    int status = read_size(argv, "--minbytes", least, &sweep->least);
    sweep->factor = 2;
    sweep->given = least || most || factor;
    status = status < 0 ? read_size(argv, "--maxbytes", most, &sweep->most) : status;
    return status < 0 ? tool_bridge_number(argv, "--stepfactor", factor, 2, 1 << 20, &sweep->factor)
                      : status;
}

/* The last axis that is neither batch nor sequence; -1: none. */
static int find_axis(const lierne_bridge_spec *spec) {
    int axis = -1;
    for (int a = 0; a < spec->naxes; a++) {
        axis = a != spec->batch_axis && a != spec->sequence_axis ? a : axis;
    }
    return axis;
}

int run_sweep_open(run_sweep *sweep, char **argv, lierne_bridge_spec *spec) {
    sweep->unit = (int64_t)lierne_dtype_size(spec->dtype);
    sweep->axis = find_axis(spec);
    for (int a = 0; a < spec->naxes; a++) {
        sweep->shape[a] = spec->shape[a];
        sweep->unit *= a == sweep->axis ? 1 : spec->shape[a];
    }
    if (sweep->given && sweep->axis < 0) {
        return tool_usage(argv, "--minbytes, --maxbytes: every axis is the batch or the sequence; "
                                "another one is needed to change the size");
    }
    sweep->own = sweep->unit * (sweep->axis < 0 ? 1 : spec->shape[sweep->axis]);
    sweep->least = sweep->least ? sweep->least : sweep->own;
    sweep->most = sweep->most ? sweep->most : sweep->least;
    if (sweep->most < sweep->least) {
        return tool_usage(argv,
                          "--maxbytes is %" PRId64 ", must be at least the smallest size, %" PRId64,
                          sweep->most, sweep->least);
    }
    spec->shape = sweep->shape;
    return -1;
}

bool run_sweep_next(run_sweep *sweep) {
    int64_t before = sweep->bytes, step = sweep->at;
    do {
        step = step == 0                            ? sweep->least
               : step > sweep->most / sweep->factor ? -1
                                                    : step * sweep->factor;
        if (step < 0) {
            return false;
        }
        sweep->at = step;
        if (sweep->given) {
            int64_t length = (step + sweep->unit / 2) / sweep->unit;
            sweep->shape[sweep->axis] = length > 0 ? length : 1;
        }
        sweep->bytes = !sweep->given ? sweep->own : sweep->unit * sweep->shape[sweep->axis];
    } while (sweep->bytes == before);
    return true;
}
