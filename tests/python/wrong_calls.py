"""Calls that must fail: wrong arguments, what is closed, copies, forks."""
import copy
import os
import pickle
import unittest

import numpy as np

import lierne
import lierne.oob
from report import ROOT, main


class WrongCalls(unittest.TestCase):
    """Each is an exception that says what is wrong; none crashes, and none is accepted."""

    def rejects(self, cases):
        for function, kind, text in cases:
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                function()

    def test_arguments(self):
        grid, alone = lierne.Grid({"tp": 1, "dp": 2}), lierne.Grid({"x": 1})
        layout = lierne.Layout(alone, (4,), "f32", {})
        data, both = np.arange(6, dtype=np.float32), np.arange(9, dtype=np.float32)
        with lierne.Context.self() as c:
            plan = lierne.all_reduce(c, 6, "f32")
            pair = lierne.Coalesced([plan, lierne.all_reduce(c, 6, "f32")])
            self.rejects([
                (lambda: lierne.all_reduce(None, 6, "f32"), TypeError, "None is no context"),
                (lambda: lierne.all_reduce(grid, 6, "f32"), TypeError, "Grid.* is no context"),
                (lambda: lierne.all_reduce(c, 6, "f33"), TypeError, "dtype is 'f33', must be one of f64"),
                (lambda: lierne.all_reduce(c, 6, None), TypeError, "dtype is None"),
                (lambda: lierne.all_reduce(c, "6", "f32"), TypeError, "count is '6'"),
                (lambda: lierne.all_reduce(c, 6.5, "f32"), TypeError, "count is 6.5"),
                (lambda: lierne.all_reduce(c, -1, "f32"), lierne.errors.CountRangeError, "count is -1"),
                (lambda: lierne.all_reduce(c, 1 << 70, "f32"), OverflowError, "count is 11805916207174113"),
                (lambda: lierne.all_reduce(c, 6, "f32", reduction=[]), ValueError, r"reduction is \[\]"),
                (lambda: lierne.all_to_all(c, [1, 2], "f32"), ValueError, "count has 2 entries, must have 1"),
                (lambda: lierne.all_to_all(c, [1], "f32", receive=[1, 1]), ValueError, "receive has 2"),
                (lambda: lierne.all_gather(c, [1, 2], "f32"), ValueError, "count has 2 entries, must have 1"),
                (lambda: plan.forward(None), lierne.errors.InvalidError, "in is NULL"),
                (lambda: plan.forward(data.astype(">f4")), TypeError, "bytes are in the other order"),
                (lambda: plan.forward(np.array([None] * 6)), TypeError, "no dtype for object"),
                (lambda: plan.forward(np.zeros((2, 3), "f4", "F")), ValueError, "not contiguous"),
                (lambda: plan.forward(both[:6], both[3:]), lierne.errors.InvalidError, "overlap"),
                (lambda: plan.begin(data, direction=[]), ValueError, r"direction is \[\]"),
                (lambda: plan.then(None), TypeError, "None is no plan"),
                (lambda: pair.begin([data]), ValueError, "data has 1 entries for 2 plans"),
                (lambda: pair.begin([data] * 2, outs=[data]), ValueError, "outs has 1 entries for 2"),
                (lambda: lierne.Coalesced([]), ValueError, "plans is empty"),
                (lambda: lierne.Coalesced([layout]), TypeError, "is no plan"),
                (lambda: lierne.check_plans([None]), TypeError, "None is no plan"),
                (lambda: lierne.Grid([2]), TypeError, r"dims is \[2\], must be a dict"),
                (lambda: lierne.Grid({"tp": 1.5}), TypeError, "dim 'tp' is 1.5"),
                (lambda: lierne.Grid({3: 2}), TypeError, "a dim is named 3"),
                (lambda: grid.rank({"tp": 0}), KeyError, "coords has no 'dp'"),
                (lambda: lierne.Layout(None, (4,), "f32", {}), TypeError, "None is no grid"),
                (lambda: lierne.Layout(grid, (4,), "f32", {"dp": 3}), TypeError, "dim 'dp' is 3"),
                (lambda: lierne.Layout(grid, (4,), "f32", {}, halos=[3]), TypeError, "halos has 3, must have"),
                (lambda: layout.split(None, 0), TypeError, "None is no layout"),
                (lambda: plan.update_documents(0, [0, 1.5, 4]), TypeError, "segments has dtype float64"),
                (lambda: lierne.Bridge(c, "G", grid, (4, 2), "f32"), TypeError, "'G' is no grid"),
                (lambda: lierne.Bridge(c, grid, grid, (4, 2), "f32", batch_axis=9, owner="rows",
                                       row_owner=[0]), ValueError, r"\(4, 2\) has no axis 9"),
                (lambda: lierne.Redistribute(c, None, layout), TypeError, "None is no layout"),
                (lambda: lierne.TensorSet(c, [grid], [layout]), TypeError, "Grid.* is no layout"),
                (lambda: lierne.digest(layout, 0, data[:4], key=-1), OverflowError, "key is -1"),
                (lambda: lierne.digest(layout, 0, None), lierne.errors.InvalidError, "data is NULL"),
                (lambda: lierne.check_digests(c, [layout], [], [], [data]), ValueError, "dst 0"),
                (lambda: lierne.Context.sim(2, nodes=[0]), ValueError, "nodes has 1 entries, must have 2"),
                (lambda: lierne.Context.self(timeout="a"), TypeError, "timeout is 'a'"),
                (lambda: lierne.Context.oob(0, 1, None), TypeError, "calls is None"),
                (lambda: c.empty((-1,), "f32"), ValueError, r"shape is \(-1,\)"),
                (lambda: lierne.simulate(os.path.join(ROOT, "grids", "encoder-llm-8.json"), shape=(8,)),
                 ValueError, "shape has 1 axes, that of the bridge 3")])

    def test_what_is_closed(self):
        c, other = lierne.Context.self(), lierne.Context.self()
        closed, orphan = (lierne.all_reduce(context, 2, "f32") for context in (c, other))
        request = closed.begin(np.ones(2, "f4"))
        request.wait()
        closed.close()
        other.close()
        for plan, text in ((closed, "the plan is closed"), (orphan, "the context of the plan is closed")):
            self.rejects([(function, ValueError, text) for function in (
                lambda: plan.forward(np.ones(2, "f4")), lambda: plan.begin(np.ones(2, "f4")), plan.shapes,
                plan.report, plan.text, plan.route, plan.alias, lambda: plan.kind, lambda: plan.dtype,
                plan.transposed, lambda: plan.update_shape((2,)))])
            self.assertEqual(repr(plan), "<closed plan>")
            plan.close()
        self.rejects([(function, ValueError, "closed") for function in (
            request.wait, request.test, other.progress, other.dump, lambda: other.rank,
            lambda: other.members, lambda: other.empty((2,), "f4"), lambda: lierne.hangs.status(other),
            lambda: lierne.check_plans([closed]), lambda: lierne.Coalesced([orphan]))])
        c.close()

    def test_copies_and_forks(self):
        with lierne.Context.self() as c:
            plan = lierne.all_reduce(c, 2, "f32")
            self.rejects([(lambda: function(thing), TypeError, "can be neither copied nor pickled")
                          for thing in (c, plan) for function in (copy.copy, copy.deepcopy, pickle.dumps)])
            child = os.fork()
            if child == 0:
                try:
                    plan.forward(np.ones(2, "f4"))
                except RuntimeError as error:
                    os._exit(0 if f"made in process {os.getppid()}" in str(error) else 1)
                os._exit(2)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(plan.forward(np.ones(2, "f4")).tolist(), [1, 1])


if __name__ == "__main__":
    main()
