/* A set file has two grids, tensors or safetensors files whose headers list them, rules that give
 * tensors their placements by name, and maybe boxes (set_boxes.c) with tensors of the destination
 * of their own. A safetensors file begins with the length of its header in
 * 8 bytes, lowest first, and a JSON object of that length; weights are not read. */
#include "tool/set_file.h"

#include "tool/import.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEADER = 100000000 }; /* bytes, as safetensors has it */

static const char *const sides[2] = {"src", "dst"};

static int reject(const set_file *file, const char *what, const char *must) {
    return set_file_say(file, "%s must be %s", what, must);
}

static const cJSON *member(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* --- grids ------------------------------------------------------------------------------------ */

static int read_grid(set_file *file, const cJSON *object, int side) {
    static const char *const keys[] = {"dims", "rank_offset", NULL};
    const cJSON *dims = member(object, "dims"), *offset = member(object, "rank_offset"), *dim;
    const char *names[LIERNE_MAX_DIMS];
    int64_t sizes[LIERNE_MAX_DIMS], at = 0;
    int n = 0;
    if (!cJSON_IsObject(dims) || set_file_unknown_key(object, keys) ||
        (offset && !import_whole(&at, offset, 0, LIERNE_MAX_RANKS))) {
        return reject(file, sides[side], "an object with dims and maybe rank_offset");
    }
    cJSON_ArrayForEach(dim, dims) {
        if (n == LIERNE_MAX_DIMS || !import_whole(&sizes[n], dim, 1, LIERNE_MAX_RANKS)) {
            return reject(file, sides[side], "of at most 16 dims, each with its size");
        }
        names[n++] = dim->string;
    }
    const lierne_grid_spec spec = {.size = sizeof spec,
                                   .ndims = n,
                                   .names = names,
                                   .sizes = sizes,
                                   .rank_offset = (int)at,
                                   .world_size = file->world};
    if (lierne_grid_create(&file->grids[side], &spec) != LIERNE_OK) {
        return set_file_say(file, "%s: %s", sides[side], tool_reason());
    }
    return -1;
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* The placement of a dim: the axis that it cuts, or {"at": coordinate}. */
static bool read_placement(lierne_placement *p, const cJSON *item) {
    int64_t number;
    if (import_whole(&number, item, 0, LIERNE_MAX_AXES - 1)) {
        *p = (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD, .axis = (int)number};
        return true;
    }
    if (cJSON_IsObject(item) && cJSON_GetArraySize(item) == 1 &&
        import_whole(&number, member(item, "at"), 0, LIERNE_MAX_RANKS)) {
        *p = (lierne_placement){.kind = LIERNE_PLACEMENT_AT, .at = (int)number};
        return true;
    }
    return false;
}

static int place(const set_file *file, lierne_placement *placements, const cJSON *rule, int side,
                 const char *name) {
    const lierne_grid *grid = file->grids[side];
    const cJSON *item;
    int n = lierne_grid_get_ndims(grid, NULL);
    for (int d = 0; d < n; d++) {
        placements[d] = (lierne_placement){.kind = LIERNE_PLACEMENT_REPLICATE};
    }
    cJSON_ArrayForEach(item, member(rule, sides[side])) {
        int d = 0;
        while (d < n && strcmp(lierne_grid_get_dim_name(grid, NULL, d), item->string) != 0) {
            d++;
        }
        if (d == n || !read_placement(&placements[d], item)) {
            return set_file_say(file,
                                "'%s': %s.%s must be a dim of the grid, with the axis that it cuts "
                                "or {\"at\": coordinate}",
                                name, sides[side], item->string);
        }
    }
    return -1;
}

/* The first rule whose pattern a name fits. */
static const cJSON *find_rule(const cJSON *rules, const char *name) {
    const cJSON *rule;
    cJSON_ArrayForEach(rule, rules) {
        const char *pattern = cJSON_GetStringValue(member(rule, "names"));
        if (pattern && fnmatch(pattern, name, 0) == 0) {
            return rule;
        }
    }
    return NULL;
}

static int read_shape(const set_file *file, int64_t *shape, const cJSON *list, const char *name) {
    int n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (n == LIERNE_MAX_AXES || !import_whole(&shape[n], item, 0, (int64_t)1 << 53)) {
            set_file_say(file, "'%s': shape must be of 1 to %d sizes, each at least 0", name,
                         LIERNE_MAX_AXES);
            return -1;
        }
        n++;
    }
    shape[0] = n ? shape[0] : 1; /* a scalar */
    return cJSON_IsArray(list) && n == 0 ? 1 : n;
}

/* Into how many parts a side cuts an axis. */
static int64_t parts_of(const set_file *file, const set_tensor *t, int side, int axis) {
    int64_t parts = 1;
    for (int d = 0; d < lierne_grid_get_ndims(file->grids[side], NULL); d++) {
        const lierne_placement *p = &t->placements[side][d];
        if (p->kind == LIERNE_PLACEMENT_SHARD && p->axis == axis) {
            parts *= lierne_grid_get_dim_size(file->grids[side], NULL, d);
        }
    }
    return parts;
}

/* Where both sides cut an axis evenly, fewer indices are cut in the same way. */
static void reduce_axes(const set_file *file, set_tensor *t) {
    for (int a = 0; file->reduced && a < t->naxes; a++) {
        int64_t x = parts_of(file, t, 0, a), y = parts_of(file, t, 1, a), both = y;
        while (both % x != 0) {
            both += y;
        }
        int64_t shares = t->shape[a] % both == 0 ? t->shape[a] / both : 0;
        t->shape[a] = shares > 3 ? 3 * both : t->shape[a];
    }
}

lierne_layout_spec set_file_spec(const set_file *file, const set_tensor *tensor, int side) {
    return (lierne_layout_spec){.size = sizeof(lierne_layout_spec),
                                .grid = file->grids[side],
                                .naxes = tensor->naxes,
                                .shape = tensor->shape,
                                .dtype = tensor->dtype,
                                .placements = tensor->placements[side]};
}

/* Of both sides, or with boxes of that of its list. */
static int create_layouts(const set_file *file, set_tensor *t, int list) {
    for (int side = list; side < (file->has_boxes ? list + 1 : 2); side++) {
        const lierne_layout_spec spec = set_file_spec(file, t, side);
        if (lierne_layout_create(&t->layouts[side], &spec) != LIERNE_OK) {
            return set_file_say(file, "'%s': %s: %s", t->name, sides[side], tool_reason());
        }
    }
    return -1;
}

/* Space for another tensor, NULL: there is none. */
static set_tensor *grow(set_list *list) {
    if (list->n == list->capacity) {
        int64_t capacity = list->capacity ? 2 * list->capacity : 256;
        set_tensor *grown = realloc(list->at, (size_t)capacity * sizeof *grown);
        if (!grown) {
            return NULL;
        }
        list->at = grown, list->capacity = capacity;
    }
    set_tensor *t = &list->at[list->n];
    *t = (set_tensor){0};
    return t;
}

/* The lists that a reader fills, and the rules for its tensors. */
typedef struct target {
    set_file *file;
    int list;
    const cJSON *rules;
} target;

static int add_tensor(const target *to, const char *name, lierne_dtype dtype, const cJSON *sizes) {
    set_file *file = to->file;
    const cJSON *rule = find_rule(to->rules, name);
    int64_t shape[LIERNE_MAX_AXES];
    int naxes = read_shape(file, shape, sizes, name);
    if (naxes < 1) {
        return TOOL_INVALID;
    }
    if (!rule) {
        return set_file_say(file, "no names of layouts fit '%s'", name);
    }
    set_tensor *t = grow(&file->lists[to->list]);
    if (!t || !(t->name = strdup(name))) {
        return tool_usage(file->argv, "no memory for another tensor");
    }
    file->lists[to->list].n++;
    t->dtype = dtype, t->bytes = (double)lierne_dtype_size(dtype), t->naxes = naxes;
    for (int a = 0; a < naxes; a++) {
        t->bytes *= (double)shape[a];
        t->shape[a] = shape[a];
    }
    for (int side = 0; side < 2; side++) {
        int status = place(file, t->placements[side], rule, side, name);
        if (status >= 0) {
            return status;
        }
    }
    reduce_axes(file, t);
    return create_layouts(file, t, to->list);
}

static lierne_dtype find_dtype(const char *name) {
    static const char *const safetensors[][2] = {
        {"BF16", "bf16"},  {"F16", "f16"},       {"F32", "f32"},       {"F64", "f64"},
        {"I64", "i64"},    {"I32", "i32"},       {"I8", "i8"},         {"U8", "u8"},
        {"BOOL", "bits8"}, {"F8_E4M3", "bits8"}, {"F8_E5M2", "bits8"}, {"I16", "bits16"},
        {"U16", "bits16"}, {"U32", "bits32"},    {"U64", "bits64"},
    };
    for (size_t i = 0; name && i < sizeof safetensors / sizeof *safetensors; i++) {
        name = strcmp(name, safetensors[i][0]) == 0 ? safetensors[i][1] : name;
    }
    for (int d = LIERNE_DTYPE_F64; name && d <= LIERNE_DTYPE_BITS128; d++) {
        if (strcmp(lierne_dtype_name((lierne_dtype)d), name) == 0) {
            return (lierne_dtype)d;
        }
    }
    return LIERNE_DTYPE_NONE;
}

/* A tensor of the file or of a header: its name, dtype and shape. */
static int read_tensor(const target *to, const cJSON *object, const char *name) {
    static const char *const keys[] = {"name", "dtype", "shape", "data_offsets", NULL};
    const char *text = cJSON_GetStringValue(member(object, "dtype"));
    const char *unknown = cJSON_IsObject(object) ? set_file_unknown_key(object, keys) : NULL;
    lierne_dtype dtype = find_dtype(text);
    if (!name || !text || unknown || !cJSON_IsArray(member(object, "shape"))) {
        return set_file_say(to->file, "'%s': must have a name, a dtype and a shape%s%s",
                            name ? name : "", unknown ? ", and no " : "", unknown ? unknown : "");
    }
    if (dtype == LIERNE_DTYPE_NONE) {
        return set_file_say(to->file,
                            "'%s': dtype is '%s', must be one of lierne's or safetensors'", name,
                            text);
    }
    return add_tensor(to, name, dtype, member(object, "shape"));
}

/* --- safetensors ------------------------------------------------------------------------------ */

/* The header of a file, NULL: it has none. */
static cJSON *read_header(FILE *in) {
    unsigned char length[8];
    uint64_t n = 0;
    if (fread(length, 1, sizeof length, in) != sizeof length) {
        return NULL;
    }
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | length[i];
    }
    char *text = n <= MOST_HEADER ? malloc(n + 1) : NULL;
    cJSON *header = NULL;
    if (text && fread(text, 1, n, in) == n) {
        text[n] = 0;
        header = cJSON_ParseWithLength(text, n);
    }
    free(text);
    return header;
}

