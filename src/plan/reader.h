/* What planners read their saved specs with: the members of a JSON object, and how a planner makes
 * a plan of what it read. An error names line, column and key. */
#ifndef LIERNE_PLAN_READER_H
#define LIERNE_PLAN_READER_H

#include "lierne/layout.h"
#include "lierne/plan.h"
#include "json/json.h"

typedef struct lierne_plan_reader {
    lierne_json doc;
    const lierne_json_node *root;
    size_t length; /* of the text */
} lierne_plan_reader;

/* What a text may ask memory for, rows times width times requests: so many bytes for each of its
 * own, and at least the other number. */
#define LIERNE_PLAN_BYTES_PER_BYTE (INT64_C(1) << 20)
#define LIERNE_PLAN_LEAST_BYTES    (INT64_C(1) << 30)

/* Parses a text that must be an object. The reader is to be closed in each case. */
lierne_status lierne_plan_reader_open(lierne_plan_reader *reader, const char *text, size_t length);
void lierne_plan_reader_close(lierne_plan_reader *reader);

/* Fails: the value of key must be `wanted`. */
lierne_status lierne_plan_reader_reject(const lierne_json_node *node, const char *key,
                                        const char *wanted);

/* Values of nodes. */
lierne_status lierne_plan_reader_integer(const lierne_json_node *node, const char *key,
                                         int64_t *out);
lierne_status lierne_plan_reader_int(const lierne_json_node *node, const char *key, int *out);
/* All integers of an array. */
lierne_status lierne_plan_reader_integers(const lierne_plan_reader *reader,
                                          const lierne_json_node *list, const char *key,
                                          int64_t *out);

/* Members of the object, which must be there. */
lierne_status lierne_plan_reader_find(const lierne_plan_reader *reader, const char *key,
                                      lierne_json_type type, const lierne_json_node **out);
lierne_status lierne_plan_reader_get_integer(const lierne_plan_reader *reader, const char *key,
                                             int64_t *out);
lierne_status lierne_plan_reader_get_int(const lierne_plan_reader *reader, const char *key,
                                         int *out);
lierne_status lierne_plan_reader_get_bool(const lierne_plan_reader *reader, const char *key,
                                          int *out);
/* One of n words: its number. */
lierne_status lierne_plan_reader_get_word(const lierne_plan_reader *reader, const char *key,
                                          const char *const *words, int n, int *out);
lierne_status lierne_plan_reader_get_dtype(const lierne_plan_reader *reader, lierne_dtype *out);
/* An array of n entries, and its integers in memory of their own. */
lierne_status lierne_plan_reader_find_list(const lierne_plan_reader *reader, const char *key,
                                           int64_t n, const lierne_json_node **list);
lierne_status lierne_plan_reader_get_list(const lierne_plan_reader *reader, const char *key,
                                          int64_t n, int64_t **out);

/* OVERFLOW where the rows that a plan moves may take more memory than its text may ask for. */
lierne_status lierne_plan_reader_check_rows(const lierne_plan_reader *reader, int64_t rows,
                                            int64_t width, lierne_dtype dtype, int max_inflight);

/* How plans of one kind are read. The planners define them. */
typedef struct lierne_plan_format {
    const char *kind; /* value of the key "kind" */
    /* What the rank can read alone. *spec, also after a failure, is to be destroyed. */
    lierne_status (*read)(void **spec, const lierne_plan_reader *reader);
    /* Collective; every rank has a spec. */
    lierne_status (*create)(lierne_plan **out, lierne_context *context, void *spec);
    void (*destroy)(void *spec); /* NULL is allowed */
} lierne_plan_format;
extern const lierne_plan_format lierne_references_format;
extern const lierne_plan_format lierne_graph_format;
extern const lierne_plan_format lierne_halo_format;

#endif
