"""The training example on 8 ranks of torchrun: losses and encoder gradients are those of one process,
and the algorithms of the bridge have the same bits. Every rank compares what it has."""
import os
import sys

import torch
import torch.distributed as dist

import lierne
from report import ROOT

sys.path.insert(0, os.path.join(ROOT, "examples", "python", "train"))
import train  # noqa: E402

STEPS = 20


def run(layout, algorithm, over, alone):
    """The losses, and all bits of this rank's gradients of the last step."""
    parallel, losses = train.Parallel(layout, algorithm, over), []
    for number, (serial, gradients) in enumerate(alone):
        loss, difference = parallel.step(number), train.difference(parallel.encoder, gradients)
        assert difference < 1e-12, (layout, algorithm, number, difference)
        assert loss is None or abs(loss - serial) < 1e-13 * abs(serial), (layout, number, loss, serial)
        losses.append(loss)
    found = [module.gradients for module in (parallel.encoder, parallel.llm) if module.member]
    assert all(g.abs().max() > 1e-6 for gradients in found for g in gradients.values())
    parallel.close()
    return losses, [g for gradients in found for g in gradients.values()]


def compare(layout, alone):
    """Returns the number of comparisons."""
    losses, gradients = run(layout, "direct", "node", alone)
    ways = [("rows", "node", 5)] + [("direct", "distributed", 2)] * (layout == "fan-in")
    if layout == "uneven":  # Megatron-LM's algorithm does not have it
        try:
            train.Parallel(layout, "collective")
            raise AssertionError("accepted")
        except lierne.errors.UnsupportedError:
            pass
    else:
        ways.insert(0, ("collective", "node", STEPS))
    for algorithm, over, steps in ways:
        others, bits = run(layout, algorithm, over, alone[:steps])
        assert others == losses[:steps], (layout, algorithm, over)
        if steps == STEPS:
            assert all(map(torch.equal, bits, gradients)), (layout, algorithm, over)
    return 1 + len(ways)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    alone = train.train_alone(STEPS)
    assert alone[-1][0] < 0.25 * alone[0][0], "it does not learn"
    passed = sum(compare(layout, alone) for layout in train.LAYOUTS)
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"{passed} passed, 0 failed")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
