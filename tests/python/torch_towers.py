"""A vision encoder and an LLM joined by lierne.megatron's bridges, on 8 ranks of torchrun, as a trainer of
Megatron-LM joins them: losses, and gradients of both, are those of one process, for 20 steps. Colocated
with more, fewer and as many dp ranks of the encoder, and on ranks of their own (4 and 4) with two
microbatches in flight. The model is that of examples/python/train."""
import os
import sys

import torch
import torch.distributed as dist

from report import ROOT

sys.path.insert(0, os.path.join(ROOT, "examples", "python", "train"))
import model  # noqa: E402
import train  # noqa: E402
from data import batch  # noqa: E402

from lierne.megatron import BridgeCommunicator, ColocatedBridgeCommunicator, HyperCommGrid  # noqa: E402

STEPS, MICROBATCHES = 20, 2
ENCODER, LLM = ["tp", "dp"], ["tp", "cp", "dp"]
COLOCATED = {"fan-in": ([2, 4], [2, 2, 2]), "fan-out": ([4, 2], [1, 2, 4]), "equal": ([4, 2], [2, 2, 2])}
DISJOINT = [1, 4], [2, 2, 1]


def train_alone():
    """A list of (loss, gradients of the encoder, gradients of the LLM) of one process."""
    encoder = model.parameters(model.encoder_shapes(), 1)
    llm, curve = model.parameters(model.llm_shapes(), 2), []
    for number in range(STEPS):
        pictures, captions = batch(train.BATCH, number)
        features = model.encode(pictures, encoder, model.Alone)
        loss = model.loss_of(features, captions, llm, model.Alone,
                             torch.arange(model.LENGTH)) / captions.numel()
        loss.backward()
        curve.append((loss.item(), *(train.descend(part, [p.grad for p in part.values()])
                                     for part in (encoder, llm))))
    return curve


class Towers:
    """Both models on this rank, and the bridge between them."""

    def __init__(self, encoder, llm, offset, nsamples=train.BATCH):
        self.grids = HyperCommGrid(encoder, ENCODER), HyperCommGrid(llm, LLM, offset)
        self.encoder, self.llm = (
            train.Module(grid.grid, "node", shapes, length, seed, nsamples) for grid, shapes, length, seed in
            ((self.grids[0], model.encoder_shapes(), model.NPATCHES, 1),
             (self.grids[1], model.llm_shapes(), model.LENGTH, 2)))

    def loss(self, features, captions, words):
        """The loss of the samples of a batch with so many words in all; its backward has run."""
        loss = model.loss_of(features, self.llm.samples(captions), self.llm.parameters, self.llm,
                             self.llm.positions()) / words
        loss.backward()
        return loss.detach()

    def descend(self, loss):
        """The loss of all ranks, None on a rank without the LLM."""
        if self.encoder.member:
            self.encoder.step(torch.zeros(1, dtype=torch.float64))
        return self.llm.step(loss) if self.llm.member else None

    def close(self):
        self.bridge.destroy()
        for part in (self.encoder, self.llm):
            part.close()


class Colocated(Towers):
    def __init__(self, encoder, llm, algorithm):
        super().__init__(encoder, llm, 0)
        self.grids[1].create_pg("cp")
        self.bridge = ColocatedBridgeCommunicator(*self.grids, "vision", "language", algorithm=algorithm)

    def step(self, number):
        pictures, captions = batch(train.BATCH, number)
        features = model.encode(self.encoder.samples(pictures), self.encoder.parameters, self.encoder)
        return self.descend(self.loss(self.bridge.communicate(features), captions, captions.numel()))


class Disjoint(Towers):
    """One microbatch ahead, as 1F1B has them: forward, then one forward with each backward."""

    def __init__(self, encoder, llm):
        super().__init__(encoder, llm, 4, train.BATCH // MICROBATCHES)
        self.bridge = BridgeCommunicator(*self.grids, comm_dtype=torch.float64, src_module_name="vision",
                                         dest_module_name="language")

    def step(self, number):
        pictures, captions = batch(train.BATCH, number)
        parts = list(zip(pictures.chunk(MICROBATCHES), captions.chunk(MICROBATCHES)))
        loss = self.encode(parts) if self.encoder.member else self.learn(parts, captions.numel())
        return self.descend(loss)

    def encode(self, parts):
        first, second = (model.encode(self.encoder.samples(pictures), self.encoder.parameters, self.encoder)
                         for pictures, _ in parts)
        self.bridge.send_forward(first)
        first.backward(self.bridge.send_forward_recv_backward(second))
        second.backward(self.bridge.recv_backward())

    def learn(self, parts, words):
        first = self.bridge.recv_forward()
        loss = self.loss(first, parts[0][1], words)
        second = self.bridge.send_backward_recv_forward(first.grad)
        loss += self.loss(second, parts[1][1], words)
        self.bridge.send_backward(second.grad)
        return loss


def run(towers, alone):
    for number, (serial, *gradients) in enumerate(alone):
        loss = towers.step(number)
        assert loss is None or abs(loss - serial) < 1e-13 * abs(serial), (number, loss, serial)
        for module, whole in zip((towers.encoder, towers.llm), gradients):
            difference = train.difference(module, whole)
            assert difference < 1e-12, (number, difference)
            assert not module.member or all(g.abs().max() > 1e-6 for g in module.gradients.values())
    towers.close()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    alone, passed = train_alone(), 0
    assert alone[-1][0] < 0.25 * alone[0][0], "it does not learn"
    for pair in COLOCATED.values():
        for algorithm, steps in (("direct", STEPS), ("collective", 3)):
            run(Colocated(*pair, algorithm), alone[:steps])
            passed += 1
    run(Disjoint(*DISJOINT), alone)
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"{passed + 1} passed, 0 failed")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
