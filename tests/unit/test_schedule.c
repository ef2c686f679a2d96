/* Schedules as data: every field on every rank that deviates, cycles that no pair of ranks shows,
 * texts, allocation failures. */
#include "base/base.h"
#include "lierne/schedule.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4 };

static int add_group(lierne_schedule *s, const char *name, int64_t uid, const int *ranks, int n) {
    const lierne_schedule_group_spec spec = {
        .size = sizeof spec, .name = name, .uid = uid, .ranks = ranks, .nranks = n};
    int index = -1;
    assert_ok(lierne_schedule_add_group(&index, s, &spec));
    return index;
}

static lierne_operation_spec operation(lierne_operation_kind kind, int group, const char *tag) {
    lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
    o.kind = kind, o.group = group, o.tag = tag;
    return o;
}

static int add(lierne_schedule *s, lierne_operation_spec o) {
    int index = -1;
    assert_ok(lierne_schedule_add_operation(&index, s, &o));
    return index;
}

static lierne_schedule *create(int rank) {
    lierne_schedule *s;
    assert_ok(lierne_schedule_create(&s, rank));
    return s;
}

static char cycle[512];

static lierne_status check(lierne_schedule_order *order, lierne_schedule *const *schedules, int n) {
    *order = (lierne_schedule_order){.size = sizeof *order};
    return lierne_schedule_check(order, cycle, sizeof cycle,
                                 (const lierne_schedule *const *)schedules, n);
}

static void destroy(lierne_schedule *const *schedules, int n) {
    for (int i = 0; i < n; i++) {
        lierne_schedule_destroy(schedules[i]);
    }
}

/* What a rank may do otherwise than the others in operation 2, and the field of the message. */
typedef struct deviation {
    const char *field;
    const char *expected;
    const char *got;
} deviation;
static const deviation deviations[] = {
    {"kind", "'broadcast'", "'all_reduce'"},
    {"tag", "'grad'", "'norm'"},
    {"dtype", "'f32'", "'f64'"},
    {"count", "12", "13"},
    {"root", "2", "3"},
    {"direction", "0", "1"},
    {"sequence", NULL, NULL},
};
enum { DEVIATIONS = sizeof deviations / sizeof *deviations, NONE = -1 };

static void deviate(lierne_operation_spec *o, int which) {
    if (which == 0) {
        o->kind = LIERNE_OPERATION_ALL_REDUCE;
        o->root = 0;
    }
    o->tag = which == 1 ? "norm" : o->tag;
    o->dtype = which == 2 ? LIERNE_DTYPE_F64 : o->dtype;
    o->count += which == 3;
    o->root += which == 4;
    o->direction = which == 5 ? LIERNE_DIRECTION_ADJOINT : o->direction;
}

/* Two groups of all ranks, in another order; operation 2 is number 1 of the first, and has another
 * name on each rank, which is no difference. */
static lierne_schedule *record(int rank, int which) {
    static const int all[RANKS] = {0, 1, 2, 3}, other[RANKS] = {2, 0, 3, 1};
    char name[16];
    lierne_schedule *s = create(rank);
    int a = add_group(s, "fsdp", 5, all, RANKS), b = add_group(s, "tp", 6, other, RANKS);
    snprintf(name, sizeof name, "node%d", rank);
    add(s, operation(LIERNE_OPERATION_ALL_GATHER, a, "fsdp"));
    add(s, operation(LIERNE_OPERATION_ALL_REDUCE, b, "tp"));
    lierne_operation_spec o = operation(LIERNE_OPERATION_BROADCAST, a, "grad");
    o.dtype = LIERNE_DTYPE_F32, o.count = 12, o.root = 2, o.name = name;
    deviate(&o, which);
    if (which != DEVIATIONS - 1) {
        add(s, o);
    }
    lierne_schedule_freeze(s);
    return s;
}

