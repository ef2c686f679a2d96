"""Images of different sizes: each step computes them on the ranks that have time for them.

    torchrun --nproc-per-node 4 examples/python/samples.py

Images stay with the rank that read them, or lierne.torch.Samples moves those that must leave a rank with
too much. The embeddings come back in the order of the images either way. Gradients of weights are added in
the order of image numbers, so both ways train the same weights, bit for bit."""
import typing

import numpy as np
import torch
import torch.distributed as dist

import lierne.torch

STEPS, IMAGES, WIDTH, HIDDEN, OUT = 4, 8, 12, 16, 4


def read_images(rank: int, step: int) -> tuple[typing.Any, torch.Tensor]:
    """The numbers of patches of this rank's images, lognormal, and the patches."""
    generator = np.random.default_rng([rank, step])
    lengths = np.clip(np.exp(generator.normal(4, 1, IMAGES)), 1, 4000).astype(np.int64)
    return lengths, torch.from_numpy(generator.normal(size=(lengths.sum(), WIDTH)).astype(np.float32))


def encode(patches: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    return torch.tanh(patches @ weights[0]).mean(0) @ weights[1]


def compute(pixels: torch.Tensor, lists: lierne.SamplesLists, weights: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings of the images that this rank has, and the gradient of each image's loss, by its number."""
    rows, gradients = [], torch.zeros(len(lists.ranks), sum(w.numel() for w in weights))
    for item, begin, end in zip(lists.items, lists.cu_seqlens, lists.cu_seqlens[1:]):
        embedding = encode(pixels[begin:end], weights)
        loss = (embedding - 1).square().sum()
        gradients[item] = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, weights)])
        rows.append(embedding.detach())
    return torch.stack(rows) if rows else torch.zeros(0, OUT), gradients


def train(context: lierne.Context, mode: typing.Literal["caller", "shed"]) -> tuple[list[torch.Tensor], list[torch.Tensor], float]:
    """(weights, embeddings of this rank's images, idle share of the mean rank)"""
    rank = dist.get_rank()
    torch.manual_seed(0)
    weights = [torch.randn(shape, requires_grad=True) for shape in ((WIDTH, HIDDEN), (HIDDEN, OUT))]
    samples = lierne.torch.Samples(context, [(WIDTH, torch.float32)], [(OUT, torch.float32)], max_items=IMAGES,
                                   max_rows=4000 * IMAGES, max_returned_rows=IMAGES * dist.get_world_size(),
                                   caller=True)
    stay = [rank] * IMAGES if mode == "caller" else None
    embeddings, idle = [], []
    for step in range(STEPS):
        lengths, pixels = read_images(rank, step)
        samples.update(lengths, lengths, returned_rows=[1] * IMAGES, mode=mode, assignment=stay)
        lists = samples.lists()
        computed, gradients = compute(samples.dispatch(pixels), lists, weights)
        embeddings.append(samples.ret(computed))
        dist.all_reduce(gradients)  # each row has one rank that is not zero
        total = torch.zeros_like(gradients[0])
        for gradient in gradients:
            total += gradient
        with torch.no_grad():
            for w, g in zip(weights, total.split([w.numel() for w in weights])):
                w -= 1e-3 * g.reshape(w.shape)
        idle.append(1 - lists.loads.mean() / lists.loads.max())
    samples.close()
    return weights, embeddings, float(np.mean(idle))


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    with lierne.torch.context(over="node") as context:
        at_home, balanced = train(context, "caller"), train(context, "shed")
    same = all(torch.equal(a, b) for a, b in zip(at_home[0] + at_home[1], balanced[0] + balanced[1]))
    print(f"rank {dist.get_rank()}: idle: {100 * at_home[2]:.1f} % where images stay, {100 * balanced[2]:.1f} % "
          f"balanced; weights and embeddings have {'the same' if same else 'OTHER'} bits", flush=True)
    dist.destroy_process_group()
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
