/* LIERNE_TRACE: a file that gets the events of runs, or a folder for those of calls, too. */
#ifndef LIERNE_TRACE_FILE_H
#define LIERNE_TRACE_FILE_H

#include "base/base.h"

/* Adds events of the Chrome trace format, separated by commas, with times since a nanosecond of the
 * calendar. */
typedef lierne_status lierne_trace_writer(lierne_text *text, const void *self, int64_t begin);

/* *folder: whether LIERNE_TRACE names a folder. Errors: IO (a folder that is not there: what does
 * not exist is a file only if its name has an ending). */
lierne_status lierne_trace_find_folder(bool *folder);
/* Appends what write adds, and the name of the rank's process, to the file of LIERNE_TRACE, or, in
 * a folder, to a file of this host that begins with name; does nothing where it is not set.
 * created: when the job began, if this is the file's first line. Errors: IO, NO_MEMORY, those of
 * write. */
lierne_status lierne_trace_append(lierne_trace_writer *write, const void *self, const char *name,
                                  int rank, int64_t created);

#endif
