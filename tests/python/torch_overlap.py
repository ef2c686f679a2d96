"""The overlap that isolation is for, on 8 ranks: a traced step of two FSDP layers around a layer of
experts, over gloo with one thread per process group and over lierne's transports.

The gate proves it without a clock: rank 1 withholds its part of the all-gather of the next layer until it
has seen the all-to-all complete, which was launched after it. With the pass both complete; without it
neither can, and the losses are the same."""
import dataclasses
import json
import math
import threading
import time

import torch
import torch.distributed as dist
import torch.fx

import lierne
import lierne.torch
from lierne.torch.fx import isolate_ep_process_group_pass, record
from lierne.torch.schedules import Run, Schedule, trace
from torch_harness import WAYS, gathered, main, raises, same, test_on_8

WIDTH, STEPS, HELD = 16, 3, 1
c10d = torch.ops._c10d_functional


def one_thread(store, rank, size, timeout):
    """gloo with one thread, as NCCL has one stream: two operations of a group overlap by themselves
    otherwise."""
    options = dist.ProcessGroupGloo._Options()
    options._threads, options._timeout = 1, timeout
    options._devices = [dist.ProcessGroupGloo.create_default_device()]
    return dist.ProcessGroupGloo(store, rank, size, options)


def new_group():
    if "ONE_THREAD" not in dist.Backend._plugins:
        dist.Backend.register_backend("one_thread", one_thread, devices=["cpu"])
    return dist.new_group(backend="one_thread")


