/* lierne schedule: checks the recorded schedules of all ranks offline. What a run would find when
 * it commits them is found here, without starting a job: groups that are isolated, ranks that
 * disagree, launch orders that close a cycle. */
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne schedule [OPTION]... FILE\n"
    "Checks the schedules of all ranks (docs/schedules.md); '-' is standard input.\n"
    "\n"
    "      --isolate=PURPOSE  all-to-alls tagged PURPOSE get groups of their own\n"
    "      --split            all-gathers get groups of their own, before that\n"
    "      --format=FORMAT    text (default) or json\n"
    "  -h, --help             show this help\n"
    "\n"
    "Exit status: 0 valid, 1 ranks disagree or could deadlock, 2 usage or input error.\n";

enum { MAX_FILE = 16 << 20 };
/* Jobs with more of NCCL's on a rank were seen to hang when they start (52: NVIDIA/nccl#2379). */
enum { MANY_COMMUNICATORS = 32 };

typedef struct schedules {
    lierne_schedule **at;
    int n;
} schedules;

/* *text is to be freed. */
static int read_text(char **argv, const char *path, char **text, size_t *length) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    *text = malloc(MAX_FILE);
    if (!file || !*text) {
        tool_say(argv, "%s: %s", path, strerror(errno));
    } else {
        *length = fread(*text, 1, MAX_FILE, file);
    }
    bool failed = !file || !*text;
    if (!failed && ferror(file)) { /* such as a directory, which can be opened */
        tool_say(argv, "%s: %s", path, strerror(errno));
        failed = true;
    } else if (!failed && *length == MAX_FILE) {
        tool_say(argv, "%s: it is longer than %d bytes", path, MAX_FILE);
        failed = true;
    }
    if (file && file != stdin) {
        fclose(file);
    }
    return failed ? TOOL_USAGE : -1;
}

static int load(char **argv, const char *path, schedules *s) {
    char *text = NULL;
    size_t length = 0;
    int status = read_text(argv, path, &text, &length);
    if (status < 0 && lierne_schedule_deserialize(&s->at, &s->n, text, length) != LIERNE_OK) {
        tool_say(argv, "%s:%s", path, tool_reason());
        status = TOOL_USAGE;
    }
    free(text);
    return status;
}

static int apply(char **argv, schedules *s, const lierne_isolation_spec *spec) {
    for (int i = 0; i < s->n; i++) {
        lierne_schedule *after;
        if (lierne_schedule_isolate(&after, s->at[i], spec) != LIERNE_OK) {
            return tool_failed(argv);
        }
        lierne_schedule_destroy(s->at[i]);
        s->at[i] = after;
    }
    return -1;
}

static int apply_passes(char **argv, schedules *s, const char *purpose, bool split) {
    const lierne_isolation_spec all_gathers = LIERNE_ISOLATION_SPEC_SPLIT_ALL_GATHER;
    lierne_isolation_spec isolation = LIERNE_ISOLATION_SPEC_INIT;
    int status = split ? apply(argv, s, &all_gathers) : -1;
    isolation.purpose = purpose;
    return status < 0 && purpose ? apply(argv, s, &isolation) : status;
}

/* Operations of a schedule on one of its groups. */
static int count_operations(const lierne_schedule *s, int group) {
    int n = 0;
    for (int i = 0; i < lierne_schedule_get_noperations(s); i++) {
        lierne_operation_spec o = {.size = sizeof o};
        lierne_schedule_get_operation(&o, s, i);
        n += o.group == group;
    }
    return n;
}

/* Prints the groups that passes made, each at the first rank that has it. */
static void print_isolated(const schedules *s, bool json) {
    bool first = true;
    for (int i = 0; i < s->n; i++) {
        int rank = lierne_schedule_get_rank(s->at[i]);
        for (int k = 0; k < lierne_schedule_get_ngroups(s->at[i]); k++) {
            lierne_schedule_group g = {.size = sizeof g};
            lierne_schedule_get_group(&g, s->at[i], k);
            int smallest = rank, n = count_operations(s->at[i], k);
            for (int r = 0; r < g.nranks; r++) {
                smallest = g.ranks[r] < smallest ? g.ranks[r] : smallest;
            }
            if (!*g.purpose || n == 0 || smallest != rank) {
                continue;
            }
            if (json) {
                printf("%s{\"name\":", first ? "" : ",");
                tool_print_string(stdout, g.name);
                printf(",\"source\":%lld,\"ranks\":", (long long)g.source);
                tool_print_ints(stdout, g.ranks, g.nranks);
                printf(",\"operations\":%d}", n);
            } else {
                printf("isolated: ");
                tool_print_text(stdout, g.name);
                printf(", ranks ");
                tool_print_ints(stdout, g.ranks, g.nranks);
                printf(": %d operation%s per rank\n", n, n == 1 ? "" : "s");
            }
            first = false;
        }
    }
}

