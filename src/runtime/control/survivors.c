/* Agreement in shared memory, which outlives the ranks that write it.
 *
 * Each word that ranks agree by is written once per attempt, by compare and exchange, so that
 * whoever comes first decides for all, and a rank that dies at any moment leaves the word as it was
 * or decided. A rank is left in an attempt if it wrote that it takes part before anybody saw its
 * process end. An attempt's outcome needs a result of every rank of its list that runs, so no rank
 * can be in the next attempt while another one still reads the words of this one. */
#include "runtime/control/survivors.h"
#include "runtime/control/processes.h"
#include "runtime/control/remote.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define GONE    INT64_MAX /* as an attempt: of a rank whose process ended */
#define AGAIN   0         /* outcomes: there is a next attempt, */
#define DONE    1         /* none because all went well; or a status */
#define SLEEP   50e-6     /* seconds between looks: at least, */
#define LONGEST 0.005     /* at most, and else */
#define SHARE   0.03      /* of the time waited so far, so that long waits take few looks */

/* A word says of which attempt it is, above a status or one of the outcomes. */
static int64_t word_of(int attempt, int code) {
    return (int64_t)attempt * ((int64_t)1 << 32) + (uint32_t)code;
}

static int attempt_of(int64_t word) {
    return (int)(word >> 32);
}

static int code_of(int64_t word) {
    return (int)(int32_t)(uint32_t)word;
}

static lierne_rank_words *words_of(const lierne_survivors *s, int rank) {
    return lierne_abort_flags_rank(s->flags, s->flag[rank]);
}

lierne_status lierne_survivors_begin(lierne_survivors *s, double timeout) {
    s->attempt = 0;
    lierne_deadline_start(&s->deadline, timeout, lierne_now());
    s->remote = NULL;
    LIERNE_TRY(lierne_alloc(&s->list, (size_t)s->world, sizeof *s->list));
    lierne_status status = s->flags ? LIERNE_OK : lierne_remote_begin(s);
    if (status != LIERNE_OK) {
        lierne_survivors_end(s);
    }
    return status;
}

void lierne_survivors_end(lierne_survivors *s) {
    lierne_remote_end(s);
    lierne_mem_free(s->list);
}

