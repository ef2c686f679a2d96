"""Megatron-LM's own MimoModel and MultiModulePipelineCommunicator, unchanged, on lierne.megatron's
bridges: their modules get the drop-ins by their names. The model of torch_towers.py on 8 ranks of
torchrun, colocated with destination cp, and on 4 and 4 ranks with two microbatches in flight; losses, and
gradients of encoder and LLM, are those of one process, for 20 steps. With grids of Megatron-LM's class
and of lierne's. Skipped where megatron-core is not installed, or has no colocated bridge."""
import sys
import warnings

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
try:
    import megatron.core.models.mimo.model.base as mimo
    from megatron.core import hyper_comm_grid
    from megatron.core.models.mimo.config import MimoModelConfig
    from megatron.core.models.mimo.submodules.vision import VisionModalitySubmodules
    from megatron.core.pipeline_parallel import multimodule_communicator
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_config import TransformerConfig
    mimo.ColocatedBridgeCommunicator
except (ImportError, AttributeError) as missing:
    print(f"skipped: no megatron-core with a colocated bridge (0.19 or later): {missing}")
    print("0 passed, 0 failed")
    sys.exit()

import lierne  # noqa: E402
import torch_towers as towers  # noqa: E402
from lierne.megatron import BridgeCommunicator, ColocatedBridgeCommunicator, HyperCommGrid  # noqa: E402
from torch_towers import STEPS, batch, model, train  # noqa: E402

PATCH = -200  # the token that stands for a patch
NAMES = ["tp", "cp", "pp", "dp"]
COLOCATED = {"fan-in": ([2, 1, 1, 4], [2, 2, 1, 2]), "fan-out": ([4, 1, 1, 2], [1, 2, 1, 4]),
             "equal": ([4, 1, 1, 2], [2, 2, 1, 2])}
DISJOINT = [1, 1, 1, 4], [2, 2, 1, 1]


class Encoder(torch.nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, pictures):
        return model.encode(pictures, self.part.parameters, self.part)


class Embedding(torch.nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, input_ids, position_ids):
        return self.part.parameters["word"][input_ids].transpose(0, 1)


class Language(torch.nn.Module):
    """The LLM of model.loss_of from the embeddings on; labels: -1 where nothing is predicted."""

    def __init__(self, config, part):
        super().__init__()
        self.config, self.part, self.embedding = config, part, Embedding(part)

    def forward(self, input_ids, position_ids, decoder_input, labels, attention_mask, packed_seq_params):
        p, positions = self.part.parameters, self.part.positions()
        x = decoder_input.transpose(0, 1) + p["place"][positions]
        causal = torch.arange(model.LENGTH) <= positions[:, None]
        logits = model.transformer(x, p, "llm", self.part, causal) @ p["head"]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1,
                                                 reduction="sum")


def tokens(captions):
    """(input_ids, labels) of MimoModel."""
    n = len(captions)
    start = torch.full((n, 1), model.WORDS.index("<start>"))
    patches = torch.full((n, model.NPATCHES), PATCH)
    return (torch.cat([patches, start, captions[:, :-1]], 1),
            torch.cat([torch.full_like(patches, -1), captions], 1))


