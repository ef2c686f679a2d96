/* Reading golden files, and comparing with what is in them. */
#include "golden.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *golden_alloc(int64_t n, size_t size) {
    void *memory = calloc((size_t)n + 1, size);
    if (!memory) {
        fprintf(stderr, "no memory for %lld x %zu bytes\n", (long long)n, size);
        exit(2);
    }
    return memory;
}

bool golden_expect(golden_case *c, bool ok, const char *format, ...) {
    if (!ok && !c->failed) {
        va_list args;
        va_start(args, format);
        vsnprintf(c->why, sizeof c->why, format, args);
        va_end(args);
        c->failed = true;
    }
    return ok;
}

bool golden_expect_status(golden_case *c, const char *what, lierne_status status,
                          lierne_status wanted) {
    return golden_expect(c, status == wanted, "%s: %s, expected %s%s%s", what,
                         lierne_status_name(status), lierne_status_name(wanted),
                         status == LIERNE_OK ? "" : "; ",
                         status == LIERNE_OK ? "" : lierne_last_error());
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    size_t length = 0, capacity = 1 << 16;
    char *text = file ? malloc(capacity) : NULL;
    while (text) {
        size_t n = fread(text + length, 1, capacity - length - 1, file);
        length += n;
        if (n == 0) {
            text[length] = '\0';
            break;
        }
        if (capacity - length < 2) {
            char *grown = realloc(text, capacity *= 2);
            if (!grown) {
                free(text);
            }
            text = grown;
        }
    }
    if (file) {
        fclose(file);
    }
    return text;
}

/* The string from text to its closing quote, both included. */
static size_t string_length(const char *text) {
    size_t n = 1;
    while (text[n] && text[n] != '"') {
        n += text[n] == '\\' && text[n + 1] ? 2 : 1;
    }
    return text[n] ? n + 1 : n;
}

/* Puts quotes around numbers that a double may not have: with a fraction, an exponent, or more than
 * 15 digits. */
static char *quote_numbers(const char *text) {
    char *out = malloc(3 * strlen(text) + 1), *to = out;
    while (out && *text) {
        size_t n = *text == '"' ? string_length(text) : strspn(text, "+-.0123456789eE");
        bool number = *text == '-' || (*text >= '0' && *text <= '9');
        bool quote = number && (strcspn(text, ".eE") < n || n > 16);
        n = number || *text == '"' ? n : 1;
        to += sprintf(to, quote ? "\"%.*s\"" : "%.*s", (int)n, text);
        text += n;
    }
    if (out) {
        *to = '\0';
    }
    return out;
}

cJSON *golden_read(const char *path, const char **why) {
    char *text = read_text(path);
    char *quoted = text ? quote_numbers(text) : NULL;
    cJSON *root = quoted ? cJSON_Parse(quoted) : NULL;
    *why = quoted ? "it is not JSON" : "it cannot be read";
    free(text);
    free(quoted);
    return root;
}

const cJSON *golden_get(const cJSON *item, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(item, key);
}

int64_t golden_to_int(const cJSON *item, int64_t fallback) {
    const char *text = cJSON_GetStringValue(item);
    if (text && strlen(text) > 16 && strspn(text, "-0123456789") == strlen(text)) {
        return strtoll(text, NULL, 10);
    }
    if (!cJSON_IsNumber(item)) {
        return fallback;
    }
    double v = item->valuedouble;
    return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
}

int64_t golden_int(const cJSON *item, const char *key, int64_t fallback) {
    return golden_to_int(golden_get(item, key), fallback);
}

double golden_to_double(const cJSON *item) {
    return cJSON_IsString(item) ? strtod(item->valuestring, NULL) : cJSON_GetNumberValue(item);
}

const char *golden_string(const cJSON *item, const char *key) {
    const char *text = cJSON_GetStringValue(golden_get(item, key));
    return text ? text : "";
}

golden_names golden_read_names(const cJSON *item) {
    golden_names names = {0};
    if (cJSON_IsString(item)) {
        names.n = 1;
        names.at[0] = item->valuestring;
    } else {
        const cJSON *one;
        cJSON_ArrayForEach(one, item) {
            if (names.n < GOLDEN_MAX_DIMS) {
                names.at[names.n++] = cJSON_GetStringValue(one);
            }
        }
    }
    return names;
}

golden_dims golden_read_dims(const cJSON *shape, const cJSON *names) {
    golden_dims dims = {0};
    golden_names given = golden_read_names(names);
    int nsizes = cJSON_GetArraySize(shape);
    int common = nsizes < given.n ? nsizes : given.n;
    dims.n = nsizes > given.n ? nsizes : given.n;
    for (int d = 0; d < common; d++) {
        dims.names[d] = given.at[d];
        dims.sizes[d] = golden_to_int(cJSON_GetArrayItem(shape, d), 0);
    }
    return dims;
}

