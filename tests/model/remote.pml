/* How the ranks of several nodes agree on one thing (src/runtime/control/remote.c), with deaths at
 * any moment, of which the last messages may be lost. Every rank would propose something else.
 *
 * Mistakes: NO_WAIT decides before all have taken the proposal over; FORGETS proposes its own after
 * it has taken another one over; NO_ORDER takes over what a rank has proposed that has ended since. */
#define RANKS 3
#ifndef DEATHS
#define DEATHS 2
#endif
#define NONE 255

#define PROPOSE 1
#define TAKEN 2
#define DECIDED 3

chan to[9] = [4] of { byte, byte };
#define link(a, b) to[(a) * RANKS + (b)]

bool dead[RANKS]; /* killed */
bool left[RANKS]; /* it has decided, and closed its connections */
byte decision = NONE;

inline returns(what) {
    atomic {
        assert(decision == NONE || decision == what);
        decision = what
    }
}

inline tell(kind, what) {
    s = 0;
    do
    :: atomic { s < RANKS && s != me && !left[s] -> link(me, s)!kind, what; s++ }
    :: atomic { s < RANKS && (s == me || left[s]) -> s++ }
    :: s == RANKS -> break
    od
}

inline handle(from) {
    if
    :: kind == PROPOSE ->
        atomic {
            if
#ifdef NO_ORDER
            :: true ->
#else
            :: proposer == NONE || from >= proposer ->
#endif
                value = what;
                proposer = from
#ifndef NO_ORDER
            :: else
#endif
            fi
        };
        if
        :: proposer == from -> link(me, from)!TAKEN, what
        :: else
        fi
    :: kind == TAKEN -> taken[from] = true
    :: kind == DECIDED -> value = what; goto decide
    fi
}

#define hears(from) (me != from && !ended[from] && nempty(link(from, me)))
/* The last messages of a rank that is killed may be lost. */
#define ends(from) \
    (me != from && !ended[from] && (dead[from] || (left[from] && empty(link(from, me)))))
#define over(from) (me == from || ended[from] || taken[from])
#ifdef NO_WAIT
#define enough true
#else
#define enough (over(0) && over(1) && over(2))
#endif

proctype rank(byte me) {
    byte value = NONE, proposer = NONE, kind, what, s;
    bool ended[RANKS], taken[RANKS], proposed;
    {
        do
        :: atomic { hears(0) -> link(0, me)?kind, what }; handle(0)
        :: atomic { hears(1) -> link(1, me)?kind, what }; handle(1)
        :: atomic { hears(2) -> link(2, me)?kind, what }; handle(2)
        :: atomic { ends(0) -> ended[0] = true }
        :: atomic { ends(1) -> ended[1] = true }
        :: atomic { ends(2) -> ended[2] = true }
        :: atomic { !proposed && (me == 0 || ended[0]) && (me <= 1 || ended[1]) ->
#ifdef FORGETS
               value = me;
#else
               value = (value == NONE -> me : value);
#endif
               proposer = me };
            tell(PROPOSE, value);
            proposed = true
        :: proposed && enough -> break
        od;
    decide:
        returns(value);
        tell(DECIDED, value);
        left[me] = true
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

init {
    atomic { run rank(0); run rank(1); run rank(2) }
}
