/* The list of diagnostics.
 *
 * A file can have as many diagnostics as it has values, each with a pointer as long as its keys. So
 * the list is bounded in number and in bytes: a hostile file cannot turn 16 MiB of text into
 * gigabytes of diagnostics. What does not fit is counted, and one last diagnostic says so. Errors
 * and warnings have bounds of their own: many warnings must neither hide an error nor become one.
 */
#include "config/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIAGNOSTICS      1000
#define MAX_DIAGNOSTIC_BYTES ((size_t)4 << 20)
#define QUOTED_BYTES         80

static const char *diagnostic_code(int number) {
    switch (number) {
#define DIAGNOSTIC_CODE(number, name, text)                                                        \
    case LIERNE_DIAGNOSTIC_##name:                                                                 \
        return LIERNE_DIAGNOSTIC_CODE(number);
        LIERNE_DIAGNOSTIC_TABLE(DIAGNOSTIC_CODE)
#undef DIAGNOSTIC_CODE
    default:
        return lierne_status_name(number);
    }
}

bool lierne_reader_ok(lierne_reader *r, lierne_status status) {
    r->failed |= status == LIERNE_ERR_NO_MEMORY;
    return status == LIERNE_OK;
}

lierne_quoted lierne_quote(const char *text) {
    lierne_quoted out;
    size_t used = 0;
    out.text[used++] = '\'';
    for (const char *c = text; *c; c += lierne_utf8_length(c)) {
        size_t length = (size_t)lierne_utf8_length(c);
        if (used + length > QUOTED_BYTES) {
            used += (size_t)snprintf(out.text + used, sizeof out.text - used, "...");
            break;
        }
        memcpy(out.text + used, c, length);
        used += length;
    }
    snprintf(out.text + used, sizeof out.text - used, "'");
    return out;
}

lierne_quoted lierne_label(const lierne_json_node *node) {
    lierne_quoted out;
    if (node->key) {
        return lierne_quote(lierne_json_key(node));
    }
    if (node->parent < 0) {
        snprintf(out.text, sizeof out.text, "the file");
    } else {
        snprintf(out.text, sizeof out.text, "element %d", node->index);
    }
    return out;
}

/* A copy on one line: names from the file, which hints list, may hold any character. */
static lierne_status copy_line(char **out, const char *text) {
    lierne_text line = {0};
    for (const char *c = text; *c;) {
        int plain = 0;
        while ((unsigned char)c[plain] >= 0x20 && c[plain] != 0x7F) {
            plain++;
        }
        lierne_text_add(&line, "%.*s", plain, c);
        c += plain;
        if (*c) {
            lierne_text_add(&line, "\\u%04X", *c++);
        }
    }
    return lierne_text_take(&line, out);
}

/* Puts the texts of a diagnostic into entry. */
static lierne_status fill_texts(const lierne_reader *r, int node, const char *message,
                                const char *hint, lierne_config_diagnostic_entry *entry) {
    lierne_text pointer = {0};
    lierne_json_pointer(r->doc, node, &pointer);
    LIERNE_TRY(lierne_text_take(&pointer, &entry->texts[0]));
    LIERNE_TRY(copy_line(&entry->texts[1], message));
    LIERNE_TRY(copy_line(&entry->texts[2], hint));
    entry->diagnostic.pointer = entry->texts[0];
    entry->diagnostic.message = entry->texts[1];
    entry->diagnostic.hint = entry->texts[2];
    return LIERNE_OK;
}

static void free_entry(lierne_config_diagnostic_entry *entry) {
    for (int i = 0; i < 3; i++) {
        lierne_mem_free(entry->texts[i]);
    }
}

static lierne_severity severity_of(int number) {
    return number >= LIERNE_DIAGNOSTIC_WARNING ? LIERNE_SEVERITY_WARNING : LIERNE_SEVERITY_ERROR;
}

static lierne_status push(const lierne_reader *r, int number, lierne_json_place place, int node,
                          const char *message, const char *hint) {
    lierne_config *config = r->config;
    lierne_config_diagnostic_entry entry = {.order = (int)config->diagnostics.count};
    lierne_diagnostic *f = &entry.diagnostic;
    f->severity = severity_of(number);
    entry.more = config->listed[f->severity].full;
    f->code = diagnostic_code(number);
    f->line = place.line;
    f->column = place.column;
    lierne_status status = fill_texts(r, node, message, hint, &entry);
    if (status == LIERNE_OK) {
        status = LIERNE_VEC_PUSH(&config->diagnostics, entry);
    }
    if (status != LIERNE_OK) {
        free_entry(&entry);
        return status;
    }
    config->listed[f->severity].count++;
    config->listed[f->severity].bytes += strlen(f->pointer) + strlen(f->message) + strlen(f->hint);
    return LIERNE_OK;
}

