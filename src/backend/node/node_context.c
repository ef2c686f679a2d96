/* lierne_context_create_node: joins the ranks of a node, then opens a context over the connections
 * as over the functions of a caller. */
#include "backend/node/mesh.h"
#include "backend/oob/oob_context.h"
#include "lierne/node.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 200 /* as in lierne/node.h */

static lierne_status check_spec(const lierne_node_spec *spec) {
    size_t length = spec->name ? strnlen(spec->name, NAME_BYTES + 1) : 0;
    if (spec->world < 0 || (spec->world == 0 && spec->rank != 0)) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "rank is %d and world is %d: world must be at least 1, or both 0 for the "
            "launcher's variables",
            spec->rank, spec->world);
    }
    if ((spec->name || spec->world > 0) && (length == 0 || length > NAME_BYTES)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "name is %s, must have 1 to %d bytes where world is set",
                           !spec->name ? "NULL"
                           : length    ? "longer"
                                       : "empty",
                           NAME_BYTES);
    }
    return LIERNE_OK;
}

/* Rank, world and name, from the spec or the launcher. */
static lierne_status find_job(lierne_launch *job, const lierne_node_spec *spec) {
    if (spec->world > 0) {
        job->rank = spec->rank;
        job->world = spec->world;
        snprintf(job->name, sizeof job->name, "%s", spec->name);
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_launch_find(job));
    if (spec->name) {
        size_t used = strlen(job->name), size = sizeof job->name;
        used = used > size - NAME_BYTES - 2 ? size - NAME_BYTES - 2 : used;
        snprintf(job->name + used, size - used, "/%s", spec->name);
    }
    return LIERNE_OK;
}

static lierne_status check_job(const lierne_launch *job) {
    if (job->world < 1 || job->rank < 0 || job->rank >= job->world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank is %d of a world of %d, must be 0 to %d",
                           job->rank, job->world, job->world - 1);
    }
    return LIERNE_OK;
}

/* The place among the members, and a key that differs for other members of the same job. */
static lierne_status find_place(int *index, int *count, uint64_t *key, const lierne_launch *job,
                                const lierne_context_spec *spec) {
    *index = job->rank;
    *count = job->world;
    *key = lierne_hash(0, job->name, strlen(job->name));
    if (spec->members && spec->nmembers > 0) {
        lierne_members members = {job->world, spec->nmembers, (int *)spec->members};
        *index = lierne_members_search(&members, job->rank);
        *count = spec->nmembers;
        *key = lierne_hash(*key, members.ranks, (size_t)members.count * sizeof *members.ranks);
    }
    if (*count < job->world && spec->world_size != job->world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "spec->context->world_size is %d, must be %d, the ranks of the job",
                           spec->world_size, job->world);
    }
    if (*index < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank is %d, which is none of the %d in spec->context->members: only "
                           "members call",
                           job->rank, *count);
    }
    if (*count > LIERNE_NODE_MAX_RANKS) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "%d ranks, must be at most %d: every rank has a connection to every other "
            "one; use lierne_context_create_oob or lierne_context_create_mpi",
            *count, LIERNE_NODE_MAX_RANKS);
    }
    return LIERNE_OK;
}

static lierne_status open_mesh(lierne_mesh **out, const lierne_launch *job,
                               const lierne_context_spec *spec, const lierne_node_opening *how) {
    int index, count;
    uint64_t key;
    lierne_mesh *mesh;
    LIERNE_TRY(find_place(&index, &count, &key, job, spec));
    LIERNE_TRY(lierne_mesh_open(&mesh, index, count));
    mesh->lost = how->lost;
    mesh->lost_user = how->user;
    double timeout = how->seconds > 0 ? how->seconds : lierne_context_timeout(spec);
    lierne_status status = how->connect ? how->connect(how->user, mesh->sockets)
                                        : lierne_mesh_join(mesh, job->name, key, timeout);
    if (status != LIERNE_OK) {
        lierne_mesh_close(mesh);
        return status;
    }
    *out = mesh;
    return LIERNE_OK;
}

static lierne_status open_state(lierne_oob_state **out, lierne_mesh *mesh, lierne_status *mine) {
    lierne_oob_state *s;
    LIERNE_TRY(lierne_oob_open(&s, mesh->rank, mesh->world, mine));
    s->calls = lierne_mesh_calls(mesh);
    s->hooks = &lierne_mesh_hooks;
    mesh->members = &s->members;
    *out = s;
    return LIERNE_OK;
}

lierne_status lierne_node_open(lierne_context **out, const lierne_launch *job,
                               const lierne_context_spec *context, lierne_status mine,
                               const lierne_node_opening *how) {
    lierne_mesh *mesh;
    lierne_oob_state *s;
    LIERNE_TRY(open_mesh(&mesh, job, context, how));
    lierne_status status = open_state(&s, mesh, &mine);
    if (status != LIERNE_OK) {
        lierne_mesh_close(mesh);
        return status;
    }
    s->opening = how->seconds;
    return lierne_context_open_oob(out, s, &lierne_socket_transport, context, mine);
}

lierne_status lierne_context_create_node(lierne_context **out, const lierne_node_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    static const lierne_node_spec none = {.size = sizeof none};
    lierne_node_spec spec;
    lierne_context_spec context;
    lierne_launch job;
    LIERNE_TRY(lierne_spec_take(&spec, sizeof spec, given ? given : &none, "spec"));
    LIERNE_TRY(check_spec(&spec));
    LIERNE_TRY(find_job(&job, &spec));
    LIERNE_TRY(check_job(&job));
    lierne_status mine = lierne_context_take_spec(&context, spec.context);
    return lierne_node_open(out, &job, &context, mine, &(lierne_node_opening){0});
}