static void deviates(int rank, int which) {
    lierne_schedule *s[RANKS];
    lierne_schedule_order order;
    char text[128];
    for (int r = 0; r < RANKS; r++) {
        s[r] = record(r, r == rank ? which : NONE);
    }
    cr_assert_eq(check(&order, s, RANKS), LIERNE_ERR_MISMATCH, "%s on rank %d",
                 deviations[which].field, rank);
    /* The others are compared with rank 0, so it deviates where they are named. */
    const deviation *d = &deviations[which];
    int named = rank == 0 && d->expected ? 1 : rank;
    snprintf(text, sizeof text, "rank %d: ", named);
    assert_says(text);
    if (d->expected) {
        snprintf(text, sizeof text, "%s is %s, expected %s as on rank 0", d->field,
                 rank == 0 ? d->expected : d->got, rank == 0 ? d->got : d->expected);
    } else {
        snprintf(text, sizeof text, "sequence of group 'fsdp' (uid 5)");
    }
    assert_says(text);
    snprintf(text, sizeof text, "operation 2 'node%d' (",
             d->expected ? named : (rank == 0 ? 1 : 0)); /* that rank's own name for it */
    cr_assert(strstr(lierne_last_error(), text) &&
                  strstr(lierne_last_error(), " 1 of group 'fsdp', uid 5)"),
              "%s: %s", text, lierne_last_error());
    destroy(s, RANKS);
}

Test(schedule, a_difference_in_any_field_on_any_rank_is_named) {
    size_t before = lierne_mem_live();
    lierne_schedule *s[RANKS];
    lierne_schedule_order order;
    for (int r = 0; r < RANKS; r++) {
        s[r] = record(r, NONE);
    }
    cr_assert_eq(check(&order, s, RANKS), LIERNE_OK, "%s", lierne_last_error());
    cr_assert(order.safe_serialised && order.safe_concurrent && order.ngroups == 2 &&
              order.ncreated == 0 && !*cycle);
    destroy(s, RANKS);
    for (int which = 0; which < DEVIATIONS; which++) {
        for (int r = 0; r < RANKS; r++) {
            deviates(r, which);
        }
    }
    cr_assert_eq(lierne_mem_live(), before);
}

Test(schedule, other_ranks_of_one_uid_and_a_lost_message_are_named) {
    static const int ab[2] = {0, 1}, ba[2] = {1, 0};
    lierne_schedule_order order;
    for (int wrong = 0; wrong < 4; wrong++) {
        lierne_schedule *s[2];
        for (int r = 0; r < 2; r++) {
            s[r] = create(r);
            int g = add_group(s[r], "pp", 3, r == 1 && wrong == 1 ? ba : ab, 2);
            lierne_operation_spec o =
                operation(r ? LIERNE_OPERATION_RECV : LIERNE_OPERATION_SEND, g, "pp");
            o.peer = 1 - r;
            o.dtype = LIERNE_DTYPE_F32, o.count = 4 + (r == 1 && wrong == 2);
            if (!(r == 1 && wrong == 3)) {
                add(s[r], o);
            }
            lierne_schedule_freeze(s[r]);
        }
        const char *const texts[4] = {"", "than on rank 0: one uid is one group",
                                      "count is 5, expected 4",
                                      "expected operation 0 (send 0 of group 'pp', uid 3) as on"};
        cr_assert_eq(check(&order, s, 2), wrong ? LIERNE_ERR_MISMATCH : LIERNE_OK, "%d: %s", wrong,
                     lierne_last_error());
        cr_assert(!wrong || (strstr(lierne_last_error(), "rank 1: ") &&
                             strstr(lierne_last_error(), texts[wrong])),
                  "%s", lierne_last_error());
        destroy(s, 2);
    }
}

