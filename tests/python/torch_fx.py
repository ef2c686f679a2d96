"""lierne.torch.fx on ranks of torchrun: what is recorded of a graph, what isolation moves, and the errors
of ranks that disagree. Overlap is torch_overlap.py."""
import operator

import torch
import torch.distributed as dist
import torch.fx

import lierne
import lierne.torch
from lierne.schedules import check
from lierne.torch import fx
from lierne.torch._groups import _backend_options, group_of
from lierne.torch.fx import (isolate_ep_process_group_pass, isolate_process_groups, launch_order, record)
from torch_harness import main, raises, same, test

c10d = torch.ops._c10d_functional
AG, RS, AR, A2A, WAIT = (c10d.all_gather_into_tensor.default, c10d.reduce_scatter_tensor.default,
                         c10d.all_reduce.default, c10d.all_to_all_single.default, c10d.wait_tensor.default)
N = 4


class Graph:
    """A graph of collectives of one tensor of 4 elements."""

    def __init__(self, dtype=torch.float32):
        self.graph, self.results = torch.fx.Graph(), []
        self.x = self.node(self.graph.placeholder("x"), dtype)

    @staticmethod
    def node(node, dtype=torch.float32, shape=(N,)):
        node.meta["val"] = torch.empty(shape, dtype=dtype, device="meta")
        return node

    def call(self, target, *args, name=None, **kwargs):
        made = self.graph.create_node("call_function", target, args, kwargs, name)
        self.results.append(made)
        return made

    def gather(self, group, **kwargs):
        return self.call(AG, self.x, N, group, **kwargs)

    def exchange(self, group, **kwargs):
        return self.call(A2A, self.x, [1] * N, [1] * N, group, **kwargs)

    def scatter(self, group, **kwargs):
        return self.call(RS, self.x, "sum", N, group, **kwargs)

    def module(self):
        self.graph.output(tuple(self.results))
        return torch.fx.GraphModule(torch.nn.Module(), self.graph)


def world():
    return dist.group.WORLD.group_name


def layer(group, **names):
    graph = Graph()
    graph.gather(group, **names)
    graph.exchange(group)
    graph.scatter(group)
    return graph.module()


def groups_of(module):
    """Names of the groups of the collectives, in their order."""
    return [node.args[-1] if len(node.args) > 2 else node.kwargs["group_name"]
            for node in module.graph.nodes if node.op == "call_function" and node.target in (AG, RS, AR, A2A)]


def results(module, x):
    return [WAIT(made) for made in module(x)]


@test
def all_variants_are_recorded():
    graph, g, rank = Graph(torch.bfloat16), dist.new_group([0, 1, 2, 3]), dist.get_rank()
    x, name = graph.x, g.group_name
    auto = torch.ops._c10d_functional_autograd
    out = Graph.node(graph.graph.placeholder("out"))
    calls = [graph.gather(name), graph.call(RS, x, "sum", N, group_name=name),
             graph.call(auto.all_to_all_single.default, input=x, output_split_sizes=[1] * N,
                        input_split_sizes=[1] * N, group_name=name),
             graph.call(c10d.all_reduce_.default, x, "sum", name),
             graph.call(c10d.all_gather_into_tensor_out.default, x, N, name, out=out),
             graph.call(c10d.all_reduce_coalesced.default, [x, x], "sum", name),
             graph.call(c10d.broadcast.default, x, 2, name),
             graph.call(c10d.all_reduce, x, "sum", name)]
    kinds = ["all_gather", "reduce_scatter", "all_to_all", "all_reduce", "all_gather", "all_reduce",
             "broadcast", "all_reduce"]
    if hasattr(c10d, "isend"):
        to = (rank + 1) % N
        calls += [graph.call(c10d.isend.default, x, to, 0, name),
                  graph.call(c10d.irecv.default, x, to, 0, group_name=name)]
        kinds += ["send", "recv"]
    one_of = graph.call(operator.getitem, calls[5], 0)
    waits = [graph.call(WAIT, one_of), graph.call(WAIT, out), graph.call(WAIT, x), graph.call(WAIT, one_of)]
    late = graph.exchange(name)
    schedule = record(graph.module(), tag=lambda node: "ep" if node is late else None)
    found, n = schedule.operations, len(kinds)
    assert [e.kind for e in found] == [*kinds, "local", "local", "local", "all_to_all"], found
    assert schedule.nodes == [*calls, *waits[:3], late]
    assert [e.after for e in found[n:]] == [(5,), (4,), (3,), (n + 2,)], found[n:]
    assert [e.count for e in found[:8]] == [4, 4, 0, 4, 4, 8, 4, 4], found
    assert {e.dtype for e in found[:8]} == {"bf16"} and [e.tag for e in found[n - 1:]] == [""] * 4 + ["ep"]
    assert found[6].root == 2 and all(e.peer == to for e in found[8:n])
    assert {e.group for e in found if e.kind != "local"} == {name} and schedule.groups == [group_of(g)]
    assert found[0].name == calls[0].name


