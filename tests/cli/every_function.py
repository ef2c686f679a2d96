"""Calls every function of the headers from Python, through binding.py, and checks what it gives.

A function that no test here calls is a failure, so that a binding finds nothing that only C can use.
Usage: every_function.py LIBRARY PREPROCESSED_HEADER
"""
import ctypes
import json
import os
import sys
import tempfile

from binding import bind, check, counts, must

INVALID, BUSY, CONFIG = -1, -62, -11
FORWARD, ADJOINT = 0, 1
F32, F64, BITS16 = 2, 1, 10
P = ctypes.c_void_p


class Recorder:
    """The library, with the names of the functions that were called."""

    def __init__(self, library):
        self.library, self.called = library, set()

    def __getattr__(self, name):
        self.called.add(name)
        return getattr(self.library, name)


L, STRUCTS, KEEP = None, None, []


def ok(status):
    must(L, status)


def array(kind, *values):
    """An array that lives as long as the program."""
    KEEP.append((kind * max(len(values), 1))(*values))
    return KEEP[-1]


def ints(*values):
    return array(ctypes.c_int, *values)


def longs(*values):
    return array(ctypes.c_int64, *values)


def words(*values):
    return array(ctypes.c_char_p, *(value.encode() for value in values))


def struct(kind, /, **fields):
    """A spec with its size; arrays are given as they are."""
    s = STRUCTS["lierne_" + kind]()
    s.size = ctypes.sizeof(s)
    for field, value in fields.items():
        if isinstance(value, (ctypes.Array, ctypes.Structure)):
            KEEP.append(value)
            value = ctypes.addressof(value)
        setattr(s, field, value.value if isinstance(value, P) else value)
    return s


def ref(value):
    return ctypes.byref(value)


def made(function, *arguments):
    out = P()
    ok(function(ref(out), *arguments))
    check(out.value, function.__name__)
    return out


def status_functions():
    check(L.lierne_status_name(-1) == b"LIERNE_ERR_INVALID", "status_name")
    check(len(L.lierne_status_text(-1)) > 20, "status_text")
    check(L.lierne_version().count(b".") == 2, "version")
    check(L.lierne_dtype_size(BITS16) == 2 and L.lierne_dtype_name(F32) == b"f32", "dtypes")
    dtype = ctypes.c_int()
    ok(L.lierne_dtype_parse(ref(dtype), b"bits16"))
    check(dtype.value == BITS16, "dtype_parse")


def make_grid(names=("tp", "cp", "dp"), sizes=(1, 1, 2), world=2):
    spec = struct("grid_spec", ndims=len(names), names=words(*names), sizes=longs(*sizes),
                  world_size=world)
    return made(L.lierne_grid_create, ref(spec))


def grid_functions():
    g = make_grid(sizes=(2, 1, 2), world=4)
    view = struct("view_spec", name=b"expert", ndims=1, names=words("ep"), sizes=longs(4))
    ok(L.lierne_grid_add_view(g, ref(view)))
    check((L.lierne_grid_get_size(g), L.lierne_grid_get_rank_offset(g), L.lierne_grid_get_world_size(g))
          == (4, 0, 4), "a grid's numbers")
    check(L.lierne_grid_get_nviews(g) == 2 and L.lierne_grid_get_view_name(g, 1) == b"expert", "views")
    check(L.lierne_grid_get_ndims(g, None) == 3, "ndims")
    check(L.lierne_grid_get_dim_name(g, None, 2) == b"dp", "dim_name")
    check(L.lierne_grid_get_dim_size(g, None, 2) == L.lierne_grid_find_dim_size(g, None, b"dp") == 2, "size")
    ranks, count, size, rank = ints(0, 0, 0, 0), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    ok(L.lierne_grid_get_members(ranks, 4, ref(count), array(P, g.value), 1))
    check(list(ranks) == [0, 1, 2, 3] and count.value == 4, "members")
    coords = ints(9, 9, 9)
    ok(L.lierne_grid_get_coords(coords, g, None, 3))
    check(list(coords) == [1, 0, 1], "coords")
    ok(L.lierne_grid_get_rank(ref(rank), g, None, coords))
    check(rank.value == 3, "rank")
    for get, wanted in ((L.lierne_grid_get_groups, [0, 2, 1, 3]),
                        (L.lierne_grid_get_groups_ordered, [0, 2, 1, 3])):
        ok(get(ranks, ref(count), ref(size), g, None, words("dp"), 1))
        check(list(ranks) == wanted and (count.value, size.value) == (2, 2), get.__name__)
    text, needed = ctypes.create_string_buffer(16), ctypes.c_size_t()
    ok(L.lierne_grid_get_key(text, 16, ref(needed), g, None, words("tp", "dp"), 2))
    check(text.value == b"dp-tp" and needed.value == 6, "key")
    L.lierne_grid_destroy(g)


