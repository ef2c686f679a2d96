"""The package without PyTorch: grids, layouts, buffers, errors and every planner, on simulated worlds,
against the golden files of the C library."""
import ctypes
import gc
import os
import pickle
import tempfile
import threading
import types
import unittest
import weakref

import numpy as np

import lierne
import lierne.oob
from report import ROOT, golden, main


def grid_of(case, world):
    return lierne.Grid(dict(zip(case["dim_names"], case["shape"])), case["rank_offset"], world)


def begin_all(plans, data, direction="forward"):
    requests = [plan.begin(x, direction=direction) for plan, x in zip(plans, data)]
    return [request.wait() for request in requests]


def on_node(n, function):
    """Calls function(context) on n ranks of this node, in threads that meet as processes do."""
    on_node.number = getattr(on_node, "number", 0) + 1
    name, results, errors = f"lierne-python-{os.getpid()}-{on_node.number}", [None] * n, []

    def rank(r):
        try:
            with lierne.Context.node(r, n, name, timeout=30) as context:
                results[r] = function(context)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class Grids(unittest.TestCase):
    def test_golden_groups(self):
        compared = 0
        for case in golden("grids")["cases"]:
            if not case["category"].startswith("enum") or len(set(case["dim_names"])) == 0:
                continue
            grid = grid_of(case, case["world_size"])
            for query in case["queries"]:
                dims = query.get("dims", query.get("dims_raw_order"))
                dims = [dims] if isinstance(dims, str) else dims
                ordered = "dims_raw_order" in query
                self.assertEqual(grid.groups(*dims, ordered=ordered), query["groups"], case["id"])
                if "key" in query:
                    self.assertEqual(grid.key(*dims), query["key"])
                compared += 1
            for i, coords in enumerate(case.get("coords", [])):
                rank = case["rank_offset"] + i
                self.assertEqual(list(grid.coords(rank).values()), coords)
                self.assertEqual(grid.rank(grid.coords(rank)), rank)
        self.assertGreater(compared, 300)

    def test_device_mesh_is_turned_round(self):
        mesh = types.SimpleNamespace(mesh=np.arange(8, 32).reshape(4, 3, 2),
                                     mesh_dim_names=("dp", "cp", "tp"))
        grid = lierne.Grid.from_device_mesh(mesh)
        self.assertEqual(list(grid.dims().items()), [("tp", 2), ("cp", 3), ("dp", 4)])
        self.assertEqual((grid.rank_offset, grid.world_size), (8, 32))
        for index in np.ndindex(4, 3, 2):
            coords = dict(zip(mesh.mesh_dim_names, index))
            self.assertEqual(grid.rank(coords), mesh.mesh[index])

    def test_transposed_mesh_keeps_its_ranks(self):
        ranks = np.arange(24).reshape(4, 3, 2).transpose(1, 2, 0)
        mesh = types.SimpleNamespace(mesh=ranks, mesh_dim_names=("a", "b", "c"))
        grid = lierne.Grid.from_device_mesh(mesh, world_size=30)
        for index in np.ndindex(*ranks.shape):
            self.assertEqual(grid.rank(dict(zip("abc", index))), ranks[index])

    def test_mesh_of_other_ranks_is_rejected(self):
        for ranks in ([[0, 1], [3, 2]], [[0, 2], [4, 6]]):
            mesh = types.SimpleNamespace(mesh=np.array(ranks), mesh_dim_names=("a", "b"))
            with self.assertRaisesRegex(ValueError, "not those of a grid"):
                lierne.Grid.from_device_mesh(mesh)
        mesh = types.SimpleNamespace(mesh=np.arange(4), mesh_dim_names=None)
        with self.assertRaisesRegex(ValueError, "names its dims None"):
            lierne.Grid.from_device_mesh(mesh)

    def test_views_and_errors(self):
        grid = lierne.Grid({"tp": 2, "cp": 2, "dp": 2, "pp": 2})
        grid.add_view("expert", {"ep": 8, "pp": 2}, shared=["pp"])
        self.assertEqual(grid.views, ["base", "expert"])
        self.assertEqual(grid.groups("ep", view="expert")[1], list(range(8, 16)))
        self.assertEqual(grid.key("pp", view="expert"), "pp")
        with self.assertRaises(lierne.errors.UnknownDimError) as caught:
            grid.groups("xp")
        self.assertIsInstance(caught.exception, KeyError)
        self.assertRegex(str(caught.exception), r"lierne_grid_get_groups: .*xp.*tp")
        self.assertEqual((caught.exception.status, caught.exception.name), (-21, "LIERNE_ERR_UNKNOWN_DIM"))
        with self.assertRaises(lierne.errors.DimSizeError):
            lierne.Grid({"tp": 0})
        with self.assertRaises(lierne.errors.OversizedError):
            lierne.Grid({"tp": 4}, rank_offset=1, world_size=4)


