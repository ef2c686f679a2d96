"""Outputs that the ranks of a node share, on 4 ranks of this node."""
import ctypes
import gc
import unittest

import numpy as np

import lierne
from cases import on_node
from report import main


class SharedOutputs(unittest.TestCase):
    """Results that the ranks of a node share: bits of plans that do not share, one memory, rules."""

    @staticmethod
    def bridge(context, sharing, dst=None, **options):
        """tp2 dp2 to tp2 cp2: the whole batch on every rank forward, half of it per pair adjoint."""
        return lierne.Bridge(context, lierne.Grid({"tp": 2, "dp": 2}),
                             lierne.Grid(dst or {"tp": 2, "cp": 2, "dp": 1}), (6, 4, 5), "f32",
                             sequence_axis=1, shared_output=sharing, **options)

    def test_bits_equal_those_of_a_plan_that_does_not_share(self):
        def rank(context):
            plain, shared = (self.bridge(context, sharing) for sharing in ("none", "both"))
            for direction, execute in (("forward", lierne.Plan.forward), ("adjoint", lierne.Plan.adjoint)):
                for number in range(4):
                    rng = np.random.default_rng(10 * number + context.rank // 2)
                    x = rng.standard_normal(plain.shapes(direction)[0]).astype(np.float32)
                    if direction == "adjoint":  # every tp rank of a cp rank has the same contribution
                        x *= 1 + context.rank // 2
                    expected = execute(plain, x)
                    self.assertTrue(expected.any())
                    self.assertEqual(execute(shared, x).tobytes(), expected.tobytes())
                    again = shared.begin(x, direction=direction).wait()
                    self.assertEqual(again.tobytes(), expected.tobytes())
                    self.assertEqual((again.shape, again.dtype), (expected.shape, expected.dtype))
            del again
            return shared.report()["min_bytes"]

        self.assertEqual(on_node(4, rank), [0] * 4)
        with lierne.Context.sim(4) as world:  # there is no memory to share: each rank has its own
            world.run(rank)

    def test_a_result_is_one_memory_read_only_and_lasts_until_the_next_call(self):
        def rank(context):
            plan, barrier = self.bridge(context, "forward"), lierne.barrier(context)
            x = np.full(plan.shapes()[0], context.rank // 2 + 1, np.float32)
            out = plan.forward(x)
            with self.assertRaisesRegex(ValueError, "read-only"):
                out[0] = 7
            with self.assertRaises(ValueError):
                out.flags.writeable = True
            barrier.forward(None)
            if context.rank == 2:  # what one rank writes in spite of that, all of them see
                ctypes.c_float.from_address(out.ctypes.data).value = 77
            barrier.forward(None)
            seen, stale = float(out[0, 0, 0]), out.copy()
            barrier.forward(None)
            third = plan.forward(3 * x), plan.forward(5 * x)
            self.assertEqual((third[1][0, 0, 0], third[1][5, 0, 0]), (5, 10))
            self.assertEqual((stale[5, 0, 0], out[5, 0, 0]), (2, 10))  # two buffers take turns
            return seen

        self.assertEqual(on_node(4, rank), [77] * 4)

    def test_memory_that_an_array_uses_is_not_freed(self):
        def rank(context):
            plan = self.bridge(context, "forward")
            out = plan.forward(np.ones(plan.shapes()[0], np.float32))
            for close in (plan.close, context.close, lambda: plan.update_shape((4, 4, 5))):
                with self.assertRaisesRegex(BufferError, "1 array uses its memory"):
                    close()
            part = out[1:, 0]
            del out
            with self.assertRaises(BufferError):
                plan.close()
            del plan  # the array keeps it
            gc.collect()
            context.progress()
            self.assertEqual(part.sum(), 25)
            del part
            again = self.bridge(context, "forward")
            again.update_shape((4, 4, 5))
            self.assertEqual(again.forward(np.ones(again.shapes()[0], np.float32)).sum(), 80)
            again.close()

        on_node(4, rank)
        with lierne.Context.sim(4) as world:
            world.run(rank)

    def test_an_error_with_results_in_use_crashes_nothing(self):
        kept = []

        def rank(context):
            plan = self.bridge(context, "forward")
            kept.append(plan.forward(np.ones(plan.shapes()[0], np.float32)))
            raise RuntimeError("mine")

        with self.assertWarns(ResourceWarning):
            with self.assertRaises((RuntimeError, lierne.Error)):
                on_node(4, rank)
            self.assertEqual([out.sum() for out in kept], [120] * len(kept))
            self.assertGreater(len(kept), 0)
            kept.clear()
            gc.collect()

    def test_what_cannot_share_is_rejected(self):
        def rank(context):
            plan = self.bridge(context, "forward")
            x = np.zeros(plan.shapes()[0], np.float32)
            with self.assertRaisesRegex(lierne.errors.InvalidError, "must be NULL: the output is the plan's"):
                plan.forward(x, np.zeros(plan.shapes()[1], np.float32))
            with self.assertRaisesRegex(lierne.errors.InvalidError, "max_inflight"):
                self.bridge(context, "forward", max_inflight=2)
            with self.assertRaisesRegex(lierne.errors.InvalidError, "shared_output|routing"):
                self.bridge(context, "forward", routing="balanced")
            for derive in (plan.transposed, lambda: plan.then(plan), lambda: lierne.Coalesced([plan])):
                with self.assertRaises(lierne.errors.InvalidError):
                    derive()
            with self.assertRaisesRegex(ValueError, "shared_output is 'all', must be one of none, forward"):
                self.bridge(context, "all")
            with self.assertRaises(lierne.errors.MismatchError):
                self.bridge(context, "forward" if context.rank else "both")

        on_node(4, rank)
        grid = lierne.Grid({"tp": 4, "dp": 1})
        with self.assertRaisesRegex(ValueError, "must be 'none'"):
            lierne.BridgeRoutes(0, grid, grid, (4, 2), "f32", shared_output="both")

    def test_redistributions_share_too(self):
        def rank(context):
            grid = lierne.Grid({"x": 2, "y": 2})
            src, dst = (lierne.Layout(grid, (5, 3), "i64", {"y": lierne.Shard(0)} if cut else {})
                        for cut in (True, False))
            plan = lierne.Redistribute(context, src, dst, shared_output="forward")
            first, count = (0, 3) if context.rank < 2 else (3, 2)
            out = plan.forward(np.arange(15).reshape(5, 3)[first:first + count])
            np.testing.assert_array_equal(out, np.arange(15).reshape(5, 3))
            self.assertFalse(out.flags.writeable)
            self.assertTrue(plan.adjoint(np.ones((5, 3), np.int64)).flags.writeable)

        on_node(4, rank)


if __name__ == "__main__":
    main()
