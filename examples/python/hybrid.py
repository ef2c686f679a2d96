"""A hybrid model on packed sequences: softmax attention needs zigzag chunks, linear attention contiguous ones.

    torchrun --nproc-per-node 4 examples/python/hybrid.py

Context parallelism over 4 ranks. Zigzag chunks give every rank as much of causal attention; a recurrent
layer needs each rank's tokens in one piece, whose state goes on to the next rank. lierne.torch.Packed moves
activations from one to the other and back, each step for other samples, on each rank alone. Keys, values
and states are gathered. Loss and gradients are those of one process."""
import types
import typing

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch

STEPS, HIDDEN, WORDS, CP, DECAY, MOST_ROWS = 3, 8, 32, 4, 0.9, 128


def describe(step: int) -> typing.Any:
    """A microbatch, the same on all ranks: token ids, lengths of the samples, and those with padding."""
    random = np.random.default_rng(step)
    lengths = random.integers(1, 60, 5)
    return torch.from_numpy(random.integers(0, WORDS, lengths.sum())), lengths, -(-lengths // (2 * CP)) * 2 * CP


def tokens_of(lengths: typing.Any, padded: typing.Any) -> list[typing.Any]:
    """The token of each row of the padded sequence, -1 for padding; as a list of samples."""
    firsts = np.cumsum(lengths) - lengths
    return [np.where(np.arange(p) < n, first + np.arange(p), -1) for n, p, first in zip(lengths, padded, firsts)]


def zigzag(samples: list[typing.Any], rank: int) -> torch.Tensor:
    """Rows of a rank: chunks r and 2 cp - 1 - r of each sample."""
    chunks = [row.reshape(2 * CP, -1) for row in samples]
    return torch.from_numpy(np.concatenate([c[i] for c in chunks for i in (rank, 2 * CP - 1 - rank)]))


def parameters() -> list[torch.Tensor]:
    torch.manual_seed(1)
    shapes = [(WORDS, HIDDEN)] + [(HIDDEN, HIDDEN)] * 6 + [(HIDDEN, WORDS)]
    return [(0.5 * torch.randn(shape, dtype=torch.float64)).requires_grad_() for shape in shapes]


def softmax_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
    """Causal within each sample. rows, columns: the tokens of q and of k and v, -1 for padding."""
    seen = ((columns[None] >= 0) & (columns[None] <= rows[:, None]) &
            (sample[columns.clamp(min=0)][None] == sample[rows.clamp(min=0)][:, None]))
    scores = (q @ k.T).masked_fill(~seen, -1e30)
    return torch.where(rows[:, None] >= 0, scores.softmax(1) @ v, 0)


def linear_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tokens: torch.Tensor,
                     starts: set[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(outputs, state at the end, factors) of rows that begin without a state. The state is outer products of keys
    and values, which decay; factors: how much of a state before them is left in each row, last in the end."""
    state, left, out, factors = torch.zeros(HIDDEN, HIDDEN, dtype=q.dtype), 1.0, [], []
    for i, token in enumerate(tokens.tolist()):
        if token < 0:
            out.append(torch.zeros_like(q[i]))
            factors.append(0.0)
            continue
        begins = token in starts
        state = (0 if begins else DECAY * state) + torch.outer(k[i], v[i])
        left = 0.0 if begins else DECAY * left
        out.append(q[i] @ state)
        factors.append(left)
    return torch.stack(out), state, torch.tensor([*factors, left], dtype=q.dtype)


def loss_of(hidden: torch.Tensor, tokens: torch.Tensor, ids: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    real = tokens >= 0
    labels = ids.roll(-1)[tokens[real]]
    return torch.nn.functional.cross_entropy(torch.tanh(hidden[real]) @ head, labels, reduction="sum")


def alone(ids: torch.Tensor, sample: torch.Tensor, starts: set[int]) -> torch.Tensor:
    """(loss, gradients) of one process."""
    words, q, k, v, lq, lk, lv, head = weights = parameters()
    x, tokens = words[ids], torch.arange(len(ids))
    x = x + softmax_attention(x @ q, x @ k, x @ v, tokens, tokens, sample)
    x = x + linear_attention(x @ lq, x @ lk, x @ lv, tokens, starts)[0]
    loss = loss_of(x, tokens, ids, head)
    return torch.cat([g.reshape(-1) for g in (loss.detach(), *torch.autograd.grad(loss, weights))])


def gathered(gather: lierne.torch.Operation, tensor: torch.Tensor) -> torch.Tensor:
    """The tensors of all ranks, with room for MOST_ROWS rows each; the gradient is their sum."""
    room = torch.cat([tensor, tensor.new_zeros(MOST_ROWS - len(tensor), *tensor.shape[1:])])
    return gather(room.reshape(-1)).reshape(CP, *room.shape)[:, :len(tensor)]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with lierne.torch.context() as context:
        move = lierne.torch.Packed(context, lierne.Grid({"cp": CP}), "cp", "contiguous", (None, HIDDEN), torch.float64,
                                   max_segments=16, max_rows=MOST_ROWS)
        pairs = lierne.torch.Operation(lierne.all_gather(context, MOST_ROWS * 2 * HIDDEN, "f64"))
        states = lierne.torch.Operation(lierne.all_gather(context, HIDDEN * HIDDEN + 1, "f64"))
        for step in range(STEPS):
            ids, lengths, padded = describe(step)
            samples, starts = tokens_of(lengths, padded), set((np.cumsum(lengths) - lengths).tolist())
            sample = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths))
            move.update(types.SimpleNamespace(qkv_format="thd", cu_seqlens_q=np.cumsum([0, *lengths]),
                                              cu_seqlens_q_padded=np.cumsum([0, *padded])))
            mine, every = zigzag(samples, rank), torch.cat([zigzag(samples, r) for r in range(CP)])
            share = torch.from_numpy(np.concatenate(samples).reshape(CP, -1)[rank])

            words, q, k, v, lq, lk, lv, head = weights = parameters()
            x = torch.where(mine[:, None] >= 0, words[ids[mine.clamp(min=0)]], 0)
            both = gathered(pairs, torch.cat([x @ k, x @ v], 1)).reshape(-1, 2 * HIDDEN)
            keys, values = both.split(HIDDEN, 1)
            x = x + softmax_attention(x @ q, keys, values, mine, every, sample)

            y = move(x)  # contiguous shares
            out, state, factors = linear_attention(y @ lq, y @ lk, y @ lv, share, starts)
            ends = states(torch.cat([state.reshape(-1), factors[-1:]])).reshape(CP, -1)
            before = 0 * ends[0, :-1].reshape(HIDDEN, HIDDEN)  # so that every rank takes part in the backward
            for end in ends[:rank]:
                before = end[-1] * before + end[:-1].reshape(HIDDEN, HIDDEN)
            x = x + move.back(out + factors[:-1, None] * (y @ lq @ before))  # zigzag chunks again

            loss = loss_of(x, mine, ids, head)
            total = torch.cat([g.reshape(-1) for g in (loss.detach(), *torch.autograd.grad(loss, weights))])
            dist.all_reduce(total)
            expected = alone(ids, sample, starts)
            difference = ((total - expected).abs().max() / expected.abs().max()).item()
            assert difference < 1e-13, difference
            print(f"rank {rank}: step {step}: {int((mine >= 0).sum())} tokens in zigzag chunks, "
                  f"{int((share >= 0).sum())} in one piece, loss {total[0]:.6f} (one process: {expected[0]:.6f})",
                  flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