@test
def batches_are_no_deadlock():
    """A ring of messages, in one batch per rank; peers count within the group."""
    if not hasattr(c10d, "batch_p2p_ops"):
        return
    graph, rank = Graph(), dist.get_rank()
    g = dist.new_group([0, 1, 2, 3])
    graph.call(c10d.batch_p2p_ops.default, ["isend", "irecv"], [(rank + 1) % N, (rank - 1) % N], [0, 0],
               [graph.x, graph.x], g.group_name)
    module = graph.module()
    assert sorted(e.kind for e in record(module).operations) == ["recv", "send"]
    launch_order(module)


@test
def all_to_alls_leave_shared_groups():
    """torchtitan's cases, results included."""
    x, g = torch.arange(4.0) + 10 * dist.get_rank(), dist.new_group([0, 1, 2, 3])
    module = layer(g.group_name)
    module.graph.find_nodes(op="call_function", target=A2A)[0].meta["custom"] = {"EP": "dispatch"}
    before, nodes = results(module, x), list(module.graph.nodes)
    assert isolate_ep_process_group_pass(module, (x,)) is module
    extra = fx._EXTRA_EP_PG_REGISTRY[g.group_name]
    assert groups_of(module) == [g.group_name, extra, g.group_name] and extra != g.group_name
    assert list(module.graph.nodes) == nodes and f"'{extra}'" in module.code
    made = dist.distributed_c10d._resolve_process_group(extra)
    assert made.group_desc == "ep_extra" and made is not g
    for got, expected in zip(results(module, x), before):
        same(got, expected)
    code = module.code
    assert isolate_ep_process_group_pass(module).code == code  # again
    backward = layer(g.group_name)  # another graph of the same program
    isolate_ep_process_group_pass(backward)
    assert groups_of(backward)[1] == extra
    split = isolate_process_groups(backward, "fsdp_ag", ("all_gather",), priority="normal")
    assert len(set(groups_of(split))) == 3


@test
def identity_decides():
    g, other = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])
    graph = Graph()
    graph.gather(g.group_name)
    graph.exchange(other.group_name)  # equal ranks, another object
    module = graph.module()
    code, known = module.code, dict(fx._EXTRA_EP_PG_REGISTRY)
    assert isolate_ep_process_group_pass(module).code == code and fx._EXTRA_EP_PG_REGISTRY == known
    alias = f"alias of {g.group_name} on rank {dist.get_rank()}"
    torch._C._distributed_c10d._register_process_group(alias, g)
    graph = Graph()
    graph.gather(g.group_name)
    graph.exchange(alias)
    graph.exchange(g.group_name)
    module = isolate_ep_process_group_pass(graph.module())
    names = groups_of(module)
    assert names[1] == names[2] != names[0], names
    assert fx._EXTRA_EP_PG_REGISTRY[alias] == fx._EXTRA_EP_PG_REGISTRY[g.group_name] == names[1]
    torch._C._distributed_c10d._unregister_process_group(alias)


@test
def all_kinds_are_other_traffic_and_all_forms_are_moved():
    g = dist.new_group([0, 1, 2, 3])
    others = [lambda graph: graph.call(c10d.broadcast.default, graph.x, 0, g.group_name),
              lambda graph: graph.call(c10d.all_reduce_coalesced.default, [graph.x], "sum", g.group_name),
              lambda graph: graph.call(AR, graph.x, "sum", group_name=g.group_name)]
    extras = set()
    for other in others:
        graph = Graph()
        other(graph)
        moved = graph.call(torch.ops._c10d_functional_autograd.all_to_all_single.default, graph.x, [1] * N,
                           [1] * N, group_name=g.group_name)
        isolate_ep_process_group_pass(graph.module())
        assert moved.kwargs["group_name"] != g.group_name
        extras.add(moved.kwargs["group_name"])
    assert len(extras) == 1


@test
def purposes_are_selected():
    g = dist.new_group([0, 1, 2, 3])
    graph = Graph()
    experts, context = graph.exchange(g.group_name), graph.exchange(g.group_name)
    module = graph.module()
    assert groups_of(isolate_process_groups(module)) == [g.group_name] * 2  # alone: all are of one purpose
    isolate_process_groups(module, "ep", select=lambda node: node is experts)
    names = groups_of(module)
    assert names[0] != names[1] == g.group_name
    isolate_process_groups(module, "cp", select=lambda node: node is context)
    assert groups_of(module) == names


