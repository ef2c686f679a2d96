"""lierne.schedules without PyTorch: recording, passes, checks and texts as data; groups of a context;
runs on simulated worlds, whose order is shown by an operation that one rank withholds."""
import gc
import json
import threading
import types
import unittest
import unittest.mock

import numpy as np

import lierne
from lierne.schedules import (KINDS, Group, Operation, Run, Schedule, check, create_groups, isolate,
                              launch_order, read, run, trace)
from report import golden, main

RANKS = 4
WORLD = Group("world", range(RANKS), uid=9)


def layer(rank, count=12, names=("gather", "tokens", "reduce")):
    """All-gather, all-to-all and reduce-scatter on one group, without plans."""
    kinds = ("all_gather", "all_to_all", "reduce_scatter")
    return Schedule(rank, [WORLD], [
        Operation(kind, "world", tag="ep" if kind == "all_to_all" else "fsdp", dtype="f32",
                  count=count, name=name) for kind, name in zip(kinds, names)])


def recorded(groups, ops):
    """The schedule of a rank of a golden case."""
    rank = groups[0].ranks[0]
    return Schedule(rank, groups, [
        Operation(op["kind"], op["group"], tag=op["tag"],
                  peer=next(r for r in groups[0].ranks if r != rank) if op["kind"] in ("send", "recv") else 0,
                  root=rank if op["kind"] == "broadcast" else 0) for op in ops])


class Recording(unittest.TestCase):
    def test_what_is_added_is_there(self):
        schedule = Schedule(2, [Group("a", (3, 2, 7), 41, "high"), Group("alias", [3, 2, 7], 41)])
        added = [Operation("broadcast", "a", root=7, dtype="bf16", count=5, name='the "node"'),
                 Operation("send", "alias", tag="pp", peer=3, dtype=np.int32, count=6, held=True),
                 Operation("local", after=(0, 1), dtype="f64"),
                 Operation("all_reduce", "a", after=(1,), dtype="i64")]
        self.assertEqual([schedule.add_operation(entry) for entry in added], [0, 1, 2, 3])
        found = schedule.operations
        self.assertEqual(found[0], added[0])
        self.assertEqual(found[1].dtype, "i32")
        self.assertEqual((found[1].peer, found[1].held, found[1].tag), (3, True, "pp"))
        self.assertEqual(found[2], added[2])
        self.assertEqual(found[3], added[3])
        self.assertEqual(schedule.groups[0], Group("a", (3, 2, 7), 41, "high"))
        self.assertEqual((len(schedule), schedule.rank), (4, 2))
        again, = read(schedule.text())
        self.assertEqual(again.operations, found)
        self.assertEqual(again.groups, schedule.groups)
        both = read('{"schedules": [%s, %s]}' % (schedule.text(), schedule.text()))
        self.assertEqual([s.operations for s in both], [found, found])
        with self.assertRaisesRegex(lierne.errors.InvalidError, "frozen"):
            schedule.add_operation(added[0])

    def test_the_kinds_are_those_of_the_header(self):
        schedule = Schedule(0, [Group("g", [0, 1], 1)])
        for kind in KINDS:
            schedule.add_operation(Operation(kind, "g", peer=int(kind in ("send", "recv"))))
        self.assertEqual([json.loads(schedule.text())["operations"][i]["kind"] for i in range(len(KINDS))],
                         list(KINDS))

    def test_wrong_entries_are_rejected(self):
        schedule = Schedule(1, [WORLD])
        for wrong, kind, text in (
                (Operation("sum", "world"), ValueError, "kind is 'sum', must be one of all_gather"),
                (Operation("barrier", "moon"), ValueError, "no group 'moon' .groups: world"),
                (Operation("barrier"), lierne.errors.InvalidError, "group is -1"),
                (Operation("barrier", "world", after=(0,)), lierne.errors.InvalidError, "earlier"),
                (Operation("barrier", "world", name="n" * 64), lierne.errors.InvalidError, "63"),
                (Operation("all_gather", "world", dtype="f33"), TypeError, "f33"),
                (Operation("all_gather", "world", count=1.5), TypeError, "count is 1.5"),
                (Operation("all_gather", "world", plan=3), TypeError, "3 is no plan"),
                (Operation("all_gather", "world", direction="up"), ValueError, "direction is 'up'")):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                schedule.add_operation(wrong)
        for wrong, kind, text in ((Group("g", [0, 0], 3), lierne.errors.InvalidError, "is 0 again"),
                                  (Group("g", [0, 1], 9), lierne.errors.InvalidError, "one uid is one"),
                                  (Group("world", [0], 3), lierne.errors.DuplicateError, "world"),
                                  (Group("g", [0], 3, "low"), ValueError, "priority is 'low'")):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                schedule.add_group(wrong)
        self.assertEqual((len(schedule), len(schedule.groups)), (0, 1))
        for function in (lambda: isolate(None), lambda: check([schedule, 3])):
            self.assertRaisesRegex(TypeError, "is no schedule", function)
        self.assertRaisesRegex(ValueError, "a kind is 'sum'", lambda: isolate(schedule, kinds=["sum"]))
        self.assertRaisesRegex(lierne.errors.SyntaxError, "1:1", lambda: read("nothing"))


