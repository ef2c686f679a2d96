/* One switch per direction: to a number, to text, from text. A value is read and written by its
 * bytes, because the table knows an offset and no type of C. */
#include "plan/spec_table.h"

#include <string.h>

static int64_t number_of(const lierne_spec_entry *entry, const void *spec) {
    const char *at = (const char *)spec + entry->offset;
    int64_t wide;
    int narrow;
    if (entry->type == LIERNE_SPEC_I64) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    switch (entry->type) {
    case LIERNE_SPEC_BOOL:
        return narrow != 0;
    case LIERNE_SPEC_INFLIGHT:
        return narrow > 1 ? narrow : 1;
    default:
        return narrow;
    }
}

/* NULL: the entry is no text, or has a number without one. */
static const char *word_of(const lierne_spec_entry *entry, int64_t number) {
    return entry->type == LIERNE_SPEC_DTYPE ? lierne_dtype_name((lierne_dtype)number)
           : entry->type == LIERNE_SPEC_WORD && number >= 0 && number < entry->nwords
               ? entry->words[number]
               : NULL;
}

void lierne_spec_table_compare(const lierne_spec_table *table, const void *spec,
                               lierne_plan_fields *fields) {
    for (size_t i = 0; i < table->count; i++) {
        const lierne_spec_entry *entry = &table->at[i];
        int64_t number = number_of(entry, spec);
        const char *word = word_of(entry, number);
        if (!(entry->use & LIERNE_SPEC_COMPARED)) {
            continue;
        }
        if (word) {
            lierne_plan_fields_add_list(fields, entry->name, LIERNE_ITEM_TEXT, word, strlen(word));
        } else {
            lierne_plan_fields_add(fields, entry->name, number);
        }
    }
}

void lierne_spec_table_write(const lierne_spec_table *table, const void *spec, lierne_text *text) {
    const char *between = "";
    for (size_t i = 0; i < table->count; i++) {
        const lierne_spec_entry *entry = &table->at[i];
        int64_t number = number_of(entry, spec);
        const char *word = word_of(entry, number);
        if (!(entry->use & LIERNE_SPEC_SAVED)) {
            continue;
        }
        lierne_text_add(text, "%s\"%s\":", between, entry->name);
        if (word) {
            lierne_text_add(text, "\"%s\"", word);
        } else if (entry->type == LIERNE_SPEC_BOOL) {
            lierne_text_add(text, number ? "true" : "false");
        } else {
            lierne_text_add(text, "%lld", (long long)number);
        }
        between = ",";
    }
}

static lierne_status read_entry(const lierne_spec_entry *entry, void *spec,
                                const lierne_plan_reader *r) {
    char *at = (char *)spec + entry->offset;
    int number = 0;
    switch (entry->type) {
    case LIERNE_SPEC_I64: {
        int64_t wide = 0;
        LIERNE_TRY(lierne_plan_reader_get_integer(r, entry->name, &wide));
        memcpy(at, &wide, sizeof wide);
        return LIERNE_OK;
    }
    case LIERNE_SPEC_DTYPE: {
        lierne_dtype dtype;
        LIERNE_TRY(lierne_plan_reader_get_dtype(r, &dtype));
        number = (int)dtype;
        break;
    }
    case LIERNE_SPEC_BOOL:
        LIERNE_TRY(lierne_plan_reader_get_bool(r, entry->name, &number));
        break;
    case LIERNE_SPEC_WORD:
        LIERNE_TRY(
            lierne_plan_reader_get_word(r, entry->name, entry->words, entry->nwords, &number));
        break;
    default:
        LIERNE_TRY(lierne_plan_reader_get_int(r, entry->name, &number));
    }
    memcpy(at, &number, sizeof number);
    return LIERNE_OK;
}

lierne_status lierne_spec_table_read(const lierne_spec_table *table, void *spec,
                                     const lierne_plan_reader *reader) {
    for (size_t i = 0; i < table->count; i++) {
        if (table->at[i].use & LIERNE_SPEC_SAVED) {
            LIERNE_TRY(read_entry(&table->at[i], spec, reader));
        }
    }
    return LIERNE_OK;
}
