"""Graphs of torch.fx as schedules: recorded, isolated by purpose, and compared between ranks.

    from lierne.torch.fx import isolate_ep_process_group_pass  # instead of torchtitan's
    gm = isolate_ep_process_group_pass(gm)                     # all ranks, each with its own graph

A pass moves chosen collectives to process groups of their own wherever they share a process group with
other traffic, because operations of one communicator run one after the other. docs/schedules.md says
why; lierne.schedules is the same without graphs.

What is recorded: functional collectives of the graph and of the graph modules that it calls, in their
order (torch.ops._c10d_functional, its autograd, coalesced, in-place and out variants). What follows a
wait_tensor depends on the collective that was waited for."""
from __future__ import annotations

import functools
import operator
import typing

import torch
import torch.distributed as dist
import torch.fx

import lierne
from lierne._types import Priority
from lierne.schedules import Operation, Run, Schedule, isolate
from lierne.torch._groups import default_context, group_of, isolated_groups

__all__ = ["Recording", "isolate_ep_process_group_pass", "isolate_process_groups", "launch_order",
           "record"]

_NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd", "_dtensor")
# "plan": a redistribution of DTensor is traffic of its group, but not an all-to-all of its program.
_KINDS = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter",
          "all_reduce": "all_reduce", "all_to_all_single": "all_to_all", "broadcast": "broadcast",
          "isend": "send", "irecv": "recv", "batch_p2p_ops": "batch", "shard_dim_alltoall": "plan"}
_WAITS = ("wait_tensor", "wait_tensors")

# Names of process groups, as torchtitan's pass has them: of the source, and of its all-to-alls.
_EXTRA_EP_PG_REGISTRY = {}


class Recording(Schedule):
    """The Schedule of graphs. nodes: of each operation; process_groups: by their uids."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.nodes, self.process_groups = [], {}
        self._launched, self._waited = {}, ()  # operations of a node; the last wait

    def _group(self, process_group):
        group = group_of(process_group)
        if group.uid not in self.process_groups:
            self.process_groups[group.uid] = process_group
            self.add_group(group)
        return group

    def _add(self, node, kind, group=None, **fields):
        self.nodes.append(node)
        return self.add_operation(Operation(kind, group, name=node.name[-63:], **fields))

    def launch(self, call: typing.Any, tag: str) -> None:
        """Adds the operations of a collective."""
        group = self._group(call.process_group())
        added = [self._add(call.node, kind, group.name, tag=tag, after=self._waited, **fields)
                 for kind, fields in call.operations(group.ranks)]
        for node in (call.node, *call.written()):
            self._launched[node] = added

    def wait(self, node: torch.fx.Node) -> None:
        """Adds the wait for what was launched and not yet waited for, upon which all that follows
        depends: streams and the host wait there."""
        found = set()
        for tensor in _tensors(node.args[0] if node.args else next(iter(node.kwargs.values()))):
            found.update(self._launched.pop(_source_of(tensor, self._launched), ()))
        if found:  # waits have one order of their own, so that the last one stands for all
            self._waited = (self._add(node, "local", after=tuple(sorted(found))),)


def _tensors(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _source_of(node, launched):
    """The node that launched what a wait waits for: past the choice of one result of several."""
    while node not in launched and isinstance(node, torch.fx.Node) and (
            node.target is operator.getitem or "_wrap_tensor_autograd" in str(node.target)):
        node = node.args[0]
    return node


@functools.lru_cache(None)
def _function_of(target):
    """(base name, names of the arguments, those that are written) of a functional collective or wait;
    None: any other function."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        target = getattr(target, "default", None)
    schema = getattr(target, "_schema", None)
    namespace, _, name = schema.name.partition("::") if schema else ("", "", "")
    base = name.rstrip("_").removesuffix("_out").removesuffix("_coalesced")
    if namespace not in _NAMESPACES or base not in _KINDS and base not in _WAITS:
        return None
    return (base, [a.name for a in schema.arguments],
            [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write])


