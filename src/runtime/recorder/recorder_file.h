/* Between the two halves of a recorder: recorder_file.c finds its memory and writes the file,
 * recorder.c fills the memory. */
#ifndef LIERNE_RECORDER_FILE_H
#define LIERNE_RECORDER_FILE_H

#include "runtime/recorder/recorder.h"

/* Fills in the header, whose memory is zero but for header_bytes and host. */
void lierne_recorder_begin(lierne_recorder *r, const lierne_recorder_spec *spec);
/* Of a recorder with a file: an entry was added; the header changed. */
void lierne_recorder_file_add(const lierne_recorder *r, uint64_t index, const lierne_entry *record);
void lierne_recorder_file_set_header(const lierne_recorder *r);

#endif
