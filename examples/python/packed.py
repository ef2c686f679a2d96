"""Image rows go straight to their tokens in packed sequences, which context parallelism cuts.

    torchrun --nproc-per-node 4 examples/python/packed.py

An encoder has whole images on 4 dp ranks. The language model has dp 2 x cp 2: each dp rank has samples of
its own, and each of its cp ranks two chunks of each. Every step has other samples and images;
lierne.torch.PackedBridge takes them on each rank alone. Loss and gradients are those of one process."""
import types
import typing

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch

STEPS, HIDDEN, WORDS, IMAGE, CP = 3, 8, 32, 0, 2


def describe(step: int) -> typing.Any:
    """A microbatch, the same on all ranks: token ids, boundaries of samples and images, and their owners."""
    random = np.random.default_rng(step)
    lengths = random.integers(3, 40, 6)
    ids = np.where(random.random(lengths.sum()) < 0.5, IMAGE, random.integers(1, WORDS, lengths.sum()))
    rows = int((ids == IMAGE).sum())
    images = np.array([0, *sorted(random.choice(rows, 4, replace=False) + 1), rows])
    params = types.SimpleNamespace(qkv_format="thd", cu_seqlens_q=torch.tensor([0, *np.cumsum(lengths)]),
                                   cu_seqlens_q_padded=torch.tensor([0, *np.cumsum(-(-lengths // (2 * CP)) * 2 * CP)]))
    return ids, params, random.integers(0, 2, len(lengths)), images, random.integers(0, 4, len(images) - 1)


def parameters() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True)
            for shape in ((HIDDEN, HIDDEN), (WORDS, HIDDEN), (HIDDEN, WORDS))]


def loss_of(hidden: torch.Tensor, labels: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(torch.tanh(hidden) @ head, labels, reduction="sum")


def alone(pixels: torch.Tensor, ids: typing.Any) -> tuple[float, typing.Any]:
    """(loss, gradients) of one process."""
    encoder, words, head = weights = parameters()
    hidden = words[torch.from_numpy(ids)]
    hidden = hidden.masked_scatter(torch.from_numpy(ids == IMAGE)[:, None], pixels @ encoder)
    loss = loss_of(hidden, torch.from_numpy(np.roll(ids, -1)), head)
    return loss.item(), torch.autograd.grad(loss, weights)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with lierne.torch.context() as context:
        bridge = lierne.torch.PackedBridge(context, lierne.Grid({"dp": 4}), lierne.Grid({"cp": CP, "dp": 2}), HIDDEN,
                                           torch.float64, max_segments=16, max_rows=512, max_runs=256)
        for step in range(STEPS):
            ids, params, owner, images, image_owner = describe(step)
            bridge.update(params, images, image_owner, owner, input_ids=ids, image_id=IMAGE)
            pixels = torch.randn(images[-1], HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
            mine = torch.cat([pixels[:0]] + [pixels[images[i]:images[i + 1]]
                                             for i in np.flatnonzero(image_owner == rank)])
            encoder, words, head = weights = parameters()
            real = bridge.tokens >= 0  # the other rows are padding
            text = words[torch.from_numpy(ids)[bridge.tokens.clamp(min=0)]]
            hidden = bridge(mine @ encoder, into=text)
            labels = torch.from_numpy(np.roll(ids, -1))[bridge.tokens[real]]
            loss = loss_of(hidden[real], labels, head)
            gradients = torch.autograd.grad(loss, weights)
            total = torch.cat([loss.detach().reshape(1), *(g.reshape(-1) for g in gradients)])
            dist.all_reduce(total)
            serial, expected = alone(pixels, ids)
            expected = torch.cat([torch.tensor([serial], dtype=torch.float64), *(g.reshape(-1) for g in expected)])
            difference = ((total - expected).abs().max() / expected.abs().max()).item()
            assert difference < 1e-13, difference
            print(f"rank {rank}: step {step}: {len(mine)} image rows here, {int(real.sum())} of {len(ids)} tokens, "
                  f"loss {total[0]:.6f} (one process: {serial:.6f})", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
