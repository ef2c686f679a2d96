/* The state of MPI's control: a private communicator and the buffers of collective calls. The
 * transport of MPI (transport/mpi/) sends on the same communicator.
 *
 * Functions are listed in the order in which their files depend on each other. */
#ifndef LIERNE_MPI_STATE_H
#define LIERNE_MPI_STATE_H

#include "runtime/control/control.h"
#include "runtime/control/members.h"
#include "runtime/control/ports.h"

#include <mpi.h>

#define LIERNE_MPI_PAGE            32        /* fields per broadcast when ranks disagree */
#define LIERNE_MPI_SINK            (1 << 17) /* words; unused pages of it take no memory */
#define LIERNE_MPI_CONTROL_TAGS    2
#define LIERNE_MPI_POLLS_PER_YIELD 64
#define LIERNE_MPI_FEW             16   /* most ranks of a dense exchange */
#define LIERNE_MPI_SHORT           8192 /* words of a board's side */

/* What a rank tells the others about its error. */
typedef struct lierne_notice {
    int status;
    char message[LIERNE_MESSAGE_SIZE];
} lierne_notice;

/* Everything that a collective call reads or writes is in here and never on a stack: after a missed
 * deadline MPI may still write it, so the state is then abandoned, that is never freed. */
typedef struct lierne_mpi_state {
    lierne_control_hook hook; /* progress is NULL until there is a context */
    MPI_Comm comm;
    int rank; /* in comm */
    int world;
    lierne_members members; /* names of ranks in messages; without any, those in comm */
    int tags; /* 0 to tags - 1 are the transport's, LIERNE_MPI_CONTROL_TAGS more the control's */
    size_t piece_bytes;       /* longest piece of a message */
    double timeout;           /* seconds */
    lierne_deadline deadline; /* of the running collective */
    int agreements;
    uint32_t exchanges;   /* sparse ones, and dense ones */
    int few;              /* most ranks that exchange densely; at most LIERNE_MPI_FEW */
    bool abandoned;       /* MPI may still write here, for example after a missed deadline */
    bool pending_buffers; /* a sparse exchange failed with sends in flight */
    int64_t reduce_in[LIERNE_MAX_REDUCED];
    int64_t reduce_out[LIERNE_MAX_REDUCED];
    int64_t heads_in[LIERNE_MPI_FEW][1 + LIERNE_MAX_REDUCED];
    int64_t heads_out[LIERNE_MPI_FEW][1 + LIERNE_MAX_REDUCED];
    lierne_notice decision;
    lierne_field page[LIERNE_MPI_PAGE];
    lierne_rank_info *ranks; /* until nodes are numbered */
    bool crowded;            /* this machine may have more ranks than cores: waiting yields */
    unsigned idle_polls;
    int *watches; /* per rank: a descriptor that is readable once its process ended, or -1 */
    double next_check;
    int opened; /* descriptor of this rank's abort flags until all ranks have mapped them, or -1 */
    lierne_abort_flags *flags; /* of the node, or NULL */
    int *flag;                 /* per rank: index of its flag, or -1 on another node */
    lierne_ports ports;        /* where the flags do not reach all, and LIERNE_ADDRESS is set */
    bool ready;                /* ranks can tell each other that they give up */
    bool boards;      /* dense exchanges are by boards beside the flags, which reach all ranks */
    MPI_Comm notices; /* MPI_COMM_NULL if flags reach all ranks */
    MPI_Request listening;
    lierne_notice notice; /* the last one received */
    lierne_notice first_notice;
    int first_source;
    lierne_notice own_notice;
    bool any_notice;
    int *gave_up;                  /* per rank: the status of its notice */
    bool *contacted;               /* per rank: messages were exchanged with it */
    int64_t sink[LIERNE_MPI_SINK]; /* receives messages that there is no memory for */
} lierne_mpi_state;

/* mpi_error.c. The rank of the context that a rank of comm is, for messages. */
int lierne_mpi_name(const lierne_mpi_state *m, int rank);
/* LIERNE_ERR_TRANSPORT with MPI's text for code. */
lierne_status lierne_mpi_failed(const lierne_mpi_state *m, int code, const char *what);

/* mpi_liveness.c. Begins to watch the processes of ranks in the same pid namespace. */
void lierne_mpi_watch(lierne_mpi_state *m);
void lierne_mpi_unwatch(lierne_mpi_state *m);
/* PEER_FAILED if the process of a rank has ended. */
lierne_status lierne_mpi_alive(void *state, int peer);

