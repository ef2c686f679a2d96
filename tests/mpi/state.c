#include "mpi/state.h"

#include "mpi/common.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* Bytes. The address sanitizer keeps what is freed. */
#ifdef __SANITIZE_ADDRESS__
#define GROWTH LONG_MAX
#else
#define GROWTH (1 << 20)
#endif

static int communicators;

static int counted(int code) {
    communicators += code == MPI_SUCCESS;
    return code;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out) {
    return counted(PMPI_Comm_dup(comm, out));
}
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *out, MPI_Request *request) {
    return counted(PMPI_Comm_idup(comm, out, request));
}
int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *out) {
    return counted(PMPI_Comm_dup_with_info(comm, info, out));
}
int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *out) {
    return counted(PMPI_Comm_create(comm, group, out));
}
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *out) {
    return counted(PMPI_Comm_create_group(comm, group, tag, out));
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out) {
    return counted(PMPI_Comm_split(comm, color, key, out));
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out) {
    return counted(PMPI_Comm_split_type(comm, type, key, info, out));
}
int MPI_Comm_free(MPI_Comm *comm) {
    communicators--;
    return PMPI_Comm_free(comm);
}

static int entries(const char *folder) {
    DIR *dir = opendir(folder);
    int n = 0;
    while (dir && readdir(dir)) {
        n++;
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

static long resident(void) { /* bytes */
    long total = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        CHECK(fscanf(file, "%ld %ld", &total, &pages) == 2, "/proc/self/statm");
        fclose(file);
    }
    return pages * sysconf(_SC_PAGESIZE);
}

state state_now(void) {
    return (state){lierne_mem_live(), entries("/proc/self/fd"), entries("/proc/self/task"),
                   communicators, resident()};
}

void state_check(const state *before, const char *what) {
    state now = state_now();
    CHECK(now.allocations == before->allocations, "%s: %zu allocations, before %zu", what,
          now.allocations, before->allocations);
    CHECK(now.files == before->files, "%s: %d files, before %d", what, now.files, before->files);
    CHECK(now.threads == before->threads, "%s: %d threads, before %d", what, now.threads,
          before->threads);
    CHECK(now.communicators == before->communicators, "%s: %d communicators, before %d", what,
          now.communicators, before->communicators);
    CHECK(now.bytes - before->bytes < GROWTH, "%s: %ld bytes resident, before %ld", what, now.bytes,
          before->bytes);
}
