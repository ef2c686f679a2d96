"""Executes a bridge from what `lierne plan --rank R --format json` prints, and from nothing else.

tp4 dp3 -> tp3 cp2 dp2 on 12 ranks, gradients partial over cp: uneven data-parallel sizes, so every
rank has messages, copies and sums. Values are global row-major indices, so the result is known.
Usage: route.py LIERNE WORKDIR
"""
import json
import subprocess
import sys

WORLD, SAMPLES, ROW = 12, 6, 4 * 3
CONFIG = {
    "world_size": WORLD,
    "grids": {"a": {"order": ["tp", "dp"], "shape": {"tp": 4, "dp": 3}},
              "b": {"order": ["tp", "cp", "dp"], "shape": {"tp": 3, "cp": 2, "dp": 2}}},
    "bridges": [{"name": "a_to_b", "src": "a", "dst": "b",
                 "tensor": {"axes": ["b", "s", "h"], "shape": {"b": SAMPLES, "s": 4, "h": 3},
                            "dtype": "i64"},
                 "batch": "b", "sequence": "s",
                 "gradient": {"owner": "partial", "storage": "full"}}],
}


def elements(block):
    """The elements of a block in their order: the last loop runs fastest."""
    at = [block["offset"]]
    for d, (count, stride) in enumerate(zip(block["counts"], block["strides"])):
        steps = block["rows"] if d == 0 and "rows" in block else range(count)
        at = [a + step * stride for a in at for step in steps]
    return at


def read(buffers, place):
    return [buffers[place["buffer"]][i] for i in elements(place["block"])]


def write(buffers, name, block, values):
    for i, value in zip(elements(block), values, strict=True):
        buffers[name][i] = value


def run_ops(buffers, ops):
    for op in ops:
        sources = [read(buffers, place) for place in op["from"]]
        if op["accumulate"]:
            sources.insert(0, read(buffers, op["to"]))
        total = [sum(values) for values in zip(*sources)] or [0] * len(elements(op["to"]["block"]))
        write(buffers, op["to"]["buffer"], op["to"]["block"], total)


def pack(buffers, message):
    blocks = [{"buffer": message["buffer"], "block": block} for block in message["blocks"]]
    return [value for place in blocks for value in read(buffers, place)]


def run_stage(routes, memory, s):
    """All ranks' stage s. Ranks with fewer stages take no part."""
    stages = [route["stages"][s] if s < len(route["stages"]) else None for route in routes]
    sent = {}
    for rank, stage in enumerate(stages):
        for message in stage["sends"] if stage else []:
            sent.setdefault((rank, message["peer"]), []).append(pack(memory[rank], message))
    for rank, stage in enumerate(stages):
        if stage:
            run_ops(memory[rank], stage["copies"])
            for message in stage["recvs"]:
                values = sent[message["peer"], rank].pop(0)
                assert message["bytes"] == 8 * len(values)
                for block in message["blocks"]:
                    n = len(elements(block))
                    write(memory[rank], message["buffer"], block, values[:n])
                    values = values[n:]
            run_ops(memory[rank], stage["sums"])
    assert not any(sent.values()), "a message without a receiver"


def execute(routes, inputs):
    memory = []
    for route, values in zip(routes, inputs):
        sizes = route["elements"]
        assert sizes["in"] == len(values)
        memory.append({"in": values, "out": [None] * sizes["out"], "scratch": [None] * sizes["scratch"]})
    for s in range(max(len(route["stages"]) for route in routes)):
        run_stage(routes, memory, s)
    return [buffers["out"] for buffers in memory]


def share(parts, part):
    """The balanced share of the batch of one data-parallel rank, as global indices."""
    n = SAMPLES // parts * ROW
    return list(range(part * n, (part + 1) * n))


def main(lierne, work):
    path = f"{work}/route.json"
    with open(path, "w") as file:
        json.dump(CONFIG, file)
    shown = [json.loads(subprocess.run([lierne, "plan", path, "-b", "a_to_b", "-r", str(rank), "--format",
                                        "json"], check=True, capture_output=True).stdout)
             for rank in range(WORLD)]
    forward = [plan["route"]["forward"] for plan in shown]
    adjoint = [plan["route"]["adjoint"] for plan in shown]
    a = [share(3, rank // 4) for rank in range(WORLD)]
    b = [share(2, rank // 6) for rank in range(WORLD)]
    gradients = [[(rank // 3 % 2 + 1) * value for value in b[rank]] for rank in range(WORLD)]
    right = {"forward": execute(forward, a) == b,
             "adjoint": execute(adjoint, gradients) == [[3 * value for value in part] for part in a],
             "sums are tested": any(stage["sums"] for route in adjoint for stage in route["stages"])}
    for name in (name for name, ok in right.items() if not ok):
        print("FAIL", name)
    print(f"{sum(right.values())} passed, {len(right) - sum(right.values())} failed")
    return not all(right.values())


sys.exit(main(*sys.argv[1:]))
