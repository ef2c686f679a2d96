"""Weights that changed, only: a trainer sends its bf16 weights to an inference engine after every step of Adam.

    torchrun --nproc-per-node 4 examples/python/deltas.py

Ranks 0 and 1 train with tensor parallelism, ranks 2 and 3 serve the whole model each. A step of training changes
few of the bf16 weights, so lierne.Delta sends the ones that did and where they are. The engine's weights have
the trainer's bits in every step, which digests of all tensors check."""
import torch
import torch.distributed as dist

import lierne
import lierne.torch

STEPS, HIDDEN, RATE = 30, 256, 2e-6
SHAPES = {"up": (4 * HIDDEN, HIDDEN), "down": (HIDDEN, 4 * HIDDEN), "norm": (HIDDEN,)}
CUTS = {"up": lierne.Shard(0), "down": lierne.Shard(1), "norm": lierne.Replicate()}


def layouts() -> tuple[list[lierne.Layout], list[lierne.Layout]]:
    trainer, engine = lierne.Grid({"tp": 2}, 0, world_size=4), lierne.Grid({"dp": 2}, 2, world_size=4)
    return ([lierne.Layout(trainer, shape, "bf16", {"tp": CUTS[name]}) for name, shape in SHAPES.items()],
            [lierne.Layout(engine, shape, "bf16", {}) for shape in SHAPES.values()])


def loss_of(weights: list[torch.Tensor], step: int) -> torch.Tensor:
    """Of this rank's half of the hidden units; the other half belongs to the other rank."""
    x = torch.randn(64, HIDDEN, generator=torch.Generator().manual_seed(step))
    up, down, norm = weights
    return (torch.tanh(x * norm @ up.T) @ down.T - x).square().mean()


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = dist.get_rank()
    trainers = dist.new_group([0, 1])
    src, dst = layouts()
    with lierne.torch.context(over="node") as context:
        transfer = lierne.TensorSet(context, src, dst)
        delta = lierne.Delta(transfer)
        trained, served = (torch.zeros(shape, dtype=torch.bfloat16) for shape in transfer.shapes())
        views = transfer.views(trained)
        shards = [view for view in views if view.numel() > 0]
        masters = [torch.randn(view.shape, generator=torch.Generator().manual_seed(i)).mul_(0.05).requires_grad_()
                   for i, view in enumerate(shards)]
        adam = torch.optim.Adam(masters, lr=RATE) if masters else None
        sent, dense = 0, 0
        for step in range(STEPS):
            if adam is not None:
                adam.zero_grad()
                torch.autograd.backward(loss_of(masters, step))
                for master in masters[2:]:  # the norm is on both ranks: one gradient for both
                    assert master.grad is not None
                    dist.all_reduce(master.grad, group=trainers)
                adam.step()
                with torch.no_grad():
                    for view, master in zip(shards, masters):
                        view.copy_(master)
            delta.forward(trained, out=served)
            lierne.check_digests(context, src, dst, transfer.views(served, "dst"), views, key=step)
            if step > 0:
                sent, dense = sent + delta.report["sent_bytes"], dense + delta.report["dense_bytes"]
        share = f"{100 * sent / dense:.1f} % of {dense} bytes sent after the first step" if dense else "served"
        print(f"rank {rank}: {share}, every digest equal", flush=True)
        delta.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
