/* Names of plans: in messages, and among what ranks compare. */
#include "plan/object.h"

#include <stdio.h>
#include <string.h>

const char *lierne_plan_get_name(const lierne_plan *plan) {
    return plan ? plan->parts.name : NULL;
}

/* An error of another rank says it already. */
lierne_status lierne_plan_name_error(lierne_status status, const char *name) {
    char of[LIERNE_MAX_NAME + 16];
    if (status == LIERNE_OK || !name) {
        return status;
    }
    snprintf(of, sizeof of, "plan '%s': ", name);
    return strstr(lierne_error_text(), of) ? status
                                           : LIERNE_FAIL(status, "%s%s", of, lierne_error_text());
}

lierne_status lierne_plan_check_name(const lierne_plan_parts *parts, int rank) {
    return lierne_check_name(parts->name) == LIERNE_OK
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s", rank, lierne_error_text());
}

lierne_status lierne_plan_add_name(lierne_field **out, const lierne_field *fields, size_t n,
                                   const char *name) {
    LIERNE_TRY(lierne_alloc(out, n + 1, sizeof **out));
    memcpy(*out, fields, n * sizeof *fields);
    (*out)[n] = lierne_field_text("name", name);
    return LIERNE_OK;
}
