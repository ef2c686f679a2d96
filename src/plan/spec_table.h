/* A spec as a table: its numbers and words with name and offset. What ranks compare, and what a
 * plan's text has and is read from, come from it, so that a field is written down once. Lists and
 * grids stay with their planners. */
#ifndef LIERNE_PLAN_SPEC_TABLE_H
#define LIERNE_PLAN_SPEC_TABLE_H

#include "plan/fields.h"
#include "plan/reader.h"

#include <stddef.h>

typedef enum lierne_spec_type {
    LIERNE_SPEC_INT, /* also an enum that is compared by its number */
    LIERNE_SPEC_I64,
    LIERNE_SPEC_BOOL,     /* an int; nonzero is true */
    LIERNE_SPEC_INFLIGHT, /* an int; 0 is 1 */
    LIERNE_SPEC_WORD,     /* an enum with words */
    LIERNE_SPEC_DTYPE
} lierne_spec_type;

/* Where an entry is used. */
enum { LIERNE_SPEC_COMPARED = 1, LIERNE_SPEC_SAVED = 2, LIERNE_SPEC_BOTH = 3 };

typedef struct lierne_spec_entry {
    const char *name;
    size_t offset;
    lierne_spec_type type;
    int use;
    const char *const *words; /* of a WORD */
    int nwords;
} lierne_spec_entry;

#define LIERNE_SPEC_NUMBER(spec, field, type, use)                                                 \
    { #field, offsetof(spec, field), LIERNE_SPEC_##type, LIERNE_SPEC_##use, NULL, 0 }
#define LIERNE_SPEC_WORDS(spec, field, use, words)                                                 \
    {                                                                                              \
#field, offsetof(spec, field), LIERNE_SPEC_WORD, LIERNE_SPEC_##use, words,                 \
            sizeof(words) / sizeof *(words)                                                        \
    }

typedef struct lierne_spec_table {
    const lierne_spec_entry *at;
    size_t count;
} lierne_spec_table;
#define LIERNE_SPEC_TABLE(entries)                                                                 \
    { entries, sizeof(entries) / sizeof *(entries) }

/* What is compared, in the order of the table. */
void lierne_spec_table_compare(const lierne_spec_table *table, const void *spec,
                               lierne_plan_fields *fields);
/* What is saved, as members of an object: "name":value, with commas in between. */
void lierne_spec_table_write(const lierne_spec_table *table, const void *spec, lierne_text *text);
/* Fills what is saved from an object; other fields keep their values. Errors: as
 * lierne_plan_reader_get_integer. */
lierne_status lierne_spec_table_read(const lierne_spec_table *table, void *spec,
                                     const lierne_plan_reader *reader);

#endif
