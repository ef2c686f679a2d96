"""Plans of rows from Python: graphs, references, halos, partitions and samples, against the golden
files."""
import unittest

import numpy as np

import lierne
from report import golden, main


class Rows(unittest.TestCase):
    @staticmethod
    def f(g, width):
        return (37 * np.asarray(g)[:, None] + 11 * np.arange(width)) % 257 - 128.0

    @staticmethod
    def h(rank, n, width):
        return (53 * rank + 29 * np.arange(n)[:, None] + 13 * np.arange(width)) % 127 - 63.0

    def test_golden_graphs(self):
        file = golden("graph_a2a")
        width = file["width"]
        for case in file["cases"]:
            edges, owner = np.array(case["edges"]).reshape(2, -1), np.array(case["assignment"])

            def rank(context):
                mine = owner[edges[1]] == context.rank if edges.size else np.zeros(0, bool)
                plan = lierne.Graph(context, owner, edges[0][mine], edges[1][mine], "f64",
                                    row_shape=(width,), algorithm="direct")
                lists, expect = plan.lists(), case["ranks"][context.rank]
                ghosts = plan.forward(self.f(lists["owned"], width))
                back = plan.adjoint(self.h(context.rank, lists["nghosts"], width))
                self.assertEqual(lists["owned"].tolist(), expect["owned"])
                self.assertEqual(lists["ghosts"].tolist(), expect["needed"])
                self.assertEqual(lists["local_edges"].tolist(), expect["local_edge_idx"])
                self.assertEqual(lists["remote_edges"].tolist(), expect["remote_edge_idx"])
                np.testing.assert_array_equal(ghosts, np.reshape(expect["forward"], ghosts.shape))
                np.testing.assert_array_equal(back, np.reshape(expect["backward"], back.shape))

            with lierne.Context.sim(case["world"]) as world:
                world.run(rank)

    def test_routes_of_golden_graphs_without_a_context(self):
        file, width = golden("graph_a2a"), golden("graph_a2a")["width"]
        for case in (case for case in file["cases"] if case["world"] == 4):
            source, target = np.array(case["edges"], np.int64).reshape(2, -1)
            owner = np.array(case["assignment"], np.int64)
            for rank, expect in enumerate(case["ranks"]):
                routes = lierne.GraphRoutes(rank, 4, owner, source, target, "f64", row_shape=(width,))
                lists, send = routes.lists(), np.zeros(4, int)
                send[lists["receiver_ranks"]] = lists["receiver_counts"]
                self.assertEqual(lists["ghosts"].tolist(), expect["needed"], case["id"])
                self.assertEqual(lists["receiver_rows"].tolist(), expect["send_indices"], case["id"])
                self.assertEqual(send.tolist(), expect["send_counts"], case["id"])
                self.assertEqual([lists["edge_source"].tolist(), lists["edge_target"].tolist()],
                                 np.reshape(expect["edge_index_local"], (2, -1)).tolist())
                n, ghosts = len(expect["owned"]), len(expect["needed"])
                self.assertEqual(routes.shapes("adjoint"), ((ghosts, width), (n, width)))
                self.assertEqual(sum(m.elements for m in routes.route().stages[0].recvs), width * ghosts)

    def test_routes_of_edges_that_do_not_fit(self):
        owner = [0, 0, 1, 1]
        lists = lierne.GraphRoutes(0, 2, owner, [2, 0], [0, 2], "u8", edge_rank=[0, 0], remote_targets=True)
        self.assertEqual(lists.lists()["edge_target"].tolist(), [0, 2])
        with self.assertRaises(lierne.errors.EdgeTargetNotOwnedError):
            lierne.GraphRoutes(0, 2, owner, [2, 0], [0, 2], "u8", edge_rank=[0, 0])
        for source, target in ((4, 0), (-1, 0), (0, 4), (0, -1)):
            with self.assertRaises(lierne.errors.IndexRangeError):
                lierne.GraphRoutes(0, 2, owner, [source], [target], "u8")
        with self.assertRaisesRegex(ValueError, "rank is 2, must be in 0 to 1"):
            lierne.GraphRoutes(2, 2, owner, [0], [0], "u8")
        with self.assertRaisesRegex(TypeError, "source has elements of type float64, not int64"):
            lierne.GraphRoutes(0, 2, owner, [0.5], [0], "u8")

    def test_golden_halos(self):
        file, compared = golden("halo"), 0
        for case in file["cases"]:
            if "phantom" in case or "null" in case or case.get("upstream") == "q":
                continue
            width = file["width"]

            def rank(context):
                part = case["ranks"][context.rank]
                n, ghosts = part["nlocal"], part["nghost"]
                plan = lierne.Halo(context, n, ghosts, part["sendproc"], part["recvproc"],
                                   part["sendlist"], part["recvnum"], "f64", row_shape=(width,))
                x = np.full((n + ghosts, width), -9999.0)
                x[:n] = self.f(part["gid"][:n], width)
                out = plan.forward(x)
                np.testing.assert_array_equal(out[:n], x[:n])
                back = plan.adjoint(self.h(context.rank, n + ghosts, width))
                if case["nswap"]:
                    np.testing.assert_array_equal(out[n:], np.reshape(part["forward_ghost"], (-1, width)))
                    owners, rows = plan.roots()
                    gids = [case["ranks"][owner]["gid"][row] for owner, row in zip(owners, rows)]
                    np.testing.assert_array_equal(self.f(gids, width), out[n:])
                    self.assertFalse(back[n:].any())
                self.assertEqual(plan.swaps(), {"nlocal": n, "nghost": ghosts, "sendproc": part["sendproc"],
                                                "recvproc": part["recvproc"], "recvnum": part["recvnum"],
                                                "sendlists": part["sendlist"]})
                np.testing.assert_array_equal(back[:n], np.reshape(part["backward_local"], (-1, width)))
                return True

            with lierne.Context.sim(case["world"]) as world:
                compared += len(world.run(rank))
        self.assertGreater(compared, 50)

    def test_golden_partitions(self):
        cases = golden("graph_a2a")["partitions"]
        for case in cases:
            at = np.array(case["pos"], case["dtype"])
            self.assertEqual(lierne.partition_split(len(at), case["world"]).tolist(),
                             case["index_split"])
            self.assertEqual(lierne.partition_morton(at, case["world"]).tolist(), case["assignment"])
            order = np.argsort(lierne.partition_morton_codes(at), kind="stable")
            if 1 < case["world"] < len(at):
                share = np.arange(len(at)) * case["world"] // len(at)
                self.assertEqual(share[np.argsort(order)].tolist(), case["assignment"])
        self.assertGreater(len(cases), 3)
        with self.assertRaisesRegex(ValueError, "positions has 8 entries, must have 12"):
            lierne.partition_morton(np.zeros((4, 2)), 2)
        at = np.array([[0, 0, 0], [9, 1, 0], [0, 5, 0], [9, 6, 0]], np.float32)
        self.assertEqual(lierne.partition_bisect(at, 2).tolist(), [0, 1, 0, 1])
        self.assertEqual(lierne.partition_bisect(at, 2, [1, 1, 1, 9]).tolist(), [0, 0, 0, 1])
        with self.assertRaisesRegex(ValueError, "costs has 3 entries, must have 4"):
            lierne.partition_bisect(at, 2, [1, 2, 3])
        with self.assertRaisesRegex(TypeError, "costs has elements of type float64, not int64"):
            lierne.partition_bisect(at, 2, [0.5, 0.5, 0.5, 0.9])
        with self.assertRaisesRegex(lierne.errors.InvalidError, "cost of row 1 is -2"):
            lierne.partition_bisect(at, 2, [1, -2, 3, 4])
        with self.assertRaises(lierne.errors.InvalidError):
            lierne.partition_split(4, 0)

    def test_golden_samples(self):
        compared = 0
        for case in golden("samples")["cases"]:
            for mode, expected in {} if "formula" in case else case["expect"]["modes"].items():
                options = {name: case[name] for name in ("tolerance", "max_items", "max_rows", "min_items",
                                                         "equal_items", "nodes") if name in case}
                if mode == "caller":
                    options["assignment"] = case["caller"]
                arguments = case["cost"], case["home_items"], case["rows"]
                if "error" in expected:
                    with self.assertRaises(lierne.errors.InfeasibleError):
                        lierne.Assignment(*arguments, mode=mode, **options)
                    continue
                a = lierne.Assignment(*arguments, mode=mode, **options)
                self.assertEqual((a.ranks.tolist(), a.loads.tolist()),
                                 (expected["assignment"], expected["loads"]))
                self.assertEqual(a.report["moved_rows"], expected["moved_rows"])
                compared += 1
        self.assertGreater(compared, 300)
        with self.assertRaisesRegex(ValueError, "nodes has 1 entries, must have 2"):
            lierne.Assignment([1, 2], [1, 1], nodes=[0])
        with self.assertRaisesRegex(ValueError, "mode is 'best', must be one of shed"):
            lierne.Assignment([1, 2], [1, 1], mode="best")
        with self.assertRaisesRegex(TypeError, "counts has elements of type float64, not int64"):
            lierne.Assignment([1, 2], [1.5, 0.5])
        with self.assertRaisesRegex(ValueError, r"costs has shape \(\), must be \[items\] or \[items, costs\]"):
            lierne.Assignment(3, [1])
        two = lierne.Assignment([[9, 1], [9, 5]], [2, 0], rows=[3, 2, 1], segments=[2, 1], cost=1, tolerance=0)
        self.assertEqual((two.ranks.tolist(), two.report["max_load"]), ([0, 1], 5))

    def test_samples(self):
        def rank(context):
            me, n = context.rank, 4
            own = [4 * (1 + (me + j) % 3) for j in range(me)]  # rank 0 has no item
            lengths = [4 * (1 + (r + j) % 3) for r in range(n) for j in range(r)]
            first = sum(range(me))
            values = lambda items, step: np.concatenate([  # noqa: E731
                np.zeros((0, 2), np.float32)] + [np.full((lengths[i] // step, 2), i + 1, np.float32) for i in items])
            with self.assertRaisesRegex(ValueError, "max_rows is 0, must be 1 to"):
                lierne.Samples(context, [(2, "f32")], max_items=3, max_rows=0)
            samples = lierne.Samples(context, [(2, "f32"), (1, "i64", "segments")], [(2, "f32")], max_items=3,
                                     max_rows=64, caller=True)
            x, grids = values(range(first, first + me), 1), np.arange(first, first + me).reshape(-1, 1)
            for options in {}, {"mode": "lpt"}, {"mode": "caller", "assignment": [3 - me] * me,
                                                 "destination": {"mode": "lpt"}}:
                samples.update(own, own, returned_rows=[rows // 4 for rows in own], **options)
                mine = samples.lists().items
                pixels, moved = samples.dispatch(x, grids)
                np.testing.assert_array_equal(pixels, values(mine, 1))
                np.testing.assert_array_equal(moved[:, 0], mine)
                np.testing.assert_array_equal(samples.cu_seqlens(), np.cumsum([0] + [lengths[i] for i in mine]))
                back = samples.lists("returned").items
                np.testing.assert_array_equal(samples.ret(pixels[::4].copy()), values(back, 4))
                np.testing.assert_array_equal(samples.dispatch_adjoint(pixels, moved)[0], x)
                np.testing.assert_array_equal(samples.ret_adjoint(values(back, 4)), pixels[::4])
            self.assertEqual(mine.tolist(), [i for r in range(n) for i in range(sum(range(r)), sum(range(r + 1)))
                                             if 3 - r == me])
            self.assertEqual(samples.report["moved_rows"], sum(lengths))
            with self.assertRaisesRegex(lierne.errors.CapacityError, "rank 2: it has 4 items, must be at most 3"):
                samples.update([1] * (4 if me == 2 else 1))
            with self.assertRaisesRegex(ValueError, "place is 'away', must be one of home"):
                samples.lists("away")
            with self.assertRaisesRegex(TypeError, "belongs to its Samples"):
                samples.plans[0].close()
            samples.close()
            with self.assertRaisesRegex(ValueError, "closed"):
                samples.plans[0].forward(x)

        with lierne.Context.sim(4) as world:
            world.run(rank)

    def test_packed_sequences(self):
        def cut(lengths, me):  # the tokens of zigzag chunks of segments padded to multiples of 4, -1: padding
            rows, first = [], 0
            for n in lengths:
                chunk = -(-n // 4)
                rows += [first + j if j < n else -1 for at in (me, 3 - me) for j in range(at * chunk, (at + 1) * chunk)]
                first += n
            return np.array(rows, np.int32)

        def layout(packing, cuts):
            return lierne.Layout(lierne.Grid({"cp": 2}), (packing.tokens, 1), "i32", cuts, packing=packing)

        def column(values):
            return np.asarray(values, np.int32)[:, None]

        def rank(context):
            zigzag, me = {"cp": lierne.SegmentZigzag(0)}, context.rank
            first = lierne.Packing([0, 5, 8], align=4)
            self.assertEqual((first.nsegments, first.tokens), (2, 8))
            plan = lierne.Redistribute(context, layout(first, zigzag), layout(first, {}), max_segments=3, max_rows=24)
            images = lierne.Packing([0, 0], owner=[0])
            bridge = lierne.PackedBridge(context, layout(images, {"cp": lierne.ShardSegments(0)}),
                                         layout(lierne.Packing([0, 0], align=4), zigzag), max_segments=3,
                                         max_rows=24, max_runs=8)
            for lengths, ids in (([5, 3], [7, 9, 9, 7, 9, 9, 7, 7]), ([9], [9] * 4 + [7] * 5), ([2, 0, 4], [9, 7] * 3)):
                starts = np.cumsum([0, *lengths])
                packing = lierne.Packing(starts, align=4)
                plan.update(packing, packing)
                mine = cut(lengths, me)
                whole = np.concatenate([np.where(np.arange(-(-n // 4) * 4) < n, at + np.arange(-(-n // 4) * 4), -1)
                                        for n, at in zip(lengths, starts)])
                x = column(np.where(mine < 0, -9, mine + 1))
                np.testing.assert_array_equal(plan.forward(x), column(whole + 1))
                np.testing.assert_array_equal(plan.adjoint(column(whole + 1)), column(mine + 1))
                rows = np.flatnonzero(np.array(ids) == 9)
                sizes = np.array([0, 1, len(rows)])
                runs = lierne.find_image_runs(starts, sizes, ids, 9)
                self.assertEqual(runs[:, 4].sum(), len(rows))
                bridge.update(lierne.Packing(sizes, owner=[1, 0]), packing, runs)
                own, out = rows[:1] if me else rows[1:], column(np.full(len(mine), 50))
                bridge.forward(column(own), out=out)
                np.testing.assert_array_equal(out, column(np.where(np.isin(mine, rows), mine, 50)))
                np.testing.assert_array_equal(bridge.adjoint(column(np.where(mine < 0, -9, 2 * mine))), column(2 * own))
            many = lierne.Packing([0, 1, 2, 3, 4], align=4)
            with self.assertRaisesRegex(lierne.errors.CapacityError, "max_segments"):
                plan.update(many, many)
            with self.assertRaisesRegex(lierne.errors.CountError, "image"):
                lierne.find_image_runs([0, 4], [0, 3], [9, 9, 7, 7], 9)
            self.assertEqual(len(lierne.find_image_runs([0, 0], [0], np.zeros(0, np.int64), 9)), 0)
            with self.assertRaisesRegex(ValueError, r"ids have shape \(1, 4\), must have one axis"):
                lierne.find_image_runs([0, 4], [0, 2], [[9, 9, 7, 7]], 9)
            with self.assertRaisesRegex(TypeError, "cu_seqlens has dtype float64, must have integers"):
                lierne.Packing([0, 4.5])
            with self.assertRaisesRegex(TypeError, "runs has dtype float64, must have integers"):
                bridge.update(images, first, [[0, 0, 0, 0, 1.5]])
            with self.assertRaisesRegex(TypeError, "image_id is None, must be an integer"):
                lierne.find_image_runs([0, 2], [0, 1], [9, 7], None)
            with self.assertRaisesRegex(ValueError, "partial_dims has 'tp', must be of the dims of dst: cp"):
                lierne.PackedBridge(context, layout(images, {"cp": lierne.ShardSegments(0)}),
                                    layout(lierne.Packing([0, 0], align=4), zigzag), partial_dims=["tp"])
            with self.assertRaisesRegex(ValueError, "store is 'full', must be one of padded, unpadded"):
                lierne.Packing([0, 4], store="full")
            with self.assertRaisesRegex(ValueError, "owner has 2 entries, must have 1"):
                lierne.Packing([0, 4], owner=[0, 1])
            with self.assertRaisesRegex(ValueError, "must have 5 columns"):
                bridge.update(images, first, [[1, 2]])
            with self.assertRaisesRegex(TypeError, "is no Packing"):
                plan.update()

        with lierne.Context.sim(2) as world:
            world.run(rank)

    def test_restricted_and_flattened_halos(self):
        def rank(context):
            me, other = context.rank, 1 - context.rank
            halo = lierne.Halo(context, 3, 2, [other], [other], [[2, 0]], [2], "i32", row_shape=(2,))
            x = np.arange(10, dtype=np.int32).reshape(5, 2) + 100 * me
            np.testing.assert_array_equal(halo.flattened().forward(x), halo.forward(x))
            # Each rank drops its row 0, whose ghost is row 4 of the other rank.
            less = halo.restricted(np.array([0, 2, 256, 1, 0]))
            self.assertEqual(less.shapes(), ((3, 2), (3, 2)))
            theirs = x[2] - 100 * me + 100 * other
            np.testing.assert_array_equal(less.forward(x[1:4]), [x[1], x[2], theirs])
            np.testing.assert_array_equal(less.adjoint(x[1:4]), [
                x[1], x[2] + x[3] - 100 * me + 100 * other, [0, 0]])
            with self.assertRaisesRegex(ValueError, "keep has 3 entries, must have 5"):
                halo.restricted([1, 1, 1])
            with self.assertRaises(lierne.errors.MismatchError):
                halo.restricted([me, 1, 1, 1, 1])

        with lierne.Context.sim(2) as world:
            world.run(rank)

    def test_graph_updates_and_references(self):
        def rank(context):
            me, other = context.rank, 1 - context.rank
            owner = [0, 0, 1, 1]
            graph = lierne.Graph(context, owner, [2 * other], [2 * me], "f32")
            self.assertEqual(graph.lists()["ghosts"].tolist(), [2 * other])
            graph.update(owner, [2 * other + 1, 2 * other], [2 * me, 2 * me])
            x = np.array([10 * me + 1, 10 * me + 2], np.float32)
            np.testing.assert_array_equal(graph.forward(x), [10 * other + 1, 10 * other + 2])
            twice = lierne.References(context, 2, [other, other], [1, 1], "f32")
            np.testing.assert_array_equal(twice.adjoint(np.float32([3, 4])), [0, 7])
            np.testing.assert_array_equal(twice.reduce(np.float32([3, 4]), "max"), [0, 4])
            wide = twice.retyped("i64", (2,))
            self.assertEqual((wide.shapes(), wide.kind), (((2, 2), (2, 2)), "retyped"))
            np.testing.assert_array_equal(wide.forward(np.array([[1, 2], [3, 4]]) * (me + 1)),
                                          np.array([[3, 4], [3, 4]]) * (other + 1))
            with self.assertRaisesRegex(lierne.errors.InvalidError, "rank 1: width is 0"):
                twice.retyped("i64", (3 * (1 - me),))
            places = twice.fetch_and_add("i64")
            self.assertEqual((places.shapes()[0], places.kind), ((4,), "fetch_and_add"))
            # Two ghosts of row 1 of the other rank add 3 and 4; its value is 10 or 20 before.
            np.testing.assert_array_equal(places.forward(np.array([5, 10 * (me + 1), 3, 4])),
                                          [5, 10 * (me + 1) + 7, 10 * (other + 1), 10 * (other + 1) + 3])
            with self.assertRaisesRegex(lierne.errors.InvalidError, "moves forward only"):
                places.adjoint(np.array([1, 1, 1, 1]))
            back = twice.transposed().forward(np.float32([5, 6]))
            np.testing.assert_array_equal(back.ravel(), [0, 11])

        with lierne.Context.sim(2) as world:
            world.run(rank)

    def test_rows_migrate(self):
        def rank(context):
            me = context.rank
            # Rank 0 has 10, 11, 12, rank 1 has 20, 21: 11 and 20 change places, 21 ends.
            owner, x = ([0, 1, 0], [10, 11, 12]) if me == 0 else ([0, -1], [20, 21])
            move = lierne.Migration(context, owner, "i64", name="atoms")
            self.assertEqual((move.kind, move.name), ("migration", "atoms"))
            np.testing.assert_array_equal(move.forward(np.array(x)), [[10, 12, 20], [11]][me])
            np.testing.assert_array_equal(move.adjoint(np.array([[1, 2, 3], [4]][me])), [[1, 4, 2], [3, 0]][me])
            pairs = move.retyped("f32", (2,))
            self.assertEqual(move.lists()["receiver_rows"].tolist(), [[1], [0]][me])
            move.update([1, 1] if me == 0 else [])
            pairs.update_retyped(move)
            rows = np.float32([[1, 2], [3, 4]])[:2 - 2 * me]
            np.testing.assert_array_equal(pairs.forward(rows), np.float32([[1, 2], [3, 4]])[:2 * me])
            with self.assertRaisesRegex(lierne.errors.OwnerRangeError, "rank 1: row 0 gets owner 2"):
                move.update([2] if me else [0])
            with self.assertRaises(lierne.errors.InvalidError):
                move.update_retyped(pairs)
            both = lierne.Coalesced([move, pairs])
            with self.assertRaises(lierne.errors.BusyError):
                move.update([])
            move.update([0] if me == 0 else [0], both)
            both.begin([np.array([5 + me]), np.float32([[me, me]])])
            x, y = both.wait()
            self.assertEqual((x.tolist(), y.tolist()), [([5, 6], [[0, 0], [1, 1]]), ([], [])][me])
            both.close()

        with lierne.Context.sim(2) as world:
            world.run(rank)

    def test_a_bad_row_is_every_ranks_error(self):
        def rank(context):
            with self.assertRaises(lierne.errors.IndexRangeError) as caught:
                lierne.References(context, 2, [0], [5 if context.rank else 1], "f32")
            return str(caught.exception)

        with lierne.Context.sim(2) as world:
            first, second = world.run(rank)
        self.assertEqual(first, second)
        self.assertIn("5", first)


if __name__ == "__main__":
    main()