def context_functions():
    context = made(L.lierne_context_create_self, None)
    check((L.lierne_context_get_rank(context), L.lierne_context_get_world_size(context)) == (0, 1), "rank")
    check((L.lierne_context_get_nmembers(context), L.lierne_context_get_member(context, 0),
           L.lierne_context_find_member(context, 5)) == (1, 0, -1), "members of a context")
    check(L.lierne_context_get_ngroups(context) == 0 and L.lierne_context_get_max_groups(context) == 64, "groups")
    check(L.lierne_context_get_timeout(context) > 0 > L.lierne_context_get_timeout(None), "a timeout")
    ok(L.lierne_context_progress(context))
    ok(L.lierne_context_get_status(context))
    text = ctypes.create_string_buffer(4096)
    ok(L.lierne_context_dump(text, 4096, context))
    check(b"rank 0 of 1" in text.value, "dump")
    count = ctypes.c_size_t(9)
    ok(L.lierne_context_get_borrowed(None, 0, ref(count), context))
    check(count.value == 0, "borrowed")
    spec = struct("group_spec", purpose=b"test", ngroups=1, group_size=1, ranks=ints(0))
    group, several = made(L.lierne_group_create, context, ref(spec)), array(P, None)
    ok(L.lierne_group_create_all(several, context, array(P, ctypes.addressof(spec)), 1))
    check((L.lierne_group_get_size(group), L.lierne_group_get_rank(group), L.lierne_group_get_uid(group),
           L.lierne_group_get_priority(group)) == (1, 0, 1, 0), "a group's numbers")
    check(L.lierne_group_get_purpose(group) == b"test" and L.lierne_group_get_ranks(group), "purpose")
    ok(L.lierne_group_destroy(group))
    check(L.lierne_context_destroy(context) == INVALID, "under a group")
    spec = struct("window_spec", bytes=100)
    window = made(L.lierne_window_create, context, ref(spec))
    check((L.lierne_window_get_size(window), L.lierne_window_get_rank(window), L.lierne_window_get_bytes(window))
          == (1, 0, 100) and L.lierne_window_get_ranks(window), "a window's numbers")
    ctypes.memmove(L.lierne_window_get_writable(window, 0), b"round 1", 7)
    ok(L.lierne_window_notify(window, None))
    ok(L.lierne_window_wait(window, None))
    check(ctypes.string_at(L.lierne_window_get_readable(window, 0), 7) == b"round 1", "a round of a window")
    ok(L.lierne_window_destroy(window))
    memory = made(L.lierne_context_alloc, context, ctypes.c_size_t(100))
    check(ctypes.string_at(memory.value, 100) == bytes(100) and memory.value % 4096 == 0, "alloc")
    ok(L.lierne_context_dealloc(context, memory))
    check(L.lierne_context_dealloc(context, memory) == INVALID, "dealloc twice")
    ok(L.lierne_context_abort(context, INVALID, b"no more"))
    check(L.lierne_context_get_status(context) == INVALID, "status of a dead context")
    check(L.lierne_context_progress(context) == INVALID and b"no more" in L.lierne_last_error(), "abort")
    ok(L.lierne_context_destroy_all(context))
    ok(L.lierne_context_destroy(made(L.lierne_context_create_self, None)))


