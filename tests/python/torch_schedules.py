"""lierne.torch.schedules on ranks of torchrun: runs of tensors over both ways to move data, with results in
closed form, and the gate: one rank withholds an operation until it has seen one of another queue complete."""
import json

import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne.torch.schedules import Group, Operation, Run, Schedule, group_of, isolate, run, trace
from schedules import data_of, planned
from torch_harness import WAYS, contexts, gathered, main, raises, same, test


def tensors(rank):
    """Inputs of the layer, and its results."""
    return [[torch.from_numpy(array) for array in arrays] for arrays in data_of(rank)]


@test
def results_events_and_traces():
    for context in contexts():
        data, expected = tensors(context.rank)
        with Run(context, isolate(planned(context))) as own:
            assert [(g.name, g.source) for g in own.created] == [("ep@9", 9)]
            for _ in range(3):
                own.begin(data)
                for got, wanted in zip(own.wait(), expected):
                    same(got, wanted)
            into = [torch.full_like(wanted, -7) for wanted in expected]
            own.begin(data, into)
            while not own.test():
                pass
            assert own.wait()[1] is into[1]
            same(into[1], expected[1])
            events = [own.event(i) for i in range(3)]
            assert [e.queue for e in events] == [0, 1, 0], events
            assert all(0 < e.issued <= e.begun <= e.resumed <= e.ended for e in events), events
            assert events[0].ended <= events[2].begun
            assert events[1].bytes == 2 * 4 * (context.world_size - 1)
            bars = [e for e in json.loads(trace(gathered(own.trace()))) if e["ph"] == "X"]
        kinds = [(0, "all_gather"), (1, "all_to_all ep"), (0, "reduce_scatter")]
        assert sorted((e["pid"], e["tid"], e["name"]) for e in bars) == [
            (rank, *kind) for rank in range(context.world_size) for kind in sorted(kinds)], bars
        assert {e["args"]["bytes"] for e in bars if e["tid"] == 1} == {events[1].bytes}
        for got, wanted in zip(run(context, planned(context), data, concurrent=True), expected):
            same(got, wanted)


@test
def the_gate():
    for context in contexts():
        own = Run(context, isolate(planned(context, held=["all_gather"])))
        data, expected = tensors(context.rank)
        own.begin(data)
        while context.rank == 1 and not own.event(1).ended:
            own.test()
        if context.rank == 1:
            assert (own.event(0).resumed, own.event(2).begun) == (0, 0)
            own.resume(0)
        for got, wanted in zip(own.wait(), expected):
            same(got, wanted)
        first, second = own.event(0), own.event(1)
        assert second.begun < first.ended
        assert context.rank != 1 or second.ended <= first.resumed
        own.close()


@test
def the_gate_stays_shut_in_one_queue():
    for way in WAYS:  # gloo closes the connections of a group after a timeout
        context = lierne.torch.context(over=way, group=dist.new_group(), timeout=1)
        own = Run(context, planned(context, held=["all_gather"]))
        own.begin(tensors(context.rank)[0])
        try:
            own.wait()
        except lierne.Error as error:
            text = str(error)
        assert own.event(1).begun == 0
        if context.rank == 1:
            assert "operation 0 'all_gather!'" in text and "is held" in text, text
            assert "operation 1 waits behind it" in text, text
        dist.barrier()
        context.close()


