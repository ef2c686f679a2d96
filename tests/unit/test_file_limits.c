/* Files that the system does not let grow (ulimit -f): an error, and nothing is left, where the
 * first byte too many would end the process by a signal. Segments: tests/node/refusals.c. */
#include "base/base.h"
#include "runtime/control/abort_flags.h"
#include "runtime/recorder/recorder_file.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Returns the limit before. */
static rlim_t limit_files(rlim_t bytes) {
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return before;
}

Test(file_limits, abort_flags_of_many_ranks) {
    const rlim_t before = limit_files(8 << 10);
    int few = lierne_abort_flags_open(2, 0), many = lierne_abort_flags_open(1000, 0);
    limit_files(before);
    cr_assert(few >= 0 && many == -1, "%d, %d", few, many);
    close(few);
}

Test(file_limits, a_file_may_be_as_long_as_the_limit) {
    FILE *file = tmpfile();
    const rlim_t before = limit_files(8 << 10);
    bool as_long = lierne_file_may_have(8 << 10), longer = lierne_file_may_have((8 << 10) + 1);
    int grown = ftruncate(fileno(file), 8 << 10);
    limit_files(before);
    cr_assert(as_long && !longer && grown == 0, "%d, %d, %d", as_long, longer, grown);
    fclose(file);
}

Test(file_limits, abort_flags_without_memory) {
    int opened = lierne_abort_flags_open(2, 0);
    lierne_mem_fail_at(1);
    cr_expect_null(lierne_abort_flags_map((uint64_t)getpid(), opened, 2, 0, 0));
    lierne_mem_fail_at(0);
    assert_says("no memory for 1 items of ");
    cr_expect_eq(lierne_mem_live(), 0);
    close(opened);
}

static int count_files(const char *folder) {
    DIR *files = opendir(folder);
    int n = 0;
    for (const struct dirent *f; (f = readdir(files));) {
        n += f->d_name[0] != '.';
    }
    closedir(files);
    return n;
}

Test(file_limits, recorder) {
    const lierne_recorder_spec spec = {.world = 2, .members = 2, .capacity = 1000};
    char folder[] = "/tmp/lierne-limit-XXXXXX";
    lierne_recorder r;
    cr_assert(mkdtemp(folder));
    setenv("LIERNE_DUMP_DIR", folder, 1);
    const rlim_t before = limit_files(8 << 10);
    lierne_status status = lierne_recorder_open(&r, &spec);
    limit_files(before);
    unsetenv("LIERNE_DUMP_DIR");
    cr_assert_eq(status, LIERNE_ERR_IO);
    assert_says("File too large");
    cr_assert_eq(count_files(folder), 0, "a file is left");
    rmdir(folder);
}
