"""Packed sequences of lierne.torch on 4 ranks of torchrun, over both ways to move data. What a rank has
is computed here token by token, from the chunks of its padded segments."""
import types

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch
from torch_harness import contexts, main, raises, same, test

CP, HIDDEN, POISON, IMAGE = 4, 3, -7777., 9


def padded_of(lengths, multiple):
    return [-(-n // multiple) * multiple for n in lengths]


def boundaries(lengths):
    return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)


def zigzag_rows(lengths, multiple, cp, rank):
    """The token of each row of a rank, -1 for padding."""
    rows, first = [], 0
    for n, padded in zip(lengths, padded_of(lengths, multiple)):
        chunk = padded // (2 * cp)
        for at in (rank, 2 * cp - 1 - rank):
            rows += [first + j if j < n else -1 for j in range(at * chunk, (at + 1) * chunk)]
        first += n
    return np.array(rows, np.int64)


def contiguous_rows(lengths, multiple, cp, rank, tail=0):
    """The same for equal shares of the padded sequence."""
    rows, first = [], 0
    for n, padded in zip(lengths, padded_of(lengths, multiple)):
        rows += [first + j if j < n else -1 for j in range(padded)]
        first += n
    rows += [-1] * tail
    return np.array(rows, np.int64).reshape(cp, -1)[rank]


def values(tokens, scale=1, padding=0.):
    """[rows, HIDDEN] that say token and column."""
    rows = scale * (10 * torch.from_numpy(tokens)[:, None] + torch.arange(1, 1 + HIDDEN)).double()
    return rows.masked_fill(torch.from_numpy(tokens < 0)[:, None], padding)


def params(lengths, multiple, **more):
    return types.SimpleNamespace(cu_seqlens_q=boundaries(lengths), qkv_format="thd",
                                 cu_seqlens_q_padded=boundaries(padded_of(lengths, multiple)), **more)


@test
def packed():
    rank, multiple = dist.get_rank(), 2 * CP
    for context in contexts():
        move = lierne.torch.Packed(context, lierne.Grid({"cp": CP}), "cp", "contiguous", (None, HIDDEN),
                                   torch.float64, max_segments=16, max_rows=128)
        for lengths in ([5, 0, 21, 8], [30], [3, 3, 3, 3, 3, 3, 17]):
            move.update(params(lengths, multiple))
            mine, other = zigzag_rows(lengths, multiple, CP, rank), contiguous_rows(lengths, multiple, CP, rank)
            x = values(mine, padding=POISON)[:, None].requires_grad_()
            y = move(x)
            assert y.shape == (len(other), 1, HIDDEN)
            same(y.detach(), values(other))
            y.backward(values(other, 3, POISON)[:, None])
            same(x.grad, values(mine, 3))
            same(move.back(y.detach()), values(mine))
        y = move(x).mul_(2)  # a result is no view
        raises(lierne.errors.CapacityError, "max_segments", lambda: move.update(params([1] * 17, multiple)))
        y.backward(values(other, 1, POISON)[:, None])
        same(x.grad, values(mine, 5), "an update that was rejected changes nothing")
        raises(ValueError, "the plan needs", lambda: move(x[:, :, :2]))
        raises(ValueError, "give the options to it", lambda: move.update(lierne.Packing([0, 8]), align=multiple))
        raises(ValueError, "must begin with None", lambda: lierne.torch.Packed(
            context, lierne.Grid({"cp": CP}), "cp", "segments", (8, HIDDEN), torch.float64, 16, 128))
        y = move(x.detach().requires_grad_())
        move.update(params([4], multiple))
        raises(RuntimeError, "call backward before update", lambda: y.sum().backward())
        raises(lierne.errors.CapacityError, "max_segments", lambda: move.update(params([1] * 17, multiple)))
        moved = move(values(zigzag_rows([4], multiple, CP, rank)))
        same(moved, values(contiguous_rows([4], multiple, CP, rank)), "the old segments stay")


@test
def packed_into_memory_used_before():
    """Outputs of a size whose memory is used again: nothing of the calls before is left in their padding."""
    rank, multiple, columns = dist.get_rank(), 2 * CP, 8192
    for context in contexts():
        move = lierne.torch.Packed(context, lierne.Grid({"cp": CP}), "cp", "contiguous", (None, columns),
                                   torch.float64, max_segments=16, max_rows=128)
        for lengths in 2 * ([30], [5, 0, 21, 8], [3, 3, 3, 3, 3, 3, 17]):
            move.update(params(lengths, multiple))
            mine, other = zigzag_rows(lengths, multiple, CP, rank), contiguous_rows(lengths, multiple, CP, rank)
            x, expected = (values(tokens, 1, padding)[:, :1].expand(-1, columns) for tokens, padding
                           in ((mine, POISON), (other, 0.)))
            for _ in range(3):
                y = move(x)
                same(y, expected)
                same(move.back(y.clone().masked_fill_(y == 0, POISON)), values(mine)[:, :1].expand(-1, columns))


@test
def fields_of_packed_seq_params():
    from lierne.torch.packed import packing_of
    lengths = [5, 21]
    whole = packing_of(params(lengths, 8, total_tokens=64))
    assert (whole.nsegments, whole.tokens) == (3, 26), "the tail is a segment without tokens"
    assert packing_of({"cu_seqlens_q": [0, 5]}).nsegments == 1
    raises(ValueError, "cross attention", lambda: packing_of(params(lengths, 8, cu_seqlens_kv=boundaries([5, 20]))))
    raises(ValueError, "total_tokens is 8", lambda: packing_of(params(lengths, 8, total_tokens=8)))
    raises(ValueError, "cu_seqlens_q is None", lambda: packing_of({}))
    assert len(lierne.find_image_runs([0, 0], [0], torch.zeros(0, dtype=torch.int64), IMAGE)) == 0
    far = types.SimpleNamespace(device=types.SimpleNamespace(type="cuda"))
    raises(TypeError, "memory of the host", lambda: packing_of({"cu_seqlens_q": far}))


def draw(seed):
    """(lengths of segments, their dp rank, ids of all tokens, rows of images, their dp rank)"""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 20, 5)
    ids = np.where(random.random(lengths.sum()) < 0.6, IMAGE, 1 + np.arange(lengths.sum()) % 7)
    images, left = [], int((ids == IMAGE).sum())
    while left:
        images.append(int(min(left, random.integers(1, 9))))
        left -= images[-1]
    return lengths.tolist(), random.integers(0, 2, 5), ids, images, random.integers(0, 4, len(images))


