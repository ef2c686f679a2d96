/* Between the parts of a recorder: recorder.c has the ring, recorder_file.c writes it to a file,
 * and recorder_clock.c has its clock. */
#ifndef LIERNE_RECORDER_FILE_H
#define LIERNE_RECORDER_FILE_H

#include "runtime/recorder/recorder.h"

/* Whether the processor's counter counts at one speed. */
bool lierne_recorder_has_counter(void);

/* Gives a ring in memory a file in the folder. Errors: IO. */
lierne_status lierne_recorder_file_open(lierne_recorder *r, const char *folder,
                                        const lierne_recorder_spec *spec);
/* Of a recorder with a file: an entry was added; the header changed. */
void lierne_recorder_file_add(const lierne_recorder *r, uint64_t index, const lierne_entry *record);
void lierne_recorder_file_set_header(const lierne_recorder *r);
void lierne_recorder_file_set_name(const lierne_recorder *r, const lierne_recorded_name *slot);

#endif
