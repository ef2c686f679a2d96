"""Weights between two formats: a Llama with grouped queries and experts, from Hugging Face's tensors to fused ones.

    torchrun --nproc-per-node 4 examples/python/fused.py

Ranks 0 and 1 hold the trainer's weights by the names of Hugging Face, each rank half the rows of every matrix. Ranks 2
and 3 serve the model with tensor parallelism, in fused tensors: q, k and v interleaved by groups as in Megatron-LM's
linear_qkv, gate and up in one matrix, experts stacked and partly transposed, and the tied embeddings twice. boxes() says
which box of which tensor is which: nobody fuses anything before it is sent. The served weights are compared, bit by bit,
with a reference that fuses all of the model's tensors with torch."""
import typing

import torch
import torch.distributed as dist

import lierne
import lierne.torch

LAYERS, HIDDEN, HEADS, GROUPS, HEAD, FFN, EXPERTS, VOCABULARY, TP = 2, 48, 8, 4, 6, 32, 4, 40, 2
QUERIES = HEADS // GROUPS  # per group
Shapes = typing.Dict[str, typing.Tuple[int, ...]]


def source_shapes() -> Shapes:
    """Of Hugging Face's names."""
    shapes: Shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        attention, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp.experts."
        shapes.update({attention + "q_proj.weight": (HEADS * HEAD, HIDDEN),
                       attention + "k_proj.weight": (GROUPS * HEAD, HIDDEN),
                       attention + "v_proj.weight": (GROUPS * HEAD, HIDDEN),
                       attention + "o_proj.weight": (HIDDEN, HEADS * HEAD)})
        for e in range(EXPERTS):
            shapes.update({f"{mlp}{e}.gate_proj.weight": (FFN, HIDDEN), f"{mlp}{e}.up_proj.weight": (FFN, HIDDEN),
                           f"{mlp}{e}.down_proj.weight": (HIDDEN, FFN)})
    return shapes


def engine_shapes() -> typing.Tuple[Shapes, typing.Dict[str, typing.Optional[int]]]:
    """Of the engine's names, and the axis that tensor parallelism cuts."""
    shapes: Shapes = {"embedding": (VOCABULARY, HIDDEN), "output_layer": (VOCABULARY, HIDDEN), "final_norm": (HIDDEN,)}
    cuts: typing.Dict[str, typing.Optional[int]] = {"embedding": 0, "output_layer": 0, "final_norm": None}
    for i in range(LAYERS):
        shapes.update({f"{i}.linear_qkv": (GROUPS * (QUERIES + 2) * HEAD, HIDDEN), f"{i}.linear_proj": (HIDDEN, HEADS * HEAD),
                       f"{i}.gate_up": (EXPERTS, 2, FFN, HIDDEN), f"{i}.down": (EXPERTS, FFN, HIDDEN)})
        cuts.update({f"{i}.linear_qkv": 0, f"{i}.linear_proj": 1, f"{i}.gate_up": 2, f"{i}.down": 1})
    return shapes, cuts


