"""The package without PyTorch: grids, layouts, buffers, errors, bridges and files, on simulated worlds,
against the golden files of the C library."""
import ctypes
import gc
import logging
import os
import pickle
import tempfile
import types
import unittest

import numpy as np

import lierne
from cases import begin_all, grid_of
from report import ROOT, golden, main


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

    def test_dlpack_by_the_exchange_api_of_the_type(self):
        arrays, described = lierne._arrays, []

        def describe(array, out):
            described.append(array)
            if array.data is None:
                return -1
            out[0] = arrays._Tensor(array.data.ctypes.data, 1, 0, 1, array.code, 64, 1, array.shape, None, 0)
            return 0

        def capsule_of(exchange):
            make = ctypes.pythonapi.PyCapsule_New
            make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
            return make(ctypes.addressof(exchange), name, None)

        def moved(capsule, **attributes):
            """Whether the type's function described the input; the exported one is None."""
            kind = type("Exporting", (), {"data": np.arange(4.0), "shape": (ctypes.c_int64 * 1)(4), "code": 2,
                                          "__dlpack_c_exchange_api__": capsule, **attributes})
            described.clear()
            with lierne.Context.self() as context:
                np.testing.assert_array_equal(lierne.all_gather(context, 4, "f64").forward(kind()), [0, 1, 2, 3])
            return len(described) == 1

        def slow(array, **_):
            return np.arange(4.0).__dlpack__()

        def never(array):
            raise AssertionError("asked for a capsule")

        name, function = b"dlpack_exchange_api", arrays._describer(describe)
        address = ctypes.cast(function, ctypes.c_void_p).value
        first = arrays._Exchange(1, 3, None, (None,) * 3, address, None)
        self.assertTrue(moved(capsule_of(first), __dlpack__=never))
        newer = arrays._Exchange(2, 0, ctypes.addressof(first), (None,) * 3, None, None)
        self.assertTrue(moved(capsule_of(newer), __dlpack__=never))
        unknown, without = arrays._Exchange(2, 0), arrays._Exchange(1, 3)
        for other in (capsule_of(unknown), capsule_of(without), None):
            self.assertFalse(moved(other, __dlpack__=slow))
        # Only __dlpack__ knows whether these may be exported.
        self.assertFalse(moved(capsule_of(first), __dlpack__=slow, requires_grad=True))
        self.assertTrue(moved(capsule_of(first), __dlpack__=slow, code=5))
        self.assertTrue(moved(capsule_of(first), __dlpack__=slow, data=None))

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
            with self.assertRaisesRegex(TypeError, "rows has elements of type float64, not int64"):
                plan.update_counts([1.5, 2])

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
                with self.assertRaisesRegex(OverflowError, "row_owner has a value that does not fit int32"):
                    wrong([0, 1, 1, 1 << 32])

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
        config = lierne.Config(os.path.join(ROOT, "grids", "qwen2.5-vl-7b-packed-8.json"))
        self.assertEqual((config.bridges, config.packed_bridges), ([], ["images_to_tokens", "zigzag_to_contiguous"]))
        with lierne.Context.sim(config.world_size) as world:
            plans = [lierne.PackedBridge.from_config(world[r], config, "images_to_tokens") for r in range(len(world))]
            lierne.check_plans(plans)
            self.assertEqual(plans[3].shapes(), ((900, 3584), (2176, 3584)))
            with self.assertRaisesRegex(KeyError, "no packed bridge 'zigzag_to_contiguous' with images"):
                lierne.PackedBridge.from_config(world[0], config, "zigzag_to_contiguous")
        config = lierne.Config(os.path.join(ROOT, "grids", "diffusion-2x2.json"))
        self.assertEqual((config.packed_bridges, config.redistributions), ([], ["margins", "two_steps"]))
        with lierne.Context.sim(config.world_size) as world:
            plans = [lierne.Redistribute.from_config(world[r], config, "two_steps") for r in range(len(world))]
            lierne.check_plans(plans)
            self.assertEqual(plans[0].shapes(), ((23, 18), (27, 22)))
            with self.assertRaisesRegex(KeyError, "no redistribution 'none'"):
                lierne.Redistribute.from_config(world[0], config, "none")
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


class Logs(unittest.TestCase):
    def lines(self, level):
        """Records of a logger of that level, of a world with a plan that moves and then dies."""
        heard = []
        logger = logging.Logger("lierne", level)
        logger.addHandler(logging.Handler())
        logger.handlers[0].emit = heard.append
        with lierne.Context.sim(2, context_name="sea", log=logger) as world:
            gc.collect()  # nothing but the world keeps what C calls

            def rank(context):
                lierne.all_gather(context, 1, "f32", name="waves").forward(np.float32([1]))
            world.run(rank)
            world[1].abort("100 % wet")
        return [(record.levelname, record.getMessage()) for record in heard]

    def test_a_logger_gets_its_levels(self):
        levels = ("ERROR", "WARNING", "INFO", "DEBUG")
        counts = []
        for level in levels:
            lines = self.lines(level)
            self.assertEqual({of for of, _ in lines} - {"WARNING"},
                             set(levels[:levels.index(level) + 1]) - {"WARNING"})
            self.assertIn(("ERROR", "rank 1 of sea: LIERNE_ERR_TRANSPORT: lierne_context_abort: 100 % wet"), lines)
            counts.append(len(lines))
        self.assertLess(counts[1], counts[2])
        self.assertLess(counts[2], counts[3])
        self.assertTrue(any("plan 0 'waves': forward of all_gather" in line for _, line in lines), lines)
        self.assertEqual(self.lines(logging.CRITICAL), [])

    def test_what_is_no_logger(self):
        with self.assertRaisesRegex(TypeError, "log is <built-in function print>, must be a logging.Logger"):
            lierne.Context.self(log=print)


class Hangs(unittest.TestCase):
    def hang(self, folder):
        """Three ranks make calls; rank 2 leaves the second of two plans out."""
        os.environ["LIERNE_DUMP_DIR"] = folder
        try:
            world = lierne.World(3, timeout=0.3)

            def work(context):
                plans = [lierne.all_gather(context, 2, "f32", name=name) for name in ("weights", "gradients")]
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
        self.assertRegex(entries[0][1]["frames"][0]["name"], "^forward 0 of plan [0-9]+ 'gradients'$")
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