class Buffers(unittest.TestCase):
    def setUp(self):
        self.context = lierne.Context.self()
        self.plan = lierne.all_reduce(self.context, 6, "f32")

    def tearDown(self):
        self.context.close()

    def test_what_does_not_fit_is_rejected(self):
        good = np.arange(6, dtype=np.float32)
        np.testing.assert_array_equal(self.plan.forward(good), good)
        with self.assertRaisesRegex(TypeError, "the input has dtype f64; the plan's is f32"):
            self.plan.forward(good.astype(float))
        with self.assertRaisesRegex(TypeError, "the input has dtype i32"):
            self.plan.forward(good.astype(np.int32))
        with self.assertRaisesRegex(ValueError, r"has shape \(5,\); the plan needs \(6,\)"):
            self.plan.forward(good[:5])
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            self.plan.forward(np.arange(12, dtype=np.float32)[::2])
        fixed = np.zeros(6, np.float32)
        fixed.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "out is read-only"):
            self.plan.forward(good, fixed)
        with self.assertRaisesRegex(TypeError, "the input is a list"):
            self.plan.forward([1.0] * 6)
        np.testing.assert_array_equal(self.plan.forward(good.reshape(2, 3)), good)

    def test_dlpack_in_and_out(self):
        class Exported:
            """An array that offers nothing but DLPack."""
            def __init__(self, array):
                self.array = array

            def __dlpack__(self):
                return self.array.__dlpack__()

        good, out = np.arange(6, dtype=np.float32) - 2, np.full(6, 7, np.float32)
        self.plan.forward(Exported(good), Exported(out))
        np.testing.assert_array_equal(out, good)
        with self.assertRaisesRegex(TypeError, "dtype f64"):
            self.plan.forward(Exported(good.astype(float)))
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            self.plan.forward(Exported(np.arange(12, dtype=np.float32)[::2]))
        again = np.from_dlpack(self.plan.forward(good))
        np.testing.assert_array_equal(again, good)

    def test_dlpack_with_an_offset(self):
        data, shape = np.arange(6.0), (ctypes.c_int64 * 1)(4)
        tensor = lierne._arrays._Tensor(data.ctypes.data, 1, 0, 1, 2, 64, 1, shape, None, 16)
        capsule_of = ctypes.pythonapi.PyCapsule_New
        capsule_of.restype = ctypes.py_object
        capsule_of.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        array = types.SimpleNamespace(
            __dlpack__=lambda: capsule_of(ctypes.addressof(tensor), b"dltensor", None))
        with lierne.Context.self() as context:
            out = lierne.all_gather(context, 4, "f64").forward(array)
        np.testing.assert_array_equal(out, [2, 3, 4, 5])

    def test_what_context_and_plan_tell(self):
        self.assertEqual((self.context.find_member(0), self.context.find_member(1)), (0, None))
        self.assertEqual((self.context.ngroups, self.context.max_groups), (0, 64))
        self.assertEqual(self.plan.memory_kind, "host")
        self.assertEqual(self.plan.number, 0)

    def test_numbers_of_plans_are_those_of_messages(self):
        def told(context):
            plans = [lierne.all_reduce(context, 2, "f32") for _ in range(3)]
            plans[1].forward(np.zeros(2, np.float32))
            return [plan.number for plan in plans], context.dump()

        with lierne.Context.sim(2) as world:
            for numbers, dump in world.run(told):
                self.assertEqual(numbers, [0, 1, 2])
                self.assertRegex(dump, rf"forward 0 of plan {numbers[1]}\b")

    def test_memory_of_the_context(self):
        array = self.context.empty((2, 3), "f32")
        self.assertEqual((array.shape, array.dtype, array.any()), ((2, 3), np.float32, False))
        array[:] = 5
        np.testing.assert_array_equal(self.plan.forward(array), np.full(6, 5, np.float32))
        del array
        gc.collect()
        self.context.progress()

    def test_every_dtype(self):
        for name in ("f64", "f32", "bf16", "f16", "i64", "i32", "i8", "u8", "bits8", "bits16",
                     "bits32", "bits64", "bits128"):
            plan = lierne.all_gather(self.context, 3, name)
            self.assertEqual(plan.dtype, name)
            data = np.frombuffer(os.urandom(3 * plan.forward(
                np.zeros(3, lierne._arrays.numpy_dtype(name))).itemsize), np.uint8)
            data = data.view(lierne._arrays.numpy_dtype(name))
            self.assertEqual(plan.forward(data).tobytes(), data.tobytes(), name)