class _Call:
    """A functional collective of a graph."""

    def __init__(self, node, base, names, writes):
        self.node, self.kind, self._names, self._writes = node, _KINDS[base], names, writes

    def argument(self, name):
        """An argument, given by position or by keyword; None where it is absent."""
        at = self._names.index(name)
        return self.node.args[at] if at < len(self.node.args) else self.node.kwargs.get(name)

    def written(self):
        """Nodes of the tensors that the collective writes, which may be waited for."""
        return [node for name in self._writes for node in _tensors(self.argument(name))]

    def process_group(self):
        """The process group object."""
        value = self.argument("group_name")
        if isinstance(value, torch.fx.Node) and value.op == "get_attr":
            value = operator.attrgetter(value.target)(self.node.graph.owning_module)
        if isinstance(value, dist.ProcessGroup):
            return value
        if not isinstance(value, str):
            raise TypeError(f"record: the group of node {self.node.name} is {value!r}, must be the name of "
                            "a process group, or one")
        try:
            return dist.distributed_c10d._resolve_process_group(value)
        except (KeyError, RuntimeError, ValueError) as error:
            raise ValueError(f"record: node {self.node.name} names process group {value!r}, which this "
                             f"rank does not have: {error}") from error

    def move(self, process_group):
        """Names another process group, and returns the old name."""
        old, name = self.argument("group_name"), process_group.group_name
        at = self._names.index("group_name")
        old = old if isinstance(old, str) else self.process_group().group_name
        if at < len(self.node.args):
            self.node.update_arg(at, name)
        else:
            self.node.update_kwarg("group_name", name)
        return old

    def operations(self, ranks):
        """(kind, fields) of its operations. Peers and roots count within the group."""
        if self.kind == "batch":
            return self._messages(ranks)
        fields = _signature(self.argument(self._names[0]))
        if self.kind == "all_to_all":
            fields["count"] = 0  # shares may differ between ranks
        elif self.kind == "broadcast":
            fields["root"] = ranks[self.argument("src")]
        elif self.kind in ("send", "recv"):
            fields["peer"] = ranks[self.argument("dst" if self.kind == "send" else "src")]
        return [(self.kind, fields)]

    def _messages(self, ranks):
        """Those of a batch may be launched in any order: one that all ranks share."""
        own, found = dist.get_rank(), []
        for op, peer, tensor in zip(*map(self.argument, ("op_list", "peer_list", "tensors"))):
            sends, other = op == "isend", ranks[peer]
            ends = (own, other) if sends else (other, own)
            found.append((ends, ("send" if sends else "recv", {"peer": other, **_signature(tensor)})))
        return [entry for _, entry in sorted(found, key=operator.itemgetter(0))]


def _signature(value):
    """dtype and count of a tensor, or of several; no count where a shape is not known."""
    values = [getattr(node, "meta", {}) for node in _tensors(value)]
    values = [meta.get("val", meta.get("example_value")) for meta in values]
    if not values or not all(isinstance(v, torch.Tensor) for v in values):
        return {}
    shapes = [size for v in values for size in v.shape]
    known = all(isinstance(size, int) for size in shapes)
    return {"dtype": values[0].dtype, "count": sum(v.numel() for v in values) if known else 0}


def _nodes(graph_module):
    """The nodes of a graph module in the order of their execution, those of graph modules that it calls
    in place of the call."""
    modules = dict(graph_module.named_modules())
    for node in graph_module.graph.nodes:
        inner = modules.get(node.target) if node.op in ("call_module", "get_attr") else None
        if isinstance(inner, torch.fx.GraphModule):
            yield from _nodes(inner)
        yield node


def _calls(graph_module):
    """A _Call for each functional collective, and the nodes that wait."""
    for node in _nodes(graph_module):
        found = _function_of(node.target) if node.op == "call_function" else None
        if found is not None and found[0] in _WAITS:
            yield node
        elif found is not None:
            yield _Call(node, *found)


def record(*graph_modules: torch.fx.GraphModule,
           tag: typing.Optional[typing.Callable[[torch.fx.Node], typing.Optional[str]]] = None) -> Recording:
    """The Recording of this rank's graphs, in the order in which they are launched. Not collective.

    tag(node): the purpose of a collective, such as "ep", or None. An operation has the name of its node.
    Raises TypeError and ValueError where a group is unknown, with the node; errors.InvalidError as
    Schedule."""
    schedule = Recording(dist.get_rank() if dist.is_initialized() else 0)
    for graph_module in graph_modules:
        for call in _calls(graph_module):
            if isinstance(call, _Call):
                schedule.launch(call, tag and tag(call.node) or "")
            else:
                schedule.wait(call)
    return schedule


