"""Prints, for every bridge of configuration files, what the busiest ranks send and receive with balanced
routing over the bound, and with direct routing and Megatron-LM's algorithms for comparison.

usage: balance.py LIERNE FILE...  A line ends in "ok", "small" (a dp rank has less than 64 KiB: not
judged), "above" (the bound by more than 5%) or "worse" (than another algorithm). Exit status 1 after
one of the last two."""
import json
import math
import subprocess
import sys

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


def run(tool, path):
    good = True
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    for bridge in config.get("bridges", []):
        name = bridge["name"]
        if config["world_size"] > LARGEST:
            continue
        report = plan(tool, path, name, "-a", "direct", "--routing", "balanced")
        direct = plan(tool, path, name, "-a", "direct", "--routing", "direct")
        others = [o for o in (plan(tool, path, name, "-a", a) for a in ("collective", "leader")) if o]
        for direction in ("forward", "adjoint"):
            small = dp_bytes(config, bridge) < LEAST
            verdict = "small" if small else judge(report, others + [direct], direction)
            label = path.split("/")[-1][:-5] + " " + name
            good &= show(label[:50], report, direct, others, direction, verdict)
    return good


def main():
    print(f"{'':50} {'':7} bound sent  received, MB; most sent and received over it: balanced, direct; "
          "MB of the others' busiest")
    good = True
    for path in sys.argv[2:]:
        good &= run(sys.argv[1], path)
    sys.exit(0 if good else 1)


main()