@test
def groups_of_one_rank_are_isolated_as_torchtitan_does():
    alone = [dist.new_group([rank]) for rank in range(N)][dist.get_rank()]
    graph = Graph()
    graph.call(AG, graph.x, 1, alone.group_name)
    graph.call(A2A, graph.x, [N], [N], alone.group_name)
    module = graph.module()
    assert groups_of(isolate_process_groups(module)) == [alone.group_name] * 2
    isolate_ep_process_group_pass(module)
    assert groups_of(module)[1] != alone.group_name
    same(results(module, torch.arange(4.0))[1], torch.arange(4.0))


@test
def ranks_keep_their_order():
    try:
        g = dist.new_group([2, 0, 3, 1], sort_ranks=False)
    except TypeError:  # this PyTorch sorts
        return
    module = layer(g.group_name)
    x = torch.arange(4.0) + 10 * dist.get_rank()
    before = results(module, x)
    isolate_ep_process_group_pass(module)
    extra = dist.distributed_c10d._resolve_process_group(groups_of(module)[1])
    assert extra is not g and dist.get_process_group_ranks(extra) == [2, 0, 3, 1]
    for got, expected in zip(results(module, x), before):
        same(got, expected)


@test
def each_context_has_its_groups_and_budget():
    g, h = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])
    found = []
    for _ in range(2):
        with lierne.torch.context(timeout=60, max_groups=1) as context:
            module = isolate_ep_process_group_pass(layer(g.group_name), context=context)
            found.append(groups_of(module)[1])
            full = layer(h.group_name)
            raises(lierne.errors.NoResourceError, "max_groups is 1",
                   lambda: isolate_ep_process_group_pass(full, context=context))
            assert groups_of(full) == [h.group_name] * 3
            again = isolate_ep_process_group_pass(layer(g.group_name), context=context)
            assert groups_of(again) == groups_of(module)
    assert found[0] != found[1]


@test
def groups_end_with_their_source():
    g = dist.new_group([0, 1, 2, 3])
    extra = groups_of(isolate_ep_process_group_pass(layer(g.group_name)))[1]
    dist.destroy_process_group(g)
    h = dist.new_group([0, 1, 2, 3])
    assert groups_of(isolate_ep_process_group_pass(layer(h.group_name)))[1] != extra
    raises(RuntimeError, extra, lambda: dist.distributed_c10d._resolve_process_group(extra))
    raises(ValueError, "node all_gather_into_tensor_default names process group",
           lambda: record(layer(g.group_name)))


@test
def members_alone_have_a_context():
    """A pair of ranks isolates without the others, as ranks of a pipeline stage do."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = pairs[dist.get_rank() // 2]
    with lierne.torch.context(members=dist.get_process_group_ranks(mine), timeout=60) as context:
        graph = Graph()
        graph.call(AG, graph.x, 2, mine.group_name)
        graph.call(A2A, graph.x, [2, 2], [2, 2], mine.group_name)
        module = graph.module()
        isolate_ep_process_group_pass(module, context=context)
        names = groups_of(module)
        assert names[0] == mine.group_name != names[1]
        base = dist.get_rank() // 2 * 2
        x, at = torch.arange(4.0), 2 * (dist.get_rank() - base)
        same(results(module, x + 10 * dist.get_rank())[1],
             torch.cat([x[at:at + 2] + 10 * r for r in (base, base + 1)]))


@test
def some_ranks_have_nothing_to_isolate():
    """Groups of some ranks, with another backend's name; and ranks whose graph is empty."""
    pair = dist.new_group([1, 3], backend="cpu:gloo,cuda:gloo")
    graph, member = Graph(), dist.get_rank() in (1, 3)
    if member:
        graph.call(AG, graph.x, 2, pair.group_name)
        graph.call(A2A, graph.x, [2, 2], [2, 2], pair.group_name)
    module = isolate_ep_process_group_pass(graph.module())
    assert not member or groups_of(module)[1] != pair.group_name
    whole = dist.new_group([0, 1, 2, 3])  # its name is counted: all ranks counted alike
    total = torch.ones(1)
    dist.all_reduce(total, group=whole)
    same(total, [4.0])


