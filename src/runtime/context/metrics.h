/* Metrics of a context: a file in the text format of Prometheus, where LIERNE_METRICS asks for it.
 */
#ifndef LIERNE_METRICS_H
#define LIERNE_METRICS_H

#include "base/base.h"

typedef struct lierne_metrics {
    char *path;   /* NULL: nobody asks */
    int64_t time; /* when it was written, by the recorder's clock */
} lierne_metrics;

struct lierne_context;
/* Makes a file in the folder that LIERNE_METRICS names. Errors: IO, NO_MEMORY. */
lierne_status lierne_metrics_open(struct lierne_context *context);
void lierne_metrics_close(lierne_metrics *metrics);
/* Writes the file; update: unless it was written just now. */
void lierne_metrics_write(struct lierne_context *context);
void lierne_metrics_update(struct lierne_context *context);
#define LIERNE_METRICS_UPDATE(context)                                                             \
    ((context)->metrics.path ? lierne_metrics_update(context) : (void)0)
/* diagnose/metrics_text.c. What the file says. */
void lierne_metrics_text(lierne_text *text, const struct lierne_context *context);

#endif