def isolate_process_groups(graph_module: torch.fx.GraphModule, purpose: str = "ep",
                           kinds: typing.Sequence[str] = ("all_to_all",),
                           select: typing.Optional[typing.Callable[[torch.fx.Node], bool]] = None, *,
                           priority: Priority = "high", singletons: bool = False, concurrent: bool = False,
                           context: typing.Optional[lierne.Context] = None) -> typing.Any:
    """Moves the chosen collectives of a graph, in place, to process groups of their own wherever their
    process group, the object, carries anything else. Returns the graph module, recompiled where it
    changed. Number and order of operations stay; a second call changes nothing.

    kinds: of lierne.schedules. select(node): whether a collective of these kinds is one of this purpose;
    without it, all are. priority: "high" or "normal", of streams, where the backend has them. singletons:
    groups of one rank, too. concurrent: accept a launch order that is only safe if process groups are
    independent queues. context: of lierne.torch.context; None: one of all ranks, made at the first call.

    Collective over the context, also for ranks whose graph has no collective: the graphs of all ranks are
    compared before anything is created or changed. Groups are created once per context, source and
    purpose, and live as long as their source. Raises, on all ranks, errors.MismatchError, which names
    rank, node, group and the values that differ; errors.InvalidError with the nodes that deadlock;
    errors.NoResourceError beyond the context's max_groups; errors.TimeoutError where a rank does not come;
    errors.TransportError where a process group was not created."""
    _isolate(graph_module, purpose, kinds, select, priority, singletons, concurrent, context)
    return graph_module


def _isolate(graph_module, purpose, kinds, select, priority, singletons, concurrent, context):
    """As isolate_process_groups. Returns the new names of groups by the old ones."""
    tag = None if select is None else lambda node: purpose if select(node) else ""
    before = record(graph_module, tag=tag)
    after = isolate(before, purpose, kinds, priority, any_tag=select is None, singletons=singletons)
    if context is None and not dist.is_initialized():
        return {}  # no process group, and nobody to compare with
    context = default_context() if context is None else context
    run = Run(context, after, concurrent=concurrent, external=True)
    groups = isolated_groups(context).commit(run, before.process_groups)
    target = {node: groups[entry.group] for node, entry in zip(before.nodes, after.operations)
              if entry.group in groups}
    names, owners = {}, {}
    for call in list(_calls(graph_module)):
        if isinstance(call, _Call) and call.node in target:
            old, owner = call.move(target[call.node]), call.node.graph.owning_module
            names[old], owners[id(owner)] = target[call.node].group_name, owner
    for owner in owners.values():
        owner.recompile()
    return names


def isolate_ep_process_group_pass(gm: torch.fx.GraphModule, example_inputs: typing.Any = None, *,
                                  concurrent: bool = False,
                                  context: typing.Optional[lierne.Context] = None) -> typing.Any:
    """torchtitan's pass of this name: moves all all-to-alls off process groups that carry anything else,
    in place, and returns gm. The target alone selects; groups of one rank are isolated, too.

    Beyond torchtitan's: all variants of the collectives count, two names of one process group share the
    new one, and the ranks agree first. Collective, arguments and errors as isolate_process_groups.
    example_inputs is not read."""
    _EXTRA_EP_PG_REGISTRY.update(_isolate(gm, "ep", ("all_to_all",), None, "high", True, concurrent,
                                          context))
    return gm


def launch_order(*graph_modules: torch.fx.GraphModule, concurrent: bool = False,
                 context: typing.Optional[lierne.Context] = None) -> typing.Any:
    """Compares the graphs of all ranks, each given in the order in which it is launched, before any of
    them runs. Collective; raises as isolate_process_groups: where the ranks would wait for each other for
    ever, errors.InvalidError names ranks, nodes and groups."""
    context = default_context() if context is None else context
    Run(context, record(*graph_modules), concurrent=concurrent, external=True).close()
