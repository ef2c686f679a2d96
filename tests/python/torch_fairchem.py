"""lierne.torch.fairchem on ranks of torchrun: every name, field and order of fairchem's graph-parallel
all-to-all, against the golden files and by hand. Smaller worlds are subgroups of the four ranks."""
import dataclasses
import sys
import types

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne.torch import fairchem
from lierne.torch.fairchem import (AllToAllCollect, GPContext, PartitionStrategy, all_to_all_collect,
                                   build_gp_context, compute_a2a_partition)
from package_rows import Rows
from report import golden
from torch_harness import contexts, leaf, main, raised, raises, same, test

FIELDS = ["rank", "world_size", "total_local_atoms", "send_indices", "send_counts", "recv_counts",
          "edge_index_local", "send_splits", "recv_splits", "total_recv", "local_edge_idx",
          "remote_edge_idx", "rank_assignments", "symm_plan"]  # of fairchem's newest form


def worlds():
    """(a world's size, the context of this rank in it or None, the rank there), both ways."""
    for members in ([1, 3], [0, 2, 3], [0, 1, 2, 3]):
        for way in ("distributed", "node"):
            if dist.get_rank() in members:
                with lierne.torch.context(over=way, timeout=60, members=members) as context:
                    yield len(members), context, members.index(dist.get_rank())
            dist.barrier()


def golden_case(case, rank):
    """(edges of a rank, owners)"""
    edges, owner = torch.tensor(case["edges"]).reshape(2, -1), torch.tensor(case["assignment"])
    return (edges[:, owner[edges[1]] == rank] if edges.numel() else edges.long()), owner.long()


@test
def the_fields_of_a_context():
    assert [field.name for field in dataclasses.fields(GPContext)] == FIELDS
    assert [(s.name, s.value) for s in PartitionStrategy] == [("INDEX_SPLIT", "index_split"),
                                                              ("SPATIAL", "spatial")]


@test
def golden_contexts():
    cases, seen = golden("graph_a2a")["cases"], 0
    for size, context, rank in worlds():
        for case in (c for c in cases if c["world"] == size):
            edges, owner = golden_case(case, rank)
            made, expect = build_gp_context(edges, owner, rank, size, context=context), case["ranks"][rank]
            assert (made.rank, made.world_size, made.rank_assignments) == (rank, size, owner)
            assert made.total_local_atoms == len(expect["owned"]), case["id"]
            assert (made.send_splits, made.recv_splits) == (expect["send_counts"], expect["recv_counts"])
            assert made.total_recv == sum(expect["recv_counts"]), case["id"]
            for name in ("send_indices", "send_counts", "recv_counts", "local_edge_idx", "remote_edge_idx"):
                assert getattr(made, name).tolist() == expect[name], (case["id"], name)
                assert getattr(made, name).dtype == torch.int64
            assert made.edge_index_local.reshape(2, -1).tolist() == expect["edge_index_local"], case["id"]
            move_golden(case, made, expect)
            symmetric_golden(case, made)
            seen += 1
    assert seen >= 6, seen


def move_golden(case, made, expect):
    """The exchange, the aggregation over it, and both gradients."""
    width, n = golden("graph_a2a")["width"], made.total_local_atoms
    x = leaf(Rows.f(np.array(expect["owned"], np.int64), width))
    ghosts = all_to_all_collect(x, made)
    ghosts.backward(torch.as_tensor(Rows.h(made.rank, made.total_recv, width)))
    same(ghosts.detach(), np.ravel(expect["forward"]), case["id"])
    same(x.grad, np.ravel(expect["backward"]), case["id"])
    x.grad = None
    rows = torch.cat([x, all_to_all_collect(x, made)])[made.edge_index_local[0]]
    sums = torch.zeros_like(x).index_add(0, made.edge_index_local[1], rows)
    sums.backward(torch.as_tensor(Rows.h(7, n, width)))
    same(sums.detach(), np.ravel(expect["agg"]), case["id"])
    same(x.grad, np.ravel(expect["agg_backward"]), case["id"])


