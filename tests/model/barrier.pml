/* The barrier of window collectives (src/runtime/execute has the code): every rank stages its data in its
 * own window, meets the others, and reads theirs; then the next round reuses the window.
 *
 * Which barrier is modelled is chosen by -D:
 *   ADD      add 1 to the peer's flag, wait until it is at least 1 (EPOCH: at least the epoch)
 *   SET      store the epoch into the peer's flag, wait until it is at least the epoch
 *   BIT      store one bit that flips per barrier, wait until it is equal
 *   CENTRAL  one counter and a phase; NOSNAP reads the phase after arriving instead of before
 *   RESET    whoever waited sets its own flag to 0 (with ADD)
 *   BUFFERS=2 buffers take turns; EXIT a second barrier ends each round
 *   EARLY    sets the flags before the data is staged
 *   MODULUS  epochs wrap at this number, START is the first one; arrived means that
 *            (flag - epoch) mod MODULUS is less than half of it
 *   TURNS    with SET: there is a flag for odd epochs and one for even ones, which is waited for until
 *            it equals the epoch (src/runtime/window); ALONE: until one flag equals it
 *   LAG      the barrier compares with >= in spite of the wrap
 * A read of another round's data violates the assertion; a rank that waits for ever is an invalid
 * end state. barrier.sh runs the variants and compares both with what they must be. */
#ifndef BUFFERS
#define BUFFERS 1
#endif
#ifndef MODULUS
#define MODULUS 64
#endif
#ifndef START
#define START 0
#endif

byte data[N * 2];   /* the round that a buffer of a rank has */
byte flag[N * N * 2]; /* of rank r, written by rank s: flag[(r * N + s) * 2] */
byte count;
bit phase;

#define WINDOW(r)    data[(r) * 2 + round % BUFFERS]
#ifdef TURNS
#define FLAG(r, s) flag[((r) * N + (s)) * 2 + epoch % 2]
#else
#define FLAG(r, s) flag[((r) * N + (s)) * 2]
#endif

#if defined(LAG)
#define ARRIVED(got) (got >= epoch)
#elif defined(TURNS) || defined(ALONE)
#define ARRIVED(got) (got == epoch)
#elif defined(SET) || defined(EPOCH)
#define ARRIVED(got) ((got - epoch + MODULUS) % MODULUS < MODULUS / 2)
#elif defined(BIT)
#define ARRIVED(got) (got == epoch % 2)
#else
#define ARRIVED(got) (got >= 1)
#endif

#if defined(SET)
#define VALUE(old) epoch
#elif defined(BIT)
#define VALUE(old) (epoch % 2)
#else
#define VALUE(old) ((old + 1) % MODULUS)
#endif

#define PEERS(step)                                                                                \
    p = 0;                                                                                         \
    do                                                                                             \
    :: p == N -> break                                                                             \
    :: p == me -> p++                                                                              \
    :: p < N && p != me -> step; p++                                                               \
    od

inline arrive() {
#ifdef CENTRAL
#ifndef NOSNAP
    seen = phase;
#endif
    atomic {
        count++;
        if
        :: count == N -> count = 0; phase = 1 - phase
        :: else
        fi
    }
#ifdef NOSNAP
    seen = phase
#endif
#else
    epoch = (epoch + 1) % MODULUS;
    PEERS(FLAG(p, me) = VALUE(FLAG(p, me)))
#endif
}

inline meet() {
#ifdef CENTRAL
    phase != seen
#elif defined(RESET)
    PEERS(ARRIVED(FLAG(me, p)); FLAG(me, p) = 0)
#else
    PEERS(ARRIVED(FLAG(me, p)))
#endif
}

proctype rank(byte me) {
    byte round = 1, p, epoch = START;
    bit seen;
    do
    :: round > ROUNDS -> break
    :: else ->
#ifdef EARLY
        arrive();
        WINDOW(me) = round;
#else
        WINDOW(me) = round;
        arrive();
#endif
        meet();
        PEERS(assert(WINDOW(p) == round));
#ifdef EXIT
        arrive();
        meet();
#endif
        round++
    od
}

init {
    byte r = 0, s;
    atomic {
#if defined(SET) || defined(EPOCH)
        do
        :: r == N * N * 2 -> break
        :: else -> flag[r] = START; r++
        od;
        r = 0;
#endif
        do
        :: r == N -> break
        :: else -> run rank(r); r++
        od
    }
}
