/* What reports of hangs say of a rank: each one that is waited for once, however many messages it
 * has to send; the operation of a schedule that the culprit is in; the other contexts and jobs
 * whose dumps lie in the folder. */
#include "base/base.h"
#include "layouts.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "runtime/control/processes.h"
#include "runtime/recorder/dump.h"
#include "runtime/recorder/recorder.h"
#include "runtime/recorder/recorder_file.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, TENSORS = 12, SHARD = 300000 };

static lierne_layout *layout_of(lierne_placement placement) {
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {RANKS}};
    const int64_t shape[] = {RANKS * SHARD};
    return layout_over(&dp, RANKS, LIERNE_DTYPE_U8, 1, shape, &placement);
}

/* Every tensor is a message of its own from each of the two other ranks: more messages than ranks
 * are recorded. Nothing is received, so the buffers are not touched. */
Test(hang_report, a_rank_is_named_once) {
    const lierne_context_spec patience = {.size = sizeof patience, .timeout = 0.2};
    lierne_layout *src = layout_of((lierne_placement){.kind = LIERNE_PLACEMENT_SHARD});
    lierne_layout *dst = layout_of((lierne_placement){.kind = LIERNE_PLACEMENT_REPLICATE});
    const lierne_layout *from[TENSORS], *to[TENSORS];
    lierne_set_spec spec = {.size = sizeof spec, .ntensors = TENSORS, .src = from, .dst = to};
    char *text, *in = calloc(TENSORS, SHARD), *out = calloc(TENSORS * RANKS, SHARD);
    lierne_plan *plans[RANKS];
    lierne_sim *sim;
    for (int i = 0; i < TENSORS; i++) {
        from[i] = src;
        to[i] = dst;
    }
    assert_ok(lierne_sim_create(&sim, RANKS, &patience));
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_create_set(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
    assert_error(lierne_plan_forward(plans[0], out, in, NULL), LIERNE_ERR_TIMEOUT,
                 "24 of 48 messages missing after 0.2 s, with rank 1 (sim), "
                 "2 (sim)");
    assert_ok(lierne_context_get_status_json(&text, lierne_sim_get_context(sim, 0)));
    cr_assert(strstr(text, "\"waits_for\":[1,2]"), "%s", text);
    lierne_text_destroy(text);
    assert_ok(lierne_sim_destroy_all(sim));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    free(in);
    free(out);
}

typedef struct job {
    char folder[64];
    lierne_recorder recorders[2 * RANKS];
    int n;
} job;

static void open_job(job *j) {
    *j = (job){.folder = "/tmp/lierne-hang-XXXXXX"};
    cr_assert(mkdtemp(j->folder));
    setenv("LIERNE_DUMP_DIR", j->folder, 1);
}

/* The recorder of one of two ranks of a context, by a process that has a number. */
static lierne_recorder *join(job *j, int rank, uint64_t context, uint64_t process) {
    const lierne_recorder_spec spec = {
        .rank = rank, .world = 2, .members = 2, .capacity = 64, .process = process};
    lierne_recorder *r = &j->recorders[j->n++];
    assert_ok(lierne_recorder_open(r, &spec));
    lierne_recorder_meet(r, context, lierne_recorder_calendar());
    return r;
}

/* A call of plan 3 that waits for the other of the two ranks. */
static void wait_for(const lierne_recorder *r, int peer) {
    lierne_recorder_add(r, &(lierne_entry){.kind = LIERNE_RECORD_CALL, .plan = 3});
    lierne_recorder_add(r, &(lierne_entry){.kind = LIERNE_RECORD_WAIT, .plan = 3, .peer = peer});
}

static char *find(lierne_hang *hang, job *j) {
    char *text;
    usleep(150000);
    for (int i = 0; i < j->n; i++) {
        lierne_recorder_beat(&j->recorders[i]);
    }
    *hang = (lierne_hang){.size = sizeof *hang};
    assert_ok(lierne_hang_find(hang, &text, j->folder));
    return text;
}

static void close_job(job *j) {
    DIR *directory = opendir(j->folder);
    char path[512];
    for (int i = 0; i < j->n; i++) {
        lierne_recorder_close(&j->recorders[i]);
    }
    for (struct dirent *entry; (entry = readdir(directory));) {
        snprintf(path, sizeof path, "%s/%s", j->folder, entry->d_name);
        unlink(path);
    }
    closedir(directory);
    rmdir(j->folder);
    unsetenv("LIERNE_DUMP_DIR");
}

static void add_operation(const lierne_recorder *r, lierne_record_kind kind, int index, int what,
                          int64_t group) {
    lierne_recorder_add(
        r, &(lierne_entry){.kind = (int)kind, .what = what, .plan = index, .bytes = group});
}

Test(hang_report, the_operation_of_a_schedule_that_the_culprit_is_in_is_named) {
    for (int local = 0; local < 2; local++) {
        job j;
        lierne_hang hang;
        open_job(&j);
        wait_for(join(&j, 0, 77, 5), 1);
        lierne_recorder *r = join(&j, 1, 77, 6);
        add_operation(r, LIERNE_RECORD_OPERATION, 1, LIERNE_OPERATION_BROADCAST, 8);
        add_operation(r, LIERNE_RECORD_OPERATION, 2,
                      local ? LIERNE_OPERATION_LOCAL : LIERNE_OPERATION_ALL_TO_ALL, local ? 0 : 9);
        add_operation(r, LIERNE_RECORD_OPERATED, 1, LIERNE_OPERATION_BROADCAST, 8);
        char *text = find(&hang, &j);
        cr_assert(hang.kind == LIERNE_HANG_MISSING && hang.rank == 1, "%s", text);
        cr_assert(strstr(text, local ? "rank 1: in no call; in operation 2 of a run, local, for "
                                     : "rank 1: in no call; in operation 2 of a run, all_to_all of "
                                       "group 9, for "),
                  "%s", text);
        lierne_text_destroy(text);
        close_job(&j);
    }
}

/* What began at the time of the hang is open; what ended at it is not. */
Test(hang_report, an_operation_that_begins_when_its_rank_gives_up_is_named) {
    static const struct {
        lierne_record_kind kind;
        int index;
    } entries[] = {{LIERNE_RECORD_OPERATION, 2},
                   {LIERNE_RECORD_OPERATED, 2},
                   {LIERNE_RECORD_OPERATION, 1},
                   {LIERNE_RECORD_GAVE_UP, 0}};
    job j;
    lierne_hang hang;
    open_job(&j);
    lierne_recorder *r = join(&j, 1, 77, 6);
    int64_t now = lierne_recorder_now(r);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        lierne_recorder_add(r, &(lierne_entry){.kind = (int)entries[i].kind,
                                               .what = LIERNE_OPERATION_BROADCAST,
                                               .plan = entries[i].index,
                                               .time = now});
    }
    char *text = find(&hang, &j);
    cr_assert(hang.kind == LIERNE_HANG_FAILED && hang.rank == 1, "%s", text);
    cr_assert(strstr(text, "rank 1: in no call; in operation 1 of a run, broadcast, for 0.000 s\n"),
              "%s", text);
    lierne_text_destroy(text);
    close_job(&j);
}

