/* From text to a tree: scan the text, find duplicate keys, parse it with cJSON, join the two trees.
 *
 * The scanner's nodes and cJSON's items are two trees of one text. They are joined by walking both
 * in the order of the text; nothing is looked up by name, because cJSON ignores case. Duplicate
 * keys are found by sorting the members of each object, so that no file takes quadratic time.
 * cJSON's own allocations are not counted: its hooks are global to the process and belong to the
 * program. */
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

/* Order of two raw keys by their code points. */
static int compare_keys(const char *a, const char *b) {
    int32_t x, y;
    do {
        x = lierne_json_point(&a);
        y = lierne_json_point(&b);
    } while (x == y && x >= 0);
    return (x > y) - (x < y);
}

static int compare_members(const void *a, const void *b) {
    const lierne_json_node *x = *(const lierne_json_node *const *)a;
    const lierne_json_node *y = *(const lierne_json_node *const *)b;
    int order = compare_keys(x->key, y->key);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* members has space for the members of any object. */
static lierne_status find_duplicates(lierne_json *doc, const lierne_json_node *object,
                                     const lierne_json_node **members) {
    const lierne_json_node *nodes = doc->nodes.at, *first = NULL;
    size_t count = 0;
    for (const lierne_json_node *m = lierne_json_first(object); m; m = lierne_json_next(doc, m)) {
        members[count++] = m;
    }
    qsort(members, count, sizeof *members, compare_members);
    for (size_t i = 0; i < count; i++) {
        if (first && compare_keys(first->key, members[i]->key) == 0) {
            lierne_json_duplicate found = {(int)(members[i] - nodes), (int)(first - nodes)};
            LIERNE_TRY(LIERNE_VEC_PUSH(&doc->duplicates, found));
        } else {
            first = members[i];
        }
    }
    return LIERNE_OK;
}

static lierne_status find_all_duplicates(lierne_json *doc) {
    const lierne_json_node **members;
    lierne_status status = LIERNE_OK;
    LIERNE_TRY(lierne_alloc(&members, doc->nodes.count, sizeof *members));
    for (size_t i = 0; i < doc->nodes.count && status == LIERNE_OK; i++) {
        if (doc->nodes.at[i].type == LIERNE_JSON_OBJECT && doc->nodes.at[i].count > 1) {
            status = find_duplicates(doc, &doc->nodes.at[i], members);
        }
    }
    lierne_mem_free(members);
    return status;
}

/* Joins the node and its descendants with the item; returns the first node after them. */
static int join(lierne_json *doc, int node, const cJSON *item) {
    int next = node + 1;
    doc->nodes.at[node].item = item;
    for (const cJSON *child = item->child; child; child = child->next) {
        next = join(doc, next, child);
    }
    return next;
}

static lierne_status copy_text(lierne_json *doc, const char *text, size_t length) {
    LIERNE_TRY(lierne_alloc(&doc->text, length + 1, 1));
    if (length) {
        memcpy(doc->text, text, length);
    }
    return LIERNE_OK;
}

static lierne_status reject_size(lierne_json *doc, size_t length) {
    doc->fault =
        (lierne_json_fault){LIERNE_DIAGNOSTIC_SIZE, -1, {1, 1}, "text is larger than 16 MiB"};
    return LIERNE_FAIL(LIERNE_ERR_SYNTAX, "text has %zu bytes, must have at most %zu", length,
                       LIERNE_JSON_MAX_SIZE);
}

lierne_status lierne_json_parse(lierne_json *doc, const char *text, size_t length) {
    *doc = (lierne_json){0};
    if (length > LIERNE_JSON_MAX_SIZE) {
        return reject_size(doc, length);
    }
    LIERNE_TRY(copy_text(doc, text, length));
    lierne_status status = lierne_json_scan(doc, length);
    if (status != LIERNE_ERR_NO_MEMORY) {
        LIERNE_TRY(find_all_duplicates(doc));
    }
    LIERNE_TRY(status);
    if (doc->duplicates.count) {
        return LIERNE_FAIL(LIERNE_ERR_SYNTAX, "%zu keys appear twice in their object, must be once",
                           doc->duplicates.count);
    }
    doc->root = cJSON_ParseWithLengthOpts(doc->text, length, NULL, false);
    if (!doc->root) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "no memory to parse %zu bytes of JSON", length);
    }
    join(doc, 0, doc->root);
    return LIERNE_OK;
}

void lierne_json_destroy(lierne_json *doc) {
    cJSON_Delete(doc->root);
    lierne_mem_free(doc->text);
    lierne_mem_free(doc->nodes.at);
    lierne_mem_free(doc->duplicates.at);
    *doc = (lierne_json){0};
}

const lierne_json_node *lierne_json_first(const lierne_json_node *node) {
    return node->count ? node + 1 : NULL;
}

const lierne_json_node *lierne_json_next(const lierne_json *doc, const lierne_json_node *node) {
    const lierne_json_node *nodes = doc->nodes.at;
    bool last = node->parent < 0 || node->index + 1 == nodes[node->parent].count;
    return last ? NULL : &nodes[node->end];
}

const char *lierne_json_key(const lierne_json_node *node) {
    return node->item->string;
}

const char *lierne_json_string(const lierne_json_node *node) {
    return node->item->valuestring;
}

const char *lierne_json_type_name(lierne_json_type type) {
    switch (type) {
    case LIERNE_JSON_OBJECT:
        return "an object";
    case LIERNE_JSON_ARRAY:
        return "an array";
    case LIERNE_JSON_STRING:
        return "a string";
    case LIERNE_JSON_NUMBER:
        return "a number";
    case LIERNE_JSON_BOOLEAN:
        return "true or false";
    default:
        return "null";
    }
}

static void add_utf8(lierne_text *text, int32_t point) {
    if (point < 0x80) {
        lierne_text_add(text, "%c", (char)point);
    } else if (point < 0x800) {
        lierne_text_add(text, "%c%c", 0xC0 | point >> 6, 0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        lierne_text_add(text, "%c%c%c", 0xE0 | point >> 12, 0x80 | (point >> 6 & 0x3F),
                        0x80 | (point & 0x3F));
    } else {
        lierne_text_add(text, "%c%c%c%c", 0xF0 | point >> 18, 0x80 | (point >> 12 & 0x3F),
                        0x80 | (point >> 6 & 0x3F), 0x80 | (point & 0x3F));
    }
}

static void add_token(lierne_text *text, const char *key) {
    for (int32_t point = lierne_json_point(&key); point >= 0; point = lierne_json_point(&key)) {
        if (point == '~' || point == '/') {
            lierne_text_add(text, point == '~' ? "~0" : "~1");
        } else {
            add_utf8(text, point);
        }
    }
}

void lierne_json_pointer(const lierne_json *doc, int node, lierne_text *text) {
    if (node < 0 || doc->nodes.at[node].parent < 0) {
        return;
    }
    const lierne_json_node *n = &doc->nodes.at[node];
    lierne_json_pointer(doc, n->parent, text);
    lierne_text_add(text, "/");
    if (n->key) {
        add_token(text, n->key);
    } else {
        lierne_text_add(text, "%d", n->index);
    }
}