/* The bytes of the tensor that was read last are those that its shape has. */
static int check_offsets(const target *to, const cJSON *object) {
    const cJSON *offsets = member(object, "data_offsets");
    const set_list *list = &to->file->lists[to->list];
    const set_tensor *t = &list->at[list->n - 1];
    int64_t begin, end;
    bool known = cJSON_GetArraySize(offsets) == 2 &&
                 import_whole(&begin, cJSON_GetArrayItem(offsets, 0), 0, (int64_t)1 << 53) &&
                 import_whole(&end, cJSON_GetArrayItem(offsets, 1), begin, (int64_t)1 << 53);
    return known && (double)(end - begin) == t->bytes
               ? -1
               : set_file_say(to->file, "'%s': data_offsets must be of the %.0f bytes of its shape",
                              t->name, t->bytes);
}

static int read_safetensors(const target *to, const char *path) {
    FILE *in = fopen(path, "rb");
    if (!in) {
        return tool_usage(to->file->argv, "cannot read %s: %s", path, strerror(errno));
    }
    cJSON *header = read_header(in);
    const cJSON *item;
    int status = -1;
    fclose(in);
    if (!cJSON_IsObject(header)) {
        cJSON_Delete(header);
        return set_file_say(to->file, "%s: is no safetensors file", path);
    }
    cJSON_ArrayForEach(item, header) {
        if (status < 0 && strcmp(item->string, "__metadata__") != 0) {
            status = read_tensor(to, item, item->string);
            status = status < 0 ? check_offsets(to, item) : status;
        }
    }
    cJSON_Delete(header);
    return status;
}