class Passes(unittest.TestCase):
    def test_golden_isolation(self):
        """Which operations move, and what is created, as the golden file has it."""
        compared = 0
        for case in golden("isolation")["cases"]:
            if case["registry_before_by_identity"]:  # the registry is a run's, not a pass's
                continue
            policy, expected = dict(case["policy"]), case["expect_library"]
            policy["any_tag"] = not policy.pop("require_tag", True)
            groups = [Group(g["name"], g["ranks"], g["uid"]) for g in case["groups"]]
            with self.subTest(case["name"]):
                if "error" in expected:
                    with self.assertRaises(ValueError):
                        recorded(groups, case["ops"])
                else:
                    after = isolate(recorded(groups, case["ops"]), **policy)
                    self.assertEqual([entry.group for entry in after.operations], expected["group_of_op"])
                    self.assertEqual([(g.name, g.source, list(g.ranks), g.priority, g.purpose)
                                      for g in after.groups if g.source],
                                     [tuple(g.values()) for g in expected["created"]])
                compared += 1
        self.assertGreater(compared, 12)

    def test_golden_composition(self):
        passes = {"isolate_ep": lambda s: isolate(s),
                  "split_fsdp_ag": lambda s: isolate(s, "fsdp_ag", ["all_gather"], "normal", any_tag=True,
                                                     also_alone=True)}
        for case in golden("isolation")["composition"]:
            for order in [list(passes), list(passes)[::-1]] if case["order"] == ["either"] else [case["order"]]:
                schedule = recorded([Group("g", [0, 1], 1)], case["ops"])
                for name in order:
                    schedule = passes[name](schedule)
                self.assertEqual([entry.group for entry in schedule.operations], case["group_of_op"])

    def test_targets_get_a_group_of_their_own(self):
        before = layer(1)
        after = isolate(before)
        self.assertEqual([entry.group for entry in after.operations], ["world", "ep@9", "world"])
        self.assertEqual(after.groups[1], Group("ep@9", tuple(range(RANKS)), 0, "high", "ep", 9))
        self.assertEqual([entry.group for entry in before.operations], ["world"] * 3)
        self.assertEqual(isolate(after).text(), after.text())
        self.assertEqual(isolate(before, purpose="cp").text(), before.text())
        split = isolate(before, "ag", ("all_gather", "reduce_scatter"), "normal", any_tag=True)
        self.assertEqual([entry.group for entry in split.operations], ["ag@9", "world", "ag@9"])
        self.assertEqual(split.groups[1].priority, "normal")

    def test_singletons_and_traffic_alone(self):
        one = Schedule(0, [Group("g", [0], 3)], [Operation("all_gather", "g"),
                                                 Operation("all_to_all", "g", tag="ep")])
        self.assertEqual(isolate(one).text(), one.text())
        self.assertEqual(isolate(one, singletons=True).operations[1].group, "ep@3")
        alone = Schedule(0, [Group("g", [0, 1], 3)], [Operation("all_to_all", "g", tag="ep")])
        self.assertEqual(isolate(alone).text(), alone.text())
        self.assertEqual(isolate(alone, also_alone=True).operations[0].group, "ep@3")