/* Three groups of two ranks each: every pair of ranks agrees, the whole is a cycle. */
Test(schedule, a_cycle_that_no_pair_of_ranks_shows_is_found) {
    static const int pairs[3][2] = {{0, 1}, {1, 2}, {2, 0}};
    static const char *const names[3] = {"A", "B", "C"}, *const node_names[3] = {"x", "y", "z"};
    for (int turned = 0; turned < 2; turned++) {
        lierne_schedule *s[3];
        lierne_schedule_order order;
        for (int r = 0; r < 3; r++) {
            /* Rank r is in the group of its number and in the one before. */
            int first = r, second = (r + 2) % 3, g[3];
            s[r] = create(r);
            for (int i = 0; i < 3; i++) {
                g[i] = add_group(s[r], names[i], i + 1, pairs[i], 2);
            }
            bool turn = r == 2 && turned;
            lierne_operation_spec o =
                operation(LIERNE_OPERATION_BARRIER, g[turn ? second : first], "");
            o.name = node_names[r];
            add(s[r], o);
            add(s[r], operation(LIERNE_OPERATION_BARRIER, g[turn ? first : second], ""));
            lierne_schedule_freeze(s[r]);
        }
        cr_assert_eq(check(&order, s, 3), LIERNE_OK, "%s", lierne_last_error());
        cr_assert_eq(order.safe_serialised, turned);
        cr_assert(order.safe_concurrent, "independent queues complete");
        for (int r = 0; r < 3 && !turned; r++) {
            char text[80];
            snprintf(text, sizeof text,
                     "rank %d launches barrier 0 '%s' of %s before barrier 0 of %s", r,
                     node_names[r], names[r], names[(r + 2) % 3]);
            cr_assert(strstr(cycle, text), "%s", cycle);
        }
        destroy(s, 3);
    }
}

/* An all-to-all is isolated from what the same ranks do under another name of the group. */
Test(schedule, two_names_of_one_uid_are_one_queue) {
    static const int ranks[2] = {0, 1};
    const lierne_isolation_spec spec = LIERNE_ISOLATION_SPEC_INIT;
    lierne_schedule *s = create(0), *isolated;
    lierne_schedule_order order;
    add_group(s, "other", 1, ranks, 2);
    int first = add_group(s, "one", 2, ranks, 2), second = add_group(s, "two", 2, ranks, 2);
    add(s, operation(LIERNE_OPERATION_BARRIER, first, ""));
    add(s, operation(LIERNE_OPERATION_ALL_TO_ALL, second, "ep"));
    lierne_schedule_freeze(s);
    lierne_isolation_spec beyond = spec;
    beyond.kinds |= 1u << (LIERNE_OPERATION_LOCAL + 1);
    assert_error(lierne_schedule_isolate(&isolated, s, &beyond), LIERNE_ERR_INVALID, "kinds is");
    assert_ok(lierne_schedule_isolate(&isolated, s, &spec));
    cr_assert_eq(check(&order, &s, 1), LIERNE_OK, "%s", lierne_last_error());
    cr_assert_eq(order.ngroups, 1);
    cr_assert_eq(check(&order, &isolated, 1), LIERNE_OK, "%s", lierne_last_error());
    cr_assert_eq(order.ncreated, 1);
    lierne_schedule *const both[2] = {isolated, create(1)};
    add(both[1], operation(LIERNE_OPERATION_BARRIER, add_group(both[1], "one", 2, ranks, 2), ""));
    lierne_schedule_freeze(both[1]);
    cr_assert_eq(check(&order, both, 2), LIERNE_ERR_MISMATCH, "%s", lierne_last_error());
    assert_says("group 'ep@2 (one)'");
    lierne_schedule_destroy(s);
    destroy(both, 2);
}

Test(schedule, a_cycle_that_is_longer_than_its_text_is_cut) {
    enum { RING = 200 };
    lierne_schedule *s[RING];
    lierne_schedule_order order;
    for (int r = 0; r < RING; r++) {
        const int before = (r + RING - 1) % RING, own[2] = {r, (r + 1) % RING},
                  other[2] = {before, r};
        s[r] = create(r);
        add(s[r], operation(LIERNE_OPERATION_BARRIER, add_group(s[r], "next", r + 1, own, 2), ""));
        add(s[r], operation(LIERNE_OPERATION_BARRIER,
                            add_group(s[r], "previous", before + 1, other, 2), ""));
        lierne_schedule_freeze(s[r]);
    }
    cr_assert_eq(check(&order, s, RING), LIERNE_OK, "%s", lierne_last_error());
    cr_assert_not(order.safe_serialised);
    cr_assert_eq(strlen(cycle), sizeof cycle - 1);
    destroy(s, RING);
}