/* --- the file --------------------------------------------------------------------------------- */

/* A list of tensors; key: of the text, or "". */
static int read_tensors(const target *to, const cJSON *list, const char *key) {
    const cJSON *item;
    int status = -1;
    to->file->key = key;
    to->file->index = 0;
    cJSON_ArrayForEach(item, list) {
        if (status < 0) {
            status = read_tensor(to, item, cJSON_GetStringValue(member(item, "name")));
            to->file->index++;
        }
    }
    return status;
}

/* Such a list, in a file of its own. */
static int read_tensor_file(const target *to, const char *path) {
    const import_world world = {.argv = to->file->argv};
    char *text = import_read(&world, path);
    if (!text) {
        return TOOL_USAGE;
    }
    cJSON *list = cJSON_ParseWithOpts(text, NULL, 1);
    int status = cJSON_IsArray(list) ? read_tensors(to, list, "")
                                     : reject(to->file, path, "a list of tensors");
    cJSON_Delete(list);
    free(text);
    return status;
}

/* The tensors of a key, which has a list or a path. */
static int read_list(const target *to, const cJSON *all, const char *key) {
    const cJSON *tensors = member(all, key);
    to->file->key = key;
    to->file->index = -1;
    if (tensors && !cJSON_IsArray(tensors) && !cJSON_IsString(tensors)) {
        return reject(to->file, key, "a list of tensors, or the path of a file with one");
    }
    return cJSON_IsString(tensors) ? read_tensor_file(to, tensors->valuestring)
                                   : read_tensors(to, tensors, key);
}