@test
def packed_bridge():
    rank = dist.get_rank()
    for context, peers in ((context, peers) for peers in (0, 2) for context in contexts()):
        bridge = lierne.torch.PackedBridge(context, lierne.Grid({"dp": 4}), lierne.Grid({"cp": 2, "dp": 2}), HIDDEN,
                                           torch.float64, max_segments=32, max_rows=128, max_runs=64,
                                           max_peers=peers)
        for seed in range(4):
            lengths, owner, ids, images, image_owner = draw(seed)
            bridge.update(params(lengths, 4), boundaries(images), torch.tensor(image_owner), owner,
                          input_ids=torch.tensor(ids), image_id=IMAGE)
            rows = np.flatnonzero(ids == IMAGE)  # the token of each image row
            first = np.cumsum([0, *images])
            mine = np.concatenate([np.arange(0)] + [np.arange(first[i], first[i + 1])
                                                    for i in np.flatnonzero(image_owner == rank)])
            starts = np.cumsum([0, *lengths])
            own = np.concatenate([np.arange(0)] + [
                np.where(part < 0, -1, part + starts[i]) for i in np.flatnonzero(owner == rank // 2)
                for part in (zigzag_rows([lengths[i]], 4, 2, rank % 2),)])
            is_image = np.isin(own, rows)
            same(bridge.tokens, own)
            same(bridge.mask, is_image)
            x = values(rows[mine]).requires_grad_()
            text = values(own, -1, 5.).masked_fill(torch.from_numpy(is_image)[:, None], POISON).requires_grad_()
            out = bridge(x, into=text)
            expected = torch.where(torch.from_numpy(is_image)[:, None], values(own), text.detach())
            same(out.detach(), expected, "image rows at their tokens, text as it was")
            out.backward(values(own, 2, POISON))
            same(x.grad, values(rows[mine], 2), "each row's gradient once")
            same(text.grad, values(own, 2, POISON).masked_fill(torch.from_numpy(is_image)[:, None], 0))
            same(bridge(x.detach()), values(np.where(is_image, own, -1)), "zeros without into")
            same(bridge(x.detach(), into=text.detach()[:, None]), expected, "embeddings [rows, 1, hidden]")
            raises(TypeError, "that of the plan", lambda: bridge(x.detach(), into=text.detach().float()))
            raises(ValueError, "into has shape", lambda: bridge(x.detach(), into=text.detach()[:1, :2]))
        for more in {}, {"runs": [[0, 0, 0, 0, 1]], "input_ids": ids, "image_id": IMAGE}:
            raises(ValueError, "give runs, or input_ids", lambda: bridge.update(
                params(lengths, 4), boundaries(images), image_owner, owner, **more))
        raises(TypeError, "cu_seqlens_q has dtype float32, must have integers", lambda: bridge.update(
            {"cu_seqlens_q": torch.tensor([0.0, 4.5])}, boundaries(images), image_owner, owner, input_ids=ids,
            image_id=IMAGE))
        raises(lierne.errors.CountError, "rows", lambda: bridge.update(
            params(lengths, 4), boundaries([*images, 1]), [*image_owner, 0], owner, input_ids=ids, image_id=IMAGE))


@test
def other_descriptions():
    """Ranks that disagree get an error, and never each other's rows: from the call, or where the context
    checks, from the update."""
    lengths = [8, 16] if dist.get_rank() == 1 else [16, 8]
    for options in {"over": "node", "timeout": 5}, {"over": "distributed", "check": True}:
        with lierne.torch.context(**options) as context:
            move = lierne.torch.Packed(context, lierne.Grid({"cp": CP}), "cp", "contiguous", (None, HIDDEN),
                                       torch.float64, max_segments=16, max_rows=128)
            dist.barrier()  # or a rank that still plans hears of another's error
            if options.get("check"):
                raises(lierne.errors.MismatchError, "", lambda: move.update(params(lengths, 2 * CP)))
                continue
            move.update(params(lengths, 2 * CP))
            try:
                got = move(values(zigzag_rows(lengths, 2 * CP, CP, dist.get_rank())))
                assert dist.get_rank() != 1, "rank 1 has another description than all others"
                same(got, values(contiguous_rows(lengths, 2 * CP, CP, dist.get_rank())), "OK means: of mine")
            except lierne.Error:
                pass


if __name__ == "__main__":
    main()