def layout_functions():
    g = make_grid()
    placements = (STRUCTS["lierne_placement"] * 3)()
    placements[2].kind = 1
    spec = struct("layout_spec", grid=g, naxes=2, shape=longs(4, 3), dtype=F32, placements=placements)
    layout, shape, stored, owned = made(L.lierne_layout_create, ref(spec)), longs(0, 0), longs(0), longs(0)
    ok(L.lierne_layout_get_shape(shape, layout, 1))
    ok(L.lierne_layout_get_elements(stored, owned, layout, 1))
    check(list(shape) == [2, 3] and stored[0] == owned[0] == 6, "a layout's shape")
    boxes, count = (STRUCTS["lierne_box"] * 1)(), ctypes.c_size_t()
    ok(L.lierne_layout_get_boxes(boxes, 1, ref(count), layout, 1))
    check(count.value == 1 and boxes[0].start[0] == 2, "boxes")
    route, least = P(), longs(0)
    ok(L.lierne_route_create_redistribute(ref(route), least, layout, layout, 0, None))
    L.lierne_route_destroy(route)
    sides = array(P, layout.value)
    tensors = struct("set_spec", ntensors=1, src=sides, dst=sides)
    ok(L.lierne_route_create_set(ref(route), least, ref(tensors), 0))
    check(least[0] == 0, "a set that stays where it is")
    L.lierne_route_destroy(route)
    received, sent = longs(9), longs(9)
    ok(L.lierne_redistribute_get_bound(received, sent, layout, layout))
    check(received[0] == 0 and sent[0] == 0, "bound")
    crossing = struct("node_bound", between_bytes=9)
    ok(L.lierne_redistribute_get_node_bound(ref(crossing), layout, layout, ints(0, 1)))
    check(crossing.between_bytes == 0 and crossing.sent_bytes == 0, "bound of nodes")
    digest, numbers = ctypes.c_uint64(), struct("digest_spec", layout=layout, rank=1)
    ok(L.lierne_digest_compute(ref(digest), stored, ref(numbers), (ctypes.c_float * 6)(1, 2, 3)))
    check(digest.value != 0 and stored[0] == 6, "digest")
    context = made(L.lierne_context_create_self, None)
    ok(L.lierne_digest_check(context, ref(struct("digest_check_spec")), None, None))
    ok(L.lierne_context_destroy(context))
    L.lierne_layout_destroy(layout)
    L.lierne_grid_destroy(g)


def ask_plan(plan, context, kind, n):
    dtype, out, offset = ctypes.c_int(), longs(0), longs(0)
    check(L.lierne_plan_get_context(plan) == context, "plan_get_context")
    check(L.lierne_plan_get_kind(plan) == kind and L.lierne_plan_get_memory_kind(plan) == b"host", "kind")
    check(L.lierne_plan_get_number(plan) >= 0 > L.lierne_plan_get_number(None), "a number")
    ok(L.lierne_plan_get_dtype(ref(dtype), plan))
    ok(L.lierne_plan_get_elements(None, out, plan, FORWARD))
    check(dtype.value == F32 and out[0] == n, "dtype and elements")
    naxes, shape = ctypes.c_int(), longs(0, 0, 0, 0)
    ok(L.lierne_plan_get_shape(ref(naxes), None, shape, plan, FORWARD))
    check(naxes.value >= 2 and shape[0] > 0, "shape")
    ok(L.lierne_plan_get_alias(offset, plan, FORWARD))
    report = struct("report")
    ok(L.lierne_plan_get_report(ref(report), plan, FORWARD))
    check(report.algorithm is not None, "report")
    route, text = P(), P()
    ok(L.lierne_plan_get_route(ref(route), plan, FORWARD))
    ok(L.lierne_plan_print(ref(text), plan, FORWARD))
    check(route.value and b"rank 0" in ctypes.string_at(text), "print")
    L.lierne_text_destroy(ctypes.cast(text, ctypes.c_char_p))
    ok(L.lierne_plan_check(array(P, plan.value), 1))