/* A call of a plan at its place among those of the rank, which ends unless it waits for a peer. */
static void call_in_order(const lierne_recorder *r, int place, int plan, int peer) {
    lierne_recorder_add(r,
                        &(lierne_entry){.kind = LIERNE_RECORD_CALL, .plan = plan, .peer = place});
    lierne_recorder_add(r,
                        &(lierne_entry){.kind = peer < 0 ? LIERNE_RECORD_END : LIERNE_RECORD_WAIT,
                                        .plan = plan,
                                        .peer = peer});
}

Test(hang_report, the_call_that_ended_last_is_named) {
    job j;
    lierne_hang hang;
    open_job(&j);
    wait_for(join(&j, 0, 77, 5), 1);
    call_in_order(join(&j, 1, 77, 6), 0, 4, -1);
    char *text = find(&hang, &j);
    cr_assert(strstr(text, "rank 1: in no call; ended 0."), "%s", text);
    lierne_text_destroy(text);
    close_job(&j);
}

/* A rank waits for another one in a call, which waits for rank 2 in a call that rank 2 has not
 * begun. */
static void follow(int first) {
    job j;
    lierne_hang hang;
    open_job(&j);
    for (int r = 0; r < RANKS; r++) {
        const lierne_recorder_spec spec = {.rank = r,
                                           .world = RANKS,
                                           .members = RANKS,
                                           .capacity = 64,
                                           .process = (uint64_t)(5 + r)};
        assert_ok(lierne_recorder_open(&j.recorders[j.n], &spec));
        lierne_recorder_meet(&j.recorders[j.n++], 77, lierne_recorder_calendar());
    }
    call_in_order(&j.recorders[first], 0, 3, 1 - first);
    call_in_order(&j.recorders[1 - first], 0, 4, 2);
    char *text = find(&hang, &j);
    cr_assert(hang.kind == LIERNE_HANG_MISSING && hang.rank == 2 && hang.waiting == 1 - first, "%s",
              text);
    lierne_text_destroy(text);
    close_job(&j);
}

