"""Samples of lierne.torch on 4 ranks of torchrun, over both ways to move data, and the drop-ins."""
import gc
import time

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne.torch.compat import (SORTING_ALGO_FUNC, EncoderDataBalance, Qwen3VLEncoderDataBalance, calculate_workload,
                                 ceildiv, get_group_balanced_partitions, get_reverse_idx,
                                 get_seqlen_balanced_partitions, karmarkar_karp, log_seqlen_unbalance,
                                 prepare_dynamic_batch, rearrange_micro_batches, restore_dynamic_batch,
                                 roundup_divisible)
from torch_harness import contexts, main, raises, same, test

RANKS, MERGE = 4, 4


def lengths_of(rank, step):
    """Rows of the items of a rank, a multiple of MERGE: rank 2 has none in even steps, rank 0 long ones."""
    if rank == 2 and step % 2 == 0:
        return []
    return [MERGE * (1 + (7 * rank + 5 * j + 3 * step) % 6 + (12 if rank == 0 else 0)) for j in range(RANKS - rank)]


def all_lengths(step):
    return [lengths_of(rank, step) for rank in range(RANKS)]


def rows_of(items, width, dtype=torch.float64):
    """Rows of numbered items: every element says item, row and column."""
    parts = [torch.tensor([[1000 * item + 10 * row + column for column in range(width)] for row in range(n)],
                          dtype=dtype).reshape(n, width) for item, n in items]
    return torch.cat([torch.zeros(0, width, dtype=dtype), *parts])


def numbered(step):
    """(first number of each rank, lengths of all items)"""
    lengths = all_lengths(step)
    return np.cumsum([0] + [len(own) for own in lengths]), [n for own in lengths for n in own]