def step_of(group):
    """A training step: loss and new parameters. Shards are of two dense layers, experts are local."""
    n, name = dist.get_world_size(), group.group_name
    rows = [WIDTH * 2 // n] * n
    gather = lambda shard: c10d.all_gather_into_tensor.default(shard, n, name)  # noqa: E731
    scatter = lambda full: c10d.reduce_scatter_tensor.default(full, "sum", n, name)  # noqa: E731
    exchange = lambda x: c10d.all_to_all_single.default(x, rows, rows, name)  # noqa: E731
    wait = c10d.wait_tensor.default

    def step(tokens, first, second, expert):
        hidden = tokens @ wait(gather(first))
        following = gather(second)  # of the next layer, while tokens go to experts and back
        arrived = wait(exchange(hidden))
        active = torch.tanh(arrived @ expert)
        returned, following = wait(exchange(active)), wait(following)
        result = returned @ following
        back = result * (2 / (2 * WIDTH * WIDTH))  # of the mean of squares
        of_second = scatter(returned.t() @ back)
        back = wait(exchange(back @ following.t())) * (1 - active * active)
        of_expert = arrived.t() @ back
        of_first = wait(scatter(tokens.t() @ wait(exchange(back @ expert.t()))))
        return ((result * result).mean(), first - 0.1 * of_first, second - 0.1 * wait(of_second),
                expert - 0.1 * of_expert)
    return step


def inputs():
    n, r = dist.get_world_size(), torch.Generator().manual_seed(dist.get_rank())
    shapes = ((2 * WIDTH, WIDTH), (WIDTH // n, WIDTH), (WIDTH // n, WIDTH), (WIDTH, WIDTH))
    return [torch.randn(shape, generator=r) / math.sqrt(WIDTH) for shape in shapes]


def traced(group):
    """The step as a graph, with the shapes of its values."""
    module = torch.fx.symbolic_trace(step_of(group))
    Steps(module).run(*inputs())
    return module


def losses(execute):
    """Of some steps from the same inputs."""
    tokens, *parameters = inputs()
    found = []
    for _ in range(STEPS):
        loss, *parameters = execute(tokens, *parameters)
        found.append(loss)
    return torch.stack(found)


class Steps(torch.fx.Interpreter):
    """Runs a graph, and notes when each collective was launched and when its wait had ended. next_gather
    and tokens: the all-gather of the next layer, and the all-to-all that is launched behind it."""

    def __init__(self, module):
        super().__init__(module)
        self.times, launched = {}, [n for n in module.graph.nodes if n.target in _KINDS]
        kinds = [_KINDS[node.target] for node in launched]
        assert kinds[:4] == ["all_gather", "all_gather", "all_to_all", "all_to_all"], kinds
        assert "reduce_scatter" in kinds[4:] and "all_to_all" in kinds[4:], kinds
        self.next_gather, self.tokens = launched[1:3]

    def run_node(self, node):
        if node.target in _KINDS:
            self.before_launch(node)
            self.times[node] = [time.monotonic(), None]
        made = super().run_node(node)
        if isinstance(made, torch.Tensor):
            node.meta["val"] = made.to("meta")
        if node.target is c10d.wait_tensor.default and node.args[0] in self.times:
            self.times[node.args[0]][1] = time.monotonic()
            self.after_wait(node.args[0])
        return made

    def before_launch(self, node):
        pass

    def after_wait(self, node):
        pass

    def events(self):
        """As a trace: a bar per collective, a line per group."""
        return [{"name": _KINDS[node.target], "ph": "X", "pid": dist.get_rank(), "tid": str(node.args[-1]),
                 "ts": 1e6 * begin, "dur": 1e6 * (end - begin)} for node, (begin, end) in self.times.items()]


_KINDS = {c10d.all_gather_into_tensor.default: "all_gather",
          c10d.reduce_scatter_tensor.default: "reduce_scatter", c10d.all_to_all_single.default: "all_to_all"}


class Gated(Steps):
    """Rank 1 occupies the one thread of the group before its part of the next layer's all-gather, until it
    has seen the all-to-all complete, or `patience` is over."""

    def __init__(self, module, group, patience):
        super().__init__(module)
        self.group, self.patience = group, patience
        self.gate, self.opened_by = threading.Event(), None

    def before_launch(self, node):
        """An all-reduce whose callback, in the thread that completes it, waits for the gate."""
        if node is not self.next_gather:
            return
        store, key = dist.distributed_c10d._get_default_store(), f"held/{self.patience}"
        if dist.get_rank() != HELD:
            store.wait([key])
            dist.all_reduce(torch.zeros(1), group=self.group, async_op=True)
            return
        first = dist.all_reduce(torch.zeros(1), group=self.group, async_op=True)
        first.get_future().then(lambda _: self.gate.wait())
        store.set(key, "")
        self.timer = threading.Timer(self.patience, self.open, ["patience"])
        self.timer.start()

    def open(self, why):
        if not self.gate.is_set():
            self.opened_by, self.opened = why, time.monotonic()
            self.gate.set()

    def after_wait(self, node):
        if node is self.tokens and dist.get_rank() == HELD:
            self.open("the all-to-all")
            self.timer.cancel()


@test_on_8
def an_isolated_all_to_all_overlaps_over_gloo():
    group = new_group()
    module, isolated = traced(group), isolate_ep_process_group_pass(traced(group))
    names = [{node.args[-1] for node in m.graph.nodes if node.target is c10d.all_to_all_single.default}
             for m in (module, isolated)]
    assert names[0] == {group.group_name} != names[1] and len(names[1]) == 1
    expected = losses(module)
    assert expected[0] > expected[-1]
    same(losses(isolated), expected)
    tokens, *parameters = inputs()
    for graph, patience in ((isolated, 60), (module, 1)):
        gated = Gated(graph, group, patience)
        same(gated.run(tokens, *parameters)[0], expected[0])
        gather, tokens_ = (gated.times[node] for node in (gated.next_gather, gated.tokens))
        if dist.get_rank() == HELD and graph is isolated:
            assert gated.opened_by == "the all-to-all"
            assert gather[0] < tokens_[0] < tokens_[1] <= gated.opened < gather[1]
        elif dist.get_rank() == HELD:
            assert gated.opened_by == "patience"
            assert gather[0] < tokens_[0] < gated.opened < tokens_[1]
        bars = gated.events()
        assert len({bar["tid"] for bar in bars}) == (2 if graph is isolated else 1)
        json.dumps(bars)
        dist.barrier()


class OverLierne(Steps):
    """Executes the collectives of a graph in a run: launching one fills its input and resumes it. hold:
    rank 1 resumes its part of the next layer's all-gather when it has seen the all-to-all complete."""

    def __init__(self, module, context, hold=False):
        super().__init__(module)
        self.hold = hold and context.rank == HELD
        recorded = record(module)
        self.at = {node: i for i, node in enumerate(recorded.nodes)}
        entries = [self.planned(entry, node, context) for entry, node in zip(recorded.operations, recorded.nodes)]
        self.plans = [entry.plan for entry in entries]
        self.over = Run(context, Schedule(context.rank, recorded.groups, entries))

    @staticmethod
    def planned(entry, node, context):
        """The operation with a plan of as many elements as the node's input, to be resumed."""
        if entry.kind == "local":
            return entry
        n, all_ranks = node.args[0].meta["val"].numel(), dist.get_world_size()
        plan = getattr(lierne, entry.kind)(context, n if entry.kind == "all_gather" else n // all_ranks, "f32")
        return dataclasses.replace(entry, plan=plan, held=True)

    def run(self, *values):
        self.ins = [plan and torch.zeros(plan.shapes()[0]) for plan in self.plans]
        self.outs = [plan and torch.zeros(plan.shapes()[1]) for plan in self.plans]
        self.over.begin(self.ins, self.outs)
        made = super().run(*values)
        self.over.wait()
        return made

    def run_node(self, node):
        if node.target is c10d.wait_tensor.default:
            while not self.over.event(self.at[node.args[0]]).ended:
                self.over.test()
            if self.hold and node.args[0] is self.tokens:
                assert not self.over.event(self.at[self.next_gather]).resumed
                self.over.resume(self.at[self.next_gather])
            return self.env[node.args[0]]
        if node.target not in _KINDS:
            return super().run_node(node)
        i, value = self.at[node], self.env[node.args[0]]
        self.ins[i].copy_(value.reshape(-1))
        if not self.hold or node is not self.next_gather:
            self.over.resume(i)
        return self.outs[i].view(node.meta["val"].shape)


def gathered(text):
    texts = [None] * dist.get_world_size()
    dist.all_gather_object(texts, text)
    return texts


@test_on_8
def an_isolated_all_to_all_overlaps_over_lierne():
    for way in WAYS:
        with lierne.torch.context(over=way, timeout=60) as context:
            group = dist.new_group()
            module, isolated = traced(group), isolate_ep_process_group_pass(traced(group), context=context)
            plain, apart = (losses(OverLierne(graph, context).run) for graph in (module, isolated))
            same(apart, plain)
            assert torch.allclose(plain, losses(module), rtol=1e-5)
            gated = OverLierne(isolated, context, hold=True)
            same(gated.run(*inputs())[0], plain[0])
            first, second = (gated.over.event(gated.at[node]) for node in (gated.next_gather, gated.tokens))
            assert first.issued <= second.begun < second.ended and second.begun < first.ended
            assert context.rank != HELD or second.ended <= first.resumed
            bars = [e for e in json.loads(trace(gathered(gated.over.trace()))) if e["ph"] == "X"]
            assert len({(bar["pid"], bar["tid"]) for bar in bars if bar["name"] != "local"}) == 2 * 8


@test_on_8
def the_gate_stays_shut_without_isolation():
    for way in WAYS:
        group = dist.new_group()
        context = lierne.torch.context(over=way, group=dist.new_group(), timeout=2)
        gated = OverLierne(traced(group), context, hold=True)
        raises(lierne.Error, "", lambda: gated.run(*inputs()))
        assert not gated.over.event(gated.at[gated.tokens]).begun
        dist.barrier()
        context.close()


if __name__ == "__main__":
    main()
