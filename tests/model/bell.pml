/* The flags and the bell of src/backend/shm: each of RANKS ranks sends to the next one, ROUNDS
 * times. A message has LINES lines that take turns, as a short one has two.
 *
 * A rank writes its data, sets its ready flag and rings; the receiver copies the data, sets the
 * taken flag and rings. A rank that waits may poll again at any time, or announce that it sleeps,
 * look once more, and sleep until the bell changes. There are no timeouts, so a lost wake-up is a
 * deadlock. Stores wait in a buffer, as on x86, until a fence or an atomic operation.
 *
 * With SHORT a rank looks once before it rings, as short calls do. With NO_DONE and two lines, two
 * ranks that send to each other need not wait for taken flags: the other one's next message says it.
 *
 * Checked: no deadlock, and no receiver copies data of another round. Each of these breaks it:
 * NO_FENCE (who rings does not wait until its flag is visible), NO_LAST_LOOK (a rank sleeps without
 * having looked again), NO_DONE (a sender does not wait until what it writes over was copied; with one line, or three ranks),
 * FORGETS (a short call that finds its message at once rings no receiver). */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
/* Values of a bell: more than others can ring between a rank's last look and its sleep, which is
 * twice each, as they wait for it then. */
#define BELLS 8
#define NEXT(r) (((r) + 1) % RANKS)
#define LAST(r) (((r) + RANKS - 1) % RANKS)

#ifndef LINES
#define LINES 1
#endif
#define LINE(r, in_round) ((r) * LINES + (in_round) % LINES)

byte data[RANKS * LINES];  /* of each line of a sender: the round it was written in */
byte ready[RANKS * LINES];
byte taken[RANKS * LINES]; /* the last round that its receiver has copied */
bit asleep[RANKS];
byte bell[RANKS];
bit blocked[RANKS]; /* in the kernel, until woken */

mtype = { DATA, READY, TAKEN, ASLEEP };
chan stores[RANKS] = [3] of { mtype, byte, byte };

active [RANKS] proctype memory() {
    byte r = _pid, at, value;
    mtype what;
end:
    do
    :: atomic {
        stores[r]?what(at, value) ->
        if
        :: what == DATA -> data[at] = value
        :: what == READY -> ready[at] = value
        :: what == TAKEN -> taken[at] = value
        :: what == ASLEEP -> asleep[at] = value
        fi;
        what = 0; at = 0; value = 0
    }
    od
}

inline fence() { empty(stores[me]) }

inline ring(p) {
#ifndef NO_FENCE
    fence();
#endif
    if
    :: asleep[p] -> fence(); atomic { bell[p] = (bell[p] + 1) % BELLS; blocked[p] = 0 }
    :: else
    fi
}

/* Copies what has come; found: nothing more to wait for. */
inline look(found) {
    if
    :: ready[LINE(LAST(me), round)] == round && !copied ->
        assert(data[LINE(LAST(me), round)] == round);
        copied = 1;
        stores[me]!TAKEN(LINE(LAST(me), round), round);
        ring(LAST(me))
    :: else
    fi;
#ifdef NO_DONE
    found = copied
#else
    found = copied && taken[LINE(me, round + 1)] + LINES == round + 1
#endif
}

inline sleep_until_rung(seen) {
    atomic {
        if
        :: bell[me] == seen -> blocked[me] = 1
        :: else
        fi
    }
    !blocked[me]
}

active [RANKS] proctype rank() {
    byte me = _pid - RANKS, round = 1, seen;
    bit found, announced, copied;
    do
    :: round > ROUNDS -> break
    :: else ->
        stores[me]!DATA(LINE(me, round), round);
        stores[me]!READY(LINE(me, round), round);
#ifdef SHORT
        look(found);
        if
#ifdef FORGETS
        :: copied
        :: !copied -> ring(NEXT(me))
#else
        :: true -> ring(NEXT(me))
#endif
        fi;
        found = 0;
#else
        ring(NEXT(me));
#endif
        do
        :: look(found);
            if
            :: found -> break
            :: !found && !announced /* poll again */
            :: !found && !announced ->
                seen = bell[me];
                stores[me]!ASLEEP(me, 1);
                fence();
                announced = 1;
#ifdef NO_LAST_LOOK
                sleep_until_rung(seen);
                seen = bell[me]
#endif
            :: !found && announced ->
                sleep_until_rung(seen);
                seen = bell[me]
            fi
        od;
        if
        :: announced -> stores[me]!ASLEEP(me, 0); announced = 0
        :: else
        fi;
        seen = 0; found = 0; copied = 0;
        round++
    od
}
