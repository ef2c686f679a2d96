"""Plans of tensors from Python, the requests of their calls, and what becomes of both."""
import dataclasses
import gc
import threading
import unittest
import weakref

import numpy as np

import lierne
import lierne.oob
from cases import begin_all, on_node
from report import main


class Plans(unittest.TestCase):
    def test_collectives(self):
        def rank(context):
            r = context.rank
            x = np.arange(6, dtype=np.int64) + 10 * r
            gathered = lierne.all_gather(context, [1, 2, 3], "i64").forward(x[:r + 1])
            np.testing.assert_array_equal(gathered, [0, 10, 11, 20, 21, 22])
            part = lierne.reduce_scatter(context, 2, "i64").forward(x)
            np.testing.assert_array_equal(part, 3 * x[2 * r:2 * r + 2] + 30 - 30 * r)
            least = lierne.reduce_scatter(context, 2, "i64", reduction="min").forward(x)
            np.testing.assert_array_equal(least, x[2 * r:2 * r + 2] - 10 * r)
            most = lierne.all_reduce(context, 6, "i64", reduction="max").forward(x)
            np.testing.assert_array_equal(most, np.arange(6) + 20)
            root = lierne.broadcast(context, 6, "i64", root=1).forward(x if r == 1 else None)
            np.testing.assert_array_equal(root, np.arange(6) + 10)
            every = lierne.all_to_all(context, 2, "i64").forward(x)
            np.testing.assert_array_equal(every.reshape(3, 2)[:, 0], [2 * r, 10 + 2 * r, 20 + 2 * r])
            lierne.barrier(context).forward(None)

        with lierne.Context.sim(3) as world:
            world.run(rank)

    def test_names_and_summaries(self):
        def rank(context):
            self.assertEqual(context.name, "training")
            plan = lierne.all_gather(context, 1, "i64", name="weights")
            self.assertEqual(plan.name, "weights")
            self.assertIsNone(lierne.barrier(context).name)
            for _ in range(3):
                plan.forward(np.zeros(1, np.int64))
            row, = [row for row in context.summary()["plans"] if row["name"]]
            self.assertEqual((row["name"], row["kind"], row["forward"]["calls"]), ("weights", "all_gather", 3))
            self.assertIn("weights (all_gather)", context.summary_table())
            with self.assertRaisesRegex(ValueError, "plan 'weights': rank"):
                plan.reduce(np.zeros(2, np.int64), "max")
            return context.reduce_summary()

        with lierne.Context.sim(2, context_name="training") as world:
            tables = world.run(rank)
        self.assertIn("2 ranks of 'training'", tables[0])
        self.assertEqual(tables[0].splitlines()[1:], tables[1].splitlines()[1:])
        grid = lierne.Grid({"dp": 2}, name="vision")
        self.assertEqual(grid.name, "vision")
        with self.assertRaisesRegex(lierne.errors.DimSizeError, "grid 'vision'"):
            lierne.Grid({"dp": 0}, name="vision")

    def test_dense_halos(self):
        grid = lierne.Grid({"x": 2})
        part = lierne.Layout(grid, (6, 2), "f64", {"x": lierne.Shard(0)})
        ring = lierne.DenseHalo(0, 1, 1, "periodic")
        halo = lierne.Layout(grid, (6, 2), "f64", {"x": lierne.Shard(0)}, halos=[ring])
        margins = lierne.Layout(grid, (6, 2), "f64", {"x": lierne.Shard(0)}, halos=[ring], halo_storage="margins")
        self.assertEqual(halo.shape(0), (5, 2))
        self.assertEqual(halo.windows(1, 0), [(2, 5, 0, 3, 3)])
        self.assertEqual(margins.margins(1), [((2, 0), (1, 2), 0), ((6, 0), (1, 2), 2)])
        self.assertEqual(halo.split(part, 0), [((1, 0), (1, 2), True), ((0, 0), (1, 2), False),
                                               ((2, 0), (1, 2), False)])
        whole = np.arange(12.0).reshape(6, 2)
        with lierne.Context.sim(2) as world:
            plans = [lierne.Redistribute(world[r], part, halo) for r in range(2)]
            outs = begin_all(plans, [whole[:3], whole[3:]])
            np.testing.assert_array_equal(outs[0], whole[[5, 0, 1, 2, 3]])
            np.testing.assert_array_equal(outs[1], whole[[2, 3, 4, 5, 0]])
        outputs = lierne.DenseHalo.convolution(0, 6, kernel=3, stride=2, pad_lo=1, pad_hi=1)
        strided = lierne.Layout(grid, (6, 2), "f64", {"x": lierne.Shard(0)}, halos=[outputs])
        self.assertEqual(strided.windows(0, 0), [(-1, 5, 0, 0, 2)])
        documents = lierne.DenseHalo(0, 2, 0, segments=[0, 2, 6])
        causal = lierne.Layout(grid, (6, 2), "f64", {"x": lierne.Shard(0)}, halos=[documents])
        self.assertEqual(causal.windows(1, 0), [(2, 4, 0, 3, 3)])
        with lierne.Context.sim(2) as world:
            plans = [lierne.Redistribute(world[r], part, causal) for r in range(2)]
            for plan in plans:
                plan.update_documents(0, np.array([0, 3, 6]))
            self.assertEqual([out[0, 0] for out in begin_all(plans, [whole[:3], whole[3:]])], [0, 6])
            with self.assertRaisesRegex(lierne.errors.InvalidError, "must be at least 4"):
                plans[0].update_documents(0, [0, 4, 3, 6])
        uneven = lierne.DenseHalo(0, boundary="zero", starts=[-1, 2], ends=[2, 4])
        own = lierne.Layout(grid, (6, 2), "f64", {"x": lierne.Shard(0)}, halos=[uneven])
        self.assertEqual([own.shape(r) for r in range(2)], [(3, 2), (2, 2)])
        with self.assertRaisesRegex(ValueError, "ends of axis 0 has 1 entries, must have 2"):
            lierne.Layout(grid, (6, 2), "f64", {"x": lierne.Shard(0)},
                          halos=[lierne.DenseHalo(0, starts=[0, 1], ends=[2])])
        with self.assertRaisesRegex(lierne.errors.InvalidError, "nsegments is 0, but segments is given"):
            lierne.Layout(grid, (6, 2), "f64", {"x": lierne.Shard(0)}, halos=[lierne.DenseHalo(0, 1, segments=[6])])
        with self.assertRaisesRegex(ValueError, "boundary is 'wrap'"):
            lierne.DenseHalo(0, 1, 1, "wrap")
        with self.assertRaisesRegex(lierne.errors.InvalidError, "no output"):
            lierne.DenseHalo.convolution(0, 2, kernel=5)

    def test_redistribution_and_composition(self):
        with lierne.Context.sim(4) as world:
            grid = lierne.Grid({"x": 2, "y": 2})
            rows = lierne.Layout(grid, (6, 4), "f64", {"y": lierne.Shard(0)})
            both = lierne.Layout(grid, (6, 4), "f64", {"y": lierne.Shard(0), "x": lierne.Shard(1)})
            there = [lierne.Redistribute(world[r], rows, both) for r in range(4)]
            back = [lierne.Redistribute(world[r], both, rows) for r in range(4)]
            round_trip = [a.then(b) for a, b in zip(there, back)]
            whole = np.arange(24.0).reshape(6, 4)
            data = [whole[3 * (r // 2):3 * (r // 2) + 3] for r in range(4)]
            for out, x in zip(begin_all(round_trip, data), data):
                np.testing.assert_array_equal(out, x)
            self.assertEqual(both.shape(1), (3, 2))
            self.assertEqual(both.boxes(1), [((0, 2), (3, 2), (0, 0))])
            together = [lierne.Coalesced([a, a2]) for a, a2 in zip(there, [
                lierne.Redistribute(world[r], rows, both) for r in range(4)])]
            for pair, x in zip(together, data):
                pair.begin([x, -x])
            for r, pair in enumerate(together):
                one, two = pair.wait()
                np.testing.assert_array_equal(one, data[r][:, 2 * (r % 2):2 * (r % 2) + 2])
                np.testing.assert_array_equal(two, -one)
                # Both plans in one message per peer: a rank needs rows of its own two ranks only.
                sent, received = pair.messages()
                self.assertEqual((sent, received), (there[r].report()["sent_messages"],
                                                    there[r].report()["received_messages"]))

    def test_sets(self):
        """Rank 0 trains, ranks 1 and 2 serve: three matrices by columns and two vectors."""
        with lierne.Context.sim(3) as world:
            trainer = lierne.Grid({"tp": 1}, world_size=3)
            engine = lierne.Grid({"tp": 2}, rank_offset=1, world_size=3)
            shapes = [((4, 6), lierne.Shard(1)), ((5,), lierne.Replicate())]
            pairs = [(lierne.Layout(trainer, shape, "f32", {}),
                      lierne.Layout(engine, shape, "f32", {"tp": how})) for shape, how in shapes]
            order = [0, 1, 0, 1, 0]
            src, dst = ([pairs[i][side] for i in order] for side in range(2))
            offsets = [40, 0, 13, 6, 26]
            plans = [lierne.TensorSet(world[r], src, dst, dst_offsets=offsets) for r in range(3)]
            weights = np.arange(82, dtype="f4")
            outs = begin_all(plans, [weights, np.zeros(0, "f4"), np.zeros(0, "f4")])
            self.assertEqual((plans[0].kind, outs[0].size, outs[1].size), ("set", 0, 52))
            at = 0
            for i, offset in zip(order, offsets):
                whole = weights[at:at + (24, 5)[i]]
                for r in (1, 2):
                    part = whole if i else whole.reshape(4, 6)[:, 3 * r - 3:3 * r].ravel()
                    np.testing.assert_array_equal(outs[r][offset:offset + part.size], part)
                at += whole.size
            with self.assertRaisesRegex(ValueError, "src has 5 layouts, dst 4"):
                lierne.TensorSet(world[0], src, dst[:4])

    def test_boxes_of_a_set(self):
        """Rank 0 has two matrices; rank 1 has them transposed and interleaved by pairs of rows, and one of them again."""
        trainer, engine = (lierne.Grid({"tp": 1}, first, 2) for first in range(2))
        src = [lierne.Layout(trainer, (3, 4), "f32", {})] * 2
        dst = [lierne.Layout(engine, (8, 3), "f32", {}), lierne.Layout(engine, (1, 3, 4), "f32", {})]
        boxes = [lierne.SetBox(t, 0, (0, 2 * g), (4 * g + 2 * t, 0), (2, 3), axes=(1, 0)) for t in range(2)
                 for g in range(2)] + [lierne.SetBox(1, 1, (0, 0), (0, 0, 0), (1, 3, 4), axes=(-1, 0, 1))]
        a, b = np.arange(12, dtype="f4").reshape(3, 4), np.arange(50, 62, dtype="f4").reshape(3, 4)

        def rank(context):
            plan = lierne.TensorSet(context, src, dst, boxes=boxes)
            out = plan.forward(np.concatenate([a.ravel(), b.ravel()]) if context.rank == 0 else np.zeros(0, "f4"))
            if context.rank == 1:
                fused, again = plan.views(out, "dst")
                np.testing.assert_array_equal(fused, np.concatenate([a.T[:2], b.T[:2], a.T[2:], b.T[2:]]))
                np.testing.assert_array_equal(again[0], b)
            with self.assertRaisesRegex(lierne.errors.InvalidError, "no adjoint: an element of a source is in several"):
                plan.adjoint(out)

        with lierne.Context.sim(2) as world:
            world.run(rank)
        lierne.check_set(src, dst, (box for box in boxes))
        many = [lierne.Layout(dst[0].grid, (4, 4), "f4", {}) for _ in range(64)]
        for n in range(1, len(many)):  # what the spec points to must live as long as the call
            lierne.check_set(many[:n], many[:n], [lierne.SetBox(i, i, (0, 0), (0, 0), (4, 4)) for i in range(n)])
        with self.assertRaisesRegex(lierne.errors.InvalidError, r"dst\[0\]: \[6:8, 0:3\] is in no box"):
            lierne.check_set(src, dst, boxes[:3] + boxes[4:])
        for change, words in [(dict(src=2), r"boxes\[0\].src is 2, must be in 0 to 1"),
                              (dict(sizes=(2,)), r"boxes\[0\].sizes has 1 entries for a tensor of 2 axes"),
                              (dict(dst=1, dst_start=(0, 0, 0), sizes=(1, 3, 4), axes=None),
                               r"boxes\[0\] has no axes, and its tensors have 2 and 3")]:
            with self.assertRaisesRegex(ValueError, words):
                lierne.check_set(src, dst, [dataclasses.replace(boxes[0], **change), *boxes[1:]])

    def test_deltas(self):
        """Rank 0 trains, rank 1 serves: what changed arrives, and nothing else is sent."""
        src, dst = (lierne.Layout(lierne.Grid({"tp": 1}, first, 2), (4000,), "f32", {}) for first in range(2))

        def rank(context):
            plan, second = (lierne.TensorSet(context, [src], [dst]) for _ in range(2))
            delta, other = lierne.Delta(plan), lierne.Delta(second, copy=False)
            data, sent = np.arange(plan.shapes()[0][0], dtype="f4"), []
            before = None
            for step in range(4):
                data[100 * step:100 * step + 5] += 0.5
                if step == 3:
                    delta.invalidate()
                    other.invalidate()
                want = plan.forward(data)
                if step % 2:
                    delta.begin(data)
                    data[:] += 1  # is read no more
                    np.testing.assert_array_equal(delta.end(), want)
                    data[:] -= 1
                else:
                    np.testing.assert_array_equal(delta.forward(data), want)
                np.testing.assert_array_equal(other.forward(data, previous=before), want)
                before = data.copy()
                sent.append((delta.report["version"], delta.report["sent_bytes"]))
                self.assertEqual(other.report["sent_bytes"], sent[-1][1])
            self.assertEqual(other.report["memory_bytes"], delta.report["memory_bytes"] - data.nbytes)
            other.begin(data)
            other.end()
            self.assertGreaterEqual(other.report["sent_bytes"], data.nbytes)
            with self.assertRaisesRegex(ValueError, "keeps a copy"):
                delta.forward(data, previous=before)
            with self.assertRaisesRegex(ValueError, "previous"):
                other.forward(data, previous=np.zeros(3, "f4"))
            other.close()
            second.close()
            with self.assertRaises(lierne.errors.BusyError):
                plan.close()
            with self.assertRaisesRegex(lierne.errors.InvalidError, "no call is in flight"):
                delta.end()
            delta.close()
            with self.assertRaisesRegex(ValueError, "delta is closed"):
                delta.forward(data)
            plan.close()
            return sent

        with lierne.Context.sim(2) as world:
            sent = world.run(rank)[0]
        self.assertEqual([version for version, _ in sent], [1, 2, 3, 4])
        self.assertGreater(min(sent[0][1], sent[3][1]), 16000)
        self.assertLess(max(sent[1][1], sent[2][1]), 100)

    def test_set_with_margins(self):
        """A field gets its margins, a plain tensor moves beside it; gradients of margins are added."""
        grid, cut = lierne.Grid({"x": 2}), {"x": lierne.Shard(0)}
        plain = lierne.Layout(grid, (8,), "f64", cut)
        padded = lierne.Layout(grid, (8,), "f64", cut, halos=[lierne.DenseHalo(0, 1, 1, "periodic")])
        whole = lierne.Layout(grid, (8,), "f64", {})

        def rank(context):
            plan, own = lierne.TensorSet(context, [plain, plain], [padded, whole]), np.arange(4.0) + 4 * context.rank
            out = plan.forward(np.concatenate([own, 10 * own]))
            np.testing.assert_array_equal(out[:6], np.arange(4 * context.rank - 1, 4 * context.rank + 5) % 8)
            np.testing.assert_array_equal(out[6:], 10.0 * np.arange(8))
            back = plan.adjoint(np.concatenate([np.ones(6), np.arange(8.0)]))
            np.testing.assert_array_equal(back, [2, 1, 1, 2, *own])

        with lierne.Context.sim(2) as world:
            world.run(rank)

    def test_views_and_digests_of_a_set(self):
        """Ranks 0 and 1 train with tp2; rank 2 serves the whole."""
        trainer, engine = lierne.Grid({"tp": 2}, world_size=3), lierne.Grid({"tp": 1}, 2, 3)
        cuts = [((4, 6), lierne.Shard(1)), ((5,), lierne.Replicate()), ((3, 2), lierne.Shard(0))]
        src = [lierne.Layout(trainer, shape, "f32", {"tp": cut}) for shape, cut in cuts]
        dst = [lierne.Layout(engine, shape, "f32", {}) for shape, _ in cuts]
        whole = [np.arange(np.prod(shape), dtype="f4").reshape(shape) + 100 * i
                 for i, (shape, _) in enumerate(cuts)]

        def rank(context):
            r = context.rank
            plan = lierne.TensorSet(context, src, dst, src_offsets=[20, 0, 6] if r < 2 else None)
            data = np.full(plan.shapes()[0], -7, "f4")
            parts = [np.split(whole[0], 2, 1)[r], whole[1], (whole[2][:2], whole[2][2:])[r]] if r < 2 else []
            for view, part in zip(plan.views(data), parts):
                view[...] = part
            out = plan.forward(data)
            for got, expected in zip(plan.views(out, "dst"), whole if r == 2 else []):
                np.testing.assert_array_equal(got, expected)
            there = plan.views(data), plan.views(out, "dst")
            lierne.check_digests(context, src, dst, there[1], there[0], key=5)
            parts = [[lierne.digest(layout, r, part, key=5, tensor=t) for t, (layout, part) in
                      enumerate(zip(*side))] for side in ((src, there[0]), (dst, there[1]))]
            if r == 2:
                there[1][2][1, 0] += 1
            with self.assertRaisesRegex(lierne.errors.MismatchError, "tensor 2.*rank 2|rank 2.*tensor 2"):
                lierne.check_digests(context, src, dst, there[1], there[0], key=5)
            with self.assertRaisesRegex(ValueError, r"the buffer has shape \(3,\); that of dst has"):
                plan.views(np.zeros(3), "dst")
            routes = lierne.TensorSetRoutes(r, src, dst, src_offsets=[20, 0, 6] if r < 2 else None)
            for direction in ("forward", "adjoint"):
                self.assertEqual(str(routes.route(direction)), str(plan.route(direction)))
                self.assertEqual(routes.shapes(direction), plan.shapes(direction))
            return parts

        with lierne.Context.sim(3) as world:
            found = world.run(rank)
        for t, (shape, _) in enumerate(cuts):  # digests of all ranks add up, in both layouts
            sides = [[sum(of[side][t][i] for of in found) % 2 ** 64 for i in range(2)] for side in range(2)]
            self.assertEqual(sides[0], sides[1])
            self.assertEqual(sides[0][1], np.prod(shape))
            self.assertNotEqual(sides[0][0], 0)
        with self.assertRaisesRegex(ValueError, r"data has shape \(2,\); the plan needs \(4, 3\)"):
            lierne.digest(src[0], 0, np.zeros(2, "f4"))
        with self.assertRaises(lierne.errors.InvalidError):
            lierne.TensorSetRoutes(0, [], [])
        with lierne.Context.self() as context:
            part, margins = (lierne.Layout(lierne.Grid({"x": 1}), (4,), "i64", {}, halos=halos) for halos in
                             ((), [lierne.DenseHalo(0, 1, 1, "periodic")]))
            for sides, which in (((part, margins), "dst"), ((margins, part), "src")):
                lierne.TensorSet(context, [sides[0]], [sides[1]])
                with self.assertRaisesRegex(lierne.errors.UnsupportedError, rf"{which}\[0\] has a halo"):
                    lierne.TensorSetRoutes(0, [sides[0]], [sides[1]])
            self.assertIn("'boundary': 3", repr(margins))

    def test_requests(self):
        with lierne.Context.sim(2) as world:
            plans = [lierne.all_gather(world[r], 1, "f32") for r in range(2)]
            first = plans[0].begin(np.float32([1]))
            self.assertFalse(first.test())
            with self.assertRaises(lierne.errors.BusyError):
                plans[0].close()
            second = plans[1].begin(np.float32([2]))
            for request in (first, second, first):
                np.testing.assert_array_equal(request.wait(), [1, 2])
            self.assertIs(first.wait(), first.wait())
            self.assertTrue(first.test())
            third = [plan.begin(np.float32([rank])) for rank, plan in enumerate(plans)]
            first.wait()  # another execution has its place now
            self.assertEqual([request.wait().tolist() for request in third], [[0, 1], [0, 1]])

    def test_a_request_that_is_dropped_ends(self):
        with lierne.Context.sim(2) as world:
            plans = [lierne.all_gather(world[r], 1, "f32") for r in range(2)]
            for kept in ((), (0,), (1,)):
                requests = [plan.begin(np.float32([9])) for plan in plans]
                requests = [requests[r] for r in kept]
                gc.collect()
                for request in requests:
                    self.assertEqual(request.wait().tolist(), [9, 9])
                got = begin_all(plans, [np.float32([r]) for r in range(2)])
                self.assertEqual([out.tolist() for out in got], [[0, 1], [0, 1]])
            requests = [plan.begin(np.float32([9])) for plan in plans]
            del requests
            plans[0].close()
            requests = [plan.begin(np.float32([9])) for plan in plans[1:]]
            del requests, plans  # the world is closed with a dropped request that never completes
            world[1].abort("its peer has no plan")

    def test_a_request_that_fails_keeps_its_buffers(self):
        """Another rank may still write them."""
        with lierne.Context.sim(2, timeout=0.2) as world:
            plan = [lierne.all_gather(world[r], 1, "f32") for r in range(2)][0]
            dropped, blocking = np.zeros(2, np.float32), np.zeros(2, np.float32)
            refs = weakref.ref(dropped), weakref.ref(blocking)
            plan.begin(np.float32([1]), out=dropped)
            with self.assertRaises(TimeoutError):
                plan.forward(np.float32([1]), out=blocking)
            with self.assertRaises(TimeoutError):
                plan.forward(np.float32([1]), out=blocking)
            del dropped, blocking
            gc.collect()
            self.assertTrue(all(ref() is not None for ref in refs))

    def test_a_request_of_a_dead_context_is_left_alone(self):
        with lierne.Context.sim(2) as world:
            plan = [lierne.all_gather(world[r], 1, "f32") for r in range(2)][0]
            request = plan.begin(np.float32([1]))
            world[0].abort("mine")
            plan.close()
            del request
            for _ in range(2):
                with self.assertRaisesRegex(lierne.Error, "mine"):
                    world[0].progress()

    def test_an_error_leaves_nothing_in_flight(self):
        with self.assertRaisesRegex(RuntimeError, "mine"):
            with lierne.Context.sim(2) as world:
                plans = [lierne.all_gather(world[r], 1, "f32") for r in range(2)]
                plans[0].begin(np.float32([1]))
                raise RuntimeError("mine")

    def test_collected_plans_are_freed_by_their_thread(self):
        context = lierne.Context.self()
        for _ in range(3):
            lierne.all_gather(context, 4, "f32")
        gc.collect()
        self.assertEqual(len(context._doomed), 1)  # the first two were freed by later calls
        context.progress()
        self.assertEqual(context._doomed, [])
        context.close()
        with self.assertRaisesRegex(ValueError, "the context is closed"):
            lierne.all_gather(context, 4, "f32")

    def test_threads_on_one_context_exclude_each_other(self):
        with lierne.Context.self() as context:
            plan = lierne.all_reduce(context, 100000, "f64")
            x, wrong = np.arange(100000.0), []

            def work():
                try:
                    for _ in range(200):
                        np.testing.assert_array_equal(plan.forward(x), x)
                except BaseException as error:
                    wrong.append(error)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_specs_reject_what_does_not_fit(self):
        with lierne.Context.self() as context:
            with self.assertRaisesRegex(TypeError, "elements of type float64"):
                lierne.References(context, 2, [0.5], [1], "f32")
            with self.assertRaisesRegex(OverflowError, "does not fit int32"):
                lierne.References(context, 2, [1 << 40], [1], "f32")
            with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'timeot'"):
                lierne.Context.self(timeot=3)

    def test_own_functions(self):
        class Alone(lierne.oob.Calls):
            nranks = 1

            def allgather(self, mine, everyone):
                if self.fails:
                    raise RuntimeError("the store is gone")
                everyone[:] = mine

        calls = Alone()
        calls.fails = False
        with lierne.Context.oob(0, 1, calls) as context:
            np.testing.assert_array_equal(lierne.all_reduce(context, 1, "i32").forward(np.int32([4])), [4])
        calls.fails = True
        with self.assertRaises(lierne.errors.TransportError) as caught:
            lierne.Context.oob(0, 1, calls)
        self.assertIsInstance(caught.exception.__cause__, RuntimeError)

    def test_a_nodes_processes(self):
        def rank(context):
            return lierne.all_gather(context, 1, "i32").forward(np.int32([context.rank + 5])).tolist()

        self.assertEqual(on_node(2, rank), [[5, 6]] * 2)

    def test_the_ranks_that_are_left(self):
        def rank(context):
            self.assertEqual(context.former_ranks, [])
            with self.assertRaisesRegex(lierne.errors.InvalidError, "not dead"):
                context.shrink()
            context.abort("a rank cannot go on")
            with context.shrink(timeout=20) as smaller:
                self.assertEqual(smaller.timeout, 20)
                gathered = lierne.all_gather(smaller, 1, "i32").forward(np.int32([smaller.rank + 5]))
                return smaller.former_ranks, gathered.tolist()

        self.assertEqual(on_node(3, rank), [([0, 1, 2], [5, 6, 7])] * 3)

    def test_plans_on_the_ranks_that_are_left(self):
        """Ranks 0 and 2 of 3 are left, each with a third of 9; the third of rank 1 is loaded."""
        old = lierne.Grid({"dp": 3})
        thirds = lierne.Layout(old, (9,), "i32", {"dp": lierne.Shard(0)})
        left = thirds.surviving([0, 2])
        self.assertEqual(thirds.find_lost([0, 2]), [((3,), (3,))])
        self.assertIn("surviving([0, 2])", repr(left))
        dst = lierne.Layout(lierne.Grid({"dp": 2}), (9,), "i32", {"dp": lierne.Shard(0)})
        self.assertEqual(left.find_lost_in(dst, 0), [((3,), (2,), (3,))])
        self.assertEqual(left.find_lost_in(dst, 1), [((5,), (1,), (0,))])
        with self.assertRaisesRegex(lierne.errors.InvalidError, "former"):
            thirds.surviving([2, 0])

        def rank(context):
            plan = lierne.Redistribute(context, left, dst)
            out = np.full(plan.shapes()[1], -1, np.int32)
            part = np.arange(3, dtype=np.int32) + (6 if context.rank else 0)
            plan.forward(part, out=out)
            again = plan_of_three.recreate(context, dst.grid, dst.grid)
            self.assertEqual((again.kind, again.name, type(again)), ("redistribute", "all", lierne.Redistribute))
            return out.tolist(), again.forward(np.int32([7, 8, 9, 10, 11][:5 - context.rank])).tolist()

        spread = lierne.Layout(old, (9,), "i32", {})
        with lierne.Context.sim(3) as world:
            plan_of_three = [lierne.Redistribute(context, thirds, spread, name="all") for context in world][0]
            self.assertEqual(on_node(2, rank), [([0, 1, 2, -1, -1], [7, 8, 9, 10, 11, 7, 8, 9, 10]),
                                                ([-1, 6, 7, 8], [7, 8, 9, 10, 11, 7, 8, 9, 10])])

    def test_a_bridge_again(self):
        def rank(context):
            grid = lierne.Grid({"tp": 1, "dp": 2})
            bridge = lierne.Bridge(context, grid, grid, (6, 2), "i32", max_inflight=2)
            with lierne.Context.self() as alone:
                one = lierne.Grid({"tp": 1, "dp": 1})
                again = bridge.recreate(alone, one, one)
                with self.assertRaisesRegex(lierne.errors.UnsupportedError, "bridge or redistribute"):
                    lierne.barrier(context).recreate(alone, one, one)
                self.assertIsInstance(again, lierne.Bridge)
                return again.shapes()[0]

        self.assertEqual(on_node(2, rank), [(6, 2)] * 2)


if __name__ == "__main__":
    main()
