/* What rank 0 prints, in the columns of nccl-tests. A method whose results are wrong has no time.
 */
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

static void print_title(const run_state *run) {
    printf("# bridge ");
    tool_print_text(stdout, run->bridge.name);
    printf(" on %d rank%s, %d round%s after %d of warm-up; busbw is that of the busiest rank\n",
           run->ranks, run->ranks == 1 ? "" : "s", run->rounds, run->rounds == 1 ? "" : "s",
           run->warmup);
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        if (!run->methods[a].plan && *run->methods[a].rejection) {
            printf("# %s does not apply: ", name_of(a));
            tool_print_text(stdout, run->methods[a].rejection);
            printf("\n");
        }
    }
    printf("#\n# %54s %40s\n# %9s %12s %6s %11s", "forward", "adjoint", "size", "count", "type",
           "algorithm");
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        printf(" %12s %8s %8s %8s", "time", "algbw", "busbw", "#wrong");
    }
    printf("\n# %9s %12s %6s %11s", "", "(elements)", "", "");
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        printf(" %12s %8s %8s %8s", "(us)", "(GB/s)", "(GB/s)", "");
    }
    printf("\n");
}

void run_print_begin(const run_state *run) {
    if (run->format == RUN_TEXT) {
        print_title(run);
    } else if (run->format == RUN_CSV) {
        printf("size,count,type,algorithm,direction,time_us,low_us,high_us,algbw_gbs,busbw_gbs,"
               "wrong\n");
    } else {
        printf("{\"bridge\":");
        tool_print_string(stdout, run->bridge.name);
        printf(",\"world\":%d%s", run->ranks, run->sweep.given ? ",\"sizes\":[" : "");
    }
}

static int64_t count_of(const run_state *run) {
    return run->sweep.bytes / (int64_t)lierne_dtype_size(run->bridge.spec.dtype);
}

/* In 1e9 bytes per second. */
static double speed(int64_t bytes, double seconds) {
    return seconds > 0 ? (double)bytes / seconds * 1e-9 : 0;
}

static void print_direction(const run_state *run, const run_method *method, int d) {
    double time = method->times[d].median;
    if (run_is_right(run)) {
        printf(" %12.1f %8.2f %8.2f", time * 1e6, speed(run->sweep.bytes, time),
               speed(method->busiest_bytes[d], time));
    } else {
        printf(" %12s %8s %8s", "-", "-", "-");
    }
    printf(" %8" PRId64, method->count[d].wrong);
}

static void print_size_text(const run_state *run) {
    const lierne_bridge_spec *spec = &run->bridge.spec;
    char size[TOOL_BYTES];
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        const run_method *method = &run->methods[a];
        if (!method->plan) {
            continue;
        }
        printf("%11s %12" PRId64 " %6s %11s", tool_bytes(size, run->sweep.bytes), count_of(run),
               lierne_dtype_name(spec->dtype), name_of(a));
        print_direction(run, method, LIERNE_DIRECTION_FORWARD);
        print_direction(run, method, LIERNE_DIRECTION_ADJOINT);
        printf("\n");
        if (!method_is_right(method)) {
            verify_print_text(method->count, method->lhs, method->rhs);
        }
    }
}

static void print_size_csv(const run_state *run) {
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        const run_method *method = &run->methods[a];
        for (int d = LIERNE_DIRECTION_FORWARD; method->plan && d <= LIERNE_DIRECTION_ADJOINT; d++) {
            const run_times *t = &method->times[d];
            printf("%" PRId64 ",%" PRId64 ",%s,%s,%s,%.3f,%.3f,%.3f,%.4f,%.4f,%" PRId64 "\n",
                   run->sweep.bytes, count_of(run), lierne_dtype_name(run->bridge.spec.dtype),
                   name_of(a), directions[d], t->median * 1e6, t->low * 1e6, t->high * 1e6,
                   speed(run->sweep.bytes, t->median), speed(method->busiest_bytes[d], t->median),
                   method->count[d].wrong);
        }
    }
}

static void print_json_times(const run_state *run, const run_method *method) {
    printf(",\"rounds\":%d,\"times\":{", run->rounds);
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        const run_times *t = &method->times[d];
        printf("%s\"%s\":{\"median_us\":%.3f,\"low_us\":%.3f,\"high_us\":%.3f,"
               "\"max_rank_bytes\":%" PRId64 ",\"busiest_rank_bytes\":%" PRId64 "}",
               d ? "," : "", directions[d], t->median * 1e6, t->low * 1e6, t->high * 1e6,
               method->max_rank_bytes[d], method->busiest_bytes[d]);
    }
    printf("}");
}

static void print_size_json(const run_state *run) {
    const char *comma = "";
    if (run->sweep.given) {
        printf("%s{\"bytes\":%" PRId64 ",\"count\":%" PRId64 ",\"dtype\":\"%s\"",
               run->sizes ? "," : "", run->sweep.bytes, count_of(run),
               lierne_dtype_name(run->bridge.spec.dtype));
    }
    printf(",\"algorithms\":{");
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
    printf(run->sweep.given ? "}}" : "}");
}

void run_print_size(const run_state *run) {
    static void (*const print[])(const run_state *) = {print_size_text, print_size_json,
                                                       print_size_csv};
    print[run->format](run);
}

void run_print_end(const run_state *run) {
    if (run->format == RUN_JSON) {
        printf(run->sweep.given ? "]}\n" : "}\n");
    } else if (run->format == RUN_TEXT) {
        bool right = run_is_right(run);
        printf("# ");
        tool_print_painted(right ? TOOL_GOOD : TOOL_BAD,
                           right ? "forward and adjoint are right" : "WRONG");
        printf("\n");
    }
}
