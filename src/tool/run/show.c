/* What rank 0 prints. A method whose results are wrong has no time. */
#include "tool/run.h"

#include <inttypes.h>

static const char *const directions[] = {"forward", "adjoint"};

static const char *name_of(int algorithm) {
    return tool_bridge_algorithm((tool_algorithm)algorithm);
}

static bool method_is_right(const run_method *method) {
    return !method->plan || verify_is_right(method->count, method->lhs, method->rhs);
}

bool run_is_right(const run_state *run) {
    bool right = true;
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        right = right && method_is_right(&run->methods[a]);
    }
    return right;
}

static void print_line(const run_method *method, int algorithm, int direction) {
    const run_times *t = &method->times[direction];
    int64_t bytes = method->max_rank_bytes[direction];
    printf("%-11s%-8s %12.1f %12.1f to %11.1f %15" PRId64, name_of(algorithm),
           directions[direction], t->median * 1e6, t->low * 1e6, t->high * 1e6, bytes);
    if (bytes > 0) {
        printf(" %9.2f\n", (double)bytes / t->median * 1e-9);
    } else {
        printf(" %9s\n", "-");
    }
}

static void print_times(const run_state *run) {
    printf("\n%d rounds, sources untouched between them; a round is from the first start to the\n"
           "last end over all ranks\n",
           run->rounds);
    printf("%-11s%-8s %12s %27s %15s %9s\n", "", "", "median us", "quartiles us", "bytes on a rank",
           "GB/s");
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        const run_method *method = &run->methods[a];
        for (int d = LIERNE_FORWARD; method->plan && d <= LIERNE_ADJOINT; d++) {
            print_line(method, a, d);
        }
    }
}

void run_print_text(const run_state *run) {
    printf("bridge ");
    tool_print_text(stdout, run->bridge.name);
    printf(" on %d ranks\n", run->ranks);
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        const run_method *method = &run->methods[a];
        if (method->plan) {
            printf("\n%s\n", name_of(a));
            verify_print_text(method->count, method->lhs, method->rhs);
        } else if (*method->rejection) {
            printf("\n%s is not defined here: ", name_of(a));
            tool_print_text(stdout, method->rejection);
            printf("\n");
        }
    }
    if (run_is_right(run)) {
        print_times(run);
    }
}

static void print_json_times(const run_state *run, const run_method *method) {
    printf(",\"rounds\":%d,\"times\":{", run->rounds);
    for (int d = LIERNE_FORWARD; d <= LIERNE_ADJOINT; d++) {
        const run_times *t = &method->times[d];
        printf("%s\"%s\":{\"median_us\":%.3f,\"low_us\":%.3f,\"high_us\":%.3f,"
               "\"max_rank_bytes\":%" PRId64 "}",
               d ? "," : "", directions[d], t->median * 1e6, t->low * 1e6, t->high * 1e6,
               method->max_rank_bytes[d]);
    }
    printf("}");
}

void run_print_json(const run_state *run) {
    const char *comma = "";
    printf("{\"bridge\":");
    tool_print_string(stdout, run->bridge.name);
    printf(",\"world\":%d,\"algorithms\":{", run->ranks);
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        const run_method *method = &run->methods[a];
        if (method->plan) {
            printf("%s\"%s\":{\"right\":%s", comma, name_of(a),
                   method_is_right(method) ? "true" : "false");
            verify_print_json(method->count, method->lhs, method->rhs);
            if (run_is_right(run)) {
                print_json_times(run, method);
            }
            printf("}");
            comma = ",";
        }
    }
    printf("}}\n");
}