static int check_rules(set_file *file, const cJSON *rules) {
    static const char *const keys[] = {"names", "src", "dst", NULL};
    const cJSON *item;
    file->key = "layouts";
    file->index = 0;
    cJSON_ArrayForEach(item, rules) {
        bool known = cJSON_IsString(member(item, "names")) && !set_file_unknown_key(item, keys);
        for (int side = 0; side < 2; side++) {
            const cJSON *placements = member(item, sides[side]);
            known = known && (!placements || cJSON_IsObject(placements));
        }
        if (!known) {
            return reject(file, "layouts",
                          "a list of objects with names, and src and dst, which are objects");
        }
        file->index++;
    }
    return -1;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* No two tensors of a list have one name. */
static int check_twice(const set_file *file, const set_list *list) {
    const char **names = malloc(((size_t)list->n + 1) * sizeof *names), *twice = NULL;
    if (!names) {
        return tool_usage(file->argv, "no memory for %lld names", (long long)list->n);
    }
    for (int64_t i = 0; i < list->n; i++) {
        names[i] = list->at[i].name;
    }
    qsort(names, (size_t)list->n, sizeof *names, compare_names);
    for (int64_t i = 1; i < list->n && !twice; i++) {
        twice = strcmp(names[i - 1], names[i]) == 0 ? names[i] : NULL;
    }
    free(names);
    return twice ? set_file_say(file, "'%s' is the name of two tensors", twice) : -1;
}

static int read_lists(set_file *file, const cJSON *all) {
    const target src = {file, 0, member(all, "layouts")}, dst = {file, 1, src.rules};
    const cJSON *item;
    const cJSON *files = member(all, "safetensors");
    int status = check_rules(file, src.rules);
    status = status < 0 ? read_list(&src, all, "tensors") : status;
    file->key = "safetensors";
    file->index = 0;
    if (status < 0 && files && !cJSON_IsArray(files)) {
        return reject(file, "safetensors", "a list of paths");
    }
    cJSON_ArrayForEach(item, files) {
        if (status < 0) {
            status = cJSON_IsString(item) ? read_safetensors(&src, item->valuestring)
                                          : reject(file, "safetensors", "a list of paths");
            file->index++;
        }
    }
    status = status < 0 && file->has_boxes ? read_list(&dst, all, "dst_tensors") : status;
    file->key = NULL;
    for (int side = 0; side < 2; side++) {
        status = status < 0 ? check_twice(file, &file->lists[side]) : status;
    }
    if (status < 0 && file->lists[0].n == 0) {
        return reject(file, "tensors and safetensors", "lists with a tensor at least");
    }
    return status < 0 && file->has_boxes ? set_file_read_boxes(file, member(all, "boxes")) : status;
}

static int read_object(set_file *file, const cJSON *all) {
    static const char *const keys[] = {"world_size",  "src",         "dst",   "layouts", "tensors",
                                       "safetensors", "dst_tensors", "boxes", NULL};
    int64_t world;
    int status = -1;
    if (!cJSON_IsObject(all) || set_file_unknown_key(all, keys)) {
        return reject(file, "it",
                      "an object with world_size, src, dst, layouts, tensors or safetensors, and "
                      "maybe boxes and dst_tensors");
    }
    file->has_boxes = member(all, "boxes") || member(all, "dst_tensors");
    file->reduced = file->reduce && !file->has_boxes;
    file->key = "world_size";
    if (!import_whole(&world, member(all, "world_size"), 1, LIERNE_MAX_RANKS)) {
        return reject(file, "world_size", "a number from 1 to 16777216");
    }
    file->world = (int)world;
    for (int side = 0; side < 2 && status < 0; side++) {
        file->key = sides[side];
        status = read_grid(file, member(all, sides[side]), side);
    }
    return status < 0 ? read_lists(file, all) : status;
}

int set_file_read(set_file *file, const char *path, char **argv) {
    const import_world world = {.argv = argv};
    *file = (set_file){.path = path, .argv = argv, .index = -1, .reduce = file->reduce};
    char *text = import_read(&world, path);
    if (!text) {
        return TOOL_USAGE;
    }
    file->text = text;
    cJSON *all = cJSON_ParseWithOpts(text, NULL, 1);
    int status = all ? read_object(file, all) : reject(file, "it", "valid JSON");
    file->text = NULL;
    cJSON_Delete(all);
    free(text);
    return status;
}

void set_file_close(set_file *file) {
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < file->lists[side].n; i++) {
            free(file->lists[side].at[i].name);
            lierne_layout_destroy(file->lists[side].at[i].layouts[0]);
            lierne_layout_destroy(file->lists[side].at[i].layouts[1]);
        }
        lierne_grid_destroy(file->grids[side]);
        free(file->lists[side].at);
    }
    free(file->boxes);
}
