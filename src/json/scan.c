/* The structure of JSON: one pass over the text, a node for each value.
 *
 * A scan ends at the first fault, because everything after it would be a guess. It keeps the nodes
 * up to the fault, so that the fault has a pointer and duplicate keys before it are still found.
 * Nesting is bounded, and so is recursion. */
#include "json/json.h"

#include <stdio.h>
#include <string.h>

/* Before the fix of CVE-2023-26819, cJSON copies numbers into a buffer of 63 bytes. */
#define CJSON_MAX_NUMBER 60

typedef struct scanner {
    lierne_json *doc;
    const char *at;
    const char *end;
    const char *line_start;
    int line;
    int depth;
    int open; /* innermost node that is being read */
} scanner;

static lierne_status scan_value(scanner *s, lierne_json_node node);

static lierne_json_place place_of(const scanner *s, const char *at) {
    return (lierne_json_place){s->line, (int)(at - s->line_start) + 1};
}

static lierne_status reject_text(scanner *s, const char *at, int number, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static lierne_status reject_text(scanner *s, const char *at, int number, const char *format, ...) {
    lierne_json_fault *fault = &s->doc->fault;
    va_list args;
    va_start(args, format);
    vsnprintf(fault->message, sizeof fault->message, format, args);
    va_end(args);
    fault->number = number;
    fault->node = s->open;
    fault->place = place_of(s, at);
    return LIERNE_FAIL(LIERNE_ERR_SYNTAX, "%d:%d: %s", fault->place.line, fault->place.column,
                       fault->message);
}

/* Rejects the byte at s->at, which is not what was expected. */
static lierne_status reject_byte(scanner *s, const char *expected) {
    unsigned char byte = (unsigned char)*s->at;
    if (s->at == s->end) {
        return reject_text(s, s->at, LIERNE_DIAGNOSTIC_SYNTAX, "expected %s, but the text ends",
                           expected);
    }
    if (byte > 0x20 && byte < 0x7F) {
        return reject_text(s, s->at, LIERNE_DIAGNOSTIC_SYNTAX, "expected %s, found '%c'", expected,
                           byte);
    }
    return reject_text(s, s->at, LIERNE_DIAGNOSTIC_SYNTAX, "expected %s, found byte 0x%02X",
                       expected, byte);
}

static void skip_space(scanner *s) {
    for (;; s->at++) {
        if (*s->at == '\n') {
            s->line++;
            s->line_start = s->at + 1;
        } else if (*s->at != ' ' && *s->at != '\t' && *s->at != '\r') {
            return;
        }
    }
}

static const char *string_message(int number) {
    switch (number) {
    case LIERNE_DIAGNOSTIC_CONTROL:
        return "string holds a raw control character";
    case LIERNE_DIAGNOSTIC_UTF8:
        return "string is not UTF-8";
    case LIERNE_DIAGNOSTIC_ESCAPE:
        return "string holds a backslash without one of JSON's escapes";
    case LIERNE_DIAGNOSTIC_NUL:
        return "string holds \\u0000";
    case LIERNE_DIAGNOSTIC_SURROGATE:
        return "string holds half a surrogate pair";
    case LIERNE_DIAGNOSTIC_LENGTH:
        return "string is longer than 65536 bytes";
    default:
        return "text ends inside a string";
    }
}

/* Scans the string whose opening quote is at s->at. */
static lierne_status scan_string(scanner *s) {
    s->at++;
    int number = lierne_json_scan_string(&s->at, s->end);
    return number ? reject_text(s, s->at, number, "%s", string_message(number)) : LIERNE_OK;
}

/* Overwrites a number that cJSON cannot read; the node has its value. */
static void blank_number(const scanner *s, const char *start) {
    char *text = s->doc->text + (start - s->doc->text);
    size_t length = (size_t)(s->at - start);
    if (length > CJSON_MAX_NUMBER) {
        memset(text, ' ', length);
        *text = '0';
    }
}

static lierne_status scan_number(scanner *s, lierne_json_node *node) {
    const char *start = s->at;
    const char *wrong = lierne_json_scan_number(&s->at, &node->integer, &node->value);
    if (wrong) {
        return reject_text(s, start, LIERNE_DIAGNOSTIC_NUMBER, "%s", wrong);
    }
    blank_number(s, start);
    return LIERNE_OK;
}

static lierne_status scan_word(scanner *s) {
    static const struct {
        const char *word;
        lierne_json_type type;
        int value;
    } words[] = {
        {"true", LIERNE_JSON_BOOLEAN, 1},
        {"false", LIERNE_JSON_BOOLEAN, 0},
        {"null", LIERNE_JSON_NULL, 0},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        if (strncmp(s->at, words[i].word, length) == 0) {
            s->doc->nodes.at[s->open].type = words[i].type;
            s->doc->nodes.at[s->open].value = words[i].value;
            s->at += length;
            return LIERNE_OK;
        }
    }
    return reject_byte(s, "a value");
}

/* One member or element of the container `parent`. */
static lierne_status scan_child(scanner *s, int parent) {
    lierne_json_node child = {.parent = parent, .index = s->doc->nodes.at[parent].count};
    if (s->doc->nodes.at[parent].type == LIERNE_JSON_OBJECT) {
        if (*s->at != '"') {
            return reject_byte(s, "a key");
        }
        child.key = s->at + 1;
        child.key_place = place_of(s, s->at);
        LIERNE_TRY(scan_string(s));
        skip_space(s);
        if (*s->at != ':') {
            return reject_byte(s, "':'");
        }
        s->at++;
        skip_space(s);
    }
    return scan_value(s, child);
}

static lierne_status scan_children(scanner *s, int parent, char close) {
    const char *expected = close == '}' ? "',' or '}'" : "',' or ']'";
    skip_space(s);
    if (*s->at == close) {
        s->at++;
        return LIERNE_OK;
    }
    for (;;) {
        LIERNE_TRY(scan_child(s, parent));
        skip_space(s);
        if (*s->at == close) {
            s->at++;
            return LIERNE_OK;
        }
        if (*s->at != ',') {
            return reject_byte(s, expected);
        }
        s->at++;
        skip_space(s);
    }
}

static lierne_status scan_container(scanner *s, int node, lierne_json_type type) {
    if (s->depth == LIERNE_JSON_MAX_DEPTH) {
        return reject_text(s, s->at, LIERNE_DIAGNOSTIC_DEPTH, "nested deeper than %d levels",
                           LIERNE_JSON_MAX_DEPTH);
    }
    s->at++;
    s->depth++;
    s->doc->nodes.at[node].type = type;
    lierne_status status = scan_children(s, node, type == LIERNE_JSON_OBJECT ? '}' : ']');
    s->depth--;
    return status;
}

static lierne_status scan_one(scanner *s, int node) {
    char c = *s->at;
    if (c == '{' || c == '[') {
        return scan_container(s, node, c == '{' ? LIERNE_JSON_OBJECT : LIERNE_JSON_ARRAY);
    }
    if (c == '"') {
        s->doc->nodes.at[node].type = LIERNE_JSON_STRING;
        return scan_string(s);
    }
    if (c == '+' || c == '.') {
        return reject_text(s, s->at, LIERNE_DIAGNOSTIC_NUMBER, "number begins with '%c'", c);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        s->doc->nodes.at[node].type = LIERNE_JSON_NUMBER;
        return scan_number(s, &s->doc->nodes.at[node]);
    }
    return scan_word(s);
}

/* Scans the value at s->at into a new node; the caller has set its key and parent. */
static lierne_status scan_value(scanner *s, lierne_json_node node) {
    lierne_json *doc = s->doc;
    int parent = node.parent, own = (int)doc->nodes.count;
    if (doc->nodes.count == LIERNE_JSON_MAX_VALUES) {
        return reject_text(s, s->at, LIERNE_DIAGNOSTIC_VALUES, "more than %d values",
                           LIERNE_JSON_MAX_VALUES);
    }
    node.place = place_of(s, s->at);
    LIERNE_TRY(LIERNE_VEC_PUSH(&doc->nodes, node));
    if (parent >= 0) {
        doc->nodes.at[parent].count++;
    }
    s->open = own;
    lierne_status status = scan_one(s, own);
    doc->nodes.at[own].end = (int)doc->nodes.count;
    if (status == LIERNE_OK) {
        s->open = parent;
    }
    return status;
}

lierne_status lierne_json_scan(lierne_json *doc, size_t length) {
    scanner s = {.doc = doc, .at = doc->text, .line_start = doc->text, .line = 1, .open = -1};
    s.end = doc->text + length;
    if (strncmp(s.at, "\xEF\xBB\xBF", 3) == 0) {
        return reject_text(&s, s.at, LIERNE_DIAGNOSTIC_BYTE_ORDER_MARK,
                           "text begins with a byte-order mark");
    }
    skip_space(&s);
    LIERNE_TRY(scan_value(&s, (lierne_json_node){.parent = -1}));
    skip_space(&s);
    if (s.at != s.end) {
        return reject_text(&s, s.at, LIERNE_DIAGNOSTIC_TRAILING, "text follows the value");
    }
    return LIERNE_OK;
}