def bridge_functions():
    """A world of two that one thread serves: dp2 to cp2."""
    sim = P()
    ok(L.lierne_sim_create(ref(sim), 2, None))
    src, dst = make_grid(sizes=(1, 1, 2)), make_grid(sizes=(1, 2, 1))
    spec = struct("bridge_spec", src=src, dst=dst, naxes=3, shape=longs(2, 2, 3), dtype=F32, sequence_axis=1)
    ok(L.lierne_bridge_check(ref(spec)))
    ok(L.lierne_bridge_check_grids(ref(spec)))
    layouts = [P(), P(), P()]
    ok(L.lierne_layout_create_bridge(*(ref(x) for x in layouts), ref(spec)))
    redistribution = struct("redistribute_spec", src=layouts[0], dst=layouts[1])
    variable = struct("bridge_spec", src=src, dst=dst, naxes=3, shape=longs(2, 2, 3), dtype=F32,
                      sequence_axis=1, variable_rows=1)
    mapped = struct("bridge_spec", src=src, dst=dst, naxes=3, shape=longs(2, 2, 3), dtype=F32,
                    sequence_axis=1, gradient_owner=3, row_owner=array(ctypes.c_int32, 0, 1, 1, 0))
    contexts = [L.lierne_sim_get_context(sim, rank) for rank in range(2)]
    plans = [[made(L.lierne_plan_create_bridge, context, ref(spec)) for context in contexts]]
    plans.append([made(L.lierne_plan_create_redistribute, c, ref(redistribution)) for c in contexts])
    tensors = struct("set_spec", ntensors=2, src=array(P, layouts[0].value, layouts[0].value),
                     dst=array(P, layouts[1].value, layouts[1].value), dst_offsets=longs(0, 20))
    plans.append([made(L.lierne_plan_create_transposed, plan) for plan in plans[1]])
    plans.append([made(L.lierne_plan_create_composed, a, b) for a, b in zip(plans[1], plans[2])])
    plans.append([made(L.lierne_plan_create_bridge, context, ref(mapped)) for context in contexts])
    plans.append([made(L.lierne_plan_create_set, context, ref(tensors)) for context in contexts])
    for layout in layouts:
        L.lierne_layout_destroy(layout)
    ask_plan(plans[0][0], contexts[0], b"bridge", 12)
    spec.shared_output = 1  # of forward; in one process the memory is the plan's own
    shared, output = [made(L.lierne_plan_create_bridge, context, ref(spec)) for context in contexts], P(1)
    ok(L.lierne_plan_get_shared_output(ref(output), shared[0], FORWARD))
    check(not output.value, "shared_output before the first call")
    for plan in shared:
        ok(L.lierne_plan_destroy(plan))
    for plan in plans[4]:
        ok(L.lierne_plan_update_rows(plan, array(ctypes.c_int32, 1, 1, 0, 0)))
    for plan in plans[0]:
        ok(L.lierne_plan_update_shape(plan, longs(4, 2, 3)))
    x = [array(ctypes.c_float, *(100 * rank + i for i in range(12))) for rank in range(2)]
    y, back = [array(ctypes.c_float, *[-1] * 24) for _ in range(2)], array(ctypes.c_float, *[-1] * 12)
    requests, done = [P(), P()], ctypes.c_int()
    for rank in range(2):
        ok(L.lierne_plan_forward_begin(ref(requests[rank]), plans[0][rank], y[rank], x[rank], None))
    while not done.value:
        ok(L.lierne_request_test(ref(done), requests[0]))
    for request in requests:
        ok(L.lierne_request_end(request))
    check(list(y[0]) == list(x[0]) + list(x[1]) == list(y[1]), "the forward of the new shape")
    for rank in range(2):
        ok(L.lierne_plan_adjoint_begin(ref(requests[rank]), plans[0][rank], back, y[rank], None))
    for request in requests:
        ok(L.lierne_request_end(request))
    both = [made(L.lierne_coalesced_create, array(P, plans[1][r].value, plans[3][r].value), 2) for r in range(2)]
    sent, received = longs(0), longs(0)
    ok(L.lierne_coalesced_get_messages(sent, received, both[0], FORWARD))
    check(sent[0] == received[0] == 1, "coalesced messages")
    for r in range(2):
        outs = [array(ctypes.c_float, *[-1] * 12) for _ in range(2)]
        ok(L.lierne_coalesced_begin(both[r], FORWARD, array(P, *(ctypes.addressof(o) for o in outs)),
                                    array(P, *[ctypes.addressof(x[r])] * 2), None))
    for r in range(2):
        ok(L.lierne_coalesced_end(both[r], FORWARD))
        ok(L.lierne_coalesced_destroy(both[r]))
        ok(L.lierne_plan_destroy(plans[2][r]))
    check(L.lierne_sim_destroy(sim) == INVALID, "under its plans")
    ok(L.lierne_sim_destroy_all(sim))
    context, one = made(L.lierne_context_create_self, None), make_grid(sizes=(1, 1, 1), world=1)
    variable.src = variable.dst = one.value
    plan = made(L.lierne_plan_create_bridge, context, ref(variable))
    ok(L.lierne_plan_update_counts(plan, longs(1, 2)))
    ok(L.lierne_plan_forward(plan, y[0], x[0], None))
    check(list(y[0])[:9] == list(x[0])[:9], "rows of the step")
    ok(L.lierne_context_destroy_all(context))
    for g in (src, dst, one):
        L.lierne_grid_destroy(g)


