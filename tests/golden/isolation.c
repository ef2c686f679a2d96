/* isolation.json: isolation, its composition, schedules that differ between ranks, launch order,
 * and the gate: one rank withholds its part of x until it has seen y complete. The file's ISO_E_*
 * names stand for statuses. */
#include "collectives.h"
#include "golden.h"
#include "lierne/sim.h"
#include "rank_threads.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 64, MAX_GROUPS = 16 };

static lierne_operation_kind kind_of(golden_case *c, const char *name) {
    static const char *const names[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                        "broadcast",  "barrier",        "send",       "recv"};
    for (int k = 0; k < (int)(sizeof names / sizeof *names); k++) {
        if (strcmp(names[k], name) == 0) {
            return (lierne_operation_kind)k;
        }
    }
    golden_expect(c, false, "kind %s is not known", name);
    return LIERNE_OPERATION_LOCAL;
}

/* Index of a group by its name; -1. */
static int find_group(const lierne_schedule *s, const char *name) {
    lierne_schedule_group g = {.size = sizeof g};
    for (int i = 0; i < lierne_schedule_get_ngroups(s); i++) {
        lierne_schedule_get_group(&g, s, i);
        if (strcmp(g.name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static lierne_status add_group(lierne_schedule *s, const char *name, int64_t uid,
                               const cJSON *ranks) {
    lierne_schedule_group_spec spec = {.size = sizeof spec, .name = name, .uid = uid};
    int list[MAX_RANKS], index;
    const cJSON *rank;
    cJSON_ArrayForEach(rank, ranks) {
        list[spec.nranks++] = (int)golden_to_int(rank, -1);
    }
    spec.ranks = list;
    return lierne_schedule_add_group(&index, s, &spec);
}

/* The other end of a message: the next rank of the group, or the one before. */
static int peer_of(const lierne_schedule *s, int group, lierne_operation_kind kind) {
    lierne_schedule_group g = {.size = sizeof g};
    int at = 0, rank = lierne_schedule_get_rank(s);
    if (kind != LIERNE_OPERATION_SEND && kind != LIERNE_OPERATION_RECV) {
        return 0;
    }
    lierne_schedule_get_group(&g, s, group);
    while (at < g.nranks && g.ranks[at] != rank) {
        at++;
    }
    return g.ranks[(at + 1) % g.nranks];
}

static lierne_status add_operation(golden_case *c, lierne_schedule *s, const cJSON *op) {
    lierne_operation_spec spec = LIERNE_OPERATION_SPEC_INIT;
    int index;
    spec.kind = kind_of(c, golden_string(op, "kind"));
    spec.group = find_group(s, golden_string(op, "group"));
    spec.tag = golden_string(op, "tag");
    spec.peer = spec.group < 0 ? 0 : peer_of(s, spec.group, spec.kind);
    return lierne_schedule_add_operation(&index, s, &spec);
}

/* Records groups and operations as a rank that all groups have. */
static lierne_status record(golden_case *c, lierne_schedule **out, int rank, const cJSON *groups,
                            const cJSON *ops) {
    const cJSON *item;
    lierne_status status = lierne_schedule_create(out, rank);
    cJSON_ArrayForEach(item, groups) {
        status = status == LIERNE_OK
                     ? add_group(*out, golden_string(item, "name"), golden_int(item, "uid", 0),
                                 golden_get(item, "ranks"))
                     : status;
    }
    cJSON_ArrayForEach(item, ops) {
        status = status == LIERNE_OK ? add_operation(c, *out, item) : status;
    }
    return status == LIERNE_OK ? lierne_schedule_freeze(*out) : status;
}

static lierne_isolation_spec read_policy(golden_case *c, const cJSON *policy) {
    lierne_isolation_spec spec = LIERNE_ISOLATION_SPEC_INIT;
    const cJSON *kinds = golden_get(policy, "kinds"), *kind;
    if (golden_get(policy, "purpose")) {
        spec.purpose = golden_string(policy, "purpose");
    }
    spec.kinds = kinds ? 0 : spec.kinds;
    cJSON_ArrayForEach(kind, kinds) {
        spec.kinds |= 1u << kind_of(c, kind->valuestring);
    }
    spec.any_tag = cJSON_IsFalse(golden_get(policy, "require_tag"));
    if (strcmp(golden_string(policy, "priority"), "normal") == 0) {
        spec.priority = LIERNE_PRIORITY_NORMAL;
    }
    return spec;
}

static void expect_created(golden_case *c, const lierne_schedule *after, const cJSON *wanted) {
    lierne_schedule_group g = {.size = sizeof g};
    int index = find_group(after, golden_string(wanted, "name"));
    if (!golden_expect(c, index >= 0, "no group %s was made", golden_string(wanted, "name"))) {
        return;
    }
    lierne_schedule_get_group(&g, after, index);
    golden_expect(c,
                  g.uid == 0 && g.source == golden_int(wanted, "source_uid", -1) &&
                      strcmp(g.purpose, golden_string(wanted, "purpose")) == 0 &&
                      golden_same_ranks(golden_get(wanted, "ranks"), g.ranks, g.nranks) &&
                      (g.priority == LIERNE_PRIORITY_HIGH) ==
                          (strcmp(golden_string(wanted, "priority"), "high") == 0),
                  "group %s is another than expected", g.name);
}

/* Operations keep their number and kinds, and have the groups of a list of names. */
static int compare_operations(golden_case *c, const lierne_schedule *before,
                              const lierne_schedule *after, const cJSON *names) {
    int n = lierne_schedule_get_noperations(before), moved = 0;
    golden_expect(c, lierne_schedule_get_noperations(after) == n && cJSON_GetArraySize(names) == n,
                  "the number of operations changed");
    for (int i = 0; i < n; i++) {
        lierne_operation_spec a = {.size = sizeof a}, b = {.size = sizeof b};
        lierne_schedule_group g = {.size = sizeof g};
        lierne_schedule_get_operation(&a, before, i);
        lierne_schedule_get_operation(&b, after, i);
        lierne_schedule_get_group(&g, after, b.group);
        moved += a.group != b.group;
        golden_expect(c, a.kind == b.kind && strcmp(a.tag, b.tag) == 0, "operation %d changed", i);
        golden_expect(c, strcmp(g.name, cJSON_GetArrayItem(names, i)->valuestring) == 0,
                      "operation %d is of group %s", i, g.name);
    }
    return moved;
}

static void expect_result(golden_case *c, const lierne_schedule *before,
                          const lierne_schedule *after, const cJSON *expect) {
    const cJSON *created = golden_get(expect, "created"), *item;
    int more = lierne_schedule_get_ngroups(after) - lierne_schedule_get_ngroups(before);
    golden_expect(c, more == cJSON_GetArraySize(created), "%d groups were made", more);
    cJSON_ArrayForEach(item, created) {
        expect_created(c, after, item);
    }
    int moved = compare_operations(c, before, after, golden_get(expect, "group_of_op"));
    golden_expect(c, moved == golden_int(expect, "rewritten", -1), "%d operations moved", moved);
    golden_expect(c, (moved > 0) == cJSON_IsTrue(golden_get(expect, "changed")), "changed");
}

static const cJSON *first_ranks(const golden_case *c) {
    return golden_get(cJSON_GetArrayItem(golden_get(c->item, "groups"), 0), "ranks");
}

/* A second pass changes nothing. */
static void expect_stable(golden_case *c, const lierne_schedule *after,
                          const lierne_isolation_spec *spec) {
    lierne_schedule *again = NULL;
    char *a = NULL, *b = NULL;
    golden_expect_status(c, "again", lierne_schedule_isolate(&again, after, spec), LIERNE_OK);
    lierne_schedule_serialize(&a, after);
    lierne_schedule_serialize(&b, again);
    golden_expect(c, a && b && strcmp(a, b) == 0, "a second pass changed it");
    lierne_text_destroy(a);
    lierne_text_destroy(b);
    lierne_schedule_destroy(again);
}

void golden_isolation(golden_case *c) {
    lierne_schedule *before = NULL, *after = NULL;
    const cJSON *expect = golden_get(c->item, "expect_library");
    int rank = (int)golden_to_int(cJSON_GetArrayItem(first_ranks(c), 0), 0);
    lierne_status status =
        record(c, &before, rank, golden_get(c->item, "groups"), golden_get(c->item, "ops"));
    if (golden_get(expect, "error")) {
        bool conflict = strstr(golden_string(expect, "error"), "CONFLICT");
        golden_expect(c,
                      status == LIERNE_ERR_INVALID &&
                          strstr(lierne_last_error(),
                                 conflict ? "one uid is one group" : "group is"),
                      "%s: %s", lierne_status_name(status), lierne_last_error());
    } else if (golden_expect_status(c, "recording", status, LIERNE_OK)) {
        lierne_isolation_spec spec = read_policy(c, golden_get(c->item, "policy"));
        status = lierne_schedule_isolate(&after, before, &spec);
        if (golden_expect_status(c, "isolate", status, LIERNE_OK)) {
            expect_result(c, before, after, expect);
            expect_stable(c, after, &spec);
        }
    }
    lierne_schedule_destroy(before);
    lierne_schedule_destroy(after);
}

/* Applies one of the two passes of a composition. */
static void apply(golden_case *c, lierne_schedule **s, const char *pass) {
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    const lierne_isolation_spec split = LIERNE_ISOLATION_SPEC_SPLIT_ALL_GATHER;
    lierne_schedule *after = NULL;
    golden_expect_status(c, pass,
                         lierne_schedule_isolate(&after, *s,
                                                 strcmp(pass, "isolate_ep") ? &split : &ep),
                         LIERNE_OK);
    lierne_schedule_destroy(*s);
    *s = after;
}

static void compose(golden_case *c, const char *first, const char *second) {
    static const int ranks[2] = {0, 1};
    const lierne_schedule_group_spec g = {
        .size = sizeof g, .name = "g", .uid = 1, .ranks = ranks, .nranks = 2};
    const cJSON *op, *created = golden_get(c->item, "created"), *name;
    lierne_schedule *before = NULL, *after = NULL;
    int index;
    lierne_schedule_create(&before, 0);
    lierne_schedule_create(&after, 0);
    lierne_schedule_add_group(&index, before, &g);
    lierne_schedule_add_group(&index, after, &g);
    cJSON_ArrayForEach(op, golden_get(c->item, "ops")) {
        golden_expect_status(c, "add", add_operation(c, before, op), LIERNE_OK);
        golden_expect_status(c, "add", add_operation(c, after, op), LIERNE_OK);
    }
    lierne_schedule_freeze(after);
    apply(c, &after, first);
    apply(c, &after, second);
    compare_operations(c, before, after, golden_get(c->item, "group_of_op"));
    golden_expect(c, lierne_schedule_get_ngroups(after) == 1 + cJSON_GetArraySize(created),
                  "%d groups", lierne_schedule_get_ngroups(after));
    cJSON_ArrayForEach(name, created) {
        golden_expect(c, find_group(after, name->valuestring) >= 0, "no %s", name->valuestring);
    }
    lierne_schedule_destroy(before);
    lierne_schedule_destroy(after);
}

void golden_composition(golden_case *c) {
    const cJSON *order = golden_get(c->item, "order");
    if (cJSON_GetArraySize(order) == 1) {
        compose(c, "isolate_ep", "split_fsdp_ag");
        compose(c, "split_fsdp_ag", "isolate_ep");
    } else {
        compose(c, cJSON_GetArrayItem(order, 0)->valuestring,
                cJSON_GetArrayItem(order, 1)->valuestring);
    }
}

/* The schedules of all ranks, without plans: they are compared as a run would compare them. */
void golden_schedules_agree(golden_case *c) {
    const cJSON *group = golden_get(c->item, "group"), *ops, *op;
    lierne_schedule *schedules[MAX_RANKS] = {NULL};
    lierne_schedule_order order = {.size = sizeof order};
    char cycle[256];
    int n = 0;
    cJSON_ArrayForEach(ops, golden_get(c->item, "ops_by_rank")) {
        lierne_schedule **s = &schedules[n++];
        lierne_schedule_create(s, atoi(ops->string));
        add_group(*s, "g", golden_int(group, "uid", 0), golden_get(group, "ranks"));
        add_group(*s, "pp", 1000, golden_get(group, "ranks"));
        cJSON_ArrayForEach(op, ops) {
            golden_expect_status(c, "add", add_operation(c, *s, op), LIERNE_OK);
        }
        lierne_schedule_freeze(*s);
        apply(c, s, "isolate_ep");
    }
    lierne_status status = lierne_schedule_check(&order, cycle, sizeof cycle,
                                                 (const lierne_schedule *const *)schedules, n);
    bool fails = strstr(golden_string(c->item, "expect_library"), "MISMATCH");
    golden_expect_status(c, "check", status, fails ? LIERNE_ERR_MISMATCH : LIERNE_OK);
    golden_expect(c, fails || order.ncreated == 1, "%d groups are created", order.ncreated);
    for (int i = 0; i < n; i++) {
        lierne_schedule_destroy(schedules[i]);
    }
}

static void add_all_groups(lierne_schedule *s, const cJSON *members) {
    const cJSON *m;
    int64_t uid = 1;
    cJSON_ArrayForEach(m, members) {
        add_group(s, m->string, uid++, m);
    }
}

void golden_launch_order(golden_case *c) {
    lierne_schedule *schedules[MAX_RANKS] = {NULL};
    lierne_schedule_order order = {.size = sizeof order};
    char cycle[256];
    const cJSON *program, *at;
    int n = 0, index;
    cJSON_ArrayForEach(program, golden_get(c->item, "program_order_by_rank")) {
        lierne_schedule *s;
        lierne_schedule_create(&schedules[n], atoi(program->string));
        s = schedules[n++];
        add_all_groups(s, golden_get(c->item, "members"));
        cJSON_ArrayForEach(at, program) {
            lierne_operation_spec spec = LIERNE_OPERATION_SPEC_INIT;
            char name[2] = {at->valuestring[0], '\0'};
            spec.kind = LIERNE_OPERATION_ALL_REDUCE;
            spec.group = find_group(s, name);
            golden_expect_status(c, "add", lierne_schedule_add_operation(&index, s, &spec),
                                 LIERNE_OK);
        }
        lierne_schedule_freeze(s);
    }
    golden_expect_status(c, "check",
                         lierne_schedule_check(&order, cycle, sizeof cycle,
                                               (const lierne_schedule *const *)schedules, n),
                         LIERNE_OK);
    bool acyclic = cJSON_IsTrue(golden_get(c->item, "happens_before_acyclic"));
    bool completes = strcmp(golden_string(c->item, "strict_in_order_execution"), "completes") == 0;
    golden_expect(c, acyclic == completes && order.safe_serialised == acyclic, "acyclic is %d",
                  order.safe_serialised);
    golden_expect(c, order.safe_concurrent, "queues that are independent complete");
    golden_expect(c, acyclic == !*cycle, "cycle '%s'", cycle);
    for (int i = 0; i < n; i++) {
        lierne_schedule_destroy(schedules[i]);
    }
}

/* What the ranks of a gate share. */
typedef struct gate {
    bool two; /* queues */
    lierne_status status[2];
    bool ordered[2];
} gate;

/* Rank 1 withholds x until y is complete. */
static lierne_status pass_gate(lierne_run *run, bool withholds, bool *ordered) {
    float in[2] = {1, 2}, out[2] = {0, 0};
    void *const outs[2] = {&out[0], &out[1]};
    const void *const ins[2] = {&in[0], &in[1]};
    lierne_run_event x = {.size = sizeof x}, y = {.size = sizeof y};
    lierne_status status = lierne_run_begin(run, outs, ins);
    for (int done = 0; status == LIERNE_OK && !done;) {
        status = lierne_run_test(&done, run);
        lierne_run_get_event(&y, run, 1);
        if (withholds && y.ended > 0 && status == LIERNE_OK && !done) {
            status = lierne_run_resume(run, 0);
        }
    }
    lierne_status ended = lierne_run_end(run);
    lierne_run_get_event(&x, run, 0);
    *ordered = x.begun <= y.begun && y.begun < y.ended && out[0] == 2 && out[1] == 4 &&
               (!withholds || y.ended <= x.resumed) && x.resumed < x.ended;
    return status == LIERNE_OK ? ended : status;
}

static lierne_status record_gate(lierne_schedule **s, lierne_plan *const *plans, int rank,
                                 bool two) {
    static const int ranks[2] = {0, 1};
    lierne_schedule_group_spec g = {
        .size = sizeof g, .name = "L0", .uid = 1, .ranks = ranks, .nranks = 2};
    int groups[2], index;
    lierne_schedule_create(s, rank);
    lierne_schedule_add_group(&groups[0], *s, &g);
    g.name = "L1";
    g.uid = 2;
    lierne_schedule_add_group(&groups[1], *s, &g);
    for (int i = 0; i < 2; i++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        o.kind = LIERNE_OPERATION_ALL_REDUCE;
        o.group = groups[two ? i : 0];
        o.plan = plans[i];
        o.held = i == 0 && rank == 1;
        lierne_schedule_add_operation(&index, *s, &o);
    }
    return lierne_schedule_freeze(*s);
}

static void run_gate(lierne_context *context, void *shared) {
    gate *g = shared;
    int rank = lierne_context_get_rank(context);
    const lierne_all_reduce_spec spec =
        all_reduce_of(1, LIERNE_DTYPE_F32, LIERNE_COLLECTIVE_ALGORITHM_AUTO);
    lierne_plan *plans[2] = {NULL, NULL};
    lierne_schedule *s = NULL;
    lierne_run *run = NULL;
    lierne_plan_create_all_reduce(&plans[0], context, &spec);
    lierne_plan_create_all_reduce(&plans[1], context, &spec);
    record_gate(&s, plans, rank, g->two);
    g->status[rank] = lierne_run_create(&run, context, s, NULL);
    if (run) {
        g->status[rank] = pass_gate(run, rank == 1, &g->ordered[rank]);
        lierne_run_destroy(run);
    }
    lierne_schedule_destroy(s);
    lierne_plan_destroy(plans[0]);
    lierne_plan_destroy(plans[1]);
}

void golden_overlap_gate(golden_case *c) {
    const cJSON *lanes = golden_get(c->item, "lanes");
    gate g = {.two = strcmp(golden_string(lanes, "x"), golden_string(lanes, "y")) != 0};
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = g.two ? 60 : 0.3};
    lierne_sim *sim = NULL;
    golden_expect_status(c, "sim", lierne_sim_create(&sim, 2, &spec), LIERNE_OK);
    rank_threads(sim, 2, run_gate, &g);
    for (int r = 0; r < 2; r++) {
        golden_expect_status(c, "gate", g.status[r], g.two ? LIERNE_OK : LIERNE_ERR_TIMEOUT);
        golden_expect(c, g.ordered[r] == g.two, "the order on rank %d", r);
    }
    golden_expect_status(c, "end", lierne_sim_destroy_all(sim), LIERNE_OK);
}