def boxes() -> typing.Iterator[lierne.SetBox]:
    """Which part of which tensor of Hugging Face is which part of which tensor of the engine."""
    for name in ("embedding", "output_layer"):
        yield lierne.SetBox("model.embed_tokens.weight", name, (0, 0), (0, 0), (VOCABULARY, HIDDEN))
    yield lierne.SetBox("model.norm.weight", "final_norm", (0,), (0,), (HIDDEN,))
    for i in range(LAYERS):
        attention, mlp, fused = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp.experts.", f"{i}.linear_qkv"
        for g in range(GROUPS):  # the group's queries, its key, its value
            row, size = g * (QUERIES + 2) * HEAD, QUERIES * HEAD
            yield lierne.SetBox(attention + "q_proj.weight", fused, (g * size, 0), (row, 0), (size, HIDDEN))
            yield lierne.SetBox(attention + "k_proj.weight", fused, (g * HEAD, 0), (row + size, 0), (HEAD, HIDDEN))
            yield lierne.SetBox(attention + "v_proj.weight", fused, (g * HEAD, 0), (row + size + HEAD, 0), (HEAD, HIDDEN))
        yield lierne.SetBox(attention + "o_proj.weight", f"{i}.linear_proj", (0, 0), (0, 0), (HIDDEN, HEADS * HEAD))
        for e in range(EXPERTS):
            for k, part in enumerate(("gate", "up")):  # the first two axes have no counterpart: one index
                yield lierne.SetBox(f"{mlp}{e}.{part}_proj.weight", f"{i}.gate_up", (0, 0), (e, k, 0, 0),
                                    (1, 1, FFN, HIDDEN), axes=(-1, -1, 0, 1))
            yield lierne.SetBox(f"{mlp}{e}.down_proj.weight", f"{i}.down", (0, 0), (e, 0, 0), (1, FFN, HIDDEN),
                                axes=(-1, 1, 0))


def reference(hf: typing.Dict[str, torch.Tensor]) -> typing.Dict[str, torch.Tensor]:
    """The engine's tensors, whole, by torch alone."""
    embedding = hf["model.embed_tokens.weight"]
    fused = {"embedding": embedding, "output_layer": embedding, "final_norm": hf["model.norm.weight"]}
    for i in range(LAYERS):
        attention, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp.experts."
        q, k, v = (hf[f"{attention}{x}_proj.weight"].reshape(GROUPS, -1, HIDDEN) for x in "qkv")
        fused[f"{i}.linear_qkv"] = torch.cat([q, k, v], 1).reshape(-1, HIDDEN)
        fused[f"{i}.linear_proj"] = hf[attention + "o_proj.weight"]
        fused[f"{i}.gate_up"] = torch.stack([torch.stack([hf[f"{mlp}{e}.{x}_proj.weight"] for x in ("gate", "up")])
                                             for e in range(EXPERTS)])
        fused[f"{i}.down"] = torch.stack([hf[f"{mlp}{e}.down_proj.weight"].T for e in range(EXPERTS)])
    return fused


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainer, engine = lierne.Grid({"fsdp": 2}, 0, world_size=4), lierne.Grid({"tp": TP}, 2, world_size=4)
    shapes, (fused, cuts) = source_shapes(), engine_shapes()
    src = {name: lierne.Layout(trainer, shape, "bf16", {"fsdp": lierne.Shard(0)}) for name, shape in shapes.items()}
    dst = {name: lierne.Layout(engine, shape, "bf16", {"tp": lierne.Replicate() if (axis := cuts[name]) is None
                                                       else lierne.Shard(axis)}) for name, shape in fused.items()}
    torch.manual_seed(0)  # every rank knows all weights, for the reference; the trainer has its halves only
    whole = {name: torch.randn(shape).bfloat16() for name, shape in shapes.items()}
    held = {name: w.chunk(2)[rank].clone() for name, w in whole.items()} if rank < 2 else {}
    served = {name: torch.full(dst[name].shape(rank), float("nan"), dtype=torch.bfloat16)
              for name in fused} if rank >= 2 else {}
    with lierne.torch.context(over="node") as context:
        sync = lierne.torch.WeightSync(context, held, served, src, dst, boxes=list(boxes()))
        sync.sync(check=True)
        sync.close()
    expected = reference(whole) if rank >= 2 else {}
    for name, tensor in expected.items():
        axis = cuts[name]
        own = tensor if axis is None else tensor.chunk(TP, axis)[rank - 2]
        assert torch.equal(own.contiguous().view(torch.int16), served[name].view(torch.int16)), name
    print(f"rank {rank}: " + (f"{len(served)} fused tensors equal the reference" if rank >= 2 else
                              f"{len(held)} tensors of Hugging Face's names sent"), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