/* mpi_give_up.c. As in the table of control. */
void lierne_mpi_give_up(void *state, lierne_status status);
bool lierne_mpi_any_gave_up(void *state);
lierne_status lierne_mpi_gave_up(void *state, int peer);
/* The error of the lowest rank that is known to have given up. */
lierne_status lierne_mpi_check_given_up(lierne_mpi_state *m);
/* Maps the node's abort flags; returns whether they reach all ranks. */
bool lierne_mpi_map_flags(lierne_mpi_state *m);
/* Closes the descriptor that other ranks map flags by. */
void lierne_mpi_close_descriptor(lierne_mpi_state *m);
/* Posts the receive of the next notice. */
lierne_status lierne_mpi_listen(lierne_mpi_state *m);
/* Cancels that receive. The state is abandoned if MPI may still write a notice. */
void lierne_mpi_stop_listening(lierne_mpi_state *m);
void lierne_mpi_drop_flags(lierne_mpi_state *m);

/* mpi_wait.c. Starts the deadline that the following waits share. */
void lierne_mpi_start_deadline(lierne_mpi_state *m);
/* Waits for a collective whose start returned `started`. `what` names it in messages. TIMEOUT at
 * the deadline; the state is abandoned then. */
lierne_status lierne_mpi_wait(lierne_mpi_state *m, int started, MPI_Request *request,
                              const char *what);
/* One step of a wait without progress: progresses executions, checks abort flags, liveness and the
 * deadline, yields from time to time. The state is abandoned on failure. */
lierne_status lierne_mpi_pause(lierne_mpi_state *m, const char *what);

/* mpi_agree.c. The minimum of words of reduce_in goes to reduce_out; the caller started the
 * deadline. Collective. */
lierne_status lierne_mpi_minimum(lierne_mpi_state *m, int words);
lierne_status lierne_mpi_agree(void *state, lierne_status mine, const lierne_field *fields,
                               size_t n, int *id, lierne_status *decision);
lierne_status lierne_mpi_agree_exchange(void *state, const lierne_control_agreement *agreement,
                                        const lierne_control_message *messages, size_t n,
                                        lierne_control_messages *received, lierne_status *memory,
                                        lierne_status *decision);
/* Whether all ranks close their control. Waits at most the timeout. Collective. */
bool lierne_mpi_all_close(lierne_mpi_state *m);

/* mpi_dense_exchange.c. The exchange where ranks are few. */
typedef struct lierne_mpi_exchange_spec {
    uint32_t number; /* of exchanges before this one */
    int tag;
    size_t piece; /* words of a full one */
    int words;    /* of the reduction */
    const lierne_control_message *messages;
    size_t nmessages;
    lierne_control_messages *received; /* NULL: what arrives is dropped */
} lierne_mpi_exchange_spec;
/* What a rank shows the others of its node in place of heads and short messages. */
typedef struct lierne_mpi_side {
    int64_t counts[LIERNE_MPI_FEW]; /* of words for each rank, or -1 */
    int64_t values[LIERNE_MAX_REDUCED];
    int64_t words[LIERNE_MPI_SHORT];
} lierne_mpi_side;
typedef struct lierne_mpi_board {
    _Alignas(64) _Atomic uint32_t turn; /* exchanges that the rank has written to it */
    lierne_mpi_side sides[2];
} lierne_mpi_board;
static inline size_t lierne_mpi_board_bytes(int world) {
    return world <= LIERNE_MPI_FEW ? sizeof(lierne_mpi_board) : 0;
}
/* Collective. The minimum of spec->words of reduce_in goes to reduce_out. received is in no order,
 * and of no use if *memory is NO_MEMORY. */
lierne_status lierne_mpi_dense_exchange(lierne_mpi_state *m, const lierne_mpi_exchange_spec *spec,
                                        lierne_status *memory);

/* mpi_sparse_exchange.c. exchange: a sparse exchange that ends with the minimum of words of
 * reduce_in over the ranks, in reduce_out; 0: with a barrier. Few ranks exchange densely. received
 * NULL: drops what arrives. memory: whether this rank had memory for it, else NO_MEMORY, and
 * received is empty. */
lierne_status lierne_mpi_exchange(lierne_mpi_state *m, int words,
                                  const lierne_control_message *messages, size_t n,
                                  lierne_control_messages *received, lierne_status *memory);
lierne_status lierne_mpi_sparse_exchange(void *state, const lierne_control_message *messages,
                                         size_t n, lierne_control_messages *received);

/* mpi_open.c. Duplicates comm. Collective. */
lierne_status lierne_mpi_open(lierne_mpi_state *m, MPI_Comm comm);
/* Waits until all ranks have mapped their flags. Opens the communicator of notices unless the flags
 * reach all ranks (`reached`) on every rank. Each of n answers, at most LIERNE_MAX_REDUCED - 1,
 * becomes that of all ranks. Collective. */
lierne_status lierne_mpi_share_flags(lierne_mpi_state *m, bool reached, bool *answers, int n);
/* Frees the state. Collective unless dead. */
void lierne_mpi_close(void *state, bool dead);

/* mpi_control.c */
extern const lierne_control lierne_mpi_control;

#endif
