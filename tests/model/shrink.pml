/* How the ranks of a dead context agree on who is left (src/runtime/control/survivors.c), with
 * deaths at any moment, one rank that fails by itself, and, with DEADLINE, a deadline that passes at
 * any moment. Creating a context is any of what it may do: it needs all ranks of the list; where one
 * is dead or has failed it may fail, or be through.
 *
 * Mistakes: NO_COMPARE marks a rank as gone without looking whether it came meanwhile; OVERWRITES
 * an outcome that another rank wrote; OWN_RESULT goes on once the own context is there; STALE takes
 * results of the attempt before. */
#define RANKS 3
#ifndef DEATHS
#define DEATHS 2
#endif
#define GONE 99
#define MOST (DEATHS + 3)

/* What tries say, and outcomes; both in words with the attempt: attempt * 4 + code. */
#define OK 0
#define PEER_FAILED 1
#define NO_MEMORY 2 /* any error that is no death */
#define TIMEOUT NO_MEMORY
#define AGAIN 0
#define DONE 1
#define FAILED 2
#define NONE 255

byte arrived[RANKS], result[RANKS], creates[RANKS], outcome;
bool dead[RANKS];
byte lists[MOST];   /* of each attempt, as bits; 0: nobody has one yet */
byte decision = NONE;
bool failed;
bool late; /* the deadline has passed, on all ranks that look from now on */

/* All that returned, returned this. */
inline returns(what) {
    atomic {
        assert(decision == NONE || decision == what);
        decision = what
    }
}

#ifdef STALE
#define said(r) (result[r] / 4 > 0)
#else
#define said(r) (result[r] / 4 == attempt)
#endif
#define decided (outcome / 4 == attempt || outcome % 4 != AGAIN)
#define lost(r) (dead[r] || (said(r) && result[r] % 4 != OK))

/* Ends all attempts, unless this one has an outcome. */
inline time_out() {
    atomic {
        late ->
        if
        :: outcome == (attempt - 1) * 4 + AGAIN -> outcome = attempt * 4 + FAILED
        :: else
        fi
    }
}

/* Waits until it is known of rank r whether it takes part. As the code reads: first the word,
 * then whether the process has ended. */
inline know(r) {
    do
    :: atomic { arrived[r] >= attempt -> break }
    :: atomic { arrived[r] < attempt -> seen = arrived[r] };
        if
        :: dead[r] ->
#ifdef NO_COMPARE
            arrived[r] = GONE
#else
            atomic { if :: arrived[r] == seen -> arrived[r] = GONE :: else fi }
#endif
        :: arrived[r] != seen
        :: decided -> assert(outcome % 4 == FAILED); returns(FAILED + 100); goto returned
        :: !decided && late -> time_out()
        fi
    od
}

#define has(r) (list >> (r) & 1)
#define there(r) (!has(r) || creates[r] == attempt)
#define over(r) (there(r) || lost(r))

/* What came of it, once that is known of all ranks. */
inline create() {
    creates[me] = attempt;
    atomic {
        (over(0) && over(1) && over(2)) || late ->
        if
        :: late && !(there(0) && there(1) && there(2)) -> code = TIMEOUT
        :: there(0) && there(1) && there(2) -> code = OK
        :: (has(0) && lost(0)) || (has(1) && lost(1)) || (has(2) && lost(2)) -> code = PEER_FAILED
        :: !failed -> failed = true; code = NO_MEMORY
        fi
    }
}

#define heard(r) (!has(r) || said(r) || dead[r] || decided || late)

/* Waits until all of the list have said how it went or have ended, and then looks at all of them.
 * Both stay so: the code, which looks at one after another, sees what one look at all would. */
inline judge() {
    atomic {
        heard(0) && heard(1) && heard(2) ->
        for (r : 0 .. RANKS - 1) {
            if
            :: has(r) ->
                peer = peer || (said(r) && result[r] % 4 == PEER_FAILED);
                first = (said(r) && result[r] % 4 == NO_MEMORY -> FAILED : first);
                ended = ended || dead[r]
            :: else
            fi
        }
    }
}

proctype rank(byte me) {
    byte attempt, list, r, seen, code, first;
    bool ended, peer;
    {
        do
        :: atomic { attempt++; assert(attempt < MOST); arrived[me] = attempt };
            for (r : 0 .. RANKS - 1) { know(r) }
            atomic {
                list = 0;
                for (r : 0 .. RANKS - 1) {
                    list = (arrived[r] == attempt -> list | (1 << r) : list)
                }
                assert(lists[attempt] == 0 || lists[attempt] == list);
                lists[attempt] = list;
                r = 0;
                seen = 0
            };
            create();
            atomic { result[me] = attempt * 4 + code; first = DONE; ended = false; peer = false };
#ifdef OWN_RESULT
            if :: code == OK -> returns(list); break :: code != OK fi;
#endif
            if
            :: decided
            :: !decided ->
                judge();
                atomic {
                    first = (late -> FAILED : first);
                    ended = ended && !late;
                    peer = peer && !late;
                    first = (ended || (peer && first == DONE) -> AGAIN : first);
                    if
#ifdef OVERWRITES
                    :: true
#else
                    :: outcome == (attempt - 1) * 4 + AGAIN
#endif
                        -> outcome = attempt * 4 + first
#ifndef OVERWRITES
                    :: else
#endif
                    fi
                }
            fi;
            if :: decided :: !decided && late -> time_out() fi;
            atomic {
                decided -> r = 0; first = 0; ended = false; peer = false;
                if
                :: outcome % 4 == AGAIN
                :: outcome % 4 == DONE -> assert(code == OK); returns(list); break
                :: outcome % 4 == FAILED -> returns(FAILED + 100); break
                fi
            }
        od;
    returned: skip
    } unless { dead[me] }
}

active proctype killer() {
    byte deaths;
    do
    :: atomic { deaths < DEATHS -> deaths++;
        if :: dead[0] = true :: dead[1] = true :: dead[2] = true fi }
    :: break
    od
}

#ifdef DEADLINE
active proctype clock() {
    late = true
}
#endif

init {
    atomic { run rank(0); run rank(1); run rank(2) }
}