lierne_status golden_grid(lierne_grid **out, const cJSON *item, int64_t world) {
    golden_dims dims = golden_read_dims(golden_get(item, "shape"), golden_get(item, "dim_names"));
    lierne_grid_spec spec = {.size = sizeof spec,
                             .ndims = dims.n,
                             .names = dims.names,
                             .sizes = dims.sizes,
                             .rank_offset = golden_int(item, "rank_offset", 0),
                             .world_size = world};
    return lierne_grid_create(out, &spec);
}

bool golden_same_ints(const cJSON *list, const int64_t *values, int64_t n) {
    const cJSON *one;
    int64_t i = 0;
    if (!cJSON_IsArray(list)) {
        return false;
    }
    cJSON_ArrayForEach(one, list) {
        if (i == n || golden_to_int(one, ~values[i]) != values[i]) {
            return false;
        }
        i++;
    }
    return i == n;
}

bool golden_same_ranks(const cJSON *list, const int *ranks, int n) {
    const cJSON *one;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != n) {
        return false;
    }
    cJSON_ArrayForEach(one, list) {
        if (!cJSON_IsNumber(one) || golden_to_int(one, -1) != *ranks++) {
            return false;
        }
    }
    return true;
}

bool golden_same_groups(const cJSON *list, const int *ranks, int ngroups, int group_size) {
    const cJSON *group;
    int n = 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != ngroups) {
        return false;
    }
    cJSON_ArrayForEach(group, list) {
        if (!golden_same_ranks(group, ranks + n * group_size, group_size)) {
            return false;
        }
        n++;
    }
    return true;
}

lierne_status golden_condition(const cJSON *error) {
    static const struct {
        const char *text;
        lierne_status status;
    } conditions[] = {
        {"len(shape)", LIERNE_ERR_INVALID},
        {"rank_offset must be", LIERNE_ERR_RANK_OFFSET},
        {"must be positive", LIERNE_ERR_DIM_SIZE},
        {"must have 'tp'", LIERNE_ERR_INVALID},
        {"must have 'dp'", LIERNE_ERR_INVALID},
        {"over sized", LIERNE_ERR_OVERSIZED},
        {"world size", LIERNE_ERR_INVALID},
        {"already registered", LIERNE_ERR_DUPLICATE},
        {"already been created", LIERNE_ERR_DUPLICATE},
        {"duplicate", LIERNE_ERR_DUPLICATE},
        {"repeated axis", LIERNE_ERR_DUPLICATE},
        {"but the grid size is", LIERNE_ERR_SIZE},
        {"is not in view", LIERNE_ERR_UNKNOWN_DIM},
        {"is not in the", LIERNE_ERR_UNKNOWN_DIM},
        {"membership", LIERNE_ERR_MEMBERSHIP},
        {"is not registered", LIERNE_ERR_UNKNOWN_VIEW},
        {"hasn't been created", LIERNE_ERR_INVALID},
        {"leaders count", LIERNE_ERR_INDIVISIBLE},
        {"CP size must be 1", LIERNE_ERR_UNSUPPORTED},
    };
    const char *message = golden_string(error, "message");
    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        if (strstr(message, conditions[i].text)) {
            return conditions[i].status;
        }
    }
    return LIERNE_OK;
}

static int64_t count_numbers(const cJSON *list) {
    const cJSON *one;
    int64_t n = 0;
    cJSON_ArrayForEach(one, list) {
        n += cJSON_IsArray(one) ? count_numbers(one) : 1;
    }
    return n;
}

static double *read_into(const cJSON *list, double *to) {
    const cJSON *one;
    cJSON_ArrayForEach(one, list) {
        if (cJSON_IsArray(one)) {
            to = read_into(one, to);
        } else {
            *to++ = golden_to_double(one);
        }
    }
    return to;
}

double *golden_read_values(const cJSON *list, int64_t *n) {
    *n = count_numbers(list);
    double *values = golden_alloc(*n, sizeof *values);
    read_into(list, values);
    return values;
}

int64_t *golden_read_ints(const cJSON *list, int64_t *n) {
    double *values = golden_read_values(list, n);
    int64_t *ints = golden_alloc(*n, sizeof *ints);
    for (int64_t i = 0; i < *n; i++) {
        ints[i] = (int64_t)values[i];
    }
    free(values);
    return ints;
}

void golden_expect_list(golden_case *c, const char *what, const cJSON *list, const double *values,
                        int64_t n) {
    int64_t nwanted;
    double *wanted = golden_read_values(list, &nwanted);
    golden_expect(c, cJSON_IsArray(list) && nwanted == n, "%s: %lld numbers, expected %lld", what,
                  (long long)n, (long long)nwanted);
    for (int64_t i = 0; !c->failed && i < n; i++) {
        golden_expect(c, memcmp(&wanted[i], &values[i], sizeof *values) == 0,
                      "%s: number %lld is %.17g, expected %.17g", what, (long long)i, values[i],
                      wanted[i]);
    }
    free(wanted);
}

void golden_expect_ints(golden_case *c, const char *what, const cJSON *list, const int64_t *values,
                        int64_t n) {
    double *as = golden_alloc(n, sizeof *as);
    for (int64_t i = 0; i < n; i++) {
        as[i] = (double)values[i];
    }
    golden_expect_list(c, what, list, as, n);
    free(as);
}