/* Dependencies close a cycle between queues that are independent. The inversion is in a later step.
 */
Test(schedule, dependencies_can_close_a_cycle_of_concurrent_queues) {
    static const int both[2] = {0, 1};
    for (int depends = 0; depends < 2; depends++) {
        lierne_schedule *s[2];
        lierne_schedule_order order;
        for (int r = 0; r < 2; r++) {
            s[r] = create(r);
            int g[2] = {add_group(s[r], "A", 1, both, 2), add_group(s[r], "B", 2, both, 2)};
            add(s[r], operation(LIERNE_OPERATION_BARRIER, g[0], ""));
            add(s[r], operation(LIERNE_OPERATION_BARRIER, g[1], ""));
            int first = add(s[r], operation(LIERNE_OPERATION_BARRIER, g[r], ""));
            lierne_operation_spec o = operation(LIERNE_OPERATION_BARRIER, g[1 - r], "");
            o.after = &first, o.nafter = depends;
            add(s[r], o);
            lierne_schedule_freeze(s[r]);
        }
        cr_assert_eq(check(&order, s, 2), LIERNE_OK, "%s", lierne_last_error());
        cr_assert(!order.safe_serialised && order.safe_concurrent == !depends);
        cr_assert(strstr(cycle, "barrier 1 of A") && strstr(cycle, "barrier 1 of B"), "%s", cycle);
        destroy(s, 2);
    }
}

/* All kinds, names that JSON escapes, a group that a pass made. */
static lierne_schedule *record_all(void) {
    static const int ranks[3] = {7, 2, 5};
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    lierne_schedule *s = create(2), *out;
    int g = add_group(s, "a \"group\"\\", 41, ranks, 3), one = add_group(s, "alias", 41, ranks, 3);
    for (int k = LIERNE_OPERATION_ALL_GATHER; k <= LIERNE_OPERATION_LOCAL; k++) {
        bool local = k == LIERNE_OPERATION_LOCAL, all_to_all = k == LIERNE_OPERATION_ALL_TO_ALL;
        int after[2] = {0, k - 1};
        lierne_operation_spec o = operation((lierne_operation_kind)k,
                                            local   ? -1
                                            : k % 2 ? g
                                                    : one,
                                            all_to_all ? "ep" : "x-y.z_1");
        o.count = k, o.dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + k % 4), o.held = k % 3 == 0;
        o.root = k == LIERNE_OPERATION_BROADCAST ? 5 : 0;
        o.peer = k == LIERNE_OPERATION_SEND || k == LIERNE_OPERATION_RECV ? 7 : 0;
        o.after = after, o.nafter = k < 2 ? 0 : 2;
        o.name = k % 2 ? "the \"node\"\n" : NULL;
        add(s, o);
    }
    lierne_schedule_freeze(s);
    assert_ok(lierne_schedule_isolate(&out, s, &ep));
    lierne_schedule_destroy(s);
    return out;
}

Test(schedule, a_text_is_read_as_it_was_written) {
    size_t before = lierne_mem_live();
    lierne_schedule *s = record_all(), **read;
    char *text, *again, both[8192];
    int n;
    cr_assert_eq(lierne_schedule_get_ngroups(s), 3);
    assert_ok(lierne_schedule_serialize(&text, s));
    assert_ok(lierne_schedule_deserialize(&read, &n, text, strlen(text)));
    cr_assert_eq(n, 1);
    lierne_operation_spec o = {.size = sizeof o};
    for (int i = 0; i < 2; i++) {
        assert_ok(lierne_schedule_get_operation(&o, read[0], i));
        cr_assert_str_eq(o.name, i ? "the \"node\"\n" : "");
    }
    assert_ok(lierne_schedule_serialize(&again, read[0]));
    cr_assert_str_eq(text, again);
    lierne_schedule_destroy_all(read, n);
    snprintf(both, sizeof both, "{\"schedules\":[%s,%s]}", text, text);
    assert_ok(lierne_schedule_deserialize(&read, &n, both, strlen(both)));
    cr_assert_eq(n, 2);
    lierne_schedule_destroy_all(read, n);
    lierne_text_destroy(text);
    lierne_text_destroy(again);
    lierne_schedule_destroy(s);
    cr_assert_eq(lierne_mem_live(), before);
}