def symmetric_golden(case, made):
    """fairchem's symm_halo: its plan, counted by hand, and the same exchange."""
    width, sends = golden("graph_a2a")["width"], [part["send_counts"] for part in case["ranks"]]
    x = leaf(Rows.f(np.array(case["ranks"][made.rank]["owned"], np.int64), width))
    assert made.symm_plan is None
    expected = all_to_all_collect(x, made)
    got, plan = fairchem.symm_all_to_all_collect(x, made), made.symm_plan
    assert torch.equal(got, expected)
    assert torch.equal(fairchem.symm_halo_collect(x, made.send_indices, plan.plan_id), expected)
    n = range(made.world_size)
    assert dataclasses.astuple(plan) == (
        len(n), made.send_splits, made.recv_splits, [sum(sends[s][r] for s in n if s < made.rank) for r in n],
        [sum(sends[r][s] for s in n if s < made.rank) for r in n], sum(made.send_splits), made.total_recv,
        max(sum(sends[s][r] for s in n) for r in n), max(map(sum, sends)), 0), (case["id"], plan)


def ring(rank, size=4, each=3):
    """Rank r owns rows 3r to 3r + 2; its edges read all rows of the next rank, and one of the one after."""
    owner = torch.arange(size * each) // each
    source = [(rank * each + each + k) % (size * each) for k in (0, 2, 1, each)] + [rank * each]
    return torch.tensor([source, [rank * each + k % each for k in range(5)]]), owner


@test
def any_shape_and_dtype_from_one_context():
    for context in contexts():
        edges, owner = ring(context.rank)
        made = build_gp_context(edges, owner, context.rank, 4, context=context)
        shapes = [(torch.float32, (5,)), (torch.float64, ()), (torch.bfloat16, (2, 3)), (torch.int64, (1,)),
                  (torch.complex64, (2,)), (torch.bool, (3,)), (torch.int16, (2, 1)), (torch.float32, (4, 0))]
        numbers = []
        for dtype, row_shape in shapes * 2:
            whole = torch.arange(12 * int(np.prod(row_shape))).reshape(12, *row_shape).to(dtype)
            mine = whole[owner == context.rank]
            got = all_to_all_collect(mine, made)
            needed = edges[0].unique()
            needed = needed[owner[needed] != context.rank]
            needed = needed[torch.argsort(owner[needed], stable=True)]
            assert got.dtype == dtype and torch.equal(got, whole[needed]), (dtype, row_shape)
            exchange = fairchem._exchanges[made.send_indices]
            numbers.append(len(exchange._operation._retyped))
        assert numbers == [1, 2, 3, 4, 5, 6, 7, 7] + [7] * 8, numbers


@test
def the_dot_of_both_directions_is_exact():
    for context in contexts():
        edges, owner = ring(context.rank)
        made = build_gp_context(edges, owner, context.rank, 4, context=context)
        rng = torch.Generator().manual_seed(context.rank)
        x = torch.randint(-99, 99, (3, 2), generator=rng).double().requires_grad_()
        y = torch.randint(-99, 99, (made.total_recv, 2), generator=rng).double()
        moved = all_to_all_collect(x, made)
        back, = torch.autograd.grad(moved, x, y)
        sums = torch.stack([(moved.detach() * y).sum(), (x.detach() * back).sum()])
        dist.all_reduce(sums)
        assert sums[0] == sums[1] != 0, sums


@test
def rows_in_the_order_of_node_partition():
    for context in contexts():
        edges, owner = ring(context.rank)
        plain = build_gp_context(edges, owner, context.rank, 4, context=context)
        mine = (owner == context.rank).nonzero()[:, 0]
        assert torch.equal(build_gp_context(edges, owner, context.rank, 4, mine, context=context)
                           .edge_index_local, plain.edge_index_local)
        turned = mine[[2, 0, 1]]
        made = build_gp_context(edges, owner, context.rank, 4, node_partition=turned, context=context)
        whole = torch.arange(12.0)
        received = all_to_all_collect(whole[turned], made)
        assert torch.equal(received, all_to_all_collect(whole[mine], plain))
        assert torch.equal(torch.cat([whole[turned], received])[made.edge_index_local], whole[edges])
        assert torch.equal(whole[turned][made.send_indices], whole[mine][plain.send_indices])