/* The most that a rank has over NCCL, one for each group that carries operations. */
static int count_communicators(const schedules *s) {
    int most = 0;
    for (int i = 0; i < s->n; i++) {
        int n = 0;
        for (int k = 0; k < lierne_schedule_get_ngroups(s->at[i]); k++) {
            n += count_operations(s->at[i], k) > 0;
        }
        most = n > most ? n : most;
    }
    return most;
}

static void print_communicators(const schedules *s) {
    int most = count_communicators(s);
    printf("over NCCL: at most %d communicator%s on a rank\n", most, most == 1 ? "" : "s");
    if (most > MANY_COMMUNICATORS) {
        printf("warning: more than %d; NCCL takes memory for each, and jobs with 52 were seen to "
               "hang when they start (NVIDIA/nccl#2379)\n",
               MANY_COMMUNICATORS);
    }
}

static void print_answer(const char *question, bool yes) {
    printf("%s: ", question);
    tool_print_painted(yes ? TOOL_GOOD : TOOL_BAD, yes ? "yes" : "no");
    printf("\n");
}

static void print_text(const schedules *s, const lierne_schedule_order *order, const char *cycle) {
    print_isolated(s, false);
    printf("%d rank%s, %d communicator%s, %d of them to create\n", s->n, s->n == 1 ? "" : "s",
           order->ngroups, order->ngroups == 1 ? "" : "s", order->ncreated);
    print_communicators(s);
    print_answer("safe even if serialised", order->safe_serialised);
    print_answer("safe if queues are concurrent", order->safe_concurrent);
    if (*cycle) {
        printf("cycle: ");
        tool_print_text(stdout, cycle);
        printf("\n");
    }
}

static void print_json(const schedules *s, const lierne_schedule_order *order, const char *cycle,
                       const char *mismatch) {
    printf("{\"ranks\":%d,\"mismatch\":", s->n);
    tool_print_string(stdout, mismatch);
    printf(",\"communicators\":%d,\"communicators_per_rank\":%d,\"created\":%d,"
           "\"safe_serialised\":%s,\"safe_concurrent\":%s,\"cycle\":",
           order->ngroups, count_communicators(s), order->ncreated,
           order->safe_serialised ? "true" : "false", order->safe_concurrent ? "true" : "false");
    tool_print_string(stdout, cycle);
    printf(",\"isolated\":[");
    print_isolated(s, true);
    printf("]}\n");
}

static int check_schedules(char **argv, const schedules *s, bool json) {
    lierne_schedule_order order = {.size = sizeof order};
    char cycle[1024] = "";
    lierne_status status = lierne_schedule_check(&order, cycle, sizeof cycle,
                                                 (const lierne_schedule *const *)s->at, s->n);
    if (status != LIERNE_OK && status != LIERNE_ERR_MISMATCH) {
        return tool_failed(argv);
    }
    if (json) {
        print_json(s, &order, cycle, status == LIERNE_OK ? "" : tool_reason());
    } else if (status == LIERNE_OK) {
        print_text(s, &order, cycle);
    } else {
        printf("mismatch: ");
        tool_print_text(stdout, tool_reason());
        printf("\n");
    }
    return status == LIERNE_OK && order.safe_serialised ? TOOL_VALID : TOOL_INVALID;
}

int tool_schedule(int argc, char **argv) {
    const char *format = NULL, *purpose = NULL, *path;
    bool json, split = false;
    const tool_option options[] = {{"isolate", 0, &purpose, NULL, NULL},
                                   {"split", 0, NULL, &split, NULL},
                                   {"format", 0, &format, NULL, "text json"}};
    schedules s = {NULL, 0};
    int status = tool_parse(argc, argv, help, options, sizeof options / sizeof *options);
    status = status < 0 ? tool_json(argv, format, &json) : status;
    status = status < 0 ? tool_one_file(argc, argv, &path) : status;
    status = status < 0 ? load(argv, path, &s) : status;
    status = status < 0 ? apply_passes(argv, &s, purpose, split) : status;
    status = status < 0 ? check_schedules(argv, &s, json) : status;
    lierne_schedule_destroy_all(s.at, s.n);
    return status;
}