class Mimo(towers.Towers):
    """The model as MimoModel builds it; only Megatron-LM's names are used from here on."""

    def __init__(self, grid_class, shapes, offset, nsamples=train.BATCH):
        mimo.ColocatedBridgeCommunicator = ColocatedBridgeCommunicator
        multimodule_communicator.BridgeCommunicator = BridgeCommunicator
        size = dist.get_world_size() - offset
        self.grids = (grid_class(shapes[0], NAMES, backend="gloo"),
                      grid_class(shapes[1], NAMES, rank_offset=offset, backend="gloo"))
        assert all(grid.size == size for grid in self.grids)
        cp = [grid.create_pg("cp") for grid in self.grids][1]
        for grid in self.grids:
            grid.create_pg("pp")
        own = [lierne.Grid(dict(zip(NAMES, shape)), first, dist.get_world_size())
               for shape, first in zip(shapes, (0, offset))]
        self.encoder, self.llm = (
            train.Module(grid, "node", sizes, length, seed, nsamples) for grid, sizes, length, seed in
            ((own[0], model.encoder_shapes(), model.NPATCHES, 1), (own[1], model.llm_shapes(), model.LENGTH, 2)))
        self.config = TransformerConfig(num_layers=model.LAYERS, hidden_size=model.WIDTH,
                                        num_attention_heads=model.HEADS, use_cpu_initialization=True,
                                        context_parallel_size=shapes[1][1], pipeline_dtype=torch.float64)
        self.model = mimo.MimoModel(MimoModelConfig(
            language_model_spec=ModuleSpec(Language, params={"config": self.config, "part": self.llm}),
            modality_submodules_spec={"vision": ModuleSpec(VisionModalitySubmodules, submodules={
                "encoders": {"tower": ModuleSpec(Encoder, params={"part": self.encoder})}})},
            special_token_ids={"vision": PATCH},
            module_to_grid_map={"vision": self.grids[0], "language": self.grids[1]}), cp_group=cp)

    def inputs(self, pictures, captions):
        """The arguments of MimoModel for this rank's samples of a batch."""
        given = {}
        if self.encoder.member:
            given["modality_inputs"] = {"vision": {"tower": {"pictures": self.encoder.samples(pictures)}}}
        ids, labels = tokens((self.llm if self.llm.member else self.encoder).samples(captions))
        return {"input_ids": ids, "labels": labels, **given}

    def close(self):
        self.model.destroy()
        for part in (self.encoder, self.llm):
            part.close()


class Colocated(Mimo):
    def __init__(self, grid_class, shapes):
        super().__init__(grid_class, shapes, 0)
        bridge, = self.model.colocated_comms.values()
        assert type(bridge) is ColocatedBridgeCommunicator

    def step(self, number):
        pictures, captions = batch(train.BATCH, number)
        loss = self.model(**self.inputs(pictures, captions))[0] / captions.numel()
        loss.backward()
        return self.descend(loss.detach())


class Disjoint(Mimo):
    """One microbatch ahead, as 1F1B has them."""

    def __init__(self, grid_class, shapes):
        super().__init__(grid_class, shapes, 4, train.BATCH // towers.MICROBATCHES)
        self.bridges = multimodule_communicator.MultiModulePipelineCommunicator(
            self.model.mimo_config.module_to_grid_map, {"vision": ["language"], "language": []}, self.config,
            module_output_ndim={"vision": 2})
        assert type(self.bridges.bridge_comms[0]) is BridgeCommunicator
        assert (self.bridges.total_stages, self.bridges.current_stage) == (2, int(self.llm.member))

    def step(self, number):
        pictures, captions = batch(train.BATCH, number)
        parts = [self.inputs(*part) for part in zip(pictures.chunk(towers.MICROBATCHES),
                                                    captions.chunk(towers.MICROBATCHES))]
        loss = self.encode(parts) if self.encoder.member else self.learn(parts, captions.numel())
        return self.descend(loss)

    def encode(self, parts):
        first, second = (self.model(**part)[0] for part in parts)
        self.bridges.send_forward(first)
        first["vision"].backward(self.bridges.send_forward_recv_backward(second)["vision"])
        second["vision"].backward(self.bridges.recv_backward()["vision"])

    def loss_from(self, received, part, words):
        self.model.set_input_tensor([received])
        loss = self.model(**part)[0] / words
        loss.backward()
        return loss.detach(), {"vision": received["vision"].grad}

    def learn(self, parts, words):
        loss, gradient = self.loss_from(self.bridges.recv_forward(), parts[0], words)
        received = self.bridges.send_backward_recv_forward(gradient)
        second, gradient = self.loss_from(received, parts[1], words)
        self.bridges.send_backward(gradient)
        return loss + second

    def close(self):
        for bridge in self.bridges.bridge_comms:
            bridge.destroy()
        super().close()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    alone, passed = towers.train_alone(), 0
    for grid_class, steps in ((hyper_comm_grid.HyperCommGrid, STEPS), (HyperCommGrid, 3)):
        for shapes in COLOCATED.values():
            towers.run(Colocated(grid_class, shapes), alone[:steps])
            passed += 1
        towers.run(Disjoint(grid_class, DISJOINT), alone[:steps])
        passed += 1
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"{passed} passed, 0 failed")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
