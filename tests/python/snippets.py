"""The Python of docs/: every block runs on 8 ranks, after lines that make what it takes from the reader's program.
torchrun --nproc-per-node 8 snippets.py [PAGE]. A page with other blocks than here is an error, and so are lines of
README.md that examples/python/bridge.py lacks."""
import datetime
import os
import re
import sys
import traceback

import torch
import torch.distributed as dist

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
SMALL = re.compile(r"\b(1024|1023|4096|65536|8192|3584)\b")  # sizes of a model: a 64th will do
COMMON = """
import math, types
import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
import lierne
import lierne.torch
rank = dist.get_rank()
context = lierne.torch.context()
"""
LAYOUTS = """
encoder, llm = lierne.Grid({"tp": 2, "dp": 4}), lierne.Grid({"tp": 2, "cp": 2, "dp": 2})
encoder_mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
llm_mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
"""
MEGATRON = """
from lierne.megatron import ColocatedBridgeCommunicator, HyperCommGrid
vision, llm = HyperCommGrid([2, 1, 1, 4], ["tp", "cp", "pp", "dp"]), HyperCommGrid([2, 2, 1, 2], ["tp", "cp", "pp", "dp"])
llm.create_pg("cp")
"""
PACKED = """
hidden, IMAGE = 56, 151655
packed_seq_params = types.SimpleNamespace(qkv_format="thd", cu_seqlens_q=torch.tensor([0, 8, 16]))
ids = np.array([IMAGE, IMAGE, 5, 6, IMAGE, 7, 8, 9] * 2)
cu_image_rows, owner, segment_owner = np.array([0, 3, 6]), np.array([0, 2]), np.array([0, 1])
image_owner, linear_attention = owner, torch.tanh
image_rows = torch.ones(3 * (rank // 2 in (0, 2)), hidden, dtype=torch.bfloat16, requires_grad=True)
embedding = lambda ids: torch.zeros(len(ids), hidden, dtype=torch.bfloat16)
"""
HALOS = """
mesh, shape = init_device_mesh("cpu", (2, 4), mesh_dim_names=("rows", "columns")), (2, 8, 16, 16)
part = torch.ones(2, 8, 8, 4, requires_grad=True)
"""
GRAPH = """
width, owner, nowned = 4, np.arange(16) // 2, 2
target = np.arange(2 * rank, 2 * rank + 2)
source, x = (target - 2) % 16, torch.ones(2, width)
lengths, entries = np.zeros(2, "i8"), np.ones(2, "i8")
"""
WEIGHTS = """
trainer, engine = lierne.Grid({"tp": 2, "dp": 4}), lierne.Grid({"tp": 4}, rank_offset=4, world_size=8)
shape = {"up": (8, 4), "down": (4, 8)}
trainer_cut = engine_cut = {"up": {"tp": lierne.Shard(0)}, "down": {"tp": lierne.Shard(1)}}
model = torch.nn.ParameterDict({"up": torch.ones(4, 4), "down": torch.ones(4, 4)}).bfloat16()
engine_state = {"up": torch.zeros(2, 4).bfloat16(), "down": torch.zeros(4, 2).bfloat16()} if rank >= 4 else {}
trained, step = torch.ones(32, dtype=torch.bfloat16), 1
"""
SAMPLES = """
costs = rows = np.array([4, 8 * (rank + 1)])
own_pixels, own_grids = torch.ones(sum(rows), 1176, dtype=torch.bfloat16), torch.ones(2, 3, dtype=torch.int64)
encoder = lambda pixels, grids, cu_seqlens: pixels[::4, :64].clone()
"""
TRACED = """
c10d, name = torch.ops._c10d_functional, dist.group.WORLD.group_name
def traced():
    return torch.fx.symbolic_trace(lambda x: c10d.wait_tensor(c10d.all_to_all_single(x, [1] * 8, [1] * 8, name))
                                   + c10d.wait_tensor(c10d.all_gather_into_tensor(x[:1], 8, name)))
gm = graph = traced()
forward, backward, example_inputs, is_ulysses = traced(), traced(), (torch.ones(8, 8),), lambda node: False
"""
# Lines before each block of a page; None: the block is not run; MORE: the names of the block before stay.
MORE = "#"
BLOCKS = {
    "docs/from-dtensor.md": ["""
llm_mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
tensor = distribute_tensor(torch.arange(64.).reshape(8, 8), init_device_mesh("cpu", (8,)), [Shard(1)])
"""],
    "docs/from-m2n.md": [None],  # a world of 16 ranks, below
    "docs/gradients.md": [""],
    "docs/python.md": ["", LAYOUTS + """
activations, gradient = np.ones((2, 16, 16), "f4"), np.ones((4, 16, 16), "f4")
""", LAYOUTS + """
context, use, activations = lierne.Context.node(), np.sum, np.ones((2, 16, 16), "f4")
""", LAYOUTS + """
activations = torch.ones(2, 16, 16, dtype=torch.bfloat16, requires_grad=True)
""", HALOS + "x, loss = part, torch.sum", HALOS + "x = DTensor.from_local(part, mesh, [Shard(2), Shard(3)])", WEIGHTS,
                       WEIGHTS, None],  # the backend is that of the job: torch_backend.py
    "docs/schedules.md": ["""
gather, tokens = lierne.all_gather(context, 4, "f32"), lierne.all_to_all(context, 4, "f32")
shard, to_experts = np.ones(4, "f4"), np.ones((8, 4), "f4")
""", TRACED],
    "docs/start-graphs.md": [GRAPH, MORE, """
group, rank_assignments, world_size = dist.group.WORLD, torch.arange(16) // 2, 8
node_partition = torch.arange(2 * rank, 2 * rank + 2)
edge_index, x = torch.stack([(node_partition - 2) % 16, node_partition]), torch.ones(2, 4)
"""],
    "docs/start-grids.md": ["images = torch.ones(2, 8, 16, 16)", """
mesh, shape, cu_seqlens = init_device_mesh("cpu", (8,), mesh_dim_names=("cp",)), (64, 2), [0, 40, 64]
kv = torch.ones(8, 2, requires_grad=True)
"""],
    "docs/start-megatron.md": ["activations = torch.ones(2, 16, 16, requires_grad=True)", MORE, None,  # torch_mimo.py
                               MORE + PACKED + """
llm = HyperCommGrid([2, 2, 1, 2], ["tp", "cp", "pp", "dp"])
llm.create_pg("cp")
text_embeddings = torch.zeros(4, hidden, dtype=torch.bfloat16)
""", ""],
    "docs/start-packed.md": [LAYOUTS + PACKED, LAYOUTS + PACKED + """
mesh, x = llm_mesh, torch.ones(8, 1, hidden, dtype=torch.bfloat16)
"""],
    "docs/start-particles.md": ["""
send_list = send_proc = recv_proc = send_num = recv_num = torch.zeros(0, dtype=torch.int64)
features, nlocal, nghost = torch.ones(4, 3), torch.tensor(4), torch.tensor(0)
"""],
    "docs/start-samples.md": [SAMPLES, LAYOUTS + PACKED + """
samples = lierne.torch.Samples(context, [(hidden, torch.bfloat16)], max_items=4, max_rows=64)
bridge = lierne.torch.PackedBridge(context, lierne.Grid({"dp": 8}), lierne.Grid({"cp": 2, "dp": 4}), hidden, torch.bfloat16,
                                   max_segments=16, max_rows=128, max_runs=64)
rows, tokens, samples_per_dp = [1], [4] * 8, [2] * 4
packed_seq_params = types.SimpleNamespace(qkv_format="thd", cu_seqlens_q=torch.arange(0, 33, 4))
ids, cu_image_rows = np.array([IMAGE, 5, 6, 7] * 8), np.arange(9)
own_pixels, encoder = torch.ones(1, hidden, dtype=torch.bfloat16), torch.tanh
text = torch.zeros(4, hidden, dtype=torch.bfloat16)
"""],
    "docs/start-torch.md": [LAYOUTS + "activations = torch.ones(2, 16, 16, dtype=torch.bfloat16)"],
    "docs/start-torchtitan.md": [TRACED],
}


