"""A multimodal step with nothing left to chance: images go to the ranks that have time for them, samples to the
data-parallel ranks that have, and embeddings straight from one to the other.

    torchrun --nproc-per-node 8 examples/python/multimodal.py

Images and texts have lognormal lengths. lierne.torch.Samples balances images over all ranks; an Assignment
balances samples over the dp ranks of the language model, whose cp ranks cut each sample in zigzag chunks;
lierne.torch.PackedBridge brings each embedding from the rank that computed it to the token it stands for. It is
planned once: a step costs the one all-gather of Samples.update, and PackedBridge.update sends nothing.

The same steps without balancing give the same weights, bit for bit: images and chunks are computed one by one,
and their gradients added in the order of their numbers."""
import dataclasses
import typing

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch

STEPS, EACH, CP, PIXELS, HIDDEN, WORDS, IMAGE = 4, 6, 2, 12, 8, 32, 0
MOST_IMAGES, MOST_ROWS, MOST_TOKENS = 2 * EACH, 8000, 20000


@dataclasses.dataclass
class Batch:
    """The numbers of a step, which all ranks know, as from the index of a data set: of each sample its home and
    its tokens, of each image its rows, and the token ids of all samples."""
    home: np.ndarray
    lengths: np.ndarray
    images: np.ndarray
    sample_of: np.ndarray
    ids: np.ndarray


