"""lierne.megatron's members against those of Megatron-LM's classes, by name, argument and default; what
docs/start-megatron.md says of them; and the plans of a rank that knows only the dp ranks it exchanges with.
Without PyTorch: the package is read, not imported.

The list was read in Megatron-LM: HyperCommGrid as of d98e8a64; ColocatedBridgeCommunicator as of its fork's
c88648ee, with destination cp > 1; BridgeCommunicator as of c32afe4d (Megatron-LM#6792), with the names that
its later tests use (destination cp, requires_backward, microbatch ids)."""
import ast
import os
import random
import unittest

import lierne
from report import ROOT, main

MEMBERS = {
    "HyperCommGrid": """
        __init__(shape, dim_names, rank_offset=0, backend=None)
        register_view(name, shape, dim_names, shared_dims=None)
        create_pg(dims, view=None, **kwargs)
        get_pg(dims, view=None)
        get_rank_enum(dims, view=None)
        destroy()
        is_current_rank_in_grid()
        _gen_rank_enum(dims)
        _order_dims_for(dim_names, dims)
        shape dim_names rank_offset backend size _views _pgs""",
    "ColocatedBridgeCommunicator": """
        __init__(src_grid, dest_grid, src_module_name='src', dest_module_name='dest', dim_mapping=None)
        is_fan_in()
        is_fan_out()
        get_slice_info(batch_size)
        communicate(tensor)
        destroy()
        src_grid dest_grid src_module_name dest_module_name dim_mapping current_rank src_tp_size src_dp_size
        dest_tp_size dest_dp_size dest_cp_size dest_cp_pg rank_to_src_pos rank_to_dest_pos
        rank_to_dest_coords direction scale gather_pg gather_group_ranks""",
    "BridgeCommunicator": """
        __init__(src_grid, dest_grid, dim_mapping=None, comm_dtype=None, src_module_name=None,
            dest_module_name=None, tensor_ndim=3, skip_shape_exchange=False, requires_backward=True)
        get_leader_rank(grid, is_src)
        get_boundary_pp_stage_ranks(grid, is_src)
        is_current_rank_in_grid(grid)
        build_comm_map(src_tp_leaders, dest_tp_leaders)
        send_forward(tensor_to_send, expect_backward=True, microbatch_id=None)
        recv_forward(recv_shape=None, microbatch_id=None)
        send_backward(grad_tensor, microbatch_id=None)
        recv_backward(microbatch_id=None)
        send_forward_recv_backward(input_tensor, grad_shape=None, forward_microbatch_id=None,
            backward_microbatch_id=None)
        send_backward_recv_forward(grad_tensor, forward_shape=None, forward_microbatch_id=None,
            backward_microbatch_id=None)
        destroy_broadcast_pgs()
        destroy_bridge_pgs()
        _get_or_create_broadcast_pg(ranks_list)
        _get_or_create_bridge_pg(ranks)
        _split_tensor_at_batch_dim(aggregated_tensor, num_splits)
        _as_per_peer_tensors(tensors, expected_count)
        _run_batched_payload_p2p(tensors, peers, op)
        _batch_dim()
        src_grid dest_grid src_module_name dest_module_name comm_dtype skip_shape_exchange requires_backward
        tensor_ndim dim_mapping current_rank comm_map src_grid_broadcast_pg dest_grid_broadcast_pg
        src_grid_broadcast_ranks dest_grid_broadcast_ranks src_tp_leaders dest_tp_leaders
        src_local_leader_rank dest_local_leader_rank bridge_pg dest_cp_size dest_cp_reduce_pg
        _broadcast_pg_cache _bridge_pg_cache""",
    "CommRole": "SENDER RECEIVER MEMBER",
    "RankCommInfo": "role send_to_ranks recv_from_ranks",
    "BridgeDirection": "FAN_IN FAN_OUT EQUAL",
    "SliceInfo": "start size",
}


def classes():
    """name -> ast.ClassDef of the package's classes."""
    found, folder = {}, os.path.join(ROOT, "src", "python", "lierne", "megatron")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name)) as file:
                found.update((node.name, node) for node in ast.parse(file.read()).body
                             if isinstance(node, ast.ClassDef))
    return found


def targets(node):
    """The names that an assignment gives values to: `name` and `self.name`."""
    if isinstance(node, ast.Assign):
        flat = [leaf for target in node.targets for leaf in ast.walk(target)]
    else:
        flat = [node.target] if isinstance(node, ast.AnnAssign) else []
    return ({leaf.id for leaf in flat if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store)},
            {leaf.attr for leaf in flat if isinstance(leaf, ast.Attribute)})


def members(name, known):
    """(function -> its ast.arguments, attributes) of a class and its bases here."""
    functions, attributes = {}, set()
    for base in known[name].bases:
        if isinstance(base, ast.Name) and base.id in known:
            functions, attributes = members(base.id, known)
    for node in known[name].body:
        attributes |= targets(node)[0]
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node.args
            for inner in ast.walk(node):
                attributes |= targets(inner)[1]
    return functions, attributes


