/* The file of metrics: when it is written, and how.
 *
 * No thread writes it, because executing plans starts none: calls that end do, and waits. It gets
 * its contents at once, by a new file that takes its name, so that whoever reads it never sees a
 * part. A file that cannot be written must not end a call that succeeded. */
#include "runtime/context/metrics.h"
#include "runtime/context/context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_FILES 10000 /* of one rank and process in one folder */
#define PATH_SIZE  4096
#define INTERVAL   1.0 /* seconds */

/* A name that no other context has taken. */
static lierne_status create_file(char path[PATH_SIZE], const char *folder, int rank) {
    int file = -1;
    for (int i = 0; i < MOST_FILES && file < 0; i++) {
        int n = snprintf(path, PATH_SIZE, "%s/lierne-rank%d-%ld-%d.prom", folder, rank,
                         (long)getpid(), i);
        errno = ENAMETOOLONG;
        file = n > 0 && n < PATH_SIZE - 4
                   ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
                   : -1;
        if (file < 0 && errno != EEXIST) {
            break;
        }
    }
    if (file < 0) {
        return LIERNE_FAIL(LIERNE_ERR_IO,
                           "LIERNE_METRICS is '%.400s', where no file can be made: %s", folder,
                           strerror(errno));
    }
    close(file);
    return LIERNE_OK;
}

lierne_status lierne_metrics_open(lierne_context *context) {
    const char *folder = getenv("LIERNE_METRICS");
    char path[PATH_SIZE];
    if (!folder || !*folder) {
        return LIERNE_OK;
    }
    LIERNE_TRY(create_file(path, folder, context->rank));
    context->metrics.time = lierne_recorder_now(&context->recorder);
    return lierne_strdup(&context->metrics.path, path);
}

void lierne_metrics_close(lierne_metrics *metrics) {
    lierne_mem_free(metrics->path);
    *metrics = (lierne_metrics){0};
}

static bool write_file(const char *path, const lierne_text *text) {
    int file = lierne_file_create(path);
    if (file < 0) {
        return false;
    }
    bool whole = write(file, text->data, text->length) == (ssize_t)text->length;
    return close(file) == 0 && whole;
}

void lierne_metrics_write(lierne_context *context) {
    const char *path = context->metrics.path;
    char next[PATH_SIZE + 8];
    lierne_text text = {0};
    if (!path) {
        return;
    }
    lierne_metrics_text(&text, context);
    snprintf(next, sizeof next, "%s.new", path);
    if (text.failed || !write_file(next, &text) || rename(next, path) != 0) {
        unlink(next);
    }
    lierne_text_clear(&text);
    context->metrics.time = lierne_recorder_now(&context->recorder);
}

void lierne_metrics_update(lierne_context *context) {
    if (lierne_recorder_since(&context->recorder, context->metrics.time) > INTERVAL) {
        lierne_metrics_write(context);
    }
}