@test
def moves_and_gradients():
    rank = dist.get_rank()
    for context in contexts():
        samples = lierne.torch.Samples(context, [(3, torch.float64), ((1, 2), torch.int32, "segments")],
                                       [(2, torch.float64)], max_items=RANKS, max_rows=512)
        for step in range(4):
            own = lengths_of(rank, step)
            first, lengths = numbered(step)
            samples.update([n * n for n in own], own, returned_rows=[n // MERGE for n in own], mode="shed")
            lists = samples.lists()
            mine = [(item, lengths[item]) for item in lists.items]
            x = rows_of([(first[rank] + j, n) for j, n in enumerate(own)], 3).requires_grad_()
            grids = torch.tensor([[[first[rank] + j, n]] for j, n in enumerate(own)],
                                 dtype=torch.int32).reshape(-1, 1, 2)
            pixels, moved = samples.dispatch(x, grids)
            same(pixels, rows_of(mine, 3), "dispatch")
            same(moved, np.array(mine).reshape(-1, 1, 2), "one row per segment")
            assert moved.shape == (len(mine), 1, 2)
            same(samples.cu_seqlens(), np.cumsum([0] + [n for _, n in mine]))
            # An encoder that merges MERGE rows, weighted by their places.
            weights = torch.arange(1., 1 + MERGE, dtype=torch.float64).reshape(1, MERGE, 1)
            hidden = (pixels.reshape(-1, MERGE, 3) * weights).sum(1)[:, :2]
            out = samples.ret(hidden)
            expected = (x.detach().reshape(-1, MERGE, 3) * weights).sum(1)[:, :2]
            same(out, expected, "return")
            scale = torch.arange(1., 1 + out.numel(), dtype=torch.float64).reshape(out.shape) + rank
            (out * scale).sum().backward()
            gradient = (scale.reshape(-1, 1, 2) * weights).reshape(-1, 2)
            same(x.grad, torch.cat([gradient, torch.zeros(len(gradient), 1)], 1), "gradient")
        loads = samples.lists("home").loads, lists.loads
        assert loads[0].sum() == loads[1].sum() and loads[0].max() > loads[1].max(), loads
        assert samples.report["max_load"] == loads[1].max()
        samples.close()


@test
def tensors_travel_together():
    """One exchange for three tensors, of which one has no gradient and one is not used."""
    rank = dist.get_rank()
    for context in contexts():
        samples = lierne.torch.Samples(context, [(3, torch.bfloat16), ((1, 2), torch.int32, "segments"),
                                                 (2, torch.float64)], max_items=RANKS, max_rows=512)
        for step in range(3):
            own = lengths_of(rank, step)
            first, lengths = numbered(step)
            samples.update([n * n for n in own], own)
            mine = [(item, lengths[item]) for item in samples.lists().items]
            numbers = [(first[rank] + j, n) for j, n in enumerate(own)]
            x, y = rows_of(numbers, 3, torch.bfloat16).requires_grad_(), rows_of(numbers, 2).requires_grad_()
            grids = torch.tensor([[list(pair)] for pair in numbers], dtype=torch.int32).reshape(-1, 1, 2)
            a, b, c = samples.dispatch(x, grids, y)
            same(a, rows_of(mine, 3, torch.bfloat16))
            same(b, np.array(mine).reshape(-1, 1, 2))
            same(c, rows_of(mine, 2))
            assert a.requires_grad and not b.requires_grad
            (c ** 3).sum().backward()
            same(y.grad, 3 * y.detach() ** 2)
            assert x.grad is None
        raises(TypeError, "dtype", lambda: samples.dispatch(x.double(), grids, y))
        if not context.routed:
            together = samples._samples._together(samples._samples._dispatch)
            one = lierne.Coalesced(samples._samples.plans[:1])
            assert together.messages() == one.messages()
            one.close()
        samples.close()


@test
def gradients_of_gradients():
    """Of one tensor and of several, also where a gradient is taken twice of one graph."""
    rank = dist.get_rank()
    for context in contexts():
        samples = lierne.torch.Samples(context, [(2, torch.float64)], [(2, torch.float64), (1, torch.float64)],
                                       max_items=RANKS, max_rows=512)
        own = lengths_of(rank, 1)
        samples.update(own, own, mode="lpt")
        assert samples.report["moved_rows"] > 0
        rows = torch.arange(2. * sum(own), dtype=torch.float64).reshape(-1, 2) + 100 * rank
        x, y = rows.clone().requires_grad_(), rows[:, :1].clone().requires_grad_()
        moved = samples.dispatch(x)
        a, b = samples.ret(moved ** 2, moved[:, 1:] ** 3)
        g, = torch.autograd.grad(a.sum() + (b * y).sum(), x, create_graph=True)
        expected = 2 * rows + 3 * torch.cat([torch.zeros_like(y), rows[:, 1:] ** 2 * y], 1)
        same(g, expected, "gradient")
        gx, gy = torch.autograd.grad((g ** 2).sum() / 2, (x, y), retain_graph=True)
        second = 2 + 6 * torch.cat([torch.zeros_like(y), rows[:, 1:] * y], 1)
        same(gx, expected * second.detach(), "gradient of a gradient")
        same(gy, (expected[:, 1:] * 3 * rows[:, 1:] ** 2).detach(), "gradient of a gradient")
        again = torch.autograd.grad((g ** 2).sum() / 2, (x, y))
        same(again[0], gx, "the second time")
        same(again[1], gy, "the second time")
        samples.close()


@test
def any_number_of_items():
    """Without max_items: from none to ten times as many as before, some of two segments, and back."""
    rank = dist.get_rank()
    for context in contexts():
        samples = lierne.torch.Samples(context, [(2, torch.float64), (1, torch.int32, "segments")],
                                       [(2, torch.float64)], max_rows=512)
        for step, n in enumerate((0, 1, 30, 3, 30)):
            own = [1 + (i + rank) % 2 for i in range(n * (rank != step % RANKS))]
            rows = np.ones(sum(own), np.int64)
            samples.update(own, rows, segments=own)
            x = torch.arange(2. * len(rows), dtype=torch.float64).reshape(-1, 2) + 1000 * rank
            moved, marks = samples.dispatch(x, torch.full((len(rows), 1), rank, dtype=torch.int32))
            same(moved[:, :1] // 1000, marks)
            assert len(samples.cu_seqlens()) == len(moved) + 1
            same(samples.ret(moved), x)
        assert samples.report["max_load"] >= samples.report["lower_bound"] > 0
        raises(lierne.errors.CountRangeError, "rank 1: item 0 of its own: its number of segments is -1",
               lambda: samples.update([1], [3], segments=[-1 if rank == 1 else 1]))
        samples.close()


@test
def errors_are_everyones():
    rank = dist.get_rank()
    for context in contexts():
        samples = lierne.torch.Samples(context, [(3, torch.float32)], max_items=2, max_rows=64)
        samples.update([4, 5])
        x = torch.arange(27, dtype=torch.float32).reshape(9, 3).requires_grad_()
        before = samples.dispatch(x)
        raises(lierne.errors.CapacityError, "rank 3: it has 3 items", lambda: samples.update([1] * (3 if rank == 3 else 1)))
        raises(ValueError, "mode is 'best'", lambda: samples.update([1], mode="best"))
        same(samples.dispatch(x), before, "the old routing")
        for bad, kind, text in ((5, ValueError, "costs has shape (), must be [items] or [items, costs]"),
                                (np.ones((1, 1, 1), np.int64), ValueError, "costs has shape (1, 1, 1)"),
                                ([1.5], TypeError, "float64, not int64"),
                                (torch.ones(2, requires_grad=True), RuntimeError, "requires grad")):
            raises(lierne.errors.InvalidError if rank != 2 else kind, "rank 2: items is NULL" if rank != 2 else text,
                   lambda: samples.update(bad if rank == 2 else [4, 5]))
            same(samples.dispatch(x), before, "the old routing")
        raises(ValueError, "way is 'columns', must be one of rows, segments",
               lambda: lierne.torch.Samples(context, [(1, torch.float32, "columns")], max_rows=1))
        raises(ValueError, "2 tensors are given, must be 1", lambda: samples.dispatch(x, x))
        raises(ValueError, "must be [rows, 3]", lambda: samples.dispatch(x.reshape(3, 9)))
        raises(TypeError, "dtype", lambda: samples.dispatch(x.double()))
        samples.update([4, 5])
        raises(RuntimeError, "backward of step 1", before.sum().backward)
        samples.close()
        raises(ValueError, "closed", lambda: samples.update([1]))


@test
def veomni_balance():
    rank = dist.get_rank()
    for context in contexts():
        for mode in ("lpt", "shed"):
            balance = EncoderDataBalance(spatial_merge_unit=MERGE, context=context, mode=mode)
            for step in range(3):
                own = lengths_of(rank, step)
                first, lengths = numbered(step)
                grids = torch.tensor([[1, 2, n // 2] for n in own], dtype=torch.int64).reshape(-1, 3)
                x = rows_of([(first[rank] + j, n) for j, n in enumerate(own)], 2, torch.float32)
                pixels, moved = balance.balance_data(x, grids)
                assert len(pixels) == int(moved.prod(dim=1).sum())
                hidden = pixels.reshape(-1, MERGE, 2)[:, 1].requires_grad_()
                out, (deep,) = balance.data_bridge(hidden, [2 * hidden])
                same(out, x.reshape(-1, MERGE, 2)[:, 1], "data_bridge")
                same(deep, 2 * out, "deepstack features")
                (out.sum() + deep.sum()).backward()
                same(hidden.grad, torch.full(hidden.shape, 3.), "gradient")
                costs = [n * n for n in lengths]
                counts = [len(part) for part in all_lengths(step)]
                wanted = lierne.Assignment(costs, counts, rows=lengths, mode=mode).ranks
                assert len(moved) == (wanted == rank).sum(), (mode, step)


@test
def verl_partitions():
    for seed in range(20):
        lengths = np.random.default_rng(seed).integers(1, 2000, 24).tolist()
        for equal in (False, True):
            parts = get_seqlen_balanced_partitions(lengths, 4, equal)
            assert sorted(i for part in parts for i in part) == list(range(24))
            assert all(part == sorted(part) for part in parts)
            assert not equal or all(len(part) == 6 for part in parts)
            sums = [sum(lengths[i] for i in part) for part in parts]
            assert max(sums) < 1.05 * sum(sums) / 4, sums
            logged = log_seqlen_unbalance(lengths, parts, "seqlen")
            assert logged["seqlen/balanced_max"] == max(sums) and logged["seqlen/mean"] == sum(lengths) / 4
            order = [i for part in parts for i in part]
            assert [order[i] for i in get_reverse_idx(order)] == list(range(24))
    # What verl's own rejects: counts that do not divide, and fewer items than parts.
    assert [len(p) for p in get_seqlen_balanced_partitions([5, 4, 3, 2, 1], 2, True)] in ([2, 3], [3, 2])
    assert sorted(map(len, get_seqlen_balanced_partitions([5], 2, False))) == [0, 1]


@test
def verl_groups():
    """Groups stay together, and each part has as many."""
    for lengths, uids, k in (([100] * 4 + [200] * 4 + [150] * 4 + [50] * 4, list("aaaabbbbccccdddd"), 2),
                             ([100, 200, 150, 50, 300, 250], range(6), 2),
                             ([n for n in (100, 200, 150, 50, 300, 250, 180, 120) for _ in range(2)],
                              [i // 2 for i in range(16)], 4)):
        parts = get_group_balanced_partitions(lengths, list(uids), k)
        assert len(parts) == k and sorted(i for part in parts for i in part) == list(range(len(lengths)))
        groups = [{uids[i] for i in part} for part in parts]
        assert sum(map(len, groups)) == len(set(uids)) and len(set(map(len, groups))) == 1, groups
    assert get_group_balanced_partitions([5, 5, 5, 5], [1, 1, 2, 2], 2) == [[2, 3], [0, 1]]
    # What verl rejects: groups that do not divide.
    assert sorted(map(len, get_group_balanced_partitions([1, 1, 1], [7, 8, 9], 2))) == [1, 2]
    raises(ValueError, "uid_list has 1 entries, must have 2", lambda: get_group_balanced_partitions([1, 2], [1], 1))


@test
def verl_lengths():
    """Of a list, of a tensor, and of sums of a mask of floats."""
    lengths = [7, 3, 9, 1, 4, 4]
    parts = get_seqlen_balanced_partitions(lengths, 2, True)
    for same_lengths in torch.tensor(lengths), [float(n) for n in lengths], np.array(lengths, np.int32):
        assert get_seqlen_balanced_partitions(same_lengths, k_partitions=2, equal_size=True) == parts
    assert karmarkar_karp(seqlen_list=lengths, k_partitions=2, equal_size=True) == parts
    long = [calculate_workload(n << 17) for n in lengths]  # more than 2^31 of a sequence
    assert get_seqlen_balanced_partitions(long, 2, False) == [[1, 2], [0, 3, 4, 5]]
    for bad in 1.5, float("inf"), float("nan"):
        raises(TypeError, "seqlen_list[1] is", lambda: get_seqlen_balanced_partitions([1., bad], 2, False))
    logged = log_seqlen_unbalance([5], [[0], []], "one")
    assert (logged["one/balanced_min"], logged["one/balanced_max"], logged["one/mean"]) == (0, 5, 2.5)
    assert (roundup_divisible(7, 4), roundup_divisible(8, 4), ceildiv(7, 3)) == (8, 8, 3)


def batch_of(n, rank=0, dtype=torch.int64):
    """A dict of n samples of 40 to 90 tokens, padded at the left; one value has no rows."""
    lengths = torch.randint(40, 91, (n,), generator=torch.Generator().manual_seed(42 + rank))
    mask = (torch.arange(100) >= 100 - lengths.reshape(-1, 1)).to(dtype)
    return {"input_ids": torch.arange(100 * n).reshape(n, 100), "attention_mask": mask, "temperature": 0.5}


def tokens_of(micros):
    return [int(micro["attention_mask"].sum()) for micro in micros]


@test
def verl_micro_batches():
    """As few as keep the limit of tokens, or as many as are asked for, and back in order."""
    for dtype in torch.int64, torch.float32:
        batch = batch_of(20, dtype=dtype)
        tokens = int(batch["attention_mask"].sum())
        for options, count in ({}, None), ({"min_num_micro_batch": 9}, 9), ({"num_batches_divided_by": 4}, None):
            for balanced in True, False:
                micros, rows = rearrange_micro_batches(batch, 300, use_dynamic_bsz_balance=balanced, **options)
                assert len(micros) == len(rows) == (count or len(micros)) >= ceildiv(tokens, 300)
                assert len(micros) % options.get("num_batches_divided_by", 1) == 0
                assert max(tokens_of(micros)) <= 300 and all(micro["temperature"] == 0.5 for micro in micros)
                flat = torch.cat([micro["input_ids"] for micro in micros])
                same(restore_dynamic_batch(flat, rows), batch["input_ids"])
                costs = [sum(int(calculate_workload(n)) for n in micro["attention_mask"].sum(1)) for micro in micros]
                top = costs.index(max(costs))
                assert not balanced or costs == sorted(costs[:top]) + sorted(costs[top:], reverse=True), costs
    # 3 of 60 tokens: two together exceed 100, though two parts of 90 would hold them.
    three = {"attention_mask": torch.ones(3, 60, dtype=torch.int64)}
    assert len(rearrange_micro_batches(three, 100)[0]) == 3
    _, rows = rearrange_micro_batches(batch_of(6), 200, force_group_size=2)
    assert all(part[::2] == [i - 1 for i in part[1::2]] and part[0] % 2 == 0 for part in rows), rows
    empty = {"attention_mask": torch.zeros(2, 5, dtype=torch.int64)}
    assert sum(rearrange_micro_batches(empty, 10)[1], []) in ([0, 1], [1, 0])
    raises(ValueError, "forced group exceeds max_token_len: samples that stay together have 60 tokens, must have at most 59",
           lambda: rearrange_micro_batches(three, 59))
    raises(ValueError, "have 180 tokens", lambda: rearrange_micro_batches(three, 100, force_group_size=3))
    raises(ValueError, "does not divide 3 samples", lambda: rearrange_micro_batches(three, 200, force_group_size=2))
    raises(ValueError, "4 or more micro-batches are needed, and a rank has 3 samples",
           lambda: rearrange_micro_batches(three, 100, min_num_micro_batch=4))
    raises(ValueError, "has 2 samples, and there are 3 rows", lambda: restore_dynamic_batch(torch.ones(3), [[0], [1]]))


@test
def verl_as_many_on_all_ranks():
    rank = dist.get_rank()
    batch = batch_of(20 + 5 * rank, rank)
    alone = len(rearrange_micro_batches(batch, 300, dist.group.WORLD, same_micro_num_in_dp=False)[0])
    micros, rows = rearrange_micro_batches(batch, 300, dp_group=dist.group.WORLD)
    counts = [None] * RANKS
    dist.all_gather_object(counts, (alone, len(micros)))
    assert len(set(many for _, many in counts)) == 1 and counts[0][1] >= max(few for few, _ in counts), counts
    assert len(set(few for few, _ in counts)) > 1, "nothing to agree on"
    same(restore_dynamic_batch(torch.cat([micro["input_ids"] for micro in micros]), rows), batch["input_ids"])
    raises(ValueError, "and a rank has 2 samples, or groups of them, for the same micro-batch count across DP ranks",
           lambda: rearrange_micro_batches(batch_of(2 if rank == 1 else 20), 300, dp_group=dist.group.WORLD))
    raises(ValueError, "forced group exceeds max_token_len", lambda: rearrange_micro_batches(
        {"attention_mask": torch.ones(4, 6 if rank == 1 else 4)}, 10, dist.group.WORLD, force_group_size=2))


class Proto:
    """As much of verl's DataProto as the functions use."""

    def __init__(self, batch, arrays, meta_info):
        self.batch, self.non_tensor_batch, self.meta_info = batch, arrays, meta_info

    @classmethod
    def from_dict(cls, tensors=None, non_tensors=None, meta_info=None):
        return cls(tensors, non_tensors, meta_info)


@test
def verl_dynamic_batches():
    """With arrays that are no tensors, a copy of what describes them, and nested tensors."""
    data = Proto(batch_of(10), {"labels": np.array([f"l{i}" for i in range(10)], object)}, {"step": [3]})
    micros, rows = prepare_dynamic_batch(data, max_token_len=300)
    assert [micro.non_tensor_batch["labels"].tolist() for micro in micros] == [[f"l{i}" for i in part] for part in rows]
    micros[0].meta_info["step"].append(4)
    assert data.meta_info == micros[1].meta_info == {"step": [3]} and isinstance(micros[0], Proto)
    same(restore_dynamic_batch(torch.cat([micro.batch["input_ids"] for micro in micros]), rows), data.batch["input_ids"])
    samples = [torch.arange(1 + 7 * i % 10) for i in range(10)]
    nested = torch.nested.as_nested_tensor(samples, layout=torch.jagged)
    micros, rows = rearrange_micro_batches({"input_ids": nested, "number": torch.arange(10)}, 20)
    assert all(len(micro["input_ids"].values()) <= 20 and micro["number"].tolist() == part
               for micro, part in zip(micros, rows))
    flat = torch.nested.as_nested_tensor([x for micro in micros for x in micro["input_ids"].unbind()], layout=torch.jagged)
    for found, sample in zip(restore_dynamic_batch(flat, rows).unbind(), samples):
        same(found, sample)


def by_hand(table, replicas, dim):
    """The longest first, each to the least load; equal ones as VeOmni sorts them."""
    loads, parts = [0] * replicas, [[] for _ in range(replicas)]
    for i in torch.argsort(table[:, dim].float(), descending=True).tolist():
        to = loads.index(min(loads))
        loads[to] += int(table[i, dim]) ** 2
        parts[to].append(table[i])
    return [torch.stack(part) if part else table[:0] for part in parts]


@test
def veomni_sorter():
    sorter = SORTING_ALGO_FUNC["post_mbs_balancing_greedy_without_pad"]
    # 8 times the same five lengths, shuffled: the squares of each part sum up to the same.
    lengths = torch.arange(1, 6).repeat(8) * 200
    parts = sorter(lengths[torch.randperm(40, generator=torch.Generator().manual_seed(1))].unsqueeze(-1), 8, dim=0)
    assert [int((part ** 2).sum()) for part in parts] == [200 ** 2 * 55] * 8, parts
    for seed in range(20):
        draw = np.random.default_rng(seed)
        n = int(draw.integers(0, 40))
        table = torch.from_numpy(np.stack([np.arange(n) % 4, np.arange(n), draw.choice([256, 320, 640, 784, 5120], n)], 1))
        found, wanted = sorter(table, 4, 2), by_hand(table, 4, 2)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted)), (found, wanted)
        sends, mapped = Qwen3VLEncoderDataBalance.rank_table_mapping(found, dp_rank=2)
        assert all(torch.equal(a, b) for a, b in zip(mapped, wanted))
        assert sorted(i for part in sends for i in part.tolist()) == list(range(2, n, 4))
        assert all(part.dtype == torch.long for part in sends)
    for lengths, replicas in (([], 8), ([7], 8), ([0, 0], 4), ([9, 9, 9, 9], 2)):
        table = torch.tensor([[i, n] for i, n in enumerate(lengths)], dtype=torch.int32).reshape(-1, 2)
        parts = sorter(table, replicas, 1)
        assert len(parts) == replicas and all(part.shape[1:] == (2,) and part.dtype == table.dtype for part in parts)
        rows = torch.cat(parts)
        same(rows[torch.argsort(rows[:, 0])], table)
    for table, dim in ((torch.ones(2), 0), (torch.ones(2, 1), 1)):
        raises(ValueError, "must be [items, columns], and dim a column", lambda: sorter(table, 2, dim))
    raises(ValueError, "num_replicas is 0", lambda: sorter(torch.ones(2, 1), 0, 0))
    for bad in -1., float("nan"), float("inf"):
        raises(ValueError, f"row 1: the length is {bad}", lambda: sorter(torch.tensor([[1.], [bad]]), 2, 0))


@test
def veomni_costs():
    """Powers of lengths, and costs of the caller's, which are neither lengths nor squared."""
    sorter = SORTING_ALGO_FUNC["post_mbs_balancing_greedy_without_pad"]

    def parts(values, **costs):
        table = torch.tensor([[i, n] for i, n in enumerate(values)])
        return [part[:, 0].tolist() for part in sorter(table, 2, 1, **costs)]

    assert parts([6, 5, 4, 3, 2]) == parts([6, 5, 4, 3, 2], cost_exponent=2) == [[0, 3], [1, 2, 4]]
    assert parts([6, 5, 4, 3, 2], cost_exponent=1) == [[0, 3, 4], [1, 2]]
    assert parts([6, 5, 4, 3, 2], cost_fn=lambda table, dim: table[:, dim]) == [[0, 3, 4], [1, 2]]
    assert parts([2, 3, 4, 5, 6], cost_fn=lambda table, dim: 6 - table[:, :1]) == [[0, 3, 4], [1, 2]]
    assert parts([900, 899, 898], cost_exponent=300) == [[0], [1, 2]]
    assert parts([5, 5], cost_fn=lambda table, dim: torch.tensor([2**61, 2**61 + 1])) == [[1], [0]]
    assert parts([4, 4], cost_fn=lambda table, dim: table.zero_()[:, 0]) == [[0], [1]], "a copy of the table"
    for exponent in -1, float("nan"), float("inf"):
        raises(ValueError, f"cost_exponent is {exponent}", lambda: parts([1, 2], cost_exponent=exponent))
    raises(ValueError, "must not both be", lambda: parts([1], cost_exponent=2, cost_fn=lambda table, dim: table[:, 1]))
    raises(NotImplementedError, "Vector costs", lambda: parts([1, 2], cost_fn=lambda table, dim: table))
    for costs in torch.ones(3), torch.ones(2, 1, 1), [1, 2]:
        raises(ValueError, "one cost per row", lambda: parts([1, 2], cost_fn=lambda table, dim: costs))
    for bad in -1., float("nan"), float("inf"):
        raises(ValueError, f"row 1: a cost is {bad}",
               lambda: parts([1, 2], cost_fn=lambda table, dim: torch.tensor([1, bad])))


@test
def veomni_images_come_back():
    generator = np.random.default_rng(dist.get_rank())
    for context in contexts():
        balance = Qwen3VLEncoderDataBalance(1, context=context)
        for _ in range(2):
            grids = torch.from_numpy(generator.integers([1, 10, 10], [2, 51, 51], (generator.integers(3, 16), 3)))
            pixels = torch.from_numpy(generator.normal(size=(int(grids.prod(1).sum()), 8)).astype(np.float32))
            moved, moved_grids = balance.balance_data(pixels, grids)
            assert len(moved) == int(moved_grids.prod(1).sum())
            back, features = balance.data_bridge(hidden_state=moved, deepstack_feature_lists=[moved, 2 * moved])
            same(back, pixels)
            same(features[0], pixels)
            same(features[1], 2 * pixels)


@test
def veomni_merged_gradients():
    """Videos that are balanced meanwhile leave the way of images alone; without gradients where none are asked for."""
    rank = dist.get_rank()
    for context in contexts():
        grids = torch.tensor([[1, 2, 2]] * (rank + 1))
        pixels = torch.arange((rank + 1) * 12, dtype=torch.float32).reshape(-1, 3) + 1000 * rank
        balance = Qwen3VLEncoderDataBalance(spatial_merge_unit=4, context=context)
        moved, _ = balance.balance_data(pixels, grids, data_type="image")
        balance.balance_data(pixels + 17, grids, data_type="video")
        merged, expected = (x.reshape(-1, 4, 3).mean(1) for x in (moved, pixels))
        leaves = [merged.clone().requires_grad_() for _ in range(3)]
        back, features = balance.data_bridge(leaves[0], leaves[1:], data_type="image")
        loss = 0
        for times, result in enumerate([back, *features], 1):
            same(result, expected)
            loss = loss + (result * expected * times).sum()
        loss.backward()
        for times, leaf in enumerate(leaves, 1):
            same(leaf.grad, merged * times)
        video, none = balance.data_bridge((merged + 17).requires_grad_(), [], require_grad=False, data_type="video")
        same(video, expected + 17)
        with torch.no_grad():
            recovered, _ = balance.data_bridge(leaves[0], [])
        assert none == [] and not video.requires_grad and not recovered.requires_grad


@test
def images_and_video_in_one_step():
    """Both are in flight before the backward; video needs more than the capacity so far."""
    rank = dist.get_rank()
    for context in contexts():
        balance, inputs, total = EncoderDataBalance(spatial_merge_unit=1, context=context), [], 0
        for kind, times in ("image", 1), ("video", 40):
            own = [times * n for n in lengths_of(rank, 1)]
            x = rows_of([(10 * rank + j, n) for j, n in enumerate(own)], 2, torch.float32).requires_grad_()
            grids = torch.tensor([[1, 2, n // 2] for n in own], dtype=torch.int64).reshape(-1, 3)
            hidden, _ = balance.data_bridge(2 * balance.balance_data(x, grids, kind)[0], None, True, kind)
            same(hidden, 2 * x.detach(), kind)
            hidden *= 3  # a result is no view
            inputs.append(x)
            total = total + hidden.sum()
        total.backward()
        for x in inputs:
            same(x.grad, torch.full_like(x, 6))


@test
def bad_numbers_of_one_rank():
    rank = dist.get_rank()
    for context in contexts():
        samples = lierne.torch.Samples(context, [(1, torch.float64)], [(1, torch.float64)], max_items=4, max_rows=64)
        start = time.monotonic()
        raises(lierne.errors.InvalidError if rank != 1 else ValueError, "rank 1" if rank != 1 else "rows has 2 entries",
               lambda: samples.update([1], torch.tensor([2, 3] if rank == 1 else [2])))
        assert time.monotonic() - start < 30, "before the deadline"
        samples.update([1], torch.tensor([2]))
        own = torch.full((2, 1), 5. + rank, dtype=torch.float64)
        same(samples.ret(samples.dispatch(own)), own, "the context lives")


@test
def memory_of_results_is_used_again():
    """Once nothing refers to it, and without a collection; what is kept keeps its values."""
    rank, rows = dist.get_rank(), 300
    gc.collect()
    gc.disable()
    for context in contexts():
        samples = lierne.torch.Samples(context, [(256, torch.float32)], [(256, torch.float32)], max_items=2,
                                       max_rows=4 * RANKS * rows)
        x, kept, places = torch.full((2 * rows, 256), 1. + rank).requires_grad_(), [], set()
        for step in range(6):
            x.grad = None
            samples.update([rows * (1 + 2 * (rank == step % RANKS))] * 2, [rows] * 2, mode="lpt")
            moved = samples.dispatch(x)
            back = samples.ret(moved)
            same(back, x.detach())
            (back.sum() * (1 + step)).backward()
            same(x.grad, torch.full(x.shape, 1. + step))
            if step < 2:
                kept.append((back, x.grad))
            else:
                places |= {moved.data_ptr(), back.data_ptr(), x.grad.data_ptr()}
            moved = back = None
        assert context.routed or len(places) <= 6, f"{len(places)} places for 12 results"
        for step, (back, gradient) in enumerate(kept):
            same(back, torch.full(x.shape, 1. + rank))
            same(gradient, torch.full(x.shape, 1. + step))
        samples.close()
    gc.enable()


if __name__ == "__main__":
    main()