@test
def messages_move_on_the_groups_of_the_program():
    """Groups of two ranks; their plans are over contexts of these ranks."""
    pairs = [dist.new_group([0, 1]), dist.new_group([3, 2], **_unsorted())]
    mine = pairs[dist.get_rank() // 2]
    ranks = dist.get_process_group_ranks(mine)
    group = group_of(mine)
    assert group.ranks == tuple(ranks) and group == group_of(mine)
    uids = gathered(group.uid)
    assert uids[0] == uids[1] != uids[2] == uids[3], uids
    with lierne.torch.context(members=sorted(ranks), timeout=60) as context:
        plans = (lierne.all_reduce(context, 3, "f64"), lierne.all_to_all(context, 2, "f64"))
        schedule = Schedule(context.rank, [group], [
            Operation(plan.kind, group.name, tag="ep" * (plan.kind == "all_to_all"), plan=plan) for plan in plans])
        x, rank = torch.arange(4.0).double(), context.rank
        sums, turned = run(context, isolate(schedule), [x[:3] + rank, x + 10 * rank])
        same(sums, 2 * x[:3] + sum(ranks))
        at = sorted(ranks).index(rank)
        same(turned, torch.cat([x[2 * at:2 * at + 2] + 10 * other for other in sorted(ranks)]))


def _unsorted():
    """Options of new_group that keep the order of ranks, where PyTorch has one."""
    import inspect
    return {"sort_ranks": False} if "sort_ranks" in inspect.signature(dist.new_group).parameters else {}


@test
def computation_of_the_program_has_its_place():
    """A local operation between an all-gather and the all-reduce of what was made of it."""
    for context in contexts():
        plans = lierne.all_gather(context, 2, "f32"), lierne.all_reduce(context, 8, "f32")
        schedule = Schedule(context.rank, [Group("world", range(4), 7)], [
            Operation("all_gather", "world", plan=plans[0]), Operation("local", after=(0,), held=True),
            Operation("all_reduce", "world", plan=plans[1], after=(1,))])
        shard, parameters, gradients = torch.full((2,), context.rank + 1.0), torch.zeros(8), torch.zeros(8)
        with Run(context, schedule) as own:
            own.begin([shard, None, gradients], [parameters, None, None])
            while not own.event(1).begun:
                own.test()
            gradients.copy_(2 * parameters)
            own.resume(1)
            same(own.wait()[2], 8 * torch.arange(1, 5).repeat_interleave(2).float())


@test
def an_adjoint_is_the_sum():
    for context in contexts():
        plan = lierne.all_gather(context, 3, "i32")
        schedule = Schedule(context.rank, [Group("world", range(4), 7)], [
            Operation("all_gather", "world", plan=plan, direction="adjoint")])
        data, expected = tensors(context.rank)
        same(run(context, schedule, [data[2]])[0], expected[2])


@test
def wrong_calls_are_rejected():
    for context in contexts():
        data = tensors(context.rank)[0]
        own = Run(context, isolate(planned(context, held=["all_gather"])))
        raises(ValueError, "data has 0 entries, must have 3", lambda: own.begin([]))
        raises(TypeError, "dtype torch.int64", lambda: own.begin([x.long() for x in data]))
        raises(TypeError, "ndarray", lambda: own.begin([x.numpy() for x in data]))
        raises(ValueError, "has shape (1,)", lambda: own.begin([x[:1] for x in data]))
        strided = torch.zeros(24, dtype=torch.int32)[::2]
        raises(ValueError, "not contiguous", lambda: own.begin(data, [strided, None, None]))
        raises(lierne.errors.InvalidError, "not begun", lambda: own.resume(0))
        raises(lierne.errors.InvalidError, "not begun", own.wait)
        own.begin(data)
        raises(lierne.errors.BusyError, "", own.close)
        if context.rank == 1:
            raises(lierne.errors.InvalidError, "held", lambda: own.resume(1))
            own.resume(0)
        own.wait()
        own.close()
        external = Run(context, planned(context), external=True)
        raises(lierne.errors.InvalidError, "external", lambda: external.begin(data))
        external.close()


@test
def ranks_that_differ_are_named():
    for context in contexts():
        def schedule(name, count):
            return Schedule(context.rank, [Group("g", range(4), 3)], [
                Operation("all_gather", "g", dtype="f32", count=count, name=name)])
        raises(lierne.errors.MismatchError, "rank 3: operation 0 'node3'",
               lambda: Run(context, schedule(f"node{context.rank}", 5 + context.rank // 3), external=True))


if __name__ == "__main__":
    main()
