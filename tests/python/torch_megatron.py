"""lierne.megatron on ranks of torchrun. 4 ranks: both bridges, forward and back, against closed forms; what
they take beyond Megatron-LM; 8 ranks: the golden tensors with destination cp, and dp sizes of which
neither divides the other."""
import numpy as np
import torch
import torch.distributed as dist

from cases import grid_of
from package import Bridges
from report import golden
from torch_harness import main, raises, same, test, test_on_8

from lierne.megatron import BridgeCommunicator, ColocatedBridgeCommunicator, HyperCommGrid

NAMES = ["tp", "cp", "pp", "dp"]


def grids_of(src, dst, src_names=NAMES, dst_names=NAMES, offsets=(0, 0)):
    """Two grids, with the groups of cp that a caller makes."""
    grids = [HyperCommGrid(shape, names, offset) for shape, names, offset in
             zip((src, dst), (src_names, dst_names), offsets)]
    for grid in grids:
        if "cp" in grid.dim_names and grid.rank_offset == 0 and grid.size == dist.get_world_size():
            grid.create_pg("cp")
    return grids


def whole_tensor(batch=8, sequence=8, hidden=3):
    return torch.arange(batch * sequence * hidden, dtype=torch.float64).reshape(batch, sequence, hidden) + 1


def mine(grid, tensor, axis=0):
    """This rank's dp rank's samples."""
    at = grid.grid.coords(dist.get_rank())["dp"]
    return tensor.chunk(grid.grid.dims()["dp"], axis)[at].contiguous()