def megatron_functions():
    sim = made(L.lierne_sim_create, 2, None)
    src, dst = make_grid(sizes=(1, 1, 2)), make_grid(sizes=(2, 1, 1))
    bridge = struct("bridge_spec", src=src, dst=dst, naxes=2, shape=longs(4, 3), dtype=F32, sequence_axis=-1)
    spec = struct("megatron_spec", algorithm=1, bridge=bridge)
    ok(L.lierne_megatron_check(ref(spec)))
    for rank in range(2):
        made(L.lierne_plan_create_megatron, L.lierne_sim_get_context(sim, rank), ref(spec))
    ok(L.lierne_sim_destroy_all(sim))
    m = made(L.lierne_megatron_map_create, ref(bridge))
    ranks, n, size = P(), ctypes.c_int(), ctypes.c_int()
    check(L.lierne_megatron_map_get_kind(m) == 1 and L.lierne_megatron_kind_name(1) == b"fan_in", "kind")
    check(L.lierne_megatron_map_get_dp_ratio(m) == 2, "ratio")
    check(L.lierne_megatron_map_get_rejection_code(m) == 0 and not L.lierne_megatron_map_get_rejection(m), "why")
    ok(L.lierne_megatron_map_get_gather_groups(ref(ranks), ref(n), ref(size), m))
    check((n.value, size.value) == (1, 2), "gather groups")
    ok(L.lierne_megatron_map_get_cp_groups(ref(ranks), ref(n), ref(size), m))
    start, length = longs(0), longs(0)
    ok(L.lierne_megatron_map_get_slice(start, length, m, 1, 4))
    check((start[0], length[0]) == (2, 2), "slice")
    ok(L.lierne_megatron_map_get_misaligned(ref(ranks), ref(n), m))
    L.lierne_megatron_map_destroy(m)
    leaders = made(L.lierne_megatron_leaders_create, ref(bridge))
    ok(L.lierne_megatron_leaders_get_ranks(ref(ranks), ref(n), leaders, 0))
    check(n.value == 2, "leaders")
    ok(L.lierne_megatron_leaders_get_groups(ref(ranks), ref(n), ref(size), leaders, 0))
    ok(L.lierne_megatron_leaders_get_p2p_ranks(ref(ranks), ref(n), leaders))
    ok(L.lierne_megatron_leaders_get_peers(ref(ranks), ref(n), ref(P()), ref(size), leaders, 1))
    L.lierne_megatron_leaders_destroy(leaders)
    L.lierne_grid_destroy(src), L.lierne_grid_destroy(dst)


