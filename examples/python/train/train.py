"""Trains a vision encoder and a language model whose parallel layouts differ, in 8 processes, and the
same model in one process, and compares losses and encoder gradients.

    torchrun --nproc-per-node 8 train.py [--layout NAME] [--algorithm direct|collective|rows]
                                         [--over node|distributed] [--steps 20] [--json FILE]

Every exchange is a plan of lierne: the bridge between the two layouts, the sums of tensor parallelism,
the keys and values of context parallelism, and the sum of the parameters' gradients."""
import argparse
import json

import torch
import torch.distributed as dist

import lierne
import lierne.torch
import model
from data import batch

BATCH, RATE = 24, 0.05
# The ranks of the encoder start at 0; those of the LLM end at 7.
LAYOUTS = {"fan-in": ({"tp": 2, "dp": 4}, {"tp": 2, "cp": 2, "dp": 2}),
           "long": ({"tp": 1, "dp": 8}, {"tp": 2, "cp": 4, "dp": 1}),
           "fan-out": ({"tp": 4, "dp": 2}, {"tp": 1, "cp": 2, "dp": 4}),
           "uneven": ({"tp": 2, "dp": 3}, {"tp": 1, "cp": 2, "dp": 2})}  # ranks 0 to 5, and 4 to 7


class Module:
    """The exchanges and the parameters of the encoder or of the LLM on this rank."""

    def __init__(self, grid, over, shapes, length, seed, nsamples=BATCH):
        self.grid, self.length, self.nsamples = grid, length, nsamples
        first = grid.rank_offset
        members = list(range(first, first + grid.size))
        self.member = dist.get_rank() in members
        if not self.member:
            return
        self.context = lierne.torch.context(over, members=members)
        self.at = grid.coords(dist.get_rank())
        self.tp, self.tp_rank = grid.dims()["tp"], self.at["tp"]
        self.parameters = model.parameters(shapes, seed, self.tp, self.tp_rank)
        self.cut = {"dp": lierne.Shard(0)}
        if "cp" in self.at:
            self.cut["cp"] = lierne.ShardZigzag(1)
        self.total = self.move({**self.cut, "tp": lierne.Partial()}, self.cut)
        self.copy = lierne.torch.Operation(self.total.plan.transposed())
        self.gather = self.gather_of_keys() if "cp" in self.at else (lambda pair: pair)
        self.sum = self.sum_of_gradients()

    def layout(self, shape, placements):
        return lierne.Layout(self.grid, shape, "f64", placements)

    def move(self, src, dst, width=model.WIDTH, **adjoint):
        shape = (self.nsamples, self.length, width)
        adjoint = {name: self.layout(shape, placements) for name, placements in adjoint.items()}
        return lierne.torch.Redistribute(self.context, self.layout(shape, src),
                                         self.layout(shape, dst), **adjoint)

    def gather_of_keys(self):
        """From this rank's two chunks to the whole sequence in order. Every cp rank has a gradient for
        all of it: these are summed."""
        mine = {**self.cut, "tp": lierne.Shard(2)}
        whole = {**mine, "cp": lierne.Replicate()}
        return self.move(mine, whole, 2 * model.WIDTH, adjoint_dst=mine,
                         adjoint_src={**mine, "cp": lierne.Partial()})

    def sum_of_gradients(self):
        """Sums a vector, this rank's gradients and its loss, over the ranks with the same parameters."""
        shape = self.tp * (sum(p.numel() for p in self.parameters.values()) + 1),
        one = {"tp": lierne.Shard(0)}
        each = {**one, **{name: lierne.Partial() for name in self.cut}}
        return lierne.torch.Redistribute(self.context, self.layout(shape, each),
                                         self.layout(shape, one))

    def samples(self, whole):
        """This dp rank's samples of a batch."""
        return whole.chunk(self.grid.dims()["dp"])[self.at["dp"]]

    def positions(self):
        """The positions of the sequence that this cp rank has: zigzag chunks."""
        n, at = self.grid.dims()["cp"], self.at["cp"]
        chunks = torch.arange(self.length).chunk(2 * n)
        return torch.cat([chunks[at], chunks[2 * n - 1 - at]])

    def step(self, loss):
        """Descends; returns the loss of all ranks, and leaves the gradients of all ranks behind."""
        flat = torch.cat([p.grad.flatten() for p in self.parameters.values()] + [loss.reshape(1)])
        *gradients, loss = self.sum(flat).split([p.numel() for p in self.parameters.values()] + [1])
        self.gradients = descend(self.parameters, gradients)
        return loss.item()

    def close(self):
        if self.member:
            self.context.close()


def descend(parameters, gradients):
    """One step of gradient descent; returns the gradients by name."""
    found = {}
    for (name, p), gradient in zip(parameters.items(), gradients):
        found[name] = gradient.reshape(p.shape).clone()
        p.data -= RATE * found[name]
        p.grad = None
    return found