Test(schedule, a_group_has_ranks) {
    const lierne_schedule_group_spec specs[] = {
        {.size = sizeof specs[0], .name = "g", .uid = 1, .nranks = 2},
        {.size = sizeof specs[0], .name = "g", .uid = 1, .ranks = (int[]){0}}};
    const char *const says[] = {"group 'g' has no ranks: NULL", "group 'g' has nranks below 1"};
    lierne_schedule *s;
    int index;
    assert_ok(lierne_schedule_create(&s, 0));
    for (int i = 0; i < 2; i++) {
        assert_error(lierne_schedule_add_group(&index, s, &specs[i]), LIERNE_ERR_INVALID, says[i]);
    }
    lierne_schedule_destroy(s);
}

Test(schedule, a_name_has_at_most_63_characters) {
    char name[LIERNE_MAX_OPERATION_NAME + 2];
    lierne_schedule *s = create(0);
    lierne_operation_spec o = operation(LIERNE_OPERATION_LOCAL, -1, "");
    int index = -1;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    o.name = name;
    assert_error(lierne_schedule_add_operation(&index, s, &o), LIERNE_ERR_INVALID,
                 "at most 63 characters");
    name[LIERNE_MAX_OPERATION_NAME] = '\0';
    add(s, o);
    assert_ok(lierne_schedule_get_operation(&o, s, 0));
    cr_assert_str_eq(o.name, name);
    lierne_schedule_destroy(s);
}

#define GROUP "\"groups\":[{\"name\":\"g\",\"uid\":1,\"ranks\":[0,1]}]"
static const struct {
    const char *text;
    lierne_status status;
    const char *message;
} bad[] = {
    {"", LIERNE_ERR_SYNTAX, "1:1"},
    {"[]", LIERNE_ERR_INVALID, "must be an object"},
    {"{\"rank\":0,\n\"groups\":[]}", LIERNE_ERR_INVALID, "1:1: member 'operations' is missing"},
    {"{\"rank\":0,\"rank\":0}", LIERNE_ERR_SYNTAX, "1:11"},
    {"{\"rank\":0.5,\"groups\":[],\"operations\":[]}", LIERNE_ERR_INVALID, "member 'rank'"},
    {"{\"rank\":0,\"groups\":[],\n\"operations\":[],\"more\":1}", LIERNE_ERR_INVALID,
     "2:24: member 'more'"},
    {"{\"rank\":0,\"groups\":[{\"name\":\"g\",\"uid\":0,\"ranks\":[0]}],\"operations\":[]}",
     LIERNE_ERR_INVALID, "uid of group 'g' is 0"},
    {"{\"rank\":0,\"groups\":[{\"name\":\"g\",\"uid\":1,\"ranks\":[0,0]}],\"operations\":[]}",
     LIERNE_ERR_INVALID, "ranks[1] of group 'g' is 0 again"},
    {"{\"rank\":0," GROUP ",\"operations\":[\n{\"kind\":\"sum\",\"group\":\"g\"}]}",
     LIERNE_ERR_INVALID, "2:9: kind 'sum'"},
    {"{\"rank\":0," GROUP ",\"operations\":[\n{\"kind\":\"barrier\",\"group\":\"h\"}]}",
     LIERNE_ERR_INVALID, "group 'h'"},
    {"{\"rank\":0," GROUP ",\"operations\":[{\"kind\":\"barrier\",\"group\":\"g\",\"after\":[0]}]}",
     LIERNE_ERR_INVALID, "must be an earlier operation"},
    {"{\"rank\":2," GROUP ",\"operations\":[{\"kind\":\"barrier\",\"group\":\"g\"}]}",
     LIERNE_ERR_INVALID, "does not have this rank"},
    {"{\"rank\":0," GROUP ",\"operations\":[{\"kind\":\"send\",\"group\":\"g\",\"peer\":0}]}",
     LIERNE_ERR_INVALID, "peer is 0"},
};