class Checks(unittest.TestCase):
    def test_golden_launch_orders(self):
        compared = 0
        for case in golden("isolation")["launch_order"]:
            groups = [Group(name, ranks, i + 1) for i, (name, ranks) in enumerate(case["members"].items())]
            schedules = [Schedule(int(r), groups, [Operation("barrier", step.split(".")[0]) for step in order])
                         for r, order in case["program_order_by_rank"].items()]
            self.assertEqual(check(schedules).safe_serialised, case["happens_before_acyclic"], case["name"])
            compared += 1
        self.assertGreater(compared, 3)

    def test_ranks_that_differ_are_named(self):
        schedules = [layer(r, count=13 if r == 2 else 12, names=(f"ag{r}", f"a2a{r}", f"rs{r}"))
                     for r in range(RANKS)]
        with self.assertRaisesRegex(lierne.errors.MismatchError,
                                    r"rank 2: operation 0 'ag2' \(all_gather 0 of group 'world', uid 9\): "
                                    "count is 13, expected 12 as on rank 0"):
            check(schedules)
        order = check([isolate(layer(r)) for r in range(RANKS)])
        self.assertEqual((order.ngroups, order.ncreated, order.cycle), (2, 1, ""))
        self.assertTrue(order.safe_serialised and order.safe_concurrent)

    def test_a_cycle_is_named(self):
        """Two groups, launched in another order by rank 1."""
        groups = [Group("a", [0, 1], 1), Group("b", [0, 1], 2)]
        schedules = [Schedule(r, groups, [Operation("barrier", "ab"[(i + r) % 2], name=f"n{i}")
                                          for i in range(2)]) for r in range(2)]
        order = check(schedules)
        self.assertEqual((order.safe_serialised, order.safe_concurrent), (False, True))
        with self.assertRaisesRegex(lierne.errors.InvalidError, "one by one: .*rank 1 launches barrier 0 "
                                    "'n0' of b before barrier 0 'n1' of a"):
            launch_order(schedules)
        self.assertEqual(launch_order(schedules, concurrent=True), order)
        waiting = [Schedule(r, groups, [Operation("barrier", "ab"[r], name=f"x{r}"),
                                        Operation("barrier", "ba"[r], after=(0,), name=f"y{r}")])
                   for r in range(2)]
        with self.assertRaisesRegex(lierne.errors.InvalidError, "closes a cycle: .*'y1'"):
            launch_order(waiting, concurrent=True)


def planned(context, held=()):
    """The layer with plans, an all-gather first. Rank 1 withholds what is held."""
    plans = (lierne.all_gather(context, 3, "i32"), lierne.all_to_all(context, 2, "i32"),
             lierne.reduce_scatter(context, 3, "i32"))
    kinds = [plan.kind for plan in plans]
    return Schedule(context.rank, [WORLD], [
        Operation(kind, "world", tag="ep" if kind == "all_to_all" else "", plan=plan, name=kind + "!",
                  held=kind in held and context.rank == 1) for kind, plan in zip(kinds, plans)])


def data_of(rank):
    """Inputs of the layer, and its results in closed form."""
    shard = lambda r: 100 * r + np.arange(1, 4, dtype=np.int32)  # noqa: E731
    tokens = lambda r: 1000 * (r + 1) + np.arange(2 * RANKS, dtype=np.int32)  # noqa: E731
    grads = lambda r: (r + 1) * np.arange(1, 3 * RANKS + 1, dtype=np.int32)  # noqa: E731
    return ([shard(rank), tokens(rank), grads(rank)],
            [np.concatenate([shard(r) for r in range(RANKS)]),
             np.concatenate([tokens(r)[2 * rank:2 * rank + 2] for r in range(RANKS)]),
             sum(grads(r) for r in range(RANKS))[3 * rank:3 * rank + 3]])