def row_functions():
    context = made(L.lierne_context_create_self, None)
    owner = array(ctypes.c_int32, 9, 9, 9)
    ok(L.lierne_partition_split(owner, 3, 1))
    points, codes = array(ctypes.c_double, *range(9)), array(ctypes.c_uint32, 9, 9, 9)
    ok(L.lierne_partition_morton(owner, points, F64, 3, 1))
    ok(L.lierne_partition_morton_codes(codes, points, F64, 3))
    check(list(owner) == [0, 0, 0] and list(codes) == sorted(codes), "partitions")
    spec = struct("graph_spec", nrows=3, owner=owner, nedges=1, source=longs(2), target=longs(1),
                  dtype=F32, width=1)
    plan, lists = made(L.lierne_plan_create_graph, context, ref(spec)), struct("graph_lists")
    ok(L.lierne_plan_update_graph(plan, ref(spec)))
    ok(L.lierne_plan_get_graph_lists(ref(lists), plan))
    check((lists.nowned, lists.nghosts, lists.nedges) == (3, 0, 1), "lists")
    pairs = struct("references_spec", nowned=3, nghosts=2, rank=array(ctypes.c_int32, 0, 0),
                   row=longs(2, 0), dtype=F32, width=1)
    plan, text = made(L.lierne_plan_create_references, context, ref(pairs)), P()
    ok(L.lierne_plan_serialize(ref(text), plan))
    length = len(ctypes.string_at(text))
    again = made(L.lierne_plan_deserialize, context, ctypes.cast(text, ctypes.c_char_p), length)
    L.lierne_text_destroy(ctypes.cast(text, ctypes.c_char_p))
    out, held = array(ctypes.c_float, 0, 0), array(ctypes.c_float, 1, 2, 3)
    ok(L.lierne_plan_forward(again, out, held, None))
    check(list(out) == [3, 1], "a plan from its text")
    ok(L.lierne_plan_reduce(plan, 1, held, array(ctypes.c_float, 7, 0), None))
    check(list(held) == [1, 2, 7], "the maximum")
    ok(L.lierne_plan_adjoint(plan, held, array(ctypes.c_float, 4, 5), None))
    check(list(held) == [5, 0, 4], "the adjoint")
    halo_functions(context)
    ok(L.lierne_context_destroy_all(context))


def collective_functions():
    context, x = made(L.lierne_context_create_self, None), array(ctypes.c_float, 3, -5)
    for kind in "all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all":
        spec = struct(kind + "_spec", count=2, dtype=F32)
        plan, y = made(getattr(L, "lierne_plan_create_" + kind), context, ref(spec)), array(ctypes.c_float, 7, 7)
        ok(L.lierne_plan_forward(plan, y, x, None))
        check(list(y) == [3, -5] and L.lierne_plan_get_kind(plan) == kind.encode(), kind)
    ok(L.lierne_plan_forward(made(L.lierne_plan_create_barrier, context, ref(struct("barrier_spec"))), None, None, None))
    ok(L.lierne_context_destroy_all(context))