def zigzag(grid, tensor, axis=1):
    """A gradient of which this rank has its two chunks of the sequence, and zeros elsewhere."""
    n, at = grid.grid.dims().get("cp", 1), grid.grid.coords(dist.get_rank()).get("cp", 0)
    mask = torch.zeros(2 * n, dtype=tensor.dtype)
    mask[at] = mask[2 * n - 1 - at] = 1
    mask = mask.repeat_interleave(tensor.shape[axis] // (2 * n))
    return tensor * mask.reshape([-1 if a == axis else 1 for a in range(tensor.dim())])


@test
def megatrons_colocated_bridge():
    for src, dst in (([1, 1, 1, 4], [2, 1, 1, 2]), ([2, 1, 1, 2], [1, 1, 1, 4]),
                     ([2, 1, 1, 2], [2, 1, 1, 2]), ([4, 1, 1, 1], [1, 1, 1, 4])):
        grids = [HyperCommGrid(shape, ["tp", "cp", "pp", "dp"]) for shape in (src, dst)]
        for mapping in ({"b": 0, "s": 1, "h": 2}, {"s": 0, "b": 1, "h": 2}, {"b": 0, "h": 1}):
            bridge = ColocatedBridgeCommunicator(*grids, dim_mapping=mapping)
            whole = torch.arange(8 * 3 * 2, dtype=torch.float64).reshape(8, 3, 2)
            whole = whole.reshape(24, 2) if "s" not in mapping else whole.movedim(0, mapping["b"])
            axis, rank = mapping["b"], dist.get_rank()

            def mine(grid, tensor):
                dp_rank, n = rank // grid.shape[0], grid.shape[3]
                return tensor.chunk(n, axis)[dp_rank].contiguous()

            x = mine(grids[0], whole).clone().requires_grad_()
            y = bridge.communicate(x)
            same(y.detach(), mine(grids[1], whole))
            y.backward(mine(grids[1], -whole))
            same(x.grad, mine(grids[0], -whole))
            # Copies on tp ranks that differ: each rank has those of its own group, as Megatron-LM does.
            if bridge.is_fan_in():
                x = torch.full_like(x.detach(), dist.get_rank() + 1)
                parts = [torch.empty_like(x) for _ in range(dist.get_world_size(bridge.gather_pg))]
                dist.all_gather(parts, x, group=bridge.gather_pg)
                same(bridge.communicate(x), torch.cat(parts, mapping["b"]))
            bridge.destroy()
    try:
        ColocatedBridgeCommunicator(HyperCommGrid([1, 3], ["tp", "dp"]),
                                    HyperCommGrid([3, 1], ["tp", "dp"])).get_slice_info(4)
        raise AssertionError("accepted")
    except ValueError as error:
        assert "not divisible by fan_in scale=3" in str(error), error


@test
def megatrons_disjoint_bridge():
    names = ["tp", "cp", "pp", "dp"]
    for src, dst in (([1, 1, 1, 2], [2, 1, 1, 1]), ([2, 1, 1, 1], [1, 1, 1, 2]),
                     ([1, 1, 2, 1], [1, 1, 2, 1])):
        grids = HyperCommGrid(src, names), HyperCommGrid(dst, names, rank_offset=2)
        bridge = BridgeCommunicator(*grids, comm_dtype=torch.float64)
        rank, source = dist.get_rank(), dist.get_rank() < 2
        grid = grids[not source]
        coords = grid.grid.coords(rank)
        boundary = coords["pp"] == (grid.shape[2] - 1 if source else 0)
        for batch in (4, 5) if src[3] == dst[3] or dst[3] == 2 else (4,):
            whole = torch.arange(batch * 6, dtype=torch.float64).reshape(batch, 3, 2) + 1
            mine = torch.tensor_split(whole, grid.shape[3])[coords["dp"]]
            if source:
                bridge.send_forward(mine)
                back = bridge.recv_backward()
                both = bridge.send_forward_recv_backward(2 * mine)
                if boundary:
                    same(back, -mine)
                    same(both, -3 * mine)
            else:
                got = bridge.recv_forward()
                bridge.send_backward(-mine)
                both = bridge.send_backward_recv_forward(-3 * mine)
                if boundary:
                    assert got.requires_grad
                    same(got.detach(), mine)
                    same(both.detach(), 2 * mine)
        try:
            (bridge.recv_forward if source else bridge.recv_backward)()
            raise AssertionError("accepted")
        except ValueError as error:
            assert f"rank {rank}" in str(error)
        bridge.destroy()


CP_PAIRS = (([1, 1, 1, 4], [1, 2, 1, 2]), ([2, 1, 1, 2], [1, 4, 1, 1]), ([4, 1, 1, 1], [1, 2, 1, 2]),
            ([2, 1, 1, 2], [1, 2, 1, 2]), ([1, 1, 1, 4], [2, 2, 1, 1]))


@test
def destination_cp_sums_the_gradient():
    for pair in CP_PAIRS:
        grids = grids_of(*pair)
        for mapping in ({"b": 0, "s": 1, "h": 2}, {"s": 0, "b": 1, "h": 2}, {"b": 0, "h": 1}):
            whole, b, s = whole_tensor(), mapping["b"], mapping.get("s", 0)
            whole = whole.movedim(0, b) if "s" in mapping else whole.reshape(64, 3)
            results = []
            for algorithm in ("direct", "collective"):
                bridge = ColocatedBridgeCommunicator(*grids, dim_mapping=mapping, algorithm=algorithm)
                assert bridge.dest_cp_pg is grids[1].get_pg("cp")
                x = mine(grids[0], whole, b).requires_grad_()
                y = bridge.communicate(x)
                same(y.detach(), mine(grids[1], whole, b), (pair, mapping))
                assert (y.data_ptr() == x.data_ptr()) == (bridge.direction == "equal"), "no copy, as there"
                gradient = mine(grids[1], -whole, b)
                gradient = zigzag(grids[1], gradient, s) if "s" in mapping else gradient
                before = gradient.clone()
                y.backward(gradient)
                same(gradient, before, "the caller's gradient is not written")
                n = 1 if "s" in mapping else pair[1][1]
                same(x.grad, mine(grids[0], -whole, b) * n, (pair, mapping, algorithm))
                results.append(x.grad)
                bridge.destroy()
            assert torch.equal(*results)


@test
def algorithms_have_equal_bits():
    for pair in CP_PAIRS:
        grids, bits = grids_of(*pair), []
        for algorithm in ("direct", "collective"):
            for dtype in (torch.float32, torch.bfloat16):
                torch.manual_seed(grids[0].grid.coords(dist.get_rank())["dp"])
                bridge = ColocatedBridgeCommunicator(*grids, algorithm=algorithm)
                x = torch.randn(4, 8, 5).to(dtype).requires_grad_()
                y = bridge.communicate(x)
                at = grids[1].grid.coords(dist.get_rank())
                torch.manual_seed(7 + at["dp"] + 8 * at["cp"])
                y.backward(torch.randn(y.shape).to(dtype))
                bits.append((y.detach().view(torch.uint8), x.grad.view(torch.uint8)))
                assert len(bridge._moves._operations) == 1
                bridge.communicate(x)
                assert len(bridge._moves._operations) == 1, "a shape is planned once"
                bridge.destroy()
        for one, other in zip(bits[:2], bits[2:]):
            assert all(map(torch.equal, one, other)), pair


@test
def extended_takes_source_cp_stages_and_any_order():
    whole = whole_tensor()
    orders = (["tp", "cp", "dp"], ["dp", "tp", "cp"], ["cp", "dp", "tp"])
    for names in orders:
        for sizes in ({"tp": 1, "cp": 2, "dp": 2}, {"tp": 2, "cp": 2, "dp": 1}, {"tp": 1, "cp": 1, "dp": 4}):
            dst = [sizes[name] for name in names]
            for src, cut in (([1, 1, 4], 1), ([1, 2, 2], 2), ([2, 2, 1], 2)):
                grids = grids_of(src, dst, ["tp", "cp", "dp"], names)
                bridge = ColocatedBridgeCommunicator(*grids, extended=True)
                held = mine(grids[0], whole)
                if cut > 1:
                    at = grids[0].grid.coords(dist.get_rank())["cp"]
                    chunks = held.chunk(4, 1)
                    held = torch.cat([chunks[at], chunks[3 - at]], 1)
                x = held.clone().requires_grad_()
                y = bridge.communicate(x)
                same(y.detach(), mine(grids[1], whole), (src, dst, names))
                y.backward(zigzag(grids[1], mine(grids[1], -whole)))
                same(x.grad, -held, (src, dst, names))
                bridge.destroy()


@test
def extended_takes_pipeline_stages():
    whole = whole_tensor()
    for src, dst in (([1, 1, 1, 4], [1, 1, 2, 2]), ([1, 1, 2, 2], [1, 2, 1, 2]), ([1, 1, 2, 2], [1, 2, 2, 1])):
        grids = grids_of(src, dst)
        raises(ValueError, "PP must be 1 for ColocatedBridgeCommunicator", ColocatedBridgeCommunicator,
                 *grids)
        bridge = ColocatedBridgeCommunicator(*grids, extended=True)
        at = [grid.grid.coords(dist.get_rank()) for grid in grids]
        holds, gets = at[0]["pp"] == src[2] - 1, at[1]["pp"] == 0
        for _ in range(2):
            x = mine(grids[0], whole).requires_grad_() if holds else None
            y = bridge.communicate(x)
            if gets:
                same(y.detach(), mine(grids[1], whole))
                y.backward(zigzag(grids[1], mine(grids[1], -whole)))
            else:
                assert y.numel() == 0
                y.sum().backward()
            if holds:
                same(x.grad, mine(grids[0], -whole))
        bridge.destroy()


def packed_microbatch(images, segments, places):
    """PackedSeqParams with segments padded to multiples of 4, boundaries of images, runs, token ids."""
    def cu(lengths):
        return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    ids = torch.zeros(sum(segments), dtype=torch.int64)
    for image, (segment, position) in enumerate(places):
        first = sum(segments[:segment]) + position
        ids[first:first + images[image]] = 9
    padded = cu([-(-n // 4) * 4 for n in segments])
    return {"cu_seqlens_q": cu(segments), "cu_seqlens_q_padded": padded, "qkv_format": "thd"}, cu(images), ids


def token_rows(segments, owners, dp_rank, cp_rank):
    """The token of each row of a rank with cp 2, counted out; -1 for padding."""
    rows, first = [], 0
    for n, owner in zip(segments, owners):
        width = -(-n // 4)
        for chunk in (cp_rank, 3 - cp_rank):
            rows += [first + j if j < n else -1 for j in range(chunk * width, (chunk + 1) * width)] \
                if owner == dp_rank else []
        first += n
    return np.array(rows, np.int64)


@test
def extended_takes_packed_sequences():
    """Encoder dp 4 (or tp 2, pp 2), LLM cp 2 and dp 2 (or pp 2): image rows stand at their tokens, text rows of
    `into` stay; gradients come back from the one cp rank that has the token."""
    steps = [([3, 5, 2], [9, 6, 13], [(0, 2), (1, 0), (2, 1)], [2, 0, 3], [1, 0, 1]),
             ([4, 1], [5, 3, 11, 2], [(0, 0), (2, 6)], [1, 1], [0, 1, 0, 0])]
    capacity = {"hidden": 3, "dtype": torch.float64, "max_segments": 8, "max_rows": 64, "max_runs": 8}
    for src, dst in (([1, 1, 1, 4], [1, 2, 1, 2]), ([2, 1, 2, 1], [1, 2, 2, 1])):
        grids = grids_of(src, dst)
        at = [grid.grid.coords(dist.get_rank()) for grid in grids]
        bridge = ColocatedBridgeCommunicator(*grids, extended=True, packed=capacity)
        for images, segments, places, image_owner, segment_owner in steps:
            params, cu, ids = packed_microbatch(images, segments, places)
            image_owner = [n % src[3] for n in image_owner]
            segment_owner = [n % dst[3] for n in segment_owner]
            owners = [image_owner if src[3] > 1 else None, segment_owner if dst[3] > 1 else None]
            bridge.update_packed(params, cu, *owners, input_ids=ids, image_id=9)
            mine = [k for k, owner in enumerate(image_owner)
                    if owner == at[0]["dp"] and at[0]["pp"] == src[2] - 1]
            numbers = [row for k in mine for row in range(int(cu[k]), int(cu[k + 1]))]
            x = torch.tensor(numbers, dtype=torch.float64)[:, None].add(torch.arange(1., 4)).requires_grad_()
            tokens = token_rows(segments, segment_owner, at[1]["dp"], at[1]["cp"])
            tokens = tokens if at[1]["pp"] == 0 else tokens[:0]
            into = torch.full((len(tokens), 1, 3), -7., dtype=torch.float64, requires_grad=True)
            y = bridge.communicate(x if numbers else None, into=into)
            row_of = {}
            for k, (segment, position) in enumerate(places):
                for j in range(images[k]):
                    row_of[sum(segments[:segment]) + position + j] = int(cu[k]) + j
            expected = torch.tensor([[row_of[t] + c if t in row_of else -7. for c in (1, 2, 3)] for t in tokens],
                                    dtype=torch.float64).reshape(-1, 1, 3)
            same(y.detach(), expected)
            y.backward(-expected - 100)
            if numbers:
                same(x.grad, -x.detach() - 100)
            same(into.grad.ne(0).any(-1).flatten(), torch.tensor([t not in row_of for t in tokens], dtype=torch.bool))
        bridge.destroy()
    raises(ValueError, "packed need extended=True", ColocatedBridgeCommunicator, *grids_of([1, 1, 1, 4], [1, 1, 1, 4]),
           packed=capacity)
    raises(ValueError, "packed lacks ['max_runs']", ColocatedBridgeCommunicator,
           *grids_of([1, 1, 1, 4], [1, 1, 1, 4]), extended=True,
           packed={name: value for name, value in capacity.items() if name != "max_runs"})
    plain = ColocatedBridgeCommunicator(*grids_of([1, 1, 1, 4], [1, 1, 1, 4]), extended=True)
    raises(ValueError, "update_packed needs packed", plain.update_packed, None, [0])
    raises(ValueError, "into needs packed", lambda: plain.communicate(torch.ones(1, 1, 1), into=torch.ones(1)))
    plain.destroy()


@test
def owners_of_the_gradient():
    """Rows that a cp rank does not own are not read; each row has the value of its owner."""
    whole, grids = whole_tensor(), grids_of([1, 1, 1, 4], [1, 2, 1, 2])
    cp = grids[1].grid.coords(dist.get_rank())["cp"]
    generator = torch.Generator().manual_seed(1)
    owners = {"zigzag": torch.tensor([0, 0, 1, 1, 1, 1, 0, 0]).expand(8, 8),
              "contiguous": torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]).expand(8, 8),
              "rows": torch.randint(0, 2, (8, 8), generator=generator)}
    for owner, of_row in owners.items():
        options = {"row_owner": of_row.numpy()} if owner == "rows" else {}
        bridge = ColocatedBridgeCommunicator(*grids, extended=True, gradient_owner=owner)
        x = mine(grids[0], whole).requires_grad_()
        y = bridge.communicate(x, **options)
        same(y.detach(), mine(grids[1], whole), owner)
        own = mine(grids[1], (of_row == cp).unsqueeze(-1))
        y.backward(torch.where(own, mine(grids[1], -whole), torch.tensor(float("nan"), dtype=x.dtype)))
        same(x.grad, mine(grids[0], -whole), owner)
        bridge.destroy()
    flat = ColocatedBridgeCommunicator(*grids, extended=True, gradient_owner="rows",
                                       dim_mapping={"b": 0, "h": 1})
    x = mine(grids[0], whole.reshape(64, 3)).requires_grad_()
    y = flat.communicate(x, row_owner=owners["rows"].reshape(64).numpy())
    own = mine(grids[1], (owners["rows"].reshape(64, 1) == cp))
    y.backward(torch.where(own, -y.detach(), torch.tensor(float("nan"), dtype=x.dtype)))
    same(x.grad, mine(grids[0], -whole.reshape(64, 3)))
    raises(ValueError, "has no 's'", ColocatedBridgeCommunicator(
        *grids, extended=True, gradient_owner="zigzag", dim_mapping={"b": 0, "h": 1}).communicate, x)


@test
def rows_that_vary():
    """Samples with rows of their own, some without any: the destination's dp ranks share the samples."""
    for pair in (([1, 1, 1, 4], [1, 2, 1, 2]), ([2, 1, 1, 2], [1, 1, 1, 4]), ([4, 1, 1, 1], [2, 2, 1, 1])):
        grids = grids_of(*pair)
        bridge = ColocatedBridgeCommunicator(*grids, dim_mapping={"b": 0, "h": 1}, extended=True,
                                             variable_rows=True)
        for counts in ([3, 0, 5, 1, 2, 2, 0, 4], [1, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 7, 0, 0, 0]):
            samples = [1 + b * 100 + torch.arange(2 * n, dtype=torch.float64).reshape(n, 2)
                       for b, n in enumerate(counts)]

            def part(grid):
                n, at = grid.grid.dims()["dp"], grid.grid.coords(dist.get_rank())["dp"]
                return samples[8 // n * at:8 // n * (at + 1)]

            x = torch.cat(part(grids[0])).requires_grad_()
            rows = [len(sample) for sample in part(grids[0])]
            if counts[0] == 3:
                x._mimo_bridge_split_sizes = rows
                y = bridge.communicate(x)
            else:
                y = bridge.communicate(x, rows=rows)
            same(y.detach(), torch.cat(part(grids[1])), (pair, counts))
            y.backward(-y.detach())
            same(x.grad, -x.detach() * pair[1][1], (pair, counts))
        raises(ValueError, "variable_rows needs the rows", bridge.communicate, x.detach())
        bridge.destroy()


@test
def tensors_of_two_axes_and_parts_of_any_size():
    for skip in (False, True):
        src, dst = grids_of([2, 1, 1, 1], [1, 1, 1, 2], offsets=(0, 2))
        bridge = BridgeCommunicator(src, dst, {"s": 0, "h": 2, "b": 1}, torch.float32, "vision", "llm",
                                    tensor_ndim=2, skip_shape_exchange=skip)
        assert bridge._batch_dim == 0
        at = dist.get_rank() - 2
        for sizes in ([0, 4], [3, 2], [5, 0]):
            whole = torch.arange(sum(sizes) * 8.0).reshape(-1, 8)
            if bridge.is_current_rank_in_grid(src):
                whole._mimo_bridge_split_sizes = sizes
                bridge.send_forward(whole)
                same(bridge.recv_backward(), -whole)
                bridge.send_forward(whole, expect_backward=True)
                same(bridge.send_forward_recv_backward(whole), -whole)
                same(bridge.recv_backward(), -whole)
            else:
                shape, own = (sizes[at], 8), whole.split(sizes)[at]
                got = bridge.recv_forward(recv_shape=shape) if skip else bridge.recv_forward()
                assert got.requires_grad
                same(got.detach(), own)
                bridge.send_backward(-own)
                bridge.recv_forward(shape)
                same(bridge.send_backward_recv_forward(-own, forward_shape=shape).detach(), own)
                bridge.send_backward(-own)
        assert len(bridge._plans) == 6
        if skip and bridge.is_current_rank_in_grid(src):
            raises(RuntimeError, "no recorded forward shape", bridge.recv_backward)
        elif skip:
            raises(ValueError, "expected 2 non-negative receive dimensions", bridge.recv_forward)
    raises(NotImplementedError, "does not yet support fan-in", BridgeCommunicator,
           *grids_of([1, 1, 1, 2], [2, 1, 1, 1], offsets=(0, 2)), skip_shape_exchange=True)
    raises(AssertionError, "tensor_ndim must be 2 or 3, got 4", BridgeCommunicator, src, dst, tensor_ndim=4)


@test
def dp_ranks_of_one_receiver_send_what_they_have():
    """Fan-in of different numbers of samples, with microbatches in flight: gradients go where they came
    from."""
    src, dst = grids_of([1, 1, 1, 2], [2, 1, 1, 1], offsets=(0, 2))
    bridge, rank = BridgeCommunicator(src, dst, comm_dtype=torch.float64), dist.get_rank()
    rounds = [(1, 4), (3, 2), (2, 0)]
    parts = [[torch.full((n, 2, 3), 10.0 * i + k + 1, dtype=torch.float64) for k, n in enumerate(sizes)]
             for i, sizes in enumerate(rounds)]
    if rank < 2:
        for both in parts:
            bridge.send_forward(both[rank])
        for both in parts:
            same(bridge.recv_backward(microbatch_id=3), -both[rank])
    else:
        got = [bridge.recv_forward() for _ in parts]
        for y, both in zip(got, parts):
            same(y.detach(), torch.cat(both))
            bridge.send_backward(-torch.cat(both))


@test
def destination_cp_of_disjoint_grids():
    whole = whole_tensor(4)
    src, dst = grids_of([1, 1, 1, 2], [1, 2, 1, 1], offsets=(0, 2))
    dst.create_pg("cp")
    for mapping, options in (({"s": 1, "b": 0, "h": 2}, {}), ({"s": 0, "b": 1, "h": 2}, {}),
                             ({"s": 1, "b": 0, "h": 2}, {"output": "sharded", "gradient_owner": "zigzag"}),
                             ({"s": 1, "b": 0, "h": 2}, {"gradient_owner": "zigzag"})):
        bridge = BridgeCommunicator(src, dst, mapping, torch.float64, **options)
        assert bridge.dest_cp_size == 2
        tensor = whole.movedim(0, mapping["b"]).contiguous()
        if bridge.is_current_rank_in_grid(src):
            held = mine(src, tensor, mapping["b"])
            bridge.send_forward(held)
            same(bridge.recv_backward(), -held)
            same(bridge.send_forward_recv_backward(2 * held), -held)
        else:
            assert bridge.dest_cp_reduce_pg is dst.get_pg("cp")
            at = dst.grid.coords(dist.get_rank())["cp"]
            chunks = tensor.chunk(4, mapping["s"])
            own = torch.cat([chunks[at], chunks[3 - at]], mapping["s"])
            expected = own if "output" in options else tensor
            gradient = -own if "output" in options else zigzag(dst, -tensor, mapping["s"])
            same(bridge.recv_forward().detach(), expected, options)
            bridge.send_backward(gradient)
            same(bridge.send_backward_recv_forward(gradient).detach(), 2 * expected, options)


@test
def a_bridge_without_a_backward():
    src, dst = grids_of([1, 1, 1, 2], [2, 1, 1, 1], offsets=(0, 2))
    bridge = BridgeCommunicator(src, dst, comm_dtype=torch.float32, requires_backward=False)
    x = torch.ones(2, 3, 4)
    if dist.get_rank() < 2:
        raises(ValueError, "detach it", bridge.send_forward, x.clone().requires_grad_())
        bridge.send_forward(x, microbatch_id=1)
        assert bridge.recv_backward(microbatch_id=1) is None
        assert bridge.send_forward_recv_backward(2 * x) is None
    else:
        same(bridge.recv_forward().detach(), torch.ones(4, 3, 4))
        assert bridge.send_backward(x) is None
        same(bridge.send_backward_recv_forward(x).detach(), 2 * torch.ones(4, 3, 4))
    raises(ValueError, "one pipeline stage", BridgeCommunicator, *grids_of(
        [1, 1, 2, 1], [2, 1, 1, 1], offsets=(0, 2)), requires_backward=False)


@test
def groups_of_bridges():
    src, dst = grids_of([1, 1, 1, 2], [2, 1, 1, 1], offsets=(0, 2))
    bridge, other = (BridgeCommunicator(src, dst) for _ in range(2))
    leaders = sorted({*bridge.src_tp_leaders, *bridge.dest_tp_leaders})
    assert leaders == [0, 1, 2]
    if dist.get_rank() in leaders:
        assert dist.get_process_group_ranks(bridge.bridge_pg) == leaders
        peers = [r for r in leaders if r != dist.get_rank()]
        if dist.get_rank() == 2:
            parts = [torch.ones(2), torch.ones(3)]
            bridge._run_batched_payload_p2p(parts, peers, op="send")
        else:
            got = torch.zeros(2 + dist.get_rank())
            bridge._run_batched_payload_p2p([got], [2], op="recv")
            same(got, torch.ones_like(got))
    assert bridge.bridge_pg is other.bridge_pg and bridge.src_grid_broadcast_pg is other.src_grid_broadcast_pg
    raises(ValueError, "one payload tensor per peer", bridge._run_batched_payload_p2p, [], [1], op="send")
    raises(ValueError, "unsupported bridge P2P operation: both", bridge._run_batched_payload_p2p, [], [], op="both")
    bridge.destroy()
    x = torch.ones(2, 3, 4)
    if dist.get_rank() < 2:
        other.send_forward(x)
    else:
        assert other.recv_forward().shape == (4, 3, 4)
    dist.barrier()
    BridgeCommunicator.destroy_broadcast_pgs()
    BridgeCommunicator.destroy_bridge_pgs()
    assert not BridgeCommunicator._bridge_pg_cache and not BridgeCommunicator._broadcast_pg_cache


@test
def gtp_ranks_have_samples_of_their_own():
    names = ["tp", "gtp_remat", "cp", "pp", "dp"]
    src, dst = grids_of([1, 1, 1, 1, 2], [1, 2, 1, 1, 1], names, names, (0, 2))
    bridge, rank = BridgeCommunicator(src, dst), dist.get_rank()
    whole = whole_tensor(4)
    if rank < 2:
        bridge.send_forward(whole.chunk(2)[rank])
    else:
        same(bridge.recv_forward().detach(), whole.chunk(2)[rank - 2])


def on_10(function):
    return test(function, 10)


@on_10
def gtp_and_dp_with_cp_between_them():
    """The order of Megatron-LM's training example. Samples go by gtp_remat first, then by dp, as leaders do;
    both cp ranks have them, and their gradients are summed."""
    names = ["tp", "gtp_remat", "cp", "dp", "pp"]
    src, dst = grids_of([1, 1, 1, 2, 1], [1, 2, 2, 2, 1], names, names, (0, 2))
    bridge, rank, whole = BridgeCommunicator(src, dst), dist.get_rank(), whole_tensor(8)
    assert bridge.dest_tp_leaders == [2, 3, 6, 7]
    if rank < 2:
        bridge.send_forward(whole.chunk(2)[rank])
        same(bridge.recv_backward(), 3 * whole.chunk(2)[rank])
        return
    at = dst.grid.coords(rank)
    part = whole.chunk(4)[at["gtp_remat"] + 2 * at["dp"]]
    same(bridge.recv_forward().detach(), part)
    bridge.send_backward(part * (1 + at["cp"]))


@test
def grids_that_overlap_are_rejected():
    grid, = {id(g): g for g in grids_of([2, 1, 1, 2], [2, 1, 1, 2])[:1]}.values()
    bridge = BridgeCommunicator(grid, grid)
    raises(ValueError, "both grids have ranks [0, 1, 2, 3]", bridge.send_forward, torch.ones(2, 3, 4))


@test_on_8
def golden_tensors():
    """The tensors of the reference with destination cp, where it takes the pair."""
    compared = 0
    for case in golden("bridge_tensors")["cases"]:
        if case["world_size"] != dist.get_world_size() or case.get("reference_is_correct") is False:
            continue
        grids = [HyperCommGrid(s["shape"], s["dim_names"], s["rank_offset"]) for s in (case["src"], case["dst"])]
        for grid in grids:
            if "cp" in grid.dim_names:
                grid.create_pg("cp")
        bridge = ColocatedBridgeCommunicator(*grids, dim_mapping=case["dim_mapping"])
        rank = dist.get_rank()
        if grids[0].is_current_rank_in_grid():
            x, g = (torch.as_tensor(Bridges.inputs(case, grid_of(case[side], 8), rank, what))
                    for side, what in (("src", "x"), ("dst", "g")))
            y = bridge.communicate(x.requires_grad_())
            y.backward(g.reshape(y.shape))
            same(y.detach(), case["forward"][str(rank)], case["id"])
            same(x.grad, case["input_grad"][str(rank)], case["id"])
        compared += bridge.dest_cp_size > 1
        bridge.destroy()
        for grid in grids:
            grid.destroy()
    assert compared >= 10, compared


@test_on_8
def dp_sizes_that_do_not_divide():
    """dp 3 to dp 2 on ranks 0 to 5 of 8."""
    whole = whole_tensor(12)
    grids = grids_of([2, 1, 1, 3], [1, 3, 1, 2])
    assert np.prod(grids[0].shape) == 6
    raises(ValueError, "DP sizes must be evenly divisible: src_dp=3, dest_dp=2", ColocatedBridgeCommunicator,
           *grids)
    bridge = ColocatedBridgeCommunicator(*grids, extended=True)
    if dist.get_rank() < 6:
        x = mine(grids[0], whole).requires_grad_()
        y = bridge.communicate(x)
        same(y.detach(), mine(grids[1], whole))
        y.backward(mine(grids[1], -whole) * (grids[1].grid.coords(dist.get_rank())["cp"] == 1))
        same(x.grad, mine(grids[0], -whole))
        raises(ValueError, "not divisible by fan_in scale=0", bridge.get_slice_info, 12)
    bridge.destroy()


if __name__ == "__main__":
    main()
