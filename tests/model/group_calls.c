/* Prints a Promela model of random small stages over NCCL without any buffering: each rank makes
 * its group calls one after another, and a call ends when the other end of each of its messages is
 * in a call that has it, or past it. Usage: group_calls ROUTES [own]. With "own", ranks cut by
 * their own order, which must deadlock. */
#include "backend/nccl/group_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS    4
#define MESSAGES 16 /* most of a stage */

typedef struct stage {
    int n;
    int ends[MESSAGES][2];  /* sender, receiver */
    int calls[MESSAGES][2]; /* number of the group call at each end, from 1 */
    int ncalls[RANKS];
} stage;

static unsigned state = 1;
static int draw(int n) {
    state = state * 1103515245u + 12345u;
    return (int)((state >> 16) % (unsigned)n);
}

/* The postings of a rank in a random order of peers; message[i] is that of posting i, end its
 * side. */
static size_t list(const stage *s, int rank, lierne_posting *postings, int *message) {
    size_t n = 0;
    int first = draw(RANKS), receives = draw(2);
    for (int k = 0; k < 2 * RANKS; k++) {
        int peer = (first + k) % RANKS, end = (k < RANKS) ^ receives;
        for (int m = 0; m < s->n; m++) {
            if (s->ends[m][end] == rank && s->ends[m][!end] == peer) {
                postings[n] = (lierne_posting){.slot = n, .peer = peer, .receives = end == 1};
                message[n++] = m;
            }
        }
    }
    return n;
}

static void cut(stage *s, int rank, int most, bool own) {
    lierne_posting postings[2 * MESSAGES];
    int message[2 * MESSAGES], call = 0;
    lierne_group_cutter cutter = {0};
    size_t n = list(s, rank, postings, message);
    if (lierne_group_cutter_create(&cutter, rank, RANKS, n) != LIERNE_OK) {
        exit(2);
    }
    lierne_group_cut(&cutter, postings, n, most);
    for (size_t i = 0; i < n; i++) {
        bool begins = i == 0 || (own ? i % (size_t)most == 0
                                     : cutter.order[i].key != cutter.order[i - 1].key);
        size_t p = own ? i : (size_t)cutter.order[i].value;
        call += begins;
        s->calls[message[p]][postings[p].receives] = call;
    }
    s->ncalls[rank] = call;
    lierne_group_cutter_destroy(&cutter);
}

static stage draw_stage(bool own) {
    stage s = {.n = 2 + draw(MESSAGES - 1)};
    int most = 2 << draw(2);
    for (int m = 0; m < s.n; m++) {
        s.ends[m][0] = draw(RANKS);
        s.ends[m][1] = (s.ends[m][0] + 1 + draw(RANKS - 1)) % RANKS;
    }
    for (int r = 0; r < RANKS; r++) {
        cut(&s, r, most, own);
    }
    return s;
}

static void print_rank(const stage *s, int rank) {
    for (int call = 1; call <= s->ncalls[rank]; call++) {
        printf(" at[%d] = %d; (true", rank, call);
        for (int m = 0; m < s->n; m++) {
            for (int end = 0; end < 2; end++) {
                if (s->ends[m][end] == rank && s->calls[m][end] == call) {
                    printf(" && at[%d] >= %d", s->ends[m][!end], s->calls[m][!end]);
                }
            }
        }
        printf(");");
    }
    printf(" skip\n");
}

int main(int argc, char **argv) {
    int routes = argc > 1 ? atoi(argv[1]) : 0;
    bool own = argc > 2 && strcmp(argv[2], "own") == 0;
    stage *stages = calloc((size_t)routes + 1, sizeof *stages);
    for (int i = 0; i < routes; i++) {
        stages[i] = draw_stage(own);
    }
    printf("byte at[%d];\nshort route = -1;\n", RANKS);
    for (int r = 0; r < RANKS; r++) {
        printf("active proctype rank%d() {\n  (route >= 0);\n  if\n", r);
        for (int i = 0; i < routes; i++) {
            printf("  :: route == %d ->", i);
            print_rank(&stages[i], r);
        }
        printf("  fi\n}\n");
    }
    printf("init {\n  if\n");
    for (int i = 0; i < routes; i++) {
        printf("  :: route = %d\n", i);
    }
    printf("  fi\n}\n");
    free(stages);
    return 0;
}
