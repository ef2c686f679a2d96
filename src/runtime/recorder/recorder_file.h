/* Between the two halves of a recorder: recorder_file.c finds its memory, recorder.c fills it. */
#ifndef LIERNE_RECORDER_FILE_H
#define LIERNE_RECORDER_FILE_H

#include "runtime/recorder/recorder.h"

/* Fills in the header, whose memory is zero but for header_bytes and host. */
void lierne_recorder_begin(lierne_recorder *r, const lierne_recorder_spec *spec);

#endif
