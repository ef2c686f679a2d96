/* The harness and the oracle. The oracle walks whole buffers in row-major order and computes the
 * owner of each element by mixed radix and division only: slow, and independent of the overlap of
 * boxes that it tests. */
#include "mpi/common.h"
#include "context/context.h"
#include "control/mpi/state.h"
#include "control/oob/state.h"

#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN       10  /* failures that a rank prints */
#define CHECK_EVERY 300 /* seconds */

int test_rank;
int test_world;
static long counts[2]; /* failed, passed */

typedef struct borrowed {
    struct borrowed *next;
    max_align_t data[];
} borrowed;
static borrowed *buffers;

static void check_progress(int signal) {
    static const char text[] = "watchdog: a rank hangs\n";
    static long seen = -1;
    (void)signal;
    if (seen == counts[0] + counts[1]) {
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        _exit(3);
    }
    seen = counts[0] + counts[1];
    alarm(CHECK_EVERY);
}

/* LIERNE_TEST_NODE_RANKS=n: n ranks to a node. */
static void split_nodes(void) {
    const char *ranks = getenv("LIERNE_TEST_NODE_RANKS");
    char node[16];
    if (ranks && atoi(ranks) > 0) {
        snprintf(node, sizeof node, "%d", test_rank / atoi(ranks));
        setenv("LIERNE_NODE", node, 1);
    }
}

int test_start_threads(int *argc, char ***argv) {
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    test_start(argc, argv);
    return provided;
}

void test_start(int *argc, char ***argv) {
    int initialized;
    MPI_Initialized(&initialized);
    if (!initialized) {
        MPI_Init(argc, argv);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &test_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &test_world);
    split_nodes();
    signal(SIGALRM, check_progress);
    alarm(CHECK_EVERY);
}

bool test_over_shm(void) {
    const char *list = getenv("LIERNE_TRANSPORTS");
    return !list || !*list || strncmp(list, "shm", 3) == 0;
}

void test_hurry(lierne_context *context, double seconds) {
    context->timeout = seconds;
    if (strcmp(context->control->name, "oob") == 0) {
        ((lierne_oob_state *)context->control_self)->timeout = seconds;
    } else {
        ((lierne_mpi_state *)context->control_self)->timeout = seconds;
    }
}

void test_cut_messages(lierne_context *context, size_t bytes) {
    if (strcmp(context->control->name, "mpi") == 0) {
        ((lierne_mpi_state *)context->control_self)->piece_bytes = bytes;
    }
}

static bool show_counts(MPI_Comm comm) {
    long sum[2];
    int rank;
    MPI_Comm_rank(comm, &rank);
    MPI_Allreduce(counts, sum, 2, MPI_LONG, MPI_SUM, comm);
    if (rank == 0) {
        printf("%ld passed, %ld failed\n", sum[1], sum[0]);
        fflush(stdout);
    }
    return sum[0] == 0;
}

void *test_buffer(size_t bytes) {
    borrowed *b = malloc(sizeof *b + bytes);
    b->next = buffers;
    buffers = b;
    return b->data;
}