Test(hang_report, who_is_waited_for_is_followed) {
    follow(0);
    follow(1);
}

/* A rank that has ended the call that another one waits in is not missing. */
Test(hang_report, a_rank_that_has_ended_the_call_is_not_missing) {
    job j;
    lierne_hang hang;
    open_job(&j);
    wait_for(join(&j, 0, 77, 5), 1);
    call_in_order(join(&j, 1, 77, 6), 0, 3, -1);
    char *text = find(&hang, &j);
    cr_assert(hang.kind == LIERNE_HANG_SILENT, "%s", text);
    lierne_text_destroy(text);
    close_job(&j);
}

/* Both ranks wait for each other in one call, and the calls before it differ, the first or the
 * second of the rank. A control message after it has no place among the calls. */
static void check_difference(int place) {
    job j;
    lierne_hang hang;
    open_job(&j);
    for (int r = 0; r < 2; r++) {
        const lierne_recorder *own = join(&j, r, 77, (uint64_t)(5 + r));
        for (int i = 0; i < place; i++) {
            call_in_order(own, i, 8, -1);
        }
        call_in_order(own, place, 3 + r, -1);
        call_in_order(own, place + 1, 5, 1 - r);
        lierne_recorder_add(own, &(lierne_entry){.kind = LIERNE_RECORD_CONTROL, .number = 1});
        lierne_recorder_add(own, &(lierne_entry){.kind = LIERNE_RECORD_CONTROLLED, .number = 1});
    }
    char *text = find(&hang, &j);
    cr_assert(hang.kind == LIERNE_HANG_MISMATCH && hang.rank == 1 && hang.place == place, "%s",
              text);
    cr_assert(strstr(text, "\nfirst difference: forward 0 of plan 4 on rank 1, forward 0 of plan 3 "
                           "on rank 0\n"),
              "%s", text);
    for (int r = 0; r < 2; r++) {
        char line[64];
        snprintf(line, sizeof line, "\nrank %d: in forward 0 of plan 5, stage 0 of 0", r);
        cr_assert(strstr(text, line), "%s", text);
    }
    lierne_text_destroy(text);
    close_job(&j);
}

Test(hang_report, a_difference_in_the_first_call_is_named) {
    check_difference(0);
}

Test(hang_report, a_difference_in_the_second_call_is_named) {
    check_difference(1);
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) {
        n++;
    }
    return n;
}