def schedule_functions():
    context, schedule = made(L.lierne_context_create_self, None), made(L.lierne_schedule_create, 0)
    index, spec = ctypes.c_int(9), struct("schedule_group_spec", name=b"g", uid=4, ranks=ints(0), nranks=1)
    ok(L.lierne_schedule_add_group(ref(index), schedule, ref(spec)))
    plan = made(L.lierne_plan_create_all_to_all, context, ref(struct("all_to_all_spec", count=2, dtype=F32)))
    for kind, to in (3, plan.value), (9, None):
        spec = struct("operation_spec", kind=kind, group=0, tag=b"ep", plan=to, held=kind == 9)
        ok(L.lierne_schedule_add_operation(ref(index), schedule, ref(spec)))
    ok(L.lierne_schedule_freeze(schedule))
    isolated = made(L.lierne_schedule_isolate, schedule, ref(struct("isolation_spec", purpose=b"ep", kinds=8, singletons=1)))
    check((L.lierne_schedule_get_rank(isolated), L.lierne_schedule_get_ngroups(isolated),
           L.lierne_schedule_get_noperations(isolated)) == (0, 2, 2), "numbers of a schedule")
    group, operation = struct("schedule_group"), struct("operation_spec")
    ok(L.lierne_schedule_get_group(ref(group), isolated, 1))
    ok(L.lierne_schedule_get_operation(ref(operation), isolated, 0))
    check(group.source == 4 and operation.group == 1, "isolated")
    order, cycle = struct("schedule_order"), ctypes.create_string_buffer(b"x", 9)
    ok(L.lierne_schedule_check(ref(order), cycle, 9, array(P, isolated.value), 1))
    check((order.safe_serialised, order.ncreated, cycle.value) == (1, 1, b""), "order")
    text, several, count = P(), P(), ctypes.c_int()
    ok(L.lierne_schedule_serialize(ref(text), isolated))
    ok(L.lierne_schedule_deserialize(ref(several), ref(count), ctypes.cast(text, ctypes.c_char_p),
                                      len(ctypes.string_at(text))))
    L.lierne_schedule_destroy_all(several, count)
    L.lierne_text_destroy(ctypes.cast(text, ctypes.c_char_p))
    run, done, event = made(L.lierne_run_create, context, isolated, None), ctypes.c_int(), struct("run_event")
    x, y = array(ctypes.c_float, 3, -5), array(ctypes.c_float, 7, 7)
    ok(L.lierne_run_begin(run, array(P, ctypes.addressof(y), None), array(P, ctypes.addressof(x), None)))
    ok(L.lierne_run_test(ref(done), run))
    check(done.value == 0, "a held operation is complete")
    ok(L.lierne_run_resume(run, 1))
    ok(L.lierne_run_end(run))
    check(list(y) == [3, -5], "a run")
    ok(L.lierne_run_get_event(ref(event), run, 1))
    check(event.ended >= event.resumed >= event.begun > 0, "an event")
    ok(L.lierne_run_get_trace(ref(text), run))
    check(b"all_to_all ep" in ctypes.string_at(text), "a trace")
    L.lierne_text_destroy(ctypes.cast(text, ctypes.c_char_p))
    check(L.lierne_run_get_ncreated(run) == 1, "created groups")
    ok(L.lierne_run_get_created(ref(group), run, 0))
    check((group.source, group.uid, group.nranks) == (4, 1, 1), "a created group")
    ok(L.lierne_run_destroy(run))
    for made_schedule in schedule, isolated:
        L.lierne_schedule_destroy(made_schedule)
    ok(L.lierne_context_destroy_all(context))


def said(function, argument):
    """The JSON that a function writes about its argument."""
    text = P()
    ok(function(ref(text), argument))
    read = json.loads(ctypes.string_at(text))
    L.lierne_text_destroy(ctypes.cast(text, ctypes.c_char_p))
    return read


def hang_functions():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LIERNE_DUMP_DIR"] = folder
        context = made(L.lierne_context_create_self, None)
        del os.environ["LIERNE_DUMP_DIR"]
        status, recorded = said(L.lierne_context_get_status_json, context), said(L.lierne_context_get_recorder_json, context)
        check((status["state"], status["in_flight"], recorded["state"]) == ("open", [], "open"), "a status")
        plan = made(L.lierne_plan_create_all_to_all, context, ref(struct("all_to_all_spec", count=1, dtype=F32)))
        x, y, text = array(ctypes.c_float, 3), array(ctypes.c_float, 0), P()
        ok(L.lierne_plan_forward(plan, y, x, None))
        ok(L.lierne_context_get_trace(ref(text), context))
        check(b'"forward 0 of plan 0"' in ctypes.string_at(text), "a trace of calls")
        L.lierne_text_destroy(ctypes.cast(text, ctypes.c_char_p))
        ok(L.lierne_context_destroy_all(context))
        [name] = os.listdir(folder)
        check(said(L.lierne_recorder_file_get_json, os.path.join(folder, name).encode())["state"] == "destroyed", "a dump")
        hang = struct("hang")
        ok(L.lierne_hang_find(ref(hang), ref(text), folder.encode()))
        check((hang.kind, hang.rank, hang.ndumps) == (0, -1, 1), "no hang")
        L.lierne_text_destroy(ctypes.cast(text, ctypes.c_char_p))


