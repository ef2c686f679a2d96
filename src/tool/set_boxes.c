/* The boxes of a set file: which part of which source tensor is which part of which destination
 * tensor, by names; and the sets of one dtype that a file has. What the library finds wrong with
 * boxes is said at the place of the box. */
#include "tool/import.h"
#include "tool/set_file.h"

#include <lierne/redistribute.h>

#include <stdlib.h>
#include <string.h>

static const char *const sides[2] = {"src", "dst"};

const set_list *set_file_list(const set_file *file, int side) {
    return &file->lists[file->has_boxes ? side : 0];
}

/* --- boxes ------------------------------------------------------------------------------------ */

/* The tensor of a name in a list, or -1. */
static int64_t find_tensor(const set_list *list, const char *name) {
    int64_t i = 0;
    while (name && i < list->n && strcmp(list->at[i].name, name) != 0) {
        i++;
    }
    return name && i < list->n ? i : -1;
}

/* A list of n whole numbers from `least` on, which may be absent. */
static bool read_numbers(int64_t *to, const cJSON *list, int n, int64_t least) {
    const cJSON *item;
    int i = 0;
    if (!list) {
        return true;
    }
    cJSON_ArrayForEach(item, list) {
        if (i == n || !import_whole(&to[i++], item, least, (int64_t)1 << 53)) {
            return false;
        }
    }
    return cJSON_IsArray(list) && i == n;
}

static int read_axes(set_file *file, set_box *b, const cJSON *list, int n) {
    int64_t axes[LIERNE_MAX_AXES] = {0};
    if (!read_numbers(axes, list, n, -1)) {
        return set_file_say(file,
                            "boxes[%lld].axes must be a list of the source's axes, or -1, one for "
                            "each of the %d axes of the destination",
                            (long long)file->index, n);
    }
    for (int a = 0; a < n; a++) {
        b->axes[a] = axes[a] < LIERNE_MAX_AXES ? (int)axes[a] : LIERNE_MAX_AXES;
    }
    b->permuted = list;
    return -1;
}

static int read_places(set_file *file, set_box *b, const cJSON *object, const set_tensor *src,
                       const set_tensor *dst) {
    const struct {
        const char *key;
        int64_t *to;
        int n;
    } lists[] = {{"src_start", b->box.src_start, src->naxes},
                 {"dst_start", b->box.dst_start, dst->naxes},
                 {"sizes", b->box.sizes, dst->naxes}};
    for (int a = 0; a < dst->naxes; a++) {
        b->box.sizes[a] = dst->shape[a];
    }
    for (int i = 0; i < 3; i++) {
        const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, lists[i].key);
        if (!read_numbers(lists[i].to, list, lists[i].n, 0)) {
            return set_file_say(file, "boxes[%lld].%s must be a list of %d numbers of at least 0",
                                (long long)file->index, lists[i].key, lists[i].n);
        }
    }
    const cJSON *axes = cJSON_GetObjectItemCaseSensitive(object, "axes");
    if (!axes && src->naxes != dst->naxes) {
        return set_file_say(file, "boxes[%lld] has no axes; '%s' has %d, '%s' has %d",
                            (long long)file->index, src->name, src->naxes, dst->name, dst->naxes);
    }
    return axes ? read_axes(file, b, axes, dst->naxes) : -1;
}

static int read_box(set_file *file, set_box *b, const cJSON *object) {
    static const char *const keys[] = {"src",   "dst",  "src_start", "dst_start",
                                       "sizes", "axes", NULL};
    int64_t *tensors[2] = {&b->box.src, &b->box.dst};
    if (!cJSON_IsObject(object) || set_file_unknown_key(object, keys)) {
        return set_file_say(file,
                            "boxes[%lld] must be an object with src, dst, and maybe src_start, "
                            "dst_start, sizes and axes",
                            (long long)file->index);
    }
    for (int side = 0; side < 2; side++) {
        const char *name =
            cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, sides[side]));
        *tensors[side] = find_tensor(&file->lists[side], name);
        if (*tensors[side] < 0) {
            return set_file_say(file, "boxes[%lld].%s is '%s', must be the name of a tensor of %s",
                                (long long)file->index, sides[side], name ? name : "",
                                side == 0 ? "tensors" : "dst_tensors");
        }
    }
    const set_tensor *src = &file->lists[0].at[b->box.src], *dst = &file->lists[1].at[b->box.dst];
    if (src->dtype != dst->dtype) {
        return set_file_say(file, "boxes[%lld]: '%s' is %s, '%s' is %s; lierne converts no dtypes",
                            (long long)file->index, src->name, lierne_dtype_name(src->dtype),
                            dst->name, lierne_dtype_name(dst->dtype));
    }
    return read_places(file, b, object, src, dst);
}

/* Whether a message goes on with word[number]. *end: behind it. */
static bool names(const char *at, const char *word, int64_t n, int64_t *number, const char **end) {
    size_t length = strlen(word);
    if (strncmp(at, word, length) != 0) {
        return false;
    }
    *number = strtoll(at + length, (char **)end, 10);
    return **end == ']' && *number >= 0 && *number < n && ++*end;
}

/* What the library says of a set, with the numbers of boxes in the file and the names of tensors,
 * at the place of the last box that it names. */