def arguments(args):
    """name -> default as text, None where there is none; those after *, too."""
    names = [a.arg for a in args.args if a.arg not in ("self", "cls")]
    given = [None] * (len(args.args) - len(args.defaults)) + [ast.unparse(d) for d in args.defaults]
    found = dict(zip(names, given[len(given) - len(names):]))
    found.update((a.arg, d and ast.unparse(d)) for a, d in zip(args.kwonlyargs, args.kw_defaults))
    return found, args.kwarg is not None


def reference(name):
    """The same of the list: (functions, attributes)."""
    text = MEMBERS[name]
    lines = text[:text.rindex(")") + 1] if ")" in text else ""
    tree = ast.parse("\n".join(f"def {part.strip()}): pass" for part in
                               " ".join(lines.split()).split(")")[:-1]))
    return {node.name: node.args for node in tree.body}, set(text[len(lines):].split())


class Members(unittest.TestCase):
    def test_all_members_are_there_with_their_arguments_and_defaults(self):
        known, compared = classes(), 0
        for name in MEMBERS:
            functions, attributes = members(name, known)
            expected, names = reference(name)
            self.assertLessEqual(names, attributes, name)
            for function, args in expected.items():
                self.assertIn(function, functions, name)
                (own, rest), (theirs, any_rest) = arguments(functions[function]), arguments(args)
                common = {key: own[key] for key in theirs if key in own}
                self.assertEqual((common, rest or not any_rest), (theirs, True), f"{name}.{function}")
                self.assertEqual([key for key in own if key in theirs and function != "__init__"],
                                 [key for key in theirs if function != "__init__"])
                for key in set(own) - set(theirs):  # beyond it, only what a caller need not know
                    self.assertIsNotNone(own[key], f"{name}.{function}: {key}")
                compared += 1
        self.assertGreater(compared, 30)

    def test_positions_are_those_of_the_reference(self):
        known = classes()
        for name in MEMBERS:
            for function, args in reference(name)[0].items():
                own = [a.arg for a in members(name, known)[0][function].args if a.arg not in ("self", "cls")]
                theirs = [a.arg for a in args.args]
                n = min(len(own), len(theirs))
                self.assertEqual(own[:n], theirs[:n], f"{name}.{function}")

    def test_the_manual_names_every_public_member(self):
        with open(os.path.join(ROOT, "docs", "start-megatron.md")) as file:
            text = file.read()
        for name in MEMBERS:
            for member in [*reference(name)[0], *reference(name)[1]]:
                if not member.startswith("_"):
                    self.assertIn(f"`{member}`", text, name)


class Plans(unittest.TestCase):
    """BridgeCommunicator plans on every rank with the samples of the dp ranks that it exchanges with; to it
    the others have none. Messages are those of the plan for all."""

    def messages(self, rank, grids, shape, counts, direction):
        routes = lierne.BridgeRoutes(rank, *grids, shape, "f32", src_counts=counts[0], dst_counts=counts[1])
        stages = routes.route(direction).stages
        return [[[(m.peer, m.elements) for m in side] for side in (stage.sends, stage.recvs)]
                for stage in stages if stage.sends or stage.recvs]

    def test_a_part_of_the_samples_gives_the_same_messages(self):
        rng, compared = random.Random(3), 0
        for _ in range(60):
            tps, cp, few, k = (rng.choice((1, 2, 3)), rng.choice((1, 2))), rng.choice((1, 2, 4)), \
                rng.choice((1, 2, 3)), rng.choice((1, 2, 3))
            fan_in = rng.random() < 0.5
            dps = (few * k, few) if fan_in else (few, few * k)
            first = tps[0] * dps[0]
            world = first + tps[1] * cp * dps[1]
            grids = (lierne.Grid({"tp": tps[0], "dp": dps[0]}, 0, world),
                     lierne.Grid({"tp": tps[1], "cp": cp, "dp": dps[1]}, first, world))
            many = [rng.randrange(4) for _ in range(few * k)]
            sums = [sum(many[i * k:(i + 1) * k]) for i in range(few)]
            whole = (many, sums) if fan_in else (sums, many)
            for rank in range(world):
                side = int(rank >= first)
                at = grids[side].coords(rank)["dp"]
                block = at // k if (side == 0) == fan_in else at
                few_only = [n if i == block else 0 for i, n in enumerate(sums)]
                part = [n if i // k == block else 0 for i, n in enumerate(many)]
                if (side == 0) == fan_in:  # of several: it knows its own samples only
                    part = [n if i == at else 0 for i, n in enumerate(many)]
                    few_only = [many[at] if i == block else 0 for i in range(few)]
                known = (part, few_only) if fan_in else (few_only, part)
                for direction in ("forward", "adjoint"):
                    self.assertEqual(
                        self.messages(rank, grids, (sum(known[0]), 2, 3), known, direction),
                        self.messages(rank, grids, (sum(many), 2, 3), whole, direction), (rank, whole))
                    compared += 1
        self.assertGreater(compared, 1000)


if __name__ == "__main__":
    main()
