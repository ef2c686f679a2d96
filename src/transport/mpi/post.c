/* Letters to ranks that do not expect them, by nonblocking consensus (Hoefler, Siebert, Lumsdaine
 * 2010): a synchronous send is complete once its message was taken, so a rank enters a barrier when
 * all its own are, takes messages from anybody meanwhile, and knows that there are no more when the
 * barrier ends. Nobody counts messages of all ranks.
 *
 * A rank may be a round ahead of another, no more, as a round ends with a barrier: two tags by
 * turns keep rounds apart.
 *
 * A long letter goes in pieces; the round's end is its end. So no message is longer than the link's
 * sink, and a rank without memory can take what it cannot keep: others wait for that. Taking it by
 * a receive that is too short would not do: Open MPI 4.1 writes a long message all the same, past
 * the end. While a full piece or something for the sink is on its way, nothing else is taken, as
 * more of that letter may move it, and as the sink is one for all.
 *
 * Requests in flight are few and have fixed places: sending must not need memory either. */
#include "transport/mpi/link.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW  32 /* messages in flight, of either kind */
#define NOWHERE ((size_t)-1)

typedef struct lane {
    MPI_Request requests[WINDOW];
    size_t letters[WINDOW]; /* of receives: index of the letter, or NOWHERE */
    int active;
} lane;

typedef struct round {
    lierne_link *link;
    int tag;
    size_t piece; /* words of a full one */
    const lierne_letter *letters;
    size_t nletters;
    size_t next;    /* letter to send */
    size_t started; /* words of it that are under way */
    lierne_letters *received;
    bool in_pieces;       /* of some letter more may come */
    bool exclusive;       /* nothing may be taken before what is on its way is there */
    lierne_status memory; /* OK, or NO_MEMORY: everything goes to the sink */
    lane sends;
    lane receives;
    MPI_Request barrier;
    bool in_barrier;
    bool all_sent; /* the barrier has ended */
} round;

static int free_place(const lane *a) {
    int i = 0;
    while (a->requests[i] != MPI_REQUEST_NULL) {
        i++;
    }
    return i;
}

/* Finds out which are complete. */
static lierne_status look(const round *r, lane *a, bool *moved) {
    int n, indices[WINDOW];
    MPI_Status statuses[WINDOW];
    if (a->active == 0) {
        return LIERNE_OK;
    }
    int code = MPI_Testsome(WINDOW, a->requests, &n, indices, statuses);
    if (code != MPI_SUCCESS) {
        return lierne_link_failed(r->link, code, "MPI_Testsome");
    }
    a->active -= n;
    *moved |= n > 0;
    return LIERNE_OK;
}

static lierne_status send_piece(round *r) {
    const lierne_letter *l = &r->letters[r->next];
    size_t left = l->count - r->started, words = left < r->piece ? left : r->piece;
    int code = MPI_Issend(l->words ? l->words + r->started : NULL, (int)words, MPI_INT64_T, l->peer,
                          r->tag, r->link->comm, &r->sends.requests[free_place(&r->sends)]);
    if (code != MPI_SUCCESS) {
        return lierne_link_failed(r->link, code, "MPI_Issend");
    }
    r->sends.active++;
    r->started += words;
    if (r->started == l->count) {
        r->next++;
        r->started = 0;
    }
    return LIERNE_OK;
}

/* The letter of a peer, or the place of a new one. */
static size_t find_letter(const round *r, int peer) {
    size_t i = r->in_pieces ? 0 : r->received->count;
    while (i < r->received->count && r->received->at[i].peer != peer) {
        i++;
    }
    return i;
}

/* Makes room for words of a peer, or for none of them; returns the letter. */
static size_t make_room(round *r, int peer, size_t words) {
    size_t i = find_letter(r, peer);
    if (r->memory == LIERNE_OK && i == r->received->count) {
        r->memory = lierne_letters_add(r->received, peer, words);
    } else if (r->memory == LIERNE_OK) {
        lierne_letter *l = &r->received->at[i];
        r->memory = lierne_realloc(&l->words, l->count + words, sizeof *l->words);
        l->count += r->memory == LIERNE_OK ? words : 0;
    }
    r->in_pieces |= words == r->piece;
    return r->memory == LIERNE_OK ? i : NOWHERE;
}

