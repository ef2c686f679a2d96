/* A rank's route for a reader: the messages to one peer in a stage are one line, and what a line or
 * a stage lists beyond what is read is counted. */
#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIECES = 8, MOST_OPERATIONS = 16 };

static const char *next_line(const char *line) {
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

static bool is_stage(const char *line) {
    return strncmp(line, "stage ", 6) == 0;
}

/* Length of "  send to 3" or "  receive from 3"; 0: not a message. */
static size_t peer_length(const char *line) {
    bool message =
        strncmp(line, "  send to ", 10) == 0 || strncmp(line, "  receive from ", 15) == 0;
    return message ? strcspn(line, ",") : 0;
}

/* "in[0:8] in[16:24]": prints what may be printed of it; adds to the pieces so far. */
static void print_pieces(const char *piece, int64_t *pieces, bool all) {
    const char *end = strchr(piece, '\n');
    while (piece < end) {
        const char *close = strchr(piece, ']');
        const char *after = close && close < end ? close + 1 : end;
        if (all || *pieces < MOST_PIECES) {
            printf(" %.*s", (int)(after - piece), piece);
        }
        ++*pieces;
        piece = after + (*after == ' ');
    }
}

/* The messages of a stage to one peer, of which `line` is the first. */
static void print_messages(const char *line, size_t peer, bool all) {
    int64_t elements = 0, messages = 0, pieces = 0;
    for (const char *l = line; *l && !is_stage(l); l = next_line(l)) {
        if (peer_length(l) == peer && strncmp(l, line, peer) == 0) {
            elements += strtoll(l + peer + 1, NULL, 10);
            messages++;
        }
    }
    printf("%.*s, %" PRId64 " elements", (int)peer, line, elements);
    if (messages > 1) {
        printf(" in %" PRId64 " messages", messages);
    }
    printf(":");
    for (const char *l = line; *l && !is_stage(l); l = next_line(l)) {
        if (peer_length(l) == peer && strncmp(l, line, peer) == 0) {
            print_pieces(strchr(l, ':') + 2, &pieces, all);
        }
    }
    if (!all && pieces > MOST_PIECES) {
        printf(" ... %" PRId64 " more (--all)", pieces - MOST_PIECES);
    }
    printf("\n");
}

static bool is_first(const char *stage, const char *line, size_t peer) {
    for (const char *l = stage; l < line; l = next_line(l)) {
        if (peer_length(l) == peer && strncmp(l, line, peer) == 0) {
            return false;
        }
    }
    return true;
}

static void print_more(int64_t operations, bool all) {
    if (!all && operations > MOST_OPERATIONS) {
        printf("  ... %" PRId64 " more operations (--all)\n", operations - MOST_OPERATIONS);
    }
}

void plan_route_text(const char *text, bool all) {
    const char *stage = text;
    int64_t operations = 0;
    for (const char *line = text; *line; line = next_line(line)) {
        size_t peer = peer_length(line);
        if (is_stage(line)) {
            print_more(operations, all);
            stage = line;
            operations = 0;
        }
        if (peer > 0) {
            if (is_first(stage, line, peer)) {
                print_messages(line, peer, all);
            }
        } else if (strncmp(line, "  ", 2) != 0 || all || operations++ < MOST_OPERATIONS) {
            printf("%.*s", (int)(next_line(line) - line), line);
        }
    }
    print_more(operations, all);
}
