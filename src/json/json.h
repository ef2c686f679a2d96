/* Strict JSON: a scanner rejects what cJSON accepts beyond RFC 8259 and records the place of each
 * key and value; then cJSON parses the same text. A node is one value: its place in the tree and in
 * the text, and its cJSON item. */
#ifndef LIERNE_JSON_H
#define LIERNE_JSON_H

#include "base/base.h"
#include "lierne/diagnostics.h"

#include <cjson/cJSON.h>

#define LIERNE_JSON_MAX_DEPTH  64
#define LIERNE_JSON_MAX_SIZE   ((size_t)16 << 20)
#define LIERNE_JSON_MAX_VALUES 1000000
#define LIERNE_JSON_MAX_STRING 65536 /* bytes between the quotes */

/* Bits, so that a reader can accept several types. */
typedef enum lierne_json_type {
    LIERNE_JSON_OBJECT = 1,
    LIERNE_JSON_ARRAY = 2,
    LIERNE_JSON_STRING = 4,
    LIERNE_JSON_NUMBER = 8,
    LIERNE_JSON_BOOLEAN = 16,
    LIERNE_JSON_NULL = 32
} lierne_json_type;

typedef struct lierne_json_place {
    int line;   /* from 1 */
    int column; /* in bytes, from 1 */
} lierne_json_place;

/* Nodes are in the order of the text: a parent, then each child with its descendants. */
typedef struct lierne_json_node {
    lierne_json_type type;
    int parent;      /* -1 for the whole text */
    int index;       /* among its siblings */
    int count;       /* of its children */
    int end;         /* the first node after it and its descendants */
    bool integer;    /* a number without fraction and exponent that fits value */
    int64_t value;   /* of an integer; 1 for true */
    const char *key; /* raw, after its opening quote; NULL if it is not a member of an object */
    lierne_json_place key_place;
    lierne_json_place place;
    const cJSON *item;
} lierne_json_node;

/* Why the text is not JSON. */
typedef struct lierne_json_fault {
    int number; /* LIERNE_DIAGNOSTIC_...; 0: no fault */
    int node;   /* the innermost value that was being read; -1: none */
    lierne_json_place place;
    char message[120];
} lierne_json_fault;

typedef struct lierne_json_duplicate {
    int node;
    int first; /* the first member with that key */
} lierne_json_duplicate;

typedef struct lierne_json {
    char *text; /* a copy with a terminating zero */
    cJSON *root;
    lierne_json_fault fault;
    LIERNE_VEC(lierne_json_node) nodes;
    LIERNE_VEC(lierne_json_duplicate) duplicates;
} lierne_json;

/* Reads a text. Errors: SYNTAX (doc->fault or doc->duplicates has the reason), NO_MEMORY. The
 * caller destroys doc in every case. */
lierne_status lierne_json_parse(lierne_json *doc, const char *text, size_t length);
void lierne_json_destroy(lierne_json *doc);

/* First child and next sibling, NULL if there is none. */
const lierne_json_node *lierne_json_first(const lierne_json_node *node);
const lierne_json_node *lierne_json_next(const lierne_json *doc, const lierne_json_node *node);
/* The key of a member and the text of a string, escapes resolved. */
const char *lierne_json_key(const lierne_json_node *node);
const char *lierne_json_string(const lierne_json_node *node);
/* "an object", "a number", ... */
const char *lierne_json_type_name(lierne_json_type type);
/* Adds the JSON pointer (RFC 6901) of node to text; also after a fault. */
void lierne_json_pointer(const lierne_json *doc, int node, lierne_text *text);

/* The rest is used by the files of this folder only. */

/* Reads the code point at *text, in a scanned string; -1 at its closing quote. */
int32_t lierne_json_point(const char **text);
/* Scans a string from *at, after its opening quote, and moves *at after the closing one. Returns 0,
 * or the number of a diagnostic with *at on the byte that is wrong. */
int lierne_json_scan_string(const char **at, const char *end);
/* Scans a number and moves *at after it; *integer and *value are as in a node. Returns NULL, or
 * what is wrong with it. */
const char *lierne_json_scan_number(const char **at, bool *integer, int64_t *value);
/* Scans doc->text: fills doc->nodes. Errors: SYNTAX (doc->fault has the reason), NO_MEMORY. */
lierne_status lierne_json_scan(lierne_json *doc, size_t length);

#endif