static void free_buffers(void) {
    for (borrowed *b = buffers, *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

int test_finish(void) {
    bool passed = show_counts(MPI_COMM_WORLD);
    MPI_Finalize();
    free_buffers();
    return !passed;
}

void test_leave(MPI_Comm comm) {
    bool passed = show_counts(comm);
    MPI_Barrier(comm);
    _exit(!passed);
}

bool test_check(bool ok, const char *file, int line, const char *format, ...) {
    counts[ok]++;
    if (!ok && counts[0] <= SHOWN) {
        char text[2048];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        fprintf(stderr, "%s:%d: rank %d of %d: %s\n", file, line, test_rank, test_world, text);
    }
    return ok;
}

/* The message without the name of the public function, which may differ between ranks. */
static const char *text_of(const char *message) {
    const char *colon = strchr(message, ':');
    return strncmp(message, "lierne_", 7) == 0 && colon ? colon + 2 : message;
}

void test_same_error(lierne_status status, lierne_status wanted, const char *what) {
    char first[1024];
    snprintf(first, sizeof first, "%s", lierne_last_error());
    CHECK(status == wanted, "%s: %s, wanted %s (%s)", what, lierne_status_name(status),
          lierne_status_name(wanted), first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK(strcmp(text_of(first), text_of(lierne_last_error())) == 0,
          "%s: rank 0 says '%s', this rank '%s'", what, first, lierne_last_error());
}

mesh mesh_of(const char *order, int tp, int cp, int dp) {
    mesh m = {.ndims = 3};
    for (int i = 0; i < 3; i++) {
        m.names[i] = order[i] == 't' ? "tp" : order[i] == 'c' ? "cp" : "dp";
        m.sizes[i] = order[i] == 't' ? tp : order[i] == 'c' ? cp : dp;
    }
    return m;
}

int mesh_size(const mesh *m, const char *dim) {
    for (int i = 0; i < m->ndims; i++) {
        if (strcmp(m->names[i], dim) == 0) {
            return m->sizes[i];
        }
    }
    return 1;
}

bool mesh_has(const mesh *m, int rank) {
    int size = 1;
    for (int i = 0; i < m->ndims; i++) {
        size *= m->sizes[i];
    }
    return rank >= m->offset && rank < m->offset + size;
}

int mesh_coord(const mesh *m, int rank, const char *dim) {
    rank -= m->offset;
    for (int i = 0; i < m->ndims; i++) {
        if (strcmp(m->names[i], dim) == 0) {
            return rank % m->sizes[i];
        }
        rank /= m->sizes[i];
    }
    return 0;
}

lierne_grid *mesh_grid(const mesh *m) {
    int64_t sizes[MESH_DIMS];
    lierne_grid *grid;
    for (int i = 0; i < m->ndims; i++) {
        sizes[i] = m->sizes[i];
    }
    lierne_grid_spec spec = {.size = sizeof spec,
                             .ndims = m->ndims,
                             .names = m->names,
                             .sizes = sizes,
                             .rank_offset = m->offset,
                             .world_size = test_world};
    CHECK(lierne_grid_create(&grid, &spec) == LIERNE_OK, "%s", lierne_last_error());
    return grid;
}

/* Samples [*start, *start + return) of dp rank d. */
static int64_t share_of(int64_t batch, int dp, int d, const int64_t *given, int64_t *start) {
    int64_t size = 0;
    *start = 0;
    for (int i = 0; i <= d; i++) {
        *start += size;
        size = given ? given[i] : batch / dp + (i < batch % dp);
    }
    return size;
}

/* The cp coordinate that owns row (b, s); -1: every one has a contribution. */
static int owner_of(const bridge_case *c, int64_t b, int64_t s) {
    int cp = mesh_size(&c->dst, "cp");
    int64_t start;
    switch (c->owner) {
    case LIERNE_GRADIENT_PARTIAL:
        return -1;
    case LIERNE_GRADIENT_ZIGZAG: {
        int chunk = (int)(s / (c->size[1] / (2 * cp)));
        return chunk < cp ? chunk : 2 * cp - 1 - chunk;
    }
    case LIERNE_GRADIENT_CONTIGUOUS:
        for (int k = 0; k < cp; k++) {
            int64_t size = share_of(c->size[1], cp, k, NULL, &start);
            if (s < start + size) {
                return k;
            }
        }
        return cp;
    case LIERNE_GRADIENT_ROWS:
        return c->row_owner[b * c->size[1] + s];
    }
    return -1;
}

item *case_items(const bridge_case *c, side which, int rank, int64_t *count) {
    const mesh *m = which == SIDE_SRC ? &c->src : &c->dst;
    int cp = mesh_coord(m, rank, "cp");
    int64_t start, size[3];
    int64_t samples = share_of(c->size[0], mesh_size(m, "dp"), mesh_coord(m, rank, "dp"),
                               which == SIDE_SRC ? c->src_counts : c->dst_counts, &start);
    /* Compact rows are in the order of (b, s), whichever of the two axes is the slower one. */
    bool rows = which == SIDE_GRADIENT && c->owner == LIERNE_GRADIENT_ROWS &&
                c->storage == LIERNE_COMPACT && c->axis[0] > c->axis[1];
    int walk[3] = {c->axis[rows], c->axis[!rows], c->axis[2]};
    int64_t full[3];
    size[walk[0]] = full[c->axis[0]] = samples;
    size[walk[1]] = full[c->axis[1]] = c->size[1];
    size[walk[2]] = full[c->axis[2]] = c->size[2];
    int64_t all = mesh_has(m, rank) ? size[0] * size[1] * size[2] : 0;
    item *items = malloc((size_t)(all + 1) * sizeof *items);
    *count = 0;
    for (int64_t n = 0; n < all; n++) {
        int64_t index[3] = {n / (size[1] * size[2]), n / size[2] % size[1], n % size[2]}, at[3];
        item i = {start + index[walk[0]], index[walk[1]], index[walk[2]], true, 0};
        at[c->axis[0]] = index[walk[0]];
        at[c->axis[1]] = index[walk[1]];
        at[c->axis[2]] = index[walk[2]];
        i.at = (at[0] * full[1] + at[1]) * full[2] + at[2];
        if (which == SIDE_GRADIENT && c->owner != LIERNE_GRADIENT_PARTIAL) {
            i.owned = owner_of(c, i.b, i.s) == cp;
            if (!i.owned && c->storage == LIERNE_COMPACT) {
                continue;
            }
        }
        items[(*count)++] = i;
    }
    return items;
}

uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
    x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
    return x ^ (x >> 33);
}

static uint64_t id_of(const item *i) {
    return mix((uint64_t)(i->b * 1000003 + i->s * 1009 + i->h + 1));
}

double case_value(const item *i) {
    return (double)(id_of(i) % 241) - 120;
}

double case_contribution(const item *i, int c) {
    return (double)(mix(id_of(i) + (uint64_t)c + 1) % 31) - 15;
}

double case_gradient(const bridge_case *c, const item *i) {
    int owner = owner_of(c, i->b, i->s), cp = mesh_size(&c->dst, "cp");
    double sum = 0;
    for (int k = 0; k < cp; k++) {
        sum += owner == -1 || owner == k ? case_contribution(i, k) : 0;
    }
    return sum;
}

bool case_aligned(const bridge_case *c) {
    int src = mesh_size(&c->src, "dp"), dst = mesh_size(&c->dst, "dp");
    if (src % dst != 0 && dst % src != 0) {
        return false;
    }
    for (int r = 0; r < test_world; r++) {
        int s = mesh_coord(&c->src, r, "dp"), d = mesh_coord(&c->dst, r, "dp");
        if (src >= dst ? s / (src / dst) != d : d / (dst / src) != s) {
            return false;
        }
    }
    return true;
}

static void mesh_text(char *text, size_t size, const mesh *m) {
    size_t used = 0;
    for (int i = 0; i < m->ndims; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%d", m->names[i], m->sizes[i]);
    }
    snprintf(text + used, size - used, "@%d", m->offset);
}

const char *case_text(const bridge_case *c) {
    static const char *const owners[] = {"partial", "zigzag", "contiguous", "rows"};
    static const char *const algorithms[] = {"direct", "collective", "leader"};
    static char text[256];
    char src[64], dst[64];
    mesh_text(src, sizeof src, &c->src);
    mesh_text(dst, sizeof dst, &c->dst);
    snprintf(text, sizeof text, "%s -> %s, b %lld on axis %d, s %lld on axis %d, %s, %s, %s %s",
             src, dst, (long long)c->size[0], c->axis[0], (long long)c->size[1], c->axis[1],
             lierne_dtype_name(c->dtype), algorithms[c->algorithm], owners[c->owner],
             c->storage == LIERNE_FULL ? "full" : "compact");
    return text;
}

lierne_status case_plan(lierne_plan **plan, lierne_context *context, const bridge_case *c) {
    lierne_grid *src = mesh_grid(&c->src), *dst = mesh_grid(&c->dst);
    int64_t shape[3];
    for (int i = 0; i < 3; i++) {
        shape[c->axis[i]] = c->size[i];
    }
    lierne_bridge_spec spec = {.size = sizeof spec,
                               .src = src,
                               .dst = dst,
                               .naxes = 3,
                               .shape = shape,
                               .dtype = c->dtype,
                               .batch_axis = c->axis[0],
                               .sequence_axis = c->axis[1],
                               .src_counts = c->src_counts,
                               .dst_counts = c->dst_counts,
                               .gradient_owner = c->owner,
                               .gradient_storage = c->storage,
                               .row_owner = c->row_owner,
                               .shared_output = c->sharing};
    lierne_status status = test_plan_bridge(plan, context, &spec, c->algorithm);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    return status;
}

/* Small integers only for 16 bits: halves are made by shifting a float's fields. */
static uint16_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t exponent = bits >> 23 & 0xff;
    uint32_t sign = bits >> 16 & 0x8000;
    return (uint16_t)(exponent == 0 ? sign : sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

static float float_of(uint16_t half) {
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t bits = (uint32_t)(half & 0x8000) << 16;
    float value;
    bits |= exponent == 0 ? 0 : (exponent + 112) << 23 | (uint32_t)(half & 0x3ff) << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void number_put(lierne_dtype dtype, void *buffer, int64_t at, double value) {
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    switch (dtype) {
    case LIERNE_F64:
        ((double *)buffer)[at] = value;
        break;
    case LIERNE_F32:
        ((float *)buffer)[at] = f;
        break;
    case LIERNE_BF16:
        ((uint16_t *)buffer)[at] = (uint16_t)(bits >> 16);
        break;
    case LIERNE_F16:
        ((uint16_t *)buffer)[at] = half_of(f);
        break;
    case LIERNE_I64:
        ((int64_t *)buffer)[at] = (int64_t)value;
        break;
    case LIERNE_I32:
        ((int32_t *)buffer)[at] = (int32_t)value;
        break;
    case LIERNE_I8:
    case LIERNE_U8:
        ((int8_t *)buffer)[at] = (int8_t)value;
        break;
    default: /* opaque dtypes have no values */
        abort();
    }
}

double number_get(lierne_dtype dtype, const void *buffer, int64_t at) {
    uint32_t bits;
    float f;
    switch (dtype) {
    case LIERNE_F64:
        return ((const double *)buffer)[at];
    case LIERNE_F32:
        return (double)((const float *)buffer)[at];
    case LIERNE_BF16:
        bits = (uint32_t)((const uint16_t *)buffer)[at] << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    case LIERNE_F16:
        return (double)float_of(((const uint16_t *)buffer)[at]);
    case LIERNE_I64:
        return (double)((const int64_t *)buffer)[at];
    case LIERNE_I32:
        return (double)((const int32_t *)buffer)[at];
    case LIERNE_I8:
        return (double)((const int8_t *)buffer)[at];
    case LIERNE_U8:
        return (double)((const uint8_t *)buffer)[at];
    default:
        abort();
    }
}