@test
def graph_modules_within_graphs_count():
    g = dist.new_group([0, 1, 2, 3])
    inner, outer = Graph(), torch.fx.Graph()
    inner.exchange(g.group_name)
    x = outer.placeholder("x")
    gathered = outer.call_function(AG, (x, N, g.group_name))
    exchanged = outer.call_function(operator.getitem, (outer.call_module("inner", (x,)), 0))
    outer.output((gathered, exchanged))
    root = torch.nn.Module()
    root.inner = inner.module()
    module = torch.fx.GraphModule(root, outer)
    x = torch.arange(4.0) + dist.get_rank()
    before = results(module, x)
    isolate_ep_process_group_pass(module)
    assert groups_of(module.inner) != groups_of(module) == [g.group_name]
    same(results(module, x)[1], before[1])


@test
def ranks_that_disagree_are_named():
    g, rank = dist.new_group([0, 1, 2, 3]), dist.get_rank()

    def different(change):
        graph = Graph(torch.float64 if change == "dtype" and rank == 2 else torch.float32)
        if change == "kind" and rank == 2:
            graph.scatter(g.group_name, name="odd")
        else:
            graph.gather(g.group_name)
        if change != "missing" or rank != 2:
            graph.exchange(g.group_name, name="tokens")
        return graph.module()

    for change, words in (("kind", ("rank 2", "'odd'", f"group '{g.group_name}'")),
                          ("dtype", ("rank 2", "all_gather_into_tensor_default", "f64")),
                          ("missing", ("rank 2", g.group_name))):
        module = different(change)
        known = dict(fx._EXTRA_EP_PG_REGISTRY)
        for function in (isolate_ep_process_group_pass, launch_order):
            for word in words:
                raises(lierne.errors.MismatchError, word, lambda: function(module))
        assert set(groups_of(module)) == {g.group_name} and fx._EXTRA_EP_PG_REGISTRY == known
    isolate_ep_process_group_pass(different("none"))  # the context lives


@test
def deadlocks_are_found():
    """Two groups, launched in another order on rank 1; then waited for in another order."""
    g, h = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])
    turned = dist.get_rank() == 1

    def module(waits):
        graph = Graph()
        for i, group in enumerate((h, g) if turned else (g, h)):
            launched = graph.call(AR, graph.x, "sum", group.group_name, name=f"sum{i}_of_{group.group_name}")
            if waits:
                graph.call(WAIT, launched)
        return graph.module()

    words = ("rank 1", f"sum0_of_{h.group_name}", f"sum1_of_{g.group_name}", f"sum1_of_{h.group_name}")
    for word in words:
        raises(lierne.errors.InvalidError, word, lambda: launch_order(module(False)))
        raises(lierne.errors.InvalidError, word, lambda: launch_order(module(True), concurrent=True))
    launch_order(module(False), concurrent=True)
    raises(lierne.errors.InvalidError, "rank 1", lambda: isolate_ep_process_group_pass(module(False)))
    isolate_ep_process_group_pass(module(False), concurrent=True)
    launch_order(layer(g.group_name), layer(h.group_name))
    texts = [None] * N
    dist.all_gather_object(texts, record(module(True)).text())
    assert not check([lierne.schedules.read(text)[0] for text in texts]).safe_concurrent


@test
def a_rank_that_does_not_come_is_not_waited_for():
    with lierne.torch.context(timeout=60):  # orders the contexts
        pass
    context = lierne.torch.context(timeout=1)
    module = layer(world())
    if dist.get_rank() != 3:
        raises(lierne.errors.TimeoutError, "not all ranks called within 1 s",
               lambda: isolate_ep_process_group_pass(module, context=context))
    assert set(groups_of(module)) == {world()}
    dist.barrier()
    if dist.get_rank() == 3:
        context.abort("late")
    context.close()


@test
def streams_get_their_priority():
    """Options for NCCL, which this test cannot run: a priority, and no split."""
    if not hasattr(dist, "ProcessGroupNCCL"):
        return
    for priority in ("high", "normal"):
        group = lierne.schedules.Group("g", (0, 1), 1, priority)
        for backend in ("nccl", "cpu:gloo,cuda:nccl"):
            options = _backend_options(backend, group, None)
            assert options.is_high_priority_stream == (priority == "high")
            assert getattr(options, "lazy_init", True)
        assert _backend_options("gloo", group, None) is None


@test
def graphs_without_torch_distributed_are_left_alone():
    graph = Graph()
    module, initialized = graph.module(), dist.is_initialized
    dist.is_initialized = lambda: False
    try:
        assert isolate_ep_process_group_pass(module) is module
    finally:
        dist.is_initialized = initialized


@test
def groups_that_are_unknown_are_named():
    graph = Graph()
    graph.gather("no such group", name="lost")
    raises(ValueError, "node lost names process group 'no such group'", lambda: record(graph.module()))
    graph = Graph()
    graph.gather(graph.x, name="given")
    raises(TypeError, "the group of node given", lambda: record(graph.module()))


if __name__ == "__main__":
    main()