static lierne_status take(round *r, MPI_Message *message, const MPI_Status *status) {
    int words, place = free_place(&r->receives);
    MPI_Get_count(status, MPI_INT64_T, &words);
    size_t i = make_room(r, status->MPI_SOURCE, (size_t)words);
    const lierne_letter *l = i == NOWHERE ? NULL : &r->received->at[i];
    int code = MPI_Imrecv(l ? l->words + l->count - words : r->link->sink, words, MPI_INT64_T,
                          message, &r->receives.requests[place]);
    if (code != MPI_SUCCESS) {
        return lierne_link_failed(r->link, code, "MPI_Imrecv");
    }
    r->receives.letters[place] = i;
    r->receives.active++;
    r->exclusive = !l || (size_t)words == r->piece;
    return LIERNE_OK;
}

static lierne_status take_what_came(round *r, bool *moved) {
    for (int found = 1; found && !r->exclusive && r->receives.active < WINDOW;) {
        MPI_Message message;
        MPI_Status status;
        int code = MPI_Improbe(MPI_ANY_SOURCE, r->tag, r->link->comm, &found, &message, &status);
        if (code != MPI_SUCCESS) {
            return lierne_link_failed(r->link, code, "MPI_Improbe");
        }
        if (found) {
            LIERNE_TRY(take(r, &message, &status));
            *moved = true;
        }
    }
    return LIERNE_OK;
}

static lierne_status move_barrier(round *r, bool *moved) {
    int code = MPI_SUCCESS, done = 0;
    if (r->in_barrier && !r->all_sent) {
        code = MPI_Test(&r->barrier, &done, MPI_STATUS_IGNORE);
        *moved |= r->all_sent = done;
    } else if (!r->in_barrier && r->next == r->nletters && r->sends.active == 0) {
        code = MPI_Ibarrier(r->link->comm, &r->barrier);
        *moved = r->in_barrier = true;
    }
    return code == MPI_SUCCESS ? LIERNE_OK : lierne_link_failed(r->link, code, "MPI_Ibarrier");
}

static lierne_status run(round *r) {
    while (!r->all_sent || r->receives.active > 0) {
        bool moved = false;
        while (r->next < r->nletters && r->sends.active < WINDOW) {
            LIERNE_TRY(send_piece(r));
        }
        LIERNE_TRY(take_what_came(r, &moved));
        LIERNE_TRY(look(r, &r->receives, &moved));
        r->exclusive &= r->receives.active > 0;
        LIERNE_TRY(look(r, &r->sends, &moved));
        LIERNE_TRY(move_barrier(r, &moved));
        if (!moved) {
            LIERNE_TRY(lierne_link_pause(r->link, "planning"));
        }
    }
    LIERNE_TRY(lierne_link_check_all(r->link));
    return r->memory;
}

/* MPI may still read letters that were under way, and write those that were coming: these are left
 * to it. Reading one that is gone, for a rank that comes late, ends the program of either. */
static void abandon(round *r) {
    r->link->context->lends |= r->sends.active > 0;
    for (int i = 0; i < WINDOW; i++) {
        if (r->receives.requests[i] != MPI_REQUEST_NULL && r->receives.letters[i] != NOWHERE) {
            r->received->at[r->receives.letters[i]].words = NULL;
        }
    }
}

static int by_peer(const void *a, const void *b) {
    const lierne_letter *x = a, *y = b;
    return (x->peer > y->peer) - (x->peer < y->peer);
}

lierne_status lierne_link_post(void *self, const lierne_letter *letters, size_t n,
                               lierne_letters *received) {
    lierne_link *l = self;
    size_t piece = (l->chunk < sizeof l->sink ? l->chunk : sizeof l->sink) / sizeof l->sink[0];
    round r = {.link = l,
               .tag = l->tags + (int)(l->posts++ % LIERNE_LINK_POST_TAGS),
               .piece = piece > 0 ? piece : 1,
               .letters = letters,
               .nletters = n,
               .received = received};
    for (int i = 0; i < WINDOW; i++) {
        r.sends.requests[i] = r.receives.requests[i] = MPI_REQUEST_NULL;
    }
    lierne_link_arm(l);
    lierne_status status = run(&r);
    if (status != LIERNE_OK) {
        abandon(&r);
        lierne_letters_free(received);
        return status;
    }
    if (received->count > 0) {
        qsort(received->at, received->count, sizeof *received->at, by_peer);
    }
    return LIERNE_OK;
}

lierne_status lierne_link_largest(void *self, int64_t *values, size_t n) {
    lierne_link *l = self;
    lierne_link_arm(l);
    memcpy(l->ballot, values, n * sizeof *values);
    LIERNE_TRY(lierne_link_reduce(l, (int)n, MPI_MAX));
    memcpy(values, l->tally, n * sizeof *values);
    return LIERNE_OK;
}