def describe(step: int, ranks: int) -> Batch:
    random = np.random.default_rng(step)
    n = EACH * ranks
    sample_of = np.sort(np.concatenate([np.arange(n), random.choice(n, n // 4, replace=False)]))
    images = np.clip(np.exp(random.normal(3, 1, len(sample_of))), 1, 400).astype(np.int64)
    parts = []
    for sample in range(n):
        for rows in images[sample_of == sample]:
            parts.append(random.integers(1, WORDS, random.integers(0, 9)))
            parts.append(np.full(rows, IMAGE))
        parts.append(random.integers(1, WORDS, int(np.exp(random.normal(3, 1))) % 300))
    ends = np.cumsum([len(part) for part in parts])
    last = 2 * np.bincount(sample_of, minlength=n) + 1
    boundaries = ends[np.cumsum(last) - 1]
    return Batch(np.repeat(np.arange(ranks), EACH), np.diff(boundaries, prepend=0), images, sample_of,
                 np.concatenate(parts))


def read_pixels(step: int, image: int, rows: int) -> torch.Tensor:
    """What only the image's home reads."""
    return torch.from_numpy(np.random.default_rng([step, image]).normal(size=(rows, PIXELS)).astype(np.float32))


def weights() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=True) for shape in ((PIXELS, HIDDEN), (WORDS, HIDDEN), (HIDDEN, WORDS))]


def in_order(gradients: torch.Tensor) -> torch.Tensor:
    """The sum of rows, of which each is one rank's and zero elsewhere, by number."""
    dist.all_reduce(gradients)
    total = torch.zeros_like(gradients[0])
    for gradient in gradients:
        total += gradient
    return total


def encode(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(rows @ weight)


class Job:
    """The plans of a run, made once."""

    def __init__(self, context: lierne.Context) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.dp = self.ranks // CP
        self.samples = lierne.torch.Samples(context, [(PIXELS, torch.float32)], max_items=MOST_IMAGES,
                                            max_rows=MOST_ROWS, caller=True)
        self.bridge = lierne.torch.PackedBridge(
            context, lierne.Grid({"dp": self.ranks}), lierne.Grid({"cp": CP, "dp": self.dp}), HIDDEN, torch.float32,
            max_segments=EACH * self.ranks * 2, max_rows=MOST_TOKENS, max_runs=4 * EACH * self.ranks)

    def route(self, batch: Batch, balanced: bool) -> typing.Any:
        """Takes a step's numbers: (the dp rank of each sample, idle shares of encoder and language model)."""
        home = batch.home[batch.sample_of]
        mine = batch.images[home == self.rank]
        stay = [self.rank] * len(mine) if not balanced else None
        self.samples.update(mine, mine, mode="shed" if balanced else "caller", assignment=stay)
        lists = self.samples.lists()
        owner = batch.home // CP
        if balanced:
            order = np.argsort(owner, kind="stable")
            counts = np.bincount(owner, minlength=self.dp)
            owner[order] = lierne.Assignment(batch.lengths[order], counts).ranks
        boundaries = np.concatenate([[0], np.cumsum(batch.lengths)])
        padded = np.concatenate([[0], np.cumsum(-(-batch.lengths // (2 * CP)) * 2 * CP)])
        self.bridge.update({"cu_seqlens_q": boundaries, "cu_seqlens_q_padded": padded},
                           np.concatenate([[0], np.cumsum(batch.images)]), lists.ranks, owner,
                           input_ids=batch.ids, image_id=IMAGE)
        loads = np.bincount(owner, batch.lengths, self.dp)
        return [1 - load.mean() / load.max() for load in (lists.loads, loads)]

    def train(self, balanced: bool) -> tuple[list[torch.Tensor], typing.Any]:
        """(weights, idle shares)"""
        encoder, words, head = parameters = weights()
        idle = []
        for step in range(STEPS):
            batch = describe(step, self.ranks)
            idle.append(self.route(batch, balanced))
            gradients = self.step(step, batch, encoder, words, head)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients):
                    parameter -= 1e-3 * gradient.reshape(parameter.shape)
        return parameters, np.mean(idle, 0)

    def step(self, step: int, batch: Batch, encoder: torch.Tensor, words: torch.Tensor,
             head: torch.Tensor) -> list[torch.Tensor]:
        """The gradients of all weights."""
        home = batch.home[batch.sample_of]
        own = [read_pixels(step, int(i), int(batch.images[i])) for i in np.flatnonzero(home == self.rank)]
        pixels = self.samples.dispatch(torch.cat(own))
        lists = self.samples.lists()
        spans = list(zip(lists.items, lists.cu_seqlens, lists.cu_seqlens[1:]))
        encoded = [encode(pixels[begin:end], encoder) for _, begin, end in spans]
        rows = torch.cat([torch.zeros(0, HIDDEN)] + [e.detach() for e in encoded]).requires_grad_()

        text = words[torch.from_numpy(batch.ids)[self.bridge.tokens.clamp(min=0)]].detach().requires_grad_()
        hidden = self.bridge(rows, into=text)
        tokens = self.bridge.tokens.numpy()
        labels = torch.from_numpy(np.roll(batch.ids, -1))
        ends = np.cumsum(batch.lengths)
        sample = np.where(tokens < 0, -1, np.searchsorted(ends, tokens, side="right"))
        chunks = len(ends) * CP
        head_gradients, word_gradients = torch.zeros(chunks, head.numel()), torch.zeros(chunks, words.numel())
        arriving = torch.zeros_like(hidden)
        for i in np.unique(sample[sample >= 0]):
            at = torch.from_numpy(np.flatnonzero(sample == i))  # this cp rank's two chunks of a sample
            part = hidden[at].detach().requires_grad_()
            loss = torch.nn.functional.cross_entropy(torch.tanh(part) @ head, labels[tokens[at.numpy()]],
                                                     reduction="sum")
            arriving[at], gradient = torch.autograd.grad(loss, [part, head])
            number = int(i) * CP + self.rank % CP
            head_gradients[number] = gradient.reshape(-1)
            is_text = ~self.bridge.mask[at]
            word_gradients[number] = torch.zeros_like(words).index_add_(
                0, torch.from_numpy(batch.ids)[tokens[at.numpy()]][is_text], arriving[at][is_text]).reshape(-1)
        arrived, = torch.autograd.grad(hidden, rows, arriving)

        image_gradients = torch.zeros(len(batch.images), encoder.numel())
        for (item, begin, end), e in zip(spans, encoded):
            image_gradients[item] = torch.autograd.grad(e, encoder, arrived[begin:end])[0].reshape(-1)
        return [in_order(g) for g in (image_gradients, word_gradients, head_gradients)]


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    with lierne.torch.context(over="node") as context:
        job = Job(context)
        (at_home, before), (balanced, after) = job.train(False), job.train(True)
        job.samples.close()
    same = all(torch.equal(a, b) for a, b in zip(at_home, balanced))
    print(f"rank {dist.get_rank()}: idle: encoder {100 * before[0]:.1f} % -> {100 * after[0]:.1f} %, language model "
          f"{100 * before[1]:.1f} % -> {100 * after[1]:.1f} %; weights have {'the same' if same else 'OTHER'} bits",
          flush=True)
    dist.destroy_process_group()
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