uint64_t lierne_survivors_key(const lierne_survivors *s) {
    struct timespec now;
    uint64_t none = 0, words[3] = {(uint64_t)getpid()};
    if (s->remote) { /* not what connections are told apart by */
        return s->ports->addresses[0].port;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    words[1] = (uint64_t)now.tv_sec;
    words[2] = (uint64_t)now.tv_nsec;
    uint64_t mine = lierne_hash(0, words, sizeof words) | 1;
    lierne_common_words *common = lierne_abort_flags_common(s->flags);
    return atomic_compare_exchange_strong(&common->key, &none, mine) ? mine : none;
}

double lierne_survivors_left(const lierne_survivors *s) {
    double left = s->deadline.at - lierne_now();
    return left > 0.001 ? left : 0.001;
}

/* The outcome of the attempt: of this one, or of one that ended all. */
static bool is_decided(const lierne_survivors *s, int *code) {
    int64_t word = atomic_load(&lierne_abort_flags_common(s->flags)->outcome);
    *code = code_of(word);
    return attempt_of(word) == s->attempt || *code != AGAIN;
}

static void propose(const lierne_survivors *s, int code) {
    int64_t before = word_of(s->attempt - 1, AGAIN);
    atomic_compare_exchange_strong(&lierne_abort_flags_common(s->flags)->outcome, &before,
                                   word_of(s->attempt, code));
}

/* since: when the wait began. */
static void pause_a_moment(double since) {
    double seconds = SHARE * (lierne_now() - since);
    seconds = seconds < SLEEP ? SLEEP : seconds > LONGEST ? LONGEST : seconds;
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

/* Whether it is known that a rank takes part, or that it never will. */
static bool is_known(const lierne_survivors *s, int rank) {
    int64_t arrived = atomic_load(&words_of(s, rank)->arrived);
    if (arrived < s->attempt && lierne_process_ended(s->watches[rank])) {
        atomic_compare_exchange_strong(&words_of(s, rank)->arrived, &arrived, GONE);
        arrived = atomic_load(&words_of(s, rank)->arrived);
    }
    return arrived >= s->attempt;
}

/* The lowest rank of which it is not known, or -1. What is known of an attempt stays so: a look
 * goes on where the last one stopped, or all looks of a world of n would take n * n. */
static int find_missing(lierne_survivors *s) {
    while (s->seen < s->world && is_known(s, s->seen)) {
        s->seen++;
    }
    return s->seen < s->world ? s->seen : -1;
}

/* The error of the attempt. mine: what this rank said, whose message is the thread's. */
static lierne_status fail(const lierne_survivors *s, int code, lierne_status mine, int missing) {
    int world = s->members->world, own = lierne_members_rank(s->members, s->rank);
    if (code == (int)mine) {
        return mine;
    }
    if (code == LIERNE_ERR_TIMEOUT && missing >= 0) {
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                           "rank %d of %d: rank %d runs and has not called within %g s", own, world,
                           lierne_members_rank(s->members, missing), s->deadline.timeout);
    }
    return LIERNE_FAIL((lierne_status)code, "rank %d of %d: another rank failed: it has the reason",
                       own, world);
}

lierne_status lierne_survivors_list(lierne_survivors *s) {
    int code, missing;
    double since = lierne_now();
    if (s->remote) {
        return lierne_remote_list(s);
    }
    s->attempt++;
    s->seen = 0;
    atomic_store(&words_of(s, s->rank)->arrived, s->attempt);
    while ((missing = find_missing(s)) >= 0) {
        if (is_decided(s, &code)) {
            return fail(s, code, LIERNE_OK, missing);
        }
        if (lierne_deadline_passed(&s->deadline, lierne_now())) {
            propose(s, LIERNE_ERR_TIMEOUT);
        } else {
            pause_a_moment(since);
        }
    }
    s->count = 0;
    for (int r = 0; r < s->world; r++) {
        if (atomic_load(&words_of(s, r)->arrived) == s->attempt) {
            s->list[s->count++] = r;
        }
    }
    return LIERNE_OK;
}

/* What a rank of the list said of this attempt; false: nothing yet. */
static bool has_said(const lierne_survivors *s, int rank, int *code) {
    int64_t result = atomic_load(&words_of(s, rank)->result);
    *code = code_of(result);
    return attempt_of(result) == s->attempt;
}

bool lierne_survivors_lost(const lierne_survivors *s, int index) {
    int rank = s->list[index], code;
    return lierne_process_ended(s->watches[rank]) ||
           (has_said(s, rank, &code) && code != LIERNE_OK);
}

/* The lowest rank of the list that runs and has said nothing, or -1. */
static int find_silent(lierne_survivors *s) {
    int code;
    while (s->seen < s->count && (has_said(s, s->list[s->seen], &code) ||
                                  lierne_process_ended(s->watches[s->list[s->seen]]))) {
        s->seen++;
    }
    return s->seen < s->count ? s->list[s->seen] : -1;
}

static int judge(const lierne_survivors *s) {
    lierne_verdict verdict = {0};
    for (int i = 0; i < s->count; i++) {
        int code;
        code = has_said(s, s->list[i], &code) ? code : LIERNE_OK;
        lierne_verdict_add(&verdict, lierne_process_ended(s->watches[s->list[i]]),
                           (lierne_status)code);
    }
    lierne_status outcome = lierne_verdict_get(&verdict);
    return outcome == LIERNE_OK ? DONE : outcome == LIERNE_ERR_PEER_FAILED ? AGAIN : (int)outcome;
}

lierne_status lierne_survivors_decide(lierne_survivors *s, lierne_status mine) {
    int code, waits_for = -1;
    double since = lierne_now();
    if (s->remote) {
        return lierne_remote_decide(s, mine);
    }
    s->seen = 0;
    atomic_store(&words_of(s, s->rank)->result, word_of(s->attempt, mine));
    while (!is_decided(s, &code)) {
        if (lierne_deadline_passed(&s->deadline, lierne_now())) {
            propose(s, LIERNE_ERR_TIMEOUT);
        } else if ((waits_for = find_silent(s)) < 0) {
            propose(s, judge(s));
        } else {
            pause_a_moment(since);
        }
    }
    if (code == AGAIN) {
        return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED, "a rank ended meanwhile");
    }
    return code == DONE ? LIERNE_OK : fail(s, code, mine, waits_for);
}
