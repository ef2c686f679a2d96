/* Plans as text, and plans from text.
 *
 * A text has what the planner was given, and lists that follow from it; the latter are for other
 * readers and are not read back. Each planner writes and reads its own kind. A rank whose text is
 * bad reports it to the others before any of them plans. */
#include "lierne/sparse.h"
#include "plan/object.h"
#include "plan/reader.h"

static const lierne_plan_format *const formats[] = {&lierne_references_format, &lierne_graph_format,
                                                    &lierne_halo_format};
enum { FORMATS = sizeof formats / sizeof *formats };

lierne_status lierne_plan_serialize(char **text, const lierne_plan *plan) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(text);
    lierne_text out = {0};
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    LIERNE_TRY(lierne_check_set(text, "text"));
    if (!plan->parts.saved_spec || !plan->parts.saved_spec->write) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the plan's kind is %s, must be references, graph or halo",
                           lierne_plan_get_kind(plan));
    }
    plan->parts.saved_spec->write(plan->parts.saved_spec, &out);
    return lierne_text_take(&out, text);
}

/* *kind: 1 for the first format, and so on. */
static lierne_status read_text(void **spec, int *kind, lierne_plan_reader *reader, const char *text,
                               size_t length) {
    const char *kinds[FORMATS];
    int i;
    for (i = 0; i < FORMATS; i++) {
        kinds[i] = formats[i]->kind;
    }
    LIERNE_TRY(lierne_plan_reader_open(reader, text, length));
    LIERNE_TRY(lierne_plan_reader_get_word(reader, "kind", kinds, FORMATS, &i));
    *kind = i + 1;
    return formats[i]->read(spec, reader);
}

lierne_status lierne_plan_deserialize(lierne_plan **out, lierne_context *context, const char *text,
                                      size_t length) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_plan_reader reader = {0};
    void *spec = NULL;
    int kind = 0;
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status = out ? read_text(&spec, &kind, &reader, text, length)
                               : LIERNE_FAIL(LIERNE_ERR_INVALID, "out is NULL");
    if (status != LIERNE_OK) {
        status = LIERNE_FAIL(status, "rank %d: %s", context->rank, lierne_error_text());
    }
    const lierne_field fields[] = {{.name = "lierne_plan_deserialize"},
                                   {.name = "kind", .value = kind}};
    status = lierne_context_agree_all(context, status, fields, 2, NULL);
    if (status == LIERNE_OK) {
        status = formats[kind - 1]->create(out, context, spec);
    }
    if (kind > 0) {
        formats[kind - 1]->destroy(spec);
    }
    lierne_plan_reader_close(&reader);
    return status;
}