Test(schedule, a_faulty_text_is_rejected_with_its_place) {
    size_t before = lierne_mem_live();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lierne_schedule **read;
        int n;
        lierne_status status =
            lierne_schedule_deserialize(&read, &n, bad[i].text, strlen(bad[i].text));
        cr_assert_eq(status, bad[i].status, "%s: %s", bad[i].text, lierne_last_error());
        assert_says(bad[i].message);
        cr_assert(!read && n == 0);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

/* Every allocation of each pure function fails once: an error, and nothing is left. */
Test(schedule, allocation_failures_leave_nothing) {
    lierne_schedule *s = record_all();
    const lierne_isolation_spec split = LIERNE_ISOLATION_SPEC_SPLIT_ALL_GATHER;
    char *text;
    assert_ok(lierne_schedule_serialize(&text, s));
    size_t before = lierne_mem_live(), failures = 0;
    bool failed = true;
    for (size_t k = 1; failed; k++) {
        lierne_schedule *out = NULL, **read = NULL;
        lierne_schedule_order order = {.size = sizeof order};
        char *again = NULL;
        int n = 0;
        lierne_mem_fail_at(k);
        failed = lierne_schedule_isolate(&out, s, &split) == LIERNE_ERR_NO_MEMORY;
        failed |=
            lierne_schedule_check(&order, cycle, sizeof cycle, (const lierne_schedule *const *)&s,
                                  1) == LIERNE_ERR_NO_MEMORY;
        failed |=
            lierne_schedule_deserialize(&read, &n, text, strlen(text)) == LIERNE_ERR_NO_MEMORY;
        failed |= lierne_schedule_serialize(&again, s) == LIERNE_ERR_NO_MEMORY;
        lierne_mem_fail_at(0);
        failures += failed;
        lierne_text_destroy(again);
        lierne_schedule_destroy(out);
        lierne_schedule_destroy_all(read, n);
        cr_assert_eq(lierne_mem_live(), before, "allocation %zu", k);
    }
    cr_assert_gt(failures, 50);
    lierne_text_destroy(text);
    lierne_schedule_destroy(s);
}

/* Six operations of two groups, each after the one before. */
Test(schedule, a_check_without_memory_says_for_what) {
    const int ranks[] = {0, 1};
    lierne_schedule *s = create(0);
    const int groups[2] = {add_group(s, "a", 1, ranks, 2), add_group(s, "b", 2, ranks, 2)};
    lierne_schedule_order order = {.size = sizeof order};
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    bool queues = false, edges = false;
    for (int i = 0; i < 6; i++) {
        add(s, operation(LIERNE_OPERATION_ALL_GATHER, groups[i % 2], ""));
    }
    assert_ok(lierne_schedule_freeze(s));
    for (size_t k = 1; status == LIERNE_ERR_NO_MEMORY; k++) {
        lierne_mem_fail_at(k);
        status = lierne_schedule_check(&order, cycle, sizeof cycle,
                                       (const lierne_schedule *const *)&s, 1);
        lierne_mem_fail_at(0);
        queues |= strstr(lierne_last_error(), "no memory for 3 items of 4 bytes") != NULL;
        edges |= strstr(lierne_last_error(), "no memory for 5 items of ") != NULL;
    }
    cr_expect(status == LIERNE_OK && queues && edges, "%d, %d", queues, edges);
    lierne_schedule_destroy(s);
}
