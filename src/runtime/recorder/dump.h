/* What a recorder has written, read from a file or from memory. Files are untrusted. */
#ifndef LIERNE_DUMP_H
#define LIERNE_DUMP_H

#include "runtime/recorder/recorder.h"

typedef struct lierne_dump {
    uint64_t context; /* 0: the ranks have not met */
    int rank;
    int world;
    int members;
    int *ranks; /* of the members; NULL: all of the world */
    uint64_t space;
    uint64_t process;
    uint64_t process_start;
    double timeout;
    double created; /* seconds of the calendar, as all times here */
    double alive;   /* the last sign of life */
    int state;
    int status;
    char host[64];
    char doing[64];
    char message[LIERNE_RECORDER_TEXT];
    int64_t written;                  /* entries since the context was created */
    double ticks;                     /* seconds of a tick */
    int64_t first;                    /* ticks at created */
    int64_t first_time;               /* and nanoseconds of the system's monotonic clock */
    LIERNE_VEC(lierne_entry) records; /* the oldest first */
    LIERNE_VEC(lierne_recorded_name) names;
} lierne_dump;

/* Reads a dump of so many bytes. name appears in messages. To be cleared in every case. Errors:
 * INVALID (it is none, or damaged), NO_MEMORY. */
lierne_status lierne_dump_parse(lierne_dump *dump, const void *data, size_t bytes,
                                const char *name);
/* The same of a file. Errors: also IO. */
lierne_status lierne_dump_read(lierne_dump *dump, const char *path);
void lierne_dump_clear(lierne_dump *dump);

/* Seconds of the calendar at a record. */
double lierne_dump_time(const lierne_dump *dump, const lierne_entry *record);
/* Nanoseconds of the system's monotonic clock at a record of this process. Later records never have
 * less. */
int64_t lierne_dump_nanoseconds(const lierne_dump *dump, const lierne_entry *record);
/* The rank of a member, and the place of a rank among them, or -1. */
int lierne_dump_member(const lierne_dump *dump, int index);
int lierne_dump_find(const lierne_dump *dump, int rank);
/* Writes a dump as a JSON object (docs/hangs.md). */
void lierne_dump_write(lierne_text *text, const lierne_dump *dump);
/* "forward", "agreement" */
const char *lierne_record_name(const lierne_entry *record);
/* The name of a plan, or of the context (LIERNE_RECORDER_OWN_NAME); NULL: the dump has none. */
const char *lierne_dump_find_name(const lierne_dump *dump, int plan);
/* Which call a record is of, as lierne_call_print says it; of the control's, "agreement 4". */
void lierne_record_print(char text[LIERNE_CALL_TEXT], const lierne_dump *dump,
                         const lierne_entry *record);
const char *lierne_record_kind_name(int kind);
/* A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void lierne_dump_string(lierne_text *text, const char *string);

#endif
