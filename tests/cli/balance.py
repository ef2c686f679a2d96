"""Prints, for every bridge of configuration files, what the busiest ranks send and receive with balanced
routing over the bound, and with direct routing and Megatron-LM's algorithms for comparison.

usage: balance.py LIERNE FILE...  A line ends in "ok", "small" (a dp rank has less than 64 KiB: not
judged), "above" (the bound by more than 5%) or "worse" (than another algorithm). Ranks are compared as if
they were on one node. Where the file has nodes, a second line compares what crosses between them:
"worse" where that is more than with direct routing. Exit status 1 after "above" or "worse"."""
import json
import math
import os
import subprocess
import sys
import tempfile

LEAST = 64 << 10  # bytes of a dp rank
LARGEST = 1024  # ranks of a world that is planned rank by rank


def plan(tool, path, bridge, *options):
    command = [tool, "plan", path, "--bridge", bridge, "--format", "json", *options]
    result = subprocess.run(command, capture_output=True, text=True)
    return json.loads(result.stdout)["report"] if result.returncode == 0 else None


def dp_bytes(config, bridge):
    tensor = bridge["tensor"]
    size = {"bf16": 2, "f16": 2, "f32": 4, "f64": 8}[tensor.get("dtype", "bf16")]
    dp = max(config["grids"][bridge[side]]["shape"]["dp"] for side in ("src", "dst"))
    return math.prod(tensor["shape"].values()) * size // dp


def judge(report, others, direction):
    mine = report[direction]
    for most, bound in (("max_rank_bytes", "bound_rank_bytes"), ("max_rank_sent_bytes", "bound_rank_sent_bytes")):
        if mine[most] > 1.05 * mine[bound]:
            return "above"
        if any(mine[most] > 1.02 * other[direction][most] for other in others):
            return "worse"
    return "ok" if mine["bytes"] == mine["min_bytes"] else "above"


def ratio(report, direction, most, bound):
    bytes_ = report[direction][bound]
    return report[direction][most] / bytes_ if bytes_ else 1.0


def show(name, report, direct, others, direction, verdict):
    mine = report[direction]
    columns = []
    for r in [report, direct]:
        for most in ("rank_sent_bytes", "rank_bytes"):
            columns.append(ratio(r, direction, "max_" + most, "bound_" + most))
    rest = " ".join(f"{max(o[direction]['max_rank_sent_bytes'], o[direction]['max_rank_bytes']) / 1e6:9.2f}" for o in others)
    print(f"{name:50} {direction} {mine['bound_rank_sent_bytes'] / 1e6:9.2f} {mine['bound_rank_bytes'] / 1e6:9.2f} "
          + " ".join(f"{c:6.3f}" for c in columns) + f" {rest:19} {verdict}")
    return verdict in ("ok", "small")


def without_nodes(config):
    file = tempfile.NamedTemporaryFile("w", suffix=".json", delete=False, encoding="utf-8")
    json.dump({key: value for key, value in config.items() if key not in ("nodes", "$schema")}, file)
    file.close()
    return file.name


def show_nodes(name, path, tool, bridge):
    reports = [plan(tool, path, bridge, "-a", "direct", "--routing", r) for r in ("balanced", "direct")]
    good = True
    for direction in ("forward", "adjoint"):
        mine, direct = (r[direction] for r in reports)
        copies = mine["between_nodes_bytes"] <= direct["between_nodes_bytes"]
        good &= copies
        print(f"{name:50} {direction} between nodes, MB: {mine['between_nodes_bytes'] / 1e6:.2f} (direct "
              f"{direct['between_nodes_bytes'] / 1e6:.2f}), most of a node {mine['max_node_sent_bytes'] / 1e6:.2f} (direct "
              f"{direct['max_node_sent_bytes'] / 1e6:.2f}) {'ok' if copies else 'worse'}")
    return good


def run_bridge(tool, path, config, bridge, plain):
    name, good = bridge["name"], True
    report, direct = (plan(tool, plain, name, "-a", "direct", "--routing", r) for r in ("balanced", "direct"))
    others = [o for o in (plan(tool, plain, name, "-a", a) for a in ("collective", "leader")) if o]
    label = (path.split("/")[-1][:-5] + " " + name)[:50]
    for direction in ("forward", "adjoint"):
        small = dp_bytes(config, bridge) < LEAST
        verdict = "small" if small else judge(report, others + [direct], direction)
        good &= show(label, report, direct, others, direction, verdict)
    return good and ("nodes" not in config or show_nodes(label, path, tool, name))


def run(tool, path):
    good = True
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    plain = without_nodes(config)
    for bridge in config.get("bridges", []):
        if config["world_size"] <= LARGEST:
            good &= run_bridge(tool, path, config, bridge, plain)
    os.unlink(plain)
    return good


def main():
    print(f"{'':50} {'':7} bound sent  received, MB; most sent and received over it: balanced, direct; "
          "MB of the others' busiest")
    good = True
    for path in sys.argv[2:]:
        good &= run(sys.argv[1], path)
    sys.exit(0 if good else 1)


main()
