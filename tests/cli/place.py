"""Compares lierne place with brute force: every order of dims is written to a file and planned, and the
bound is compared with all orders of ranks of small grids.

usage: place.py LIERNE FILE...  Prints what differs; exit status 1 if anything does."""
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile


def run(tool, command, config, bridge, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(config, file)
        file.flush()
        words = [tool, command, file.name, "--bridge", bridge, "--format", "json", *options]
        result = subprocess.run(words, capture_output=True, text=True)
    return json.loads(result.stdout) if result.returncode == 0 else None


def orders_of(grid):
    """All orders; dims of size 1 stay where they are."""
    order = grid["order"]
    large = [i for i, dim in enumerate(order) if grid["shape"][dim] > 1]
    for permuted in itertools.permutations([order[i] for i in large]):
        made = list(order)
        for i, dim in zip(large, permuted):
            made[i] = dim
        yield made


def total(report, key):
    return sum(report[direction].get(key, 0) for direction in ("forward", "adjoint"))


def planned(tool, config, bridge, side, routing):
    """(order, report) of each order that can be planned; a grid of its own for this side."""
    counted = []
    grid = config["grids"][bridge[side]]
    for order in orders_of(grid):
        other = json.loads(json.dumps(config))
        other["grids"]["arranged"] = dict(grid, order=order)
        other["grids"]["arranged"].pop("views", None)
        other["bridges"] = [dict(bridge, **{side: "arranged"})]
        if bridge["src"] != bridge["dst"]:
            other["grids"].pop(bridge[side])
            named = {b["src"] for b in other["bridges"]} | {b["dst"] for b in other["bridges"]}
            other["grids"] = {name: other["grids"][name] for name in other["grids"] if name in named}
        plan = run(tool, "plan", other, bridge["name"], "--algorithm", "direct", *routing)
        if plan:
            counted.append((order, plan["report"]))
    return counted


def compare(tool, config, bridge, side, bad, routing=()):
    """routing: options of both commands; without any they must choose the same one by themselves."""
    advice = run(tool, "place", config, bridge["name"], "--side", side, *routing)
    counted = planned(tool, config, bridge, side, routing)
    name = f"{bridge['name']} {side}"
    if not advice or len(counted) != advice["orders"]:
        bad.append(f"{name}: {len(counted)} orders, {advice}")
        return advice
    found = {tuple(order): report for order, report in counted}
    for key in ("today", "best", "fewest_between_nodes"):
        mine = advice.get(key)
        if mine and found[tuple(mine["order"])]["routing"] != mine["routing"]:
            bad.append(f"{name}: {key} has another routing: {mine}")
        for direction in ("forward", "adjoint") if mine else ():
            for what, bytes_ in mine[direction].items():
                if found[tuple(mine["order"])][direction][what] != bytes_:
                    bad.append(f"{name}: {key} {direction} {what} {mine}")
    keys = [("best", "bytes", "saved_bytes")]
    if "fewest_between_nodes" in advice:
        keys.append(("fewest_between_nodes", "between_nodes_bytes", "saved_between_nodes_bytes"))
    for key, what, saved in keys:
        least = min(total(report, what) for _, report in counted)
        if total(advice[key], what) != least or total(advice["today"], what) - least != advice[key][saved]:
            bad.append(f"{name}: {key} is not the least, {least}: {advice[key]}")
    if advice.get("bound_saved_bytes", 1 << 62) < advice["best"]["saved_bytes"]:
        bad.append(f"{name}: the best saves more than the bound")
    return advice


def owners(order, shape, samples, counts_of):
    """The samples of each rank of a grid of dims tp and dp."""
    ranks = shape["tp"] * shape["dp"]
    first, each = order[0], []
    for rank in range(ranks):
        at = {first: rank % shape[first], order[1]: rank // shape[first]}
        each.append(set(counts_of(samples, shape["dp"], at["dp"])))
    return each


def share(samples, parts, part):
    size, rest = divmod(samples, parts)
    start = size * part + min(part, rest)
    return range(start, start + size + (part < rest))


def make(src, dst, samples, ranks):
    tensor = {"axes": ["b", "h"], "shape": {"b": samples, "h": 8}, "dtype": "f32"}
    bridge = {"name": "ab", "src": "a", "dst": "b", "tensor": tensor, "batch": "b",
              "gradient": {"owner": "partial", "storage": "full"}}
    grids = {name: {"order": order, "shape": shape} for name, (order, shape) in (("a", src), ("b", dst))}
    return {"world_size": ranks, "grids": grids, "bridges": [bridge]}


def random_case(tool, rng, bad):
    ranks = rng.choice([4, 6])
    sides = []
    for _ in range(2):
        dp = rng.choice([d for d in range(1, ranks + 1) if ranks % d == 0])
        sides.append((rng.sample(["tp", "dp"], 2), {"tp": ranks // dp, "dp": dp}))
    samples = rng.randint(3, 13)
    config = make(sides[0], sides[1], samples, ranks)
    src, dst = (owners(order, shape, samples, share) for order, shape in sides)
    moved = [[(len(d - s) + len(s - d)) * 32 for d in dst] for s in src]
    today = sum(moved[r][r] for r in range(ranks))
    costs = {p: sum(moved[p[r]][r] for r in range(ranks)) for p in itertools.permutations(range(ranks))}
    saved = today - min(costs.values())
    for side in ("src", "dst"):
        advice = compare(tool, config, config["bridges"][0], side, bad)
        if not advice or advice["bound_saved_bytes"] != saved:
            bad.append(f"random {config}: the bound is not {saved}: {advice}")
        position = advice["assignment"]
        reached = sum(moved[position[r]][r] if side == "src" else moved[r][position[r]] for r in range(ranks))
        if sorted(position) != list(range(ranks)) or today - reached != saved:
            bad.append(f"random {config}: the assignment {position} saves {today - reached}, not {saved}")
    return saved


def by_hand(tool, bad):
    """Ranks 1 and 2 have each other's samples: 2 of 32 bytes each, forward and adjoint."""
    shape = {"tp": 2, "dp": 2}
    config = make((["dp", "tp"], shape), (["tp", "dp"], shape), 4, 4)
    for side, best in (("src", ["tp", "dp"]), ("dst", ["dp", "tp"])):
        advice = compare(tool, config, config["bridges"][0], side, bad)
        got = advice["best"]["order"], advice["best"]["saved_bytes"], advice["bound_saved_bytes"]
        if got != (best, 256, 256):
            bad.append(f"by hand, {side}: {got}")


def main():
    tool, bad, gains, rng = sys.argv[1], [], 0, random.Random(17)
    by_hand(tool, bad)
    for _ in range(20):
        gains += random_case(tool, rng, bad) > 0
    if gains == 0:
        bad.append("no random case has anything to save")
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        for bridge in config["bridges"]:
            for side in ("src", "dst"):
                before = len(bad)
                compare(tool, config, bridge, side, bad)
                compare(tool, config, bridge, side, bad, ("--routing", "direct"))
                bad[before:] = [f"{os.path.basename(path)}: {line}" for line in bad[before:]]
    print("\n".join(bad[:20]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