@test
def targets_of_other_ranks():
    """As fairchem has it: a target that is also a source is the row that was received."""
    for context in contexts():
        edges, owner = ring(context.rank)
        far = (3 * context.rank + 3) % 12
        extra = torch.tensor([[3 * context.rank], [far]])
        made = build_gp_context(torch.cat([edges, extra], 1), owner, context.rank, 4, context=context)
        whole = torch.arange(12.0)
        rows = torch.cat([whole[owner == context.rank], all_to_all_collect(whole[owner == context.rank], made)])
        assert made.edge_index_local[1, -1] >= 3 and rows[made.edge_index_local[1, -1]] == far
        extra[1] = (3 * context.rank + 8) % 12 if context.rank == 2 else far
        raises(lierne.errors.EdgeTargetNotOwnedError, "rank 2: edge 5", build_gp_context,
               torch.cat([edges, extra], 1), owner, context.rank, 4, context=context)


@test
def lists_that_others_made():
    for context in contexts():
        edges, owner = ring(context.rank)
        made = build_gp_context(edges, owner, context.rank, 4, context=context)
        x = leaf(torch.arange(3) + 3.0 * context.rank)
        lists = made.send_indices.clone(), made.send_counts, made.recv_counts, context, context.rank, 4
        for tail in ((), (made.send_splits, made.recv_splits, made.total_recv)):
            got = AllToAllCollect.apply(x, *lists, *tail)
            assert torch.equal(got, all_to_all_collect(x, made))
        got.backward(torch.arange(float(made.total_recv)))
        expected, = torch.autograd.grad(all_to_all_collect(x, made), x, torch.arange(float(made.total_recv)))
        assert torch.equal(x.grad, expected)
        copied = dataclasses.replace(made, send_indices=made.send_indices.clone())
        before = fairchem.use(context)
        assert torch.equal(all_to_all_collect(x, copied), got)
        assert fairchem.use(before) is context


@test
def plans_alone():
    rank = dist.get_rank()
    edges, owner = ring(rank)
    made = build_gp_context(edges, owner, rank, 4)
    with lierne.torch.context(timeout=60) as context:
        full = build_gp_context(edges, owner, rank, 4, context=context)
    for name in ("total_local_atoms", "recv_splits", "total_recv"):
        assert getattr(made, name) == getattr(full, name), name
    for name in ("edge_index_local", "local_edge_idx", "remote_edge_idx", "recv_counts"):
        assert torch.equal(getattr(made, name), getattr(full, name)), name
    assert made.send_splits == [0] * 4 and made.send_indices.numel() == 0
    raises(RuntimeError, "use(context)", all_to_all_collect, torch.zeros(3, 2), made)
    lone = build_gp_context(torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, dtype=torch.long), 0, 1)
    assert all_to_all_collect(torch.zeros(2, 5), lone).shape == (0, 5)


@test
def routes_without_a_context():
    rank = dist.get_rank()
    parts = [ring(r)[0] for r in range(4)]
    source, target = torch.cat(parts, 1).numpy()
    owner = ring(0)[1]
    for dtype in (torch.bfloat16, torch.float32, torch.int64):
        routes = lierne.GraphRoutes(rank, 4, owner, source, target, dtype, row_shape=(2,))
        move = lierne.torch.Operation(routes)
        with lierne.torch.context(timeout=60) as context:
            graph = lierne.torch.Graph(context, owner, *parts[rank].numpy(), dtype, row_shape=(2,))
            torch.manual_seed(rank)
            x, g = (torch.randint(-9, 9, shape).to(dtype) / 3 for shape in (graph.shapes()))
            x, g = x.to(dtype), g.to(dtype)
            assert torch.equal(move(x), graph(x)) and torch.equal(move.adjoint(g), graph.adjoint(g))
            for name, value in graph.plan.lists().items():
                assert np.array_equal(routes.lists()[name], value), name
            assert routes.report()["sent_bytes"] == graph.plan.report()["sent_bytes"]


