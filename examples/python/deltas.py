"""Weights that changed, only: a trainer sends its bf16 weights to an inference engine after every step of Adam.

    torchrun --nproc-per-node 6 examples/python/deltas.py

The last two ranks serve the whole model each; the ranks before them, four of six, train with tensor parallelism. A step
of training changes few of the bf16 weights, so lierne.torch.WeightSync sends the ones that did and where they are. The
engine's weights have the trainer's bits in every step, which digests of all tensors check."""
import torch
import torch.distributed as dist

import lierne
import lierne.torch

STEPS, HIDDEN, RATE, ENGINES = 30, 256, 2e-6, 2
SHAPES = {"up": (4 * HIDDEN, HIDDEN), "down": (HIDDEN, 4 * HIDDEN), "norm": (HIDDEN,)}
CUTS = {"up": lierne.Shard(0), "down": lierne.Shard(1), "norm": lierne.Replicate()}


def loss_of(weights: dict[str, torch.Tensor], step: int) -> torch.Tensor:
    """Of this rank's part of the hidden units; the others belong to the other ranks."""
    x = torch.randn(64, HIDDEN, generator=torch.Generator().manual_seed(step))
    return (torch.tanh(x * weights["norm"] @ weights["up"].T) @ weights["down"].T - x).square().mean()


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    tp = world - ENGINES
    trainers = dist.new_group(list(range(tp)))
    trainer, engine = lierne.Grid({"tp": tp}, 0, world), lierne.Grid({"dp": ENGINES}, tp, world)
    src = {name: lierne.Layout(trainer, shape, "bf16", {"tp": CUTS[name]}) for name, shape in SHAPES.items()}
    dst = {name: lierne.Layout(engine, shape, "bf16", {}) for name, shape in SHAPES.items()}
    masters = {name: torch.randn(layout.shape(rank), generator=torch.Generator().manual_seed(len(name))).mul_(0.05)
               .requires_grad_() for name, layout in src.items()} if rank < tp else {}
    trained = {name: master.detach().bfloat16() for name, master in masters.items()}
    served = {name: torch.zeros(SHAPES[name], dtype=torch.bfloat16) for name in SHAPES} if rank >= tp else {}
    adam = torch.optim.Adam(masters.values(), lr=RATE) if masters else None
    with lierne.torch.context(over="node") as context:
        sync = lierne.torch.WeightSync(context, trained, served, src, dst)
        sent, dense = 0, 0
        for step in range(STEPS):
            if adam is not None:
                adam.zero_grad()
                torch.autograd.backward(loss_of(masters, step))
                norm = masters["norm"].grad  # on every rank: one gradient for all
                assert norm is not None
                dist.all_reduce(norm, group=trainers)
                adam.step()
                with torch.no_grad():
                    for name, master in masters.items():
                        trained[name].copy_(master)
            sync.sync(check=True)
            if step > 0:
                report = sync.report
                sent, dense = sent + report["sent_bytes"], dense + report["dense_bytes"]
        share = f"{100 * sent / dense:.1f} % of {dense} bytes sent after the first step" if dense else "served"
        print(f"rank {rank}: {share}, every digest equal", flush=True)
        sync.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