def halo_functions(context):
    brick = struct("brick_spec", grid=(1, 1, 1), box=(1.0, 1.0, 1.0),
                   periodic=(1, 1, 1), cutoff=0.25, nlocal=1, positions=array(ctypes.c_double, 0.1, 0.5, 0.5))
    made_brick, spec = made(L.lierne_brick_create, context, ref(brick)), struct("halo_spec", dtype=F32, width=1)
    ok(L.lierne_brick_get_swaps(ref(spec), made_brick))
    check(spec.nswap == 6 and spec.nghost == 1, f"swaps {spec.nswap}, ghosts {spec.nghost}")
    ghosts = ctypes.cast(L.lierne_brick_get_ghosts(made_brick), ctypes.POINTER(ctypes.c_double))
    check(abs(ghosts[0] - 1.1) < 1e-12, "the image")
    plan, back = made(L.lierne_plan_create_halo, context, ref(spec)), struct("halo_spec")
    ok(L.lierne_plan_get_halo_spec(ref(back), plan))
    check(back.nswap == 6, "halo_spec")
    rank, row = array(ctypes.c_int32, 9), longs(9)
    ok(L.lierne_plan_get_halo_roots(rank, row, plan))
    check(rank[0] == row[0] == 0, "roots")
    made(L.lierne_plan_create_restricted, plan, array(ctypes.c_uint8, 1, 1))
    made(L.lierne_plan_create_flattened, plan, 0)
    L.lierne_brick_destroy(made_brick)


CONFIG_TEXT = b"""{"world_size": 2, "nodes": 1,
 "grids": {"a": {"order": ["tp", "dp"], "shape": {"tp": 1, "dp": 2}},
           "b": {"order": ["tp", "dp"], "shape": {"tp": 2, "dp": 1}}},
 "bridges": [{"name": "x", "src": "a", "dst": "b", "algorithm": "collective", "batch": "b",
   "tensor": {"axes": ["b", "h"], "shape": {"b": 4, "h": 3}, "dtype": "f32"}}]}"""


def config_functions():
    config = P()
    check(L.lierne_config_parse(ref(config), b'{"world_size": 0}', 17) == CONFIG, "a bad file")
    check(L.lierne_config_get_ndiagnostics(config) > 0, "diagnostics")
    found = ctypes.cast(L.lierne_config_get_diagnostic(config, 0),
                        ctypes.POINTER(STRUCTS["lierne_diagnostic"]))[0]
    check(found.line == 1 and found.code, "a diagnostic")
    L.lierne_config_destroy(config)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(CONFIG_TEXT)
        file.flush()
        status = L.lierne_config_read(ref(config), file.name.encode())
    check(status == 0, f"{status}: {L.lierne_last_error()}")
    check(L.lierne_config_get_world_size(config) == 2 and L.lierne_config_get_ngrids(config) == 2, "grids")
    check(L.lierne_config_get_grid_name(config, 0) == b"a" and L.lierne_config_get_grid(config, b"a"), "a grid")
    check(L.lierne_config_get_nbridges(config) == 1 and L.lierne_config_get_bridge_name(config, 0) == b"x", "bridges")
    check(L.lierne_config_get_bridge(config, b"x") and L.lierne_config_get_megatron(config, b"x"), "specs")
    check((L.lierne_config_get_bridge_src(config, b"x"), L.lierne_config_get_bridge_dst(config, b"x"),
           L.lierne_config_get_bridge_axis(config, b"x", 1)) == (b"a", b"b", b"h"), "names")
    check(L.lierne_config_get_nodes(config), "nodes")
    check(not L.lierne_config_get_links(config), "links")
    L.lierne_config_destroy(config)


def main():
    global L, STRUCTS
    library, STRUCTS = bind(*sys.argv[1:])
    names = {name for name in vars(library) if name.startswith("lierne_")}
    check(len(names) > 130, f"{len(names)} functions")
    L = Recorder(library)
    for test in (status_functions, grid_functions, context_functions, layout_functions, bridge_functions,
                 megatron_functions, row_functions, collective_functions, schedule_functions, hang_functions,
                 config_functions):
        test()
    for name in sorted(names - L.called):
        check(False, f"{name} is called nowhere")
    print(f"{counts[True]} passed, {counts[False]} failed")
    return counts[False] != 0


if __name__ == "__main__":
    sys.exit(main())