static int say_wrong(set_file *file, const set_selection *s) {
    char text[1200] = "";
    size_t n = 0;
    int64_t number;
    file->key = "boxes";
    file->index = -1;
    for (const char *at = tool_reason(), *end; *at && n < sizeof text; at = end) {
        size_t left = sizeof text - n;
        if (names(at, "boxes[", s->spec.nboxes, &number, &end)) {
            file->index = s->box_numbers[number];
            n += (size_t)snprintf(text + n, left, "boxes[%lld]", (long long)file->index);
        } else if (names(at, "src[", s->n[0], &number, &end)) {
            n += (size_t)snprintf(text + n, left, "'%s'",
                                  file->lists[0].at[s->numbers[0][number]].name);
        } else if (names(at, "dst[", s->n[1], &number, &end)) {
            n += (size_t)snprintf(text + n, left, "'%s'",
                                  file->lists[1].at[s->numbers[1][number]].name);
        } else {
            n += (size_t)snprintf(text + n, left, "%c", *at);
            end = at + 1;
        }
    }
    return set_file_say(file, "%s", text);
}

int set_file_read_boxes(set_file *file, const cJSON *list) {
    const cJSON *item;
    int n = cJSON_GetArraySize(list);
    file->key = "boxes";
    file->index = -1;
    if (!cJSON_IsArray(list) || file->lists[1].n == 0) {
        return set_file_say(file, "boxes must be a list, and dst_tensors list a tensor at least");
    }
    file->boxes = calloc((size_t)n + 1, sizeof *file->boxes);
    int status = file->boxes ? -1 : tool_usage(file->argv, "no memory for %d boxes", n);
    cJSON_ArrayForEach(item, list) {
        file->index = file->nboxes;
        status = status < 0 ? read_box(file, &file->boxes[file->nboxes], item) : status;
        file->nboxes += status < 0;
    }
    for (int d = LIERNE_DTYPE_F64; d <= LIERNE_DTYPE_BITS128 && status < 0; d++) {
        set_selection s;
        status = set_select(&s, file, (lierne_dtype)d);
        if (status < 0 && s.spec.ntensors > 0 && lierne_set_check(&s.spec) != LIERNE_OK) {
            status = say_wrong(file, &s);
        }
        set_selection_free(&s);
    }
    return status;
}

/* --- sets of one dtype ------------------------------------------------------------------------ */

static bool select_side(set_selection *s, const set_file *file, lierne_dtype dtype, int side,
                        int64_t *places) {
    const set_list *list = set_file_list(file, side);
    s->numbers[side] = calloc((size_t)list->n + 1, sizeof *s->numbers[side]);
    s->layouts[side] = calloc((size_t)list->n + 1, sizeof(lierne_layout *));
    for (int64_t i = 0; s->numbers[side] && s->layouts[side] && i < list->n; i++) {
        if (list->at[i].dtype == dtype) {
            places[i] = s->n[side];
            s->numbers[side][s->n[side]] = i;
            s->layouts[side][s->n[side]++] = list->at[i].layouts[side];
        }
    }
    return s->numbers[side] && s->layouts[side];
}

/* places: of each tensor of both sides in its set. */
static bool select_boxes(set_selection *s, const set_file *file, lierne_dtype dtype,
                         int64_t *const *places) {
    s->boxes = calloc((size_t)file->nboxes + 1, sizeof *s->boxes);
    s->box_numbers = calloc((size_t)file->nboxes + 1, sizeof *s->box_numbers);
    for (int64_t i = 0; s->boxes && s->box_numbers && i < file->nboxes; i++) {
        const set_box *b = &file->boxes[i];
        if (file->lists[1].at[b->box.dst].dtype == dtype) {
            lierne_set_box *to = &s->boxes[s->spec.nboxes];
            *to = b->box;
            to->src = places[0][b->box.src];
            to->dst = places[1][b->box.dst];
            to->axes = b->permuted ? b->axes : NULL;
            s->box_numbers[s->spec.nboxes++] = i;
        }
    }
    s->spec.boxes = s->boxes;
    s->spec.ndst = s->n[1];
    return s->boxes && s->box_numbers;
}

int set_select(set_selection *s, const set_file *file, lierne_dtype dtype) {
    int64_t *places[2];
    bool ok = true;
    *s = (set_selection){.spec.size = sizeof s->spec};
    for (int side = 0; side < 2; side++) {
        places[side] = calloc((size_t)set_file_list(file, side)->n + 1, sizeof **places);
        ok = ok && places[side] && select_side(s, file, dtype, side, places[side]);
    }
    ok = ok && (!file->has_boxes || select_boxes(s, file, dtype, places));
    s->spec.ntensors = s->n[1] > 0 ? s->n[0] : 0;
    s->spec.src = s->layouts[0];
    s->spec.dst = s->layouts[1];
    free(places[0]);
    free(places[1]);
    if (ok && s->n[1] > 0 && s->n[0] == 0) {
        return set_file_say(file, "no source tensor has dtype %s, and '%s' has",
                            lierne_dtype_name(dtype), file->lists[1].at[s->numbers[1][0]].name);
    }
    return ok ? -1 : tool_usage(file->argv, "no memory for the tensors of a set");
}

void set_selection_free(set_selection *s) {
    for (int side = 0; side < 2; side++) {
        free(s->numbers[side]);
        free(s->layouts[side]);
    }
    free(s->boxes);
    free(s->box_numbers);
}