class Bridges(unittest.TestCase):
    @staticmethod
    def bridge(world, case):
        """The plans of all ranks of a golden case, in float64."""
        src, dst = (grid_of(case[side], case["world_size"]) for side in ("src", "dst"))
        batch = case["b_src"] * dict(zip(case["src"]["dim_names"], case["src"]["shape"]))["dp"]
        mapping, sizes = case["dim_mapping"], {"b": batch, "s": case["S"], "h": case["H"]}
        if "s" not in mapping:
            sizes["b"] *= case["S"]
        shape = [0] * len(mapping)
        for name, axis in mapping.items():
            shape[axis] = sizes[name]
        return [lierne.Bridge(world[r], src, dst, shape, "f64", batch_axis=mapping["b"],
                              sequence_axis=mapping.get("s")) for r in range(len(world))]

    @staticmethod
    def inputs(case, grid, rank, kind):
        """The input (kind "x") or the gradient of the output (kind "g") of a golden case; None on a
        rank outside of the grid."""
        if not grid.rank_offset <= rank < grid.rank_offset + grid.size:
            return None
        dp_rank, n, m = grid.coords(rank)["dp"], grid.dims().get("cp", 1), 1
        cp = grid.coords(rank).get("cp", 0)
        count = case["b_src" if kind == "x" else "b_dst"]
        b, s, h = np.meshgrid(np.arange(count) + dp_rank * count, np.arange(case["S"]),
                              np.arange(case["H"]), indexing="ij")
        if kind == "x":
            values = 10000 * b + 100 * s + h
        else:
            chunk = np.maximum(case["S"] // (2 * n), 1)
            m = {"dense": lambda: cp + 1, "contiguous": lambda: s // (case["S"] // n) == cp,
                 "zigzag": lambda: (s // chunk == cp) | (s // chunk == 2 * n - 1 - cp),
                 "rowmap": lambda: (3 * b + 5 * s + s // 3) % n == cp}[case["grad_mode"]]()
            m = np.ones_like(s) if case["grad_mode"] == "zigzag" and n == 1 else m
            values = m * (1000 * (b + 1) + 10 * s + h + 1)
        mapping = case["dim_mapping"]
        if "s" not in mapping:
            return values.reshape(-1, case["H"]).astype(float)
        axes = sorted(mapping, key=mapping.get)
        return np.ascontiguousarray(values.transpose(["bsh".index(a) for a in axes]), dtype=float)

    def test_golden_tensors(self):
        compared = 0
        for case in golden("bridge_tensors")["cases"]:
            n = case["world_size"]
            with lierne.Context.sim(n) as world:
                plans = self.bridge(world, case)
                lierne.check_plans(plans)
                src, dst = (grid_of(case[side], n) for side in ("src", "dst"))
                forward = begin_all(plans, [self.inputs(case, src, r, "x") for r in range(n)])
                back = begin_all(plans, [self.inputs(case, dst, r, "g") for r in range(n)], "adjoint")
                for r in range(n):
                    np.testing.assert_array_equal(forward[r].ravel(), case["forward"].get(str(r), []),
                                                  case["id"])
                    np.testing.assert_array_equal(back[r].ravel(), case["input_grad"].get(str(r), []),
                                                  case["id"])
                    compared += 2
        self.assertGreater(compared, 200)

    def test_errors_are_the_librarys(self):
        with lierne.Context.sim(2) as world:
            grid = lierne.Grid({"tp": 1, "dp": 2})
            with self.assertRaisesRegex(lierne.errors.InvalidError, "owner"):
                lierne.Bridge(world[0], grid, grid, (4, 2), "f32", owner="zigzag")
            with self.assertRaisesRegex(ValueError, "owner is 'zigzak', must be one of partial"):
                lierne.Bridge(world[0], grid, grid, (4, 2), "f32", owner="zigzak")
            with self.assertRaisesRegex(KeyError, "no dim 'cp'"):
                lierne.Bridge(world[0], grid, grid, (4, 2), "f32",
                              src_placements={"cp": lierne.Shard(1)})

    def test_rows_and_reports(self):
        grid = lierne.Grid({"tp": 1, "dp": 2})
        one = lierne.Grid({"tp": 2, "dp": 1})
        with lierne.Context.sim(2) as world:
            plans = [lierne.Bridge(world[r], grid, one, (12, 2), "i32", rows_per_sample=3)
                     for r in range(2)]
            self.assertEqual(plans[0].shapes(), ((6, 2), (12, 2)))
            report = plans[0].report()
            self.assertEqual((report["received_bytes"], report["algorithm"]), (6 * 2 * 4, "direct"))
            x = np.arange(24, dtype=np.int32).reshape(12, 2)
            for out in begin_all(plans, [x[:6], x[6:]]):
                np.testing.assert_array_equal(out, x)
            self.assertIn("receive from 1, 12 elements", plans[0].text())
            stage = plans[0].route().stages[0]
            self.assertEqual([(m.peer, m.elements) for m in stage.recvs], [(1, 12)])

    def test_rows_that_change(self):
        src, dst = lierne.Grid({"tp": 1, "dp": 2}), lierne.Grid({"tp": 1, "cp": 2, "dp": 1})

        def counts(context):
            plan = lierne.Bridge(context, src, lierne.Grid({"tp": 2, "dp": 1}), (4, 3, 2), "i32",
                                 sequence_axis=1, variable_rows=True)
            plan.update_counts([1, 2] if context.rank == 0 else [0, 3])
            x = np.arange(6, dtype=np.int32).reshape(plan.shapes()[0]) + 10 * context.rank
            expected = [[0, 1], [2, 3], [4, 5], [10, 11], [12, 13], [14, 15]]
            np.testing.assert_array_equal(plan.forward(x).reshape(6, 2), expected)
            with self.assertRaisesRegex(ValueError, "rows has 3 entries, must have 2"):
                plan.update_counts([1, 2, 0])

        def owners(context):
            plan = lierne.Bridge(context, src, dst, (2, 2, 1), "i32", sequence_axis=1, owner="rows",
                                 row_owner=[[0, 1], [1, 1]])
            g = np.array([1, 2, 3, 4], np.int32).reshape(2, 2, 1) * (10 if context.rank else 1)
            got = [plan.adjoint(g).ravel().tolist()]
            plan.update_rows([[1, 0], [0, 0]])
            got.append(plan.adjoint(g).ravel().tolist())
            self.assertEqual(got, [[[1, 20], [10, 2]], [[30, 40], [3, 4]]][context.rank])
            for wrong in (plan.update_rows, lambda rows: lierne.Bridge(
                    context, src, dst, (2, 2, 1), "i32", sequence_axis=1, owner="rows",
                    row_owner=rows)):
                with self.assertRaisesRegex(ValueError, "row_owner has 3 entries, must have 4"):
                    wrong([0, 1, 1])

        with lierne.Context.sim(2) as world:
            world.run(counts)
            world.run(owners)

    def test_lists_of_another_length_are_rejected(self):
        grid = lierne.Grid({"tp": 1, "dp": 2})
        with self.assertRaisesRegex(ValueError, "counts of dim 'dp' has 3 entries, must have 2"):
            lierne.Layout(grid, (6,), "f32", {"dp": lierne.Shard(0, counts=[1, 2, 3])})
        with self.assertRaisesRegex(ValueError, "rows of dim 'dp' has 2 entries, must have 12"):
            lierne.Layout(grid, (6, 2), "f32", {"dp": lierne.ShardRows(0, [0, 1], axis2=1)})
        with lierne.Context.sim(2) as world:
            with self.assertRaisesRegex(ValueError, "dst_counts has 1 entries, must have 2"):
                lierne.Bridge(world[0], grid, grid, (4, 2), "f32", dst_counts=[4])

    def test_what_megatron_rejects(self):
        encoder, llm = lierne.Grid({"tp": 2, "dp": 4}), lierne.Grid({"tp": 2, "cp": 2, "dp": 2})
        self.assertIsNone(lierne.Megatron.rejection(encoder, llm))
        name, why = lierne.Megatron.rejection(llm, encoder)
        self.assertEqual(name, "src_cp")
        self.assertIn("2", why)
        lierne.Megatron.check(encoder, llm, (8, 4), "f32")
        with self.assertRaises(lierne.errors.UnsupportedError):
            lierne.Megatron.check(llm, encoder, (8, 4), "f32")
        with self.assertRaisesRegex(lierne.errors.InvalidError, "dp"):
            lierne.Megatron.rejection(lierne.Grid({"tp": 8}), llm)

    def test_balanced_routing_sends_less_from_one_rank(self):
        src, dst = lierne.Grid({"tp": 4, "dp": 1}), lierne.Grid({"tp": 1, "dp": 1}, 4, 5)
        with lierne.Context.sim(5) as world:
            most = []
            for routing in ("direct", "balanced"):
                plans = [lierne.Bridge(world[r], lierne.Grid(src.dims(), 0, 5), dst, (8, 2), "i32",
                                       routing=routing) for r in range(5)]
                most.append(max(plan.report()["sent_bytes"] for plan in plans))
        self.assertEqual(most, [64, 16])

    def test_configuration_files(self):
        path = os.path.join(ROOT, "grids", "megatron-cp-fanin-8.json")
        config = lierne.Config(path)
        self.assertEqual(lierne.check(path), [])
        bridge = config.bridges[0]
        with lierne.Context.sim(config.world_size) as world:
            plans = [lierne.Bridge.from_config(world[r], config, bridge) for r in range(len(world))]
            lierne.check_plans(plans)
        bad = os.path.join(ROOT, "grids", "bad", "order-missing-dim.json")
        with self.assertRaises(lierne.errors.ConfigError) as caught:
            lierne.Config(bad)
        self.assertEqual(caught.exception.diagnostics, lierne.check(bad))
        self.assertRegex(str(caught.exception), r"order-missing-dim.json:\d+:\d+: error: \[LG041\]")
        with self.assertRaises(OSError):
            lierne.Config(bad + ".not-there")

    def test_simulation_of_files(self):
        for name, shape in (("megatron-cp-fanin-8", None), ("uneven-dp-6", None),
                            ("megatron-cp-zigzag-fanin-8", None)):
            path = os.path.join(ROOT, "grids", name + ".json")
            spec = lierne.Config(path)
            result = lierne.simulate(path, shape=shape or (8 * 3, 32, 4))
            self.assertEqual(result["world"], spec.world_size)
            for direction in ("forward", "adjoint"):
                self.assertGreater(result[direction]["checked"], 1000)
                self.assertEqual(result[direction]["wrong"], 0, (name, direction))


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
            back = twice.transposed().forward(np.float32([5, 6]))
            np.testing.assert_array_equal(back.ravel(), [0, 11])

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
            with self.assertRaisesRegex(TypeError, "no field 'timeot'"):
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


class Hangs(unittest.TestCase):
    def hang(self, folder):
        """Three ranks make calls; rank 2 leaves the second of two plans out."""
        os.environ["LIERNE_DUMP_DIR"] = folder
        try:
            world = lierne.World(3, timeout=0.3)

            def work(context):
                plans = [lierne.all_gather(context, 2, "f32") for _ in range(2)]
                data = np.arange(2, dtype=np.float32)
                for plan in plans + plans:
                    if context.rank != 2 or plan is not plans[1]:
                        try:
                            plan.forward(data)
                        except lierne.Error:
                            return lierne.hangs.status(context)
            with world:
                return world.run(work)
        finally:
            del os.environ["LIERNE_DUMP_DIR"]

    def test_the_culprit_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            states = self.hang(folder)
            found = lierne.hangs.find(folder)
            dump = lierne.hangs.read(os.path.join(folder, sorted(os.listdir(folder))[0]))
        self.assertEqual((found["kind"], found["rank"], found["place"]), ("mismatch", 2, 1))
        self.assertIn("rank 2 is in another operation", found["text"])
        self.assertEqual([state["state"] for state in states], ["dead"] * 3)
        self.assertEqual((dump["rank"], dump["state"]), (0, "dead"))

    def test_traces(self):
        with lierne.Context.sim(2) as world:
            def rank(context):
                lierne.all_gather(context, 1, "f32").forward(np.float32([1]))
                return lierne.hangs.trace(context)
            events = sum(world.run(rank), [])
        self.assertEqual({e["pid"] for e in events if e["ph"] == "X"}, {0, 1})
        self.assertIn("forward 0 of plan 0", [e["name"] for e in events])

    def test_files_for_the_analyser_of_pytorch(self):
        with tempfile.TemporaryDirectory() as folder:
            self.hang(folder)
            out = os.path.join(folder, "out")
            self.assertEqual(lierne.hangs.to_torch(folder, out), [0, 1, 2])
            dumps = []
            for rank in range(3):
                with open(os.path.join(out, f"lierne_rank_{rank}"), "rb") as file:
                    dumps.append(pickle.load(file))
        self.assertEqual(len({tuple(dump["pg_config"]) for dump in dumps}), 1)
        entries = [dump["entries"] for dump in dumps]
        self.assertEqual([[e["state"] for e in of] for of in entries], [["completed", "started"]] * 3)
        self.assertEqual(entries[0][1]["input_sizes"], entries[1][1]["input_sizes"])
        self.assertNotEqual(entries[0][1]["input_sizes"], entries[2][1]["input_sizes"])
        self.analyse(dumps)

    def analyse(self, dumps):
        try:
            from torch.distributed.flight_recorder.components import builder
            from torch.distributed.flight_recorder.components.config_manager import JobConfig
        except ImportError:
            return
        details = {str(rank): {"rank": rank, **dump} for rank, dump in enumerate(dumps)}
        args = JobConfig().parse_args(["unused"])
        database = builder.build_db(details, args, dumps[0]["version"])
        self.assertEqual([len(database.groups), database.collectives[0].pass_check], [1, True])
        self.assertFalse(all(collective.pass_check for collective in database.collectives))


class Files(unittest.TestCase):
    def test_specs_begin_with_the_headers_defaults(self):
        self.assertEqual(lierne._library.Spec("lierne_bridge_spec").at.sequence_axis, -1)
        self.assertEqual(lierne._library.Spec("lierne_graph_spec").at.width, 1)

    def test_every_status_has_an_exception(self):
        for number, kind in lierne._library.ERRORS.items():
            self.assertLess(number, 0)
            self.assertGreater(len(kind.__doc__), 20)
            self.assertIs(getattr(lierne.errors, kind.__name__), kind)

    def test_a_file_that_is_no_json(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"world_size": 8,}')
            file.flush()
            found = lierne.check(file.name)
        self.assertEqual((found[0].line, found[0].severity), (1, "error"))


if __name__ == "__main__":
    main()