@test
def wrong_arguments_on_one_rank():
    kinds = {"INDEX_RANGE": lierne.errors.IndexRangeError, "OWNER_RANGE": lierne.errors.OwnerRangeError,
             "EDGE_TARGET_NOT_OWNED": lierne.errors.EdgeTargetNotOwnedError}
    for context in contexts():
        rank = context.rank

        def build(bad=None, owner=None, **options):
            edges, owners = ring(rank)
            edges = torch.tensor(bad) if rank == 2 and bad else edges
            owners = owner if owner is not None else owners
            return build_gp_context(edges, owners, options.pop("rank", rank), 4, context=context, **options)

        for bad in ([[12], [6]], [[-1], [6]], [[0], [-1]], [[0], [12]]):
            raises(kinds["INDEX_RANGE"], "rank 2: edge 0", build, bad)
        raises(kinds["EDGE_TARGET_NOT_OWNED"], "rank 2", build, [[0], [5]])
        for wrong in (-1, 4):
            owner = ring(0)[1].clone()
            owner[5] = wrong
            raises(kinds["OWNER_RANGE"], f"row 5 has owner {wrong if wrong < 0 else ''}", build, owner=owner)
        owner = ring(0)[1].clone()
        owner[0] = rank == 3
        raised(lierne.errors.MismatchError, build, owner=owner)
        kind = ValueError if rank == 2 else lierne.errors.InvalidError
        for options in ({"bad": [[0]]}, {"rank": 3 if rank == 2 else rank},
                        {"node_partition": torch.tensor([6, 7, 8] if rank == 2 else [3 * rank, 3 * rank + 1,
                                                                                     3 * rank + 2])[
                            :2 if rank == 2 else 3]}):
            raised(kind, build, **options)
        made = build()
        raises(ValueError, "x has 2 rows", all_to_all_collect, torch.zeros(2), made)
        all_to_all_collect(torch.zeros(3), made)


@test
def golden_partitions():
    compared = 0
    for case in golden("graph_a2a")["partitions"]:
        pos = torch.tensor(case["pos"], dtype=getattr(torch, {"f32": "float32", "f64": "float64"}.get(
            case["dtype"], case["dtype"]))).reshape(-1, 3)
        n, size = len(pos), case["world"]
        for strategy, expected in ((PartitionStrategy.SPATIAL, case["assignment"]),
                                   (PartitionStrategy.INDEX_SPLIT, case["index_split"])):
            owner, mine = compute_a2a_partition(pos, n, pos.device, size, size - 1, strategy)
            assert owner.tolist() == expected and owner.dtype == mine.dtype == torch.int64
            assert mine.tolist() == [i for i, r in enumerate(expected) if r == size - 1]
            compared += n > 0
        assert fairchem.partition_atoms_spatial(pos, size, 3).tolist() == case["assignment"]
    assert compared >= 10, compared
    theirs = types.SimpleNamespace(value="spatial")
    pos = torch.rand(9, 3, generator=torch.Generator().manual_seed(1)).half()
    assert compute_a2a_partition(pos, 9, pos.device, 2, 0, theirs)[0].sum() == 4
    raised(ValueError, compute_a2a_partition, pos, 9, pos.device, 2, 0, "kmeans")


@test
def callers_of_fairchem():
    """Without a context, the ranks are those of fairchem's own graph-parallel group."""
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    group = groups[dist.get_rank() // 2]
    name = "fairchem.core.common.gp_utils"
    sys.modules[name] = types.SimpleNamespace(initialized=lambda: True, get_gp_group=lambda: group)
    rank = dist.get_rank(group)
    edges, owner = ring(rank, 2)
    for _ in range(2):
        made = build_gp_context(edges, owner, rank, 2)
        whole = torch.arange(6.0)
        got = all_to_all_collect(whole[owner == rank], made)
        assert torch.equal(got, whole[owner != rank])
        again = AllToAllCollect.apply(whole[owner == rank], made.send_indices.clone(), made.send_counts,
                                      made.recv_counts, group, rank, 2)
        assert torch.equal(again, got)
        assert torch.equal(fairchem.symm_all_to_all_collect(whole[owner == rank], made), got)
    assert len(fairchem._groups) == 1
    fairchem.close()
    del sys.modules[name]
    assert not fairchem._groups


@test
def a_compiled_layer():
    with lierne.torch.context(timeout=60) as context:
        edges, owner = ring(context.rank)
        made = build_gp_context(edges, owner, context.rank, 4, context=context)

        def layer(x):
            rows = torch.cat([x, all_to_all_collect(x * 2, made)])
            return torch.zeros_like(x).index_add(0, made.edge_index_local[1], rows[made.edge_index_local[0]])

        x = leaf(torch.arange(6.0).reshape(3, 2) + 6 * context.rank)
        expected, = torch.autograd.grad(layer(x).sin().sum(), x)
        got, = torch.autograd.grad(torch.compile(layer, backend="aot_eager")(x).sin().sum(), x)
        assert torch.equal(got, expected)


if __name__ == "__main__":
    main()