class Runs(unittest.TestCase):
    def test_results_and_traces(self):
        def work(context):
            data, expected = data_of(context.rank)
            with Run(context, isolate(planned(context))) as own:
                self.assertEqual([(g.name, g.source, g.ranks) for g in own.created],
                                 [("ep@9", 9, tuple(range(RANKS)))])
                for _ in range(2):
                    own.begin(data)
                    for got, wanted in zip(own.wait(), expected):
                        np.testing.assert_array_equal(got, wanted)
                into = [np.full_like(wanted, -7) for wanted in expected]
                own.begin(data, into)
                while not own.test():
                    pass
                self.assertIs(own.wait()[1], into[1])
                np.testing.assert_array_equal(into[1], expected[1])
                events = [own.event(i) for i in range(3)]
                self.assertEqual([e.queue for e in events], [0, 1, 0])
                self.assertTrue(all(0 < e.issued <= e.begun <= e.resumed <= e.ended for e in events))
                self.assertLessEqual(events[0].ended, events[2].begun)
                self.assertEqual(events[1].bytes, 2 * 4 * (RANKS - 1))
                texts = own.trace()
            for got, wanted in zip(run(context, planned(context), data, concurrent=True), expected):
                np.testing.assert_array_equal(got, wanted)
            return texts

        with lierne.Context.sim(RANKS, timeout=30) as world:
            bars = [e for e in json.loads(trace(world.run(work))) if e["ph"] == "X"]
        self.assertEqual(sorted((e["pid"], e["tid"], e["args"]["name"]) for e in bars),
                         sorted((r, q, kind + "!") for r in range(RANKS)
                                for q, kind in ((0, "all_gather"), (1, "all_to_all"), (0, "reduce_scatter"))))

    def test_the_gate(self):
        """Rank 1 withholds its all-gather until it has seen the all-to-all complete."""
        def work(context):
            own = Run(context, isolate(planned(context, held=["all_gather"])))
            data, expected = data_of(context.rank)
            own.begin(data)
            while context.rank == 1 and not own.event(1).ended:
                own.test()
            if context.rank == 1:
                self.assertEqual((own.event(0).resumed, own.event(2).begun), (0, 0))
                own.resume(0)
            for got, wanted in zip(own.wait(), expected):
                np.testing.assert_array_equal(got, wanted)
            first, second = own.event(0), own.event(1)
            self.assertLess(second.begun, first.ended)
            if context.rank == 1:
                self.assertLess(second.ended, first.resumed)

        with lierne.Context.sim(RANKS, timeout=30) as world:
            world.run(work)

    def test_the_gate_stays_shut_in_one_queue(self):
        def work(context):
            own = Run(context, planned(context, held=["all_gather"]))
            own.begin(data_of(context.rank)[0])
            with self.assertRaises(lierne.Error) as caught:
                own.wait()
            self.assertEqual(own.event(1).begun, 0)
            return str(caught.exception)

        world = lierne.Context.sim(RANKS, timeout=0.5)
        texts = world.run(work)
        self.assertIn("operation 0 'all_gather!' (all_gather of group 'world') is held", texts[1])
        self.assertIn("operation 1 waits behind it in the same queue", texts[1])
        world.close()

    def test_a_progress_thread(self):
        def work(context):
            data, expected = data_of(context.rank)
            with Run(context, isolate(planned(context)), progress_thread=True) as own:
                own.begin(data)
                done = threading.Event()
                while not own.event(2).ended:  # progresses nothing
                    done.wait(1e-3)
                for got, wanted in zip(own.wait(), expected):
                    np.testing.assert_array_equal(got, wanted)

        with lierne.Context.sim(RANKS, timeout=30) as world:
            world.run(work)

    def test_external_runs(self):
        def work(context):
            own = Run(context, isolate(layer(context.rank)), external=True)
            again = Run(context, isolate(layer(context.rank)), external=True)
            self.assertEqual([g.name for g in own.created], ["ep@9"])
            self.assertEqual(again.created, [])
            with self.assertRaisesRegex(lierne.errors.InvalidError, "external"):
                own.begin([None] * 3)
            with self.assertRaisesRegex(lierne.errors.MismatchError, "rank 3: operation 0 'gather'"):
                Run(context, layer(context.rank, count=5 + context.rank // 3), external=True)
            return own.created

        with lierne.Context.sim(RANKS, timeout=30) as world:
            made = world.run(work)
            self.assertTrue(all(groups == made[0] for groups in made))

    def test_adjoints(self):
        def work(context):
            plan = lierne.all_gather(context, 3, "i32")
            schedule = Schedule(context.rank, [WORLD], [
                Operation("all_gather", "world", plan=plan, direction="adjoint")])
            self.assertEqual(schedule.operations[0].direction, "adjoint")
            self.assertIs(schedule.operations[0].plan, plan)
            data, expected = data_of(context.rank)  # the sums of its reduce-scatter
            np.testing.assert_array_equal(run(context, schedule, [data[2]])[0], expected[2])

        with lierne.Context.sim(RANKS, timeout=30) as world:
            world.run(work)

    def test_what_is_collected_is_freed(self):
        """A plan may be collected before what holds it."""
        context = lierne.Context.self()
        for hold in (lambda p: lierne.Coalesced([p, lierne.barrier(context)]),
                     lambda p: Run(context, Schedule(0, [Group("g", [0], 1)], [
                         Operation("all_reduce", "g", plan=p)]))):
            plan = lierne.all_reduce(context, 2, "f32")
            owner = hold(plan)
            context._discard(lierne._library.lib.lierne_plan_destroy, plan._handle)
            plan._handle = None  # as if it were collected first
            context.progress()
            self.assertEqual(len(context._doomed), 1)
            del owner, plan
            gc.collect()
            context.progress()
            context.progress()
            self.assertEqual(context._doomed, [])
        context.close()

    def test_wrong_calls(self):
        with lierne.Context.self() as context:
            plan = lierne.all_reduce(context, 2, "f32")
            schedule = Schedule(0, [Group("g", [0], 1)], [Operation("all_reduce", "g", plan=plan)])
            own, x = Run(context, schedule), np.ones(2, np.float32)
            for function, kind, text in (
                    (lambda: Run(context, None), lierne.errors.InvalidError, "schedule is NULL"),
                    (lambda: Run(None, schedule), TypeError, "None is no context"),
                    (lambda: Run(context, schedule, stream=0x10), lierne.errors.InvalidError, "stream is 0x10"),
                    (lambda: own.begin([]), ValueError, "data has 0 entries, must have 1"),
                    (lambda: own.begin([x], []), ValueError, "outs has 0 entries"),
                    (lambda: own.begin([x.astype(int)]), TypeError, "dtype i64"),
                    (lambda: own.resume(0), lierne.errors.InvalidError, "was not begun"),
                    (lambda: own.wait(), lierne.errors.InvalidError, "was not begun"),
                    (plan.close, lierne.errors.BusyError, "run")):
                with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                    function()
            own.begin([x])
            self.assertRaises(lierne.errors.BusyError, own.close)
            np.testing.assert_array_equal(own.wait()[0], x)
            own.close()
            self.assertRaisesRegex(ValueError, "run is closed", lambda: own.begin([x]))
            plan.close()


def planners(context, group):
    """What makes a plan of each planner in a group. Of the rows and swaps, none are remote."""
    grid = lierne.Grid({"tp": 1, "dp": RANKS})
    layout = lierne.Layout(grid, (RANKS,), "f32", {"dp": lierne.Shard(0)})
    sides = grid, grid, (RANKS, 2), "f32"
    return (lambda: lierne.Bridge(context, *sides, group=group),
            lambda: lierne.Megatron(context, *sides, group=group),
            lambda: lierne.Redistribute(context, layout, layout, group=group),
            lambda: lierne.TensorSet(context, [layout], [layout], group=group),
            lambda: lierne.Graph(context, list(range(RANKS)), [], [], "f32", group=group),
            lambda: lierne.References(context, 1, [], [], "f32", group=group),
            lambda: lierne.Halo(context, 1, 0, [], [], [], [], "f32", group=group),
            lambda: lierne.all_gather(context, 1, "f32", group=group),
            lambda: lierne.reduce_scatter(context, 1, "f32", group=group),
            lambda: lierne.all_reduce(context, 1, "f32", group=group),
            lambda: lierne.broadcast(context, 1, "f32", 0, group=group),
            lambda: lierne.all_to_all(context, 1, "f32", group=group),
            lambda: lierne.barrier(context, group=group))


class Groups(unittest.TestCase):
    def test_every_planner_takes_a_group(self):
        """A group with a plan is busy, before and after an update; one of another context is none."""
        def work(context):
            with lierne.Context.self() as other:
                foreign, = create_groups(other, ("foreign", [0]))
                for plan in planners(context, foreign):
                    with self.assertRaisesRegex(lierne.errors.InvalidError, "group"):
                        plan()
            for n in range(len(planners(context, None))):
                group, = create_groups(context, ("own", range(RANKS)))
                plan = planners(context, group)[n]()
                self.assertRaises(lierne.errors.BusyError, group.close)
                if isinstance(plan, lierne.Graph):
                    plan.update(list(range(RANKS)), [], [])
                    self.assertRaises(lierne.errors.BusyError, group.close)
                plan.close()
                group.close()
            with self.assertRaisesRegex(TypeError, "'own' is no group"):
                lierne.barrier(context, group="own")

        with lierne.Context.sim(RANKS, timeout=30) as world:
            world.run(work)

    def test_what_failed_to_end_is_not_ended_again(self):
        """A communicator that does not end is an error, and the group or run is destroyed all the same."""
        def failing(name):
            def destroy(own):
                ended.append(name)
                getattr(lib, name)(own)
                return lib.LIERNE_ERR_TIMEOUT
            return destroy

        ended, lib = [], lierne.schedules.lib
        names = "lierne_group_destroy", "lierne_run_destroy"
        fake = types.SimpleNamespace(**{name: failing(name) for name in names})
        with lierne.Context.self() as context:
            schedule = Schedule(0, [Group("own", [0], 1)], [])
            both = create_groups(context, ("own", [0])) + [Run(context, schedule)]
            with unittest.mock.patch.object(lierne.schedules, "lib", fake):
                for own in both:
                    self.assertRaises(lierne.errors.TimeoutError, own.close)
                    own.close()
                self.assertEqual(ended, list(names))
                del own, both
                gc.collect()
                self.assertEqual(context._doomed, [])

    def test_groups_of_a_context(self):
        grid = lierne.Grid({"tp": 2, "dp": 2})

        def work(context):
            tp, odd = create_groups(context, ("tp", grid.groups("tp"), "high"), ("odd", (3, 1)))
            mine = context.rank // 2 * 2
            self.assertEqual((tp.ranks, tp.purpose, tp.priority), ((mine, mine + 1), "tp", "high"))
            self.assertEqual((tp.rank, tp.uid), (context.rank % 2, 1 + context.rank // 2))
            self.assertEqual(odd and (odd.ranks, odd.rank, odd.uid),
                             ((3, 1), int(context.rank == 1), 3) if context.rank % 2 else None)
            schedule = Schedule(context.rank, [tp], [Operation("barrier", tp.name)])
            self.assertEqual(schedule.groups[0].uid, tp.uid)
            with self.assertRaisesRegex(lierne.errors.NoResourceError, "max_groups is 2"):
                create_groups(context, ("more", range(RANKS)), ("most", range(RANKS)))
            with self.assertRaisesRegex(lierne.errors.MismatchError, "purpose"):
                create_groups(context, (f"p{context.rank // 3}", [0]))
            for group in (tp, odd):
                if group:
                    group.close()
            self.assertRaises(ValueError, lambda: tp.uid)
            create_groups(context, ("more", range(RANKS)), ("most", range(RANKS)))

        with lierne.Context.sim(RANKS, timeout=30.5, max_groups=2) as world:
            self.assertEqual(world[0].timeout, 30.5)
            world.run(work)


if __name__ == "__main__":
    main()