def blocks(page):
    with open(os.path.join(ROOT, page)) as file:
        found = re.findall(r"^( *)```python\n(.*?)^ *```$", file.read(), re.M | re.S)
    return [re.sub(f"^{indent}", "", text, flags=re.M) for indent, text in found]


def unknown():
    """What this file and the documents do not agree on."""
    pages = {page for page in os.listdir(os.path.join(ROOT, "docs")) if page.endswith(".md")}
    known = {f"docs/{page}": blocks(f"docs/{page}") for page in pages}
    for page, found in known.items():
        if len(found) != len(BLOCKS.get(page, [])):
            yield f"{page} has {len(found)} blocks of Python, {len(BLOCKS.get(page, []))} are known here"
    with open(os.path.join(ROOT, "examples/python/bridge.py")) as file:
        whole = file.read().splitlines()
    yield from (f"bridge.py lacks a line of README.md: {line}" for line in blocks("README.md")[0].splitlines()
                if line not in whole)


def run(page, number, block, preamble, names):
    """What went wrong on any rank, once each."""
    text = ("" if preamble.startswith(MORE) else COMMON) + preamble + "\n" + SMALL.sub(lambda size: str(int(size[0]) // 64 or 1), block)
    error = ""
    try:
        exec(compile(text, f"{page}, block {number}", "exec"), names)
    except Exception:
        error = traceback.format_exc(limit=-2)
    errors = [""] * dist.get_world_size()
    dist.all_gather_object(errors, error)
    return sorted({e for e in errors if e})


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    passed = failed = 0
    wrong = list(unknown())
    if wrong:
        raise SystemExit("\n".join(wrong))
    for page in sys.argv[1:] or BLOCKS:
        for number, (block, preamble) in enumerate(zip(blocks(page), BLOCKS[page])):
            if preamble is None:
                continue
            names = names if preamble.startswith(MORE) else {"__name__": "snippet"}
            errors = run(page, number, block, preamble, names)
            passed, failed = passed + (not errors), failed + bool(errors)
            if errors and dist.get_rank() == 0:
                print(f"{page}, block {number}:\n{block}", *errors, sep="\n", flush=True)
    if dist.get_rank() == 0:
        print(f"{passed} passed, {failed} failed")
    dist.destroy_process_group()


main()