def bridge_of(context, src, dst, algorithm):
    """The operation between the modules. collective: Megatron-LM's; direct: lierne's; rows: the same
    with the owner of each row of the gradient stated, which needs no sum."""
    shape, options = (BATCH, model.NPATCHES, model.WIDTH), {"sequence_axis": 1}
    if algorithm == "collective":
        return lierne.torch.Operation(lierne.Megatron(context, src, dst, shape, "f64", **options))
    if algorithm == "rows":
        n = dst.dims()["cp"]
        chunk = torch.arange(model.NPATCHES) // (model.LENGTH // (2 * n))
        owner = torch.minimum(chunk, 2 * n - 1 - chunk).expand(BATCH, -1)
        options |= {"owner": "rows", "row_owner": owner.to(torch.int32).numpy()}
    return lierne.torch.Bridge(context, src, dst, shape, torch.float64, **options)


class Parallel:
    """The model on all ranks."""

    def __init__(self, layout, algorithm="direct", over="node"):
        world = dist.get_world_size()
        sizes = [lierne.Grid(dims).size for dims in LAYOUTS[layout]]
        src, dst = (lierne.Grid(dims, offset, world)
                    for dims, offset in zip(LAYOUTS[layout], (0, world - sizes[1])))
        self.context = lierne.torch.context(over)
        try:
            self.bridge = bridge_of(self.context, src, dst, algorithm)
        except lierne.Error:
            self.context.close()
            raise
        self.encoder = Module(src, over, model.encoder_shapes(), model.NPATCHES, 1)
        self.llm = Module(dst, over, model.llm_shapes(), model.LENGTH, 2)

    def step(self, number):
        """Trains on a batch; returns its loss, None on a rank without the LLM."""
        pictures, captions = batch(BATCH, number)
        encoder, llm, loss = self.encoder, self.llm, torch.zeros(())
        features = torch.zeros(self.bridge.shapes()[0], dtype=torch.float64, requires_grad=True)
        if encoder.member:
            features = model.encode(encoder.samples(pictures), encoder.parameters, encoder)
        features = self.bridge(features)
        if llm.member:
            loss = model.loss_of(features, llm.samples(captions), llm.parameters, llm,
                                 llm.positions()) / captions.numel()
            loss.backward()
        else:
            features.sum().backward()
        if encoder.member:
            encoder.step(torch.zeros(1, dtype=torch.float64))
        return llm.step(loss.detach()) if llm.member else None

    def close(self):
        for part in (self.encoder, self.llm, self.context):
            part.close()


def train_alone(steps):
    """The same in one process, without lierne: a list of (loss, encoder gradients), one per step."""
    encoder = model.parameters(model.encoder_shapes(), 1)
    llm, curve = model.parameters(model.llm_shapes(), 2), []
    for number in range(steps):
        pictures, captions = batch(BATCH, number)
        features = model.encode(pictures, encoder, model.Alone)
        loss = model.loss_of(features, captions, llm, model.Alone,
                             torch.arange(model.LENGTH)) / captions.numel()
        loss.backward()
        curve.append((loss.item(), descend(encoder, [p.grad for p in encoder.values()])))
        descend(llm, [p.grad for p in llm.values()])
    return curve


def difference(module, whole):
    """The largest difference of this rank's encoder gradients from those of one process, relative to
    the largest element of each parameter's gradient."""
    if not module.member:
        return 0.0
    parts = {name: model.part(name, whole[name], module.tp, module.tp_rank) for name in whole}
    return max(((module.gradients[name] - parts[name]).abs().max() / whole[name].abs().max()).item()
               for name in parts)


def train(layout, algorithm, over, alone):
    """A list of (loss, largest difference of gradients from those of train_alone), one per step; the
    loss is None on a rank without the LLM."""
    parallel, curve = Parallel(layout, algorithm, over), []
    for number, (_, gradients) in enumerate(alone):
        curve.append((parallel.step(number), difference(parallel.encoder, gradients)))
    parallel.close()
    return curve


def main():
    parser = argparse.ArgumentParser(description="trains across two layouts and in one process")
    parser.add_argument("--layout", choices=LAYOUTS, default="fan-in")
    parser.add_argument("--algorithm", choices=("direct", "collective", "rows"), default="direct")
    parser.add_argument("--over", choices=("node", "distributed"), default="node")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", help="a file for the curve, which plot.py draws")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    alone = train_alone(options.steps)
    curve = train(options.layout, options.algorithm, options.over, alone)
    gradients = torch.tensor([gradient for _, gradient in curve])
    dist.all_reduce(gradients, dist.ReduceOp.MAX)
    if dist.get_rank() == dist.get_world_size() - 1:  # the LLM's last rank
        print("step   8 processes   one process    difference   of encoder gradients")
        rows = [(loss, serial, gradient) for (loss, _), (serial, _), gradient
                in zip(curve, alone, gradients.tolist())]
        for number, (loss, serial, gradient) in enumerate(rows):
            print(f"{number:4} {loss:13.9f} {serial:13.9f} {abs(loss - serial):13.1e} {gradient:13.1e}")
        if options.json:
            with open(options.json, "w") as file:
                json.dump(rows, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