/* Of 70 ranks only the first has a dump; 64 are described. */
Test(hang_report, ranks_beyond_64_are_counted) {
    const lierne_recorder_spec spec = {.world = 70, .members = 70, .capacity = 64, .process = 5};
    job j;
    lierne_hang hang;
    open_job(&j);
    assert_ok(lierne_recorder_open(&j.recorders[j.n++], &spec));
    lierne_recorder_meet(&j.recorders[0], 77, lierne_recorder_calendar());
    wait_for(&j.recorders[0], 1);
    char *text = find(&hang, &j);
    cr_assert(hang.kind == LIERNE_HANG_ABSENT && hang.rank == 1, "%s", text);
    cr_assert(count(text, ": no dump\n") == 63 && strstr(text, "and 6 more ranks\n"), "%s", text);
    lierne_text_destroy(text);
    close_job(&j);
}

/* Two contexts whose ranks 1 and 0 are missing: of one job, or the first of a job that has ended.
 */
static char *find_two(lierne_hang *hang, job *j, bool ended) {
    open_job(j);
    wait_for(join(j, 0, 77, 5), 1);
    join(j, 1, 77, 6);
    usleep(ended ? 150000 : 20000);
    if (ended) {
        lierne_recorder_die(&j->recorders[0], LIERNE_ERR_TIMEOUT, "in vain");
        lierne_recorder_close(&j->recorders[0]);
        lierne_recorder_close(&j->recorders[1]);
        usleep(20000);
    }
    wait_for(join(j, 1, 78, ended ? 9 : 6), 0);
    join(j, 0, 78, ended ? 8 : 5);
    return find(hang, j);
}

Test(hang_report, other_contexts_and_jobs_in_the_folder_are_told) {
    for (int jobs = 1; jobs <= 2; jobs++) {
        job j;
        lierne_hang hang;
        char *text = find_two(&hang, &j, jobs == 2);
        cr_assert(hang.rank == 1 && hang.waiting == 0 && hang.ndumps == 4, "%s", text);
        cr_assert(strstr(text, "\n1 other context hangs, since later\n"), "%s", text);
        cr_assert_eq(strstr(text, "dumps of a later job") != NULL, jobs == 2, "%s", text);
        lierne_text_destroy(text);
        close_job(&j);
    }
}

Test(hang_report, files_without_a_byte_and_the_longest_are_read) {
    lierne_dump dump;
    char path[] = "/tmp/lierne-hang-XXXXXX";
    int file = mkstemp(path);
    assert_error(lierne_dump_read(&dump, path), LIERNE_ERR_INVALID, "does not begin");
    for (int more = 0; more < 2; more++) {
        cr_assert_eq(ftruncate(file, (64 << 20) + more), 0);
        assert_error(lierne_dump_read(&dump, path), LIERNE_ERR_INVALID,
                     more ? "no file of 1 to 67108864 bytes" : "does not begin");
    }
    close(file);
    unlink(path);
}

Test(hang_report, a_process_is_known_by_its_start_in_its_space) {
    uint64_t space, process, start;
    lierne_process_describe(&space, &process, &start);
    cr_assert_eq(lierne_process_find(space, process, start), LIERNE_PROCESS_RUNS);
    cr_assert_eq(lierne_process_find(space, process, start + 1), LIERNE_PROCESS_ENDED);
    cr_assert_eq(lierne_process_find(space + 1, process, start), LIERNE_PROCESS_UNKNOWN);
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    waitpid(child, NULL, 0);
    cr_assert_eq(lierne_process_find(space, (uint64_t)child, 0), LIERNE_PROCESS_ENDED);
}

/* It can read neither its boot nor its start. */
Test(hang_report, a_process_that_may_open_no_file_is_in_no_space) {
    uint64_t space = 1, process, start = 1;
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    lierne_process_describe(&space, &process, &start);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect(space == 0 && start == 0);
    cr_expect_eq(process, (uint64_t)getpid());
}