/* Whether the list is full; the first time says so. */
static bool is_full(lierne_reader *r, lierne_severity severity, lierne_json_place place) {
    bool error = severity == LIERNE_SEVERITY_ERROR;
    if (r->config->listed[severity].full) {
        return true;
    }
    bool full = r->config->listed[severity].count >= MAX_DIAGNOSTICS ||
                r->config->listed[severity].bytes > MAX_DIAGNOSTIC_BYTES;
    r->config->listed[severity].full = full;
    if (full && error) {
        r->config->errors++;
        lierne_reader_ok(r,
                         push(r, LIERNE_DIAGNOSTIC_TOO_MANY, place, -1,
                              "the file has more errors than are listed", "correct these first"));
    } else if (full) {
        lierne_reader_ok(r,
                         push(r, LIERNE_DIAGNOSTIC_TOO_MANY_WARNINGS, place, -1,
                              "the file has more warnings than are listed", "correct these first"));
    }
    return full;
}

static void add_at(lierne_reader *r, int number, lierne_json_place place, int node,
                   const char *hint, const char *format, va_list args) {
    char message[LIERNE_MESSAGE_SIZE];
    r->config->errors += severity_of(number) == LIERNE_SEVERITY_ERROR;
    if (!is_full(r, severity_of(number), place)) {
        vsnprintf(message, sizeof message, format, args);
        lierne_reader_ok(r, push(r, number, place, node, message, hint));
    }
}

static int node_index(const lierne_reader *r, const lierne_json_node *node) {
    return node ? (int)(node - r->doc->nodes.at) : -1;
}

void lierne_diagnostic_add(lierne_reader *r, int number, const lierne_json_node *node,
                           const char *hint, const char *format, ...) {
    lierne_json_place place = node ? node->place : (lierne_json_place){1, 1};
    va_list args;
    va_start(args, format);
    add_at(r, number, place, node_index(r, node), hint, format, args);
    va_end(args);
}

void lierne_diagnostic_add_key(lierne_reader *r, int number, const lierne_json_node *node,
                               const char *hint, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_at(r, number, node->key_place, node_index(r, node), hint, format, args);
    va_end(args);
}

/* A diagnostic of the text itself, where there may be no node. */
static void add_fault(lierne_reader *r, const lierne_json_fault *fault, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_at(r, fault->number, fault->place, fault->node, "", format, args);
    va_end(args);
}

void lierne_diagnostic_add_text(lierne_reader *r) {
    const lierne_json *doc = r->doc;
    for (size_t i = 0; i < doc->duplicates.count; i++) {
        const lierne_json_duplicate *d = &doc->duplicates.at[i];
        lierne_json_place first = doc->nodes.at[d->first].key_place;
        lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_DUPLICATE_KEY, &doc->nodes.at[d->node],
                                  "keep one of the two", "key appears twice, first at %d:%d",
                                  first.line, first.column);
    }
    if (doc->fault.number) {
        add_fault(r, &doc->fault, "%s", doc->fault.message);
    }
}

static int compare_entries(const void *a, const void *b) {
    const lierne_config_diagnostic_entry *x = a, *y = b;
    if (x->more != y->more) {
        return x->more ? 1 : -1;
    }
    if (x->diagnostic.line != y->diagnostic.line) {
        return x->diagnostic.line < y->diagnostic.line ? -1 : 1;
    }
    if (x->diagnostic.column != y->diagnostic.column) {
        return x->diagnostic.column < y->diagnostic.column ? -1 : 1;
    }
    return (x->order > y->order) - (x->order < y->order);
}

void lierne_diagnostics_sort(lierne_config *config) {
    size_t count = config->diagnostics.count;
    if (count > 1) {
        qsort(config->diagnostics.at, count, sizeof *config->diagnostics.at, compare_entries);
    }
}

void lierne_diagnostics_destroy(lierne_config *config) {
    for (size_t i = 0; i < config->diagnostics.count; i++) {
        free_entry(&config->diagnostics.at[i]);
    }
    lierne_mem_free(config->diagnostics.at);
}
