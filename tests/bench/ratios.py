"""The ratios that users ask for, from the CSV files of docs/performance: ratios.py FOLDER table|svg.

A line of a table is one workload, number of ranks and state of the inputs. A row below summarises lines:
how many times as fast lierne is as another method, the lowest, the median and the highest. table prints
rows for docs/performance.md, svg draws them. tests/cli/test_performance.sh compares both with what the
repository has."""
import csv
import math
import re
import statistics
import sys

PEERS = (("a fan-in, b fan-out", "[ab]", "naive MPI"), ("c fan-in cp2", "c", "naive MPI"),
         ("d fan-out cp2", "d", "naive MPI"), ("a to d", "[a-d]", "byte-optimal MPI"),
         ("e to g, disjoint grids", "[e-g]", "lierne LEADER"), ("a to d", "[a-d]", "bound"))
SIZES = (("up to 1 KiB", "256 B|1 KiB"), ("4 KiB to 4 MiB", "4 KiB|16 KiB|64 KiB|256 KiB|1 MiB|4 MiB"))
COLLECTIVES = (("all-gather", "forward"), ("reduce-scatter", "adjoint"), ("all-reduce", "forward"),
               ("all-to-all", "forward"))
WIDE = "f64 x 32|f32 x 64"


def rows():
    """(heading, label, file, pattern of its titles, method, reference, direction) of every row."""
    for reference, over in (("lierne DIRECT", "MPI"), ("lierne DIRECT, window", "windows")):
        for load in ("large f32", "large bf16", "small f32"):
            for label, shapes, method in PEERS:
                yield (f"bridges, {load}, over {over}", label, f"bridges-{load.replace(' ', '-')}", f", {shapes} ",
                       method, reference, "both")
    for sizes, blocks in SIZES:
        for name, direction in COLLECTIVES:
            yield (f"collectives, {sizes}, over windows", name, "collectives", f", {name},.* ({blocks}),", "MPI",
                   "lierne, window", direction)
    for reference, over, by_hand in (("lierne", "MPI", "isend, irecv by hand"),
                                     ("lierne, window", "windows", "window by hand")):
        for method in ("PetscSF basic", "MPI_Neighbor_alltoallv", by_hand, "bound: copy, add"):
            yield (f"graph, rows of 256 bytes, over {over}", "both directions", "graphs", WIDE, method, reference, "both")
    for method in ("PetscSF basic, one round", "swaps by hand"):
        for direction in ("forward", "adjoint"):
            yield ("halo, rows of 256 bytes, over MPI", direction, "halos", WIDE, method, "lierne, swaps", direction)


def read(path):
    """{title: {method: row}}, without the line that has the command."""
    found = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            found.setdefault(row["title"], {})[row["method"]] = row
    return found


def ratio(methods, method, direction):
    """That of a method, or of the fastest one whose name begins so; None where it did not run."""
    found = [float(row[direction + "_ratio"] or 0) for name, row in methods.items()
             if name == method or method == "bound" and name.startswith("bound")]
    return min((value for value in found if value > 0), default=None)


def summarise(folder):
    """(heading, label, method, ratios in ascending order) of every row that has lines."""
    for heading, label, name, pattern, method, reference, direction in rows():
        ratios = []
        for title, methods in read(f"{folder}/{name}.csv").items():
            if re.search(pattern, title):
                other, own = ratio(methods, method, direction), ratio(methods, reference, direction)
                if other and own:
                    ratios.append(other / own)
        if ratios:
            yield heading, label, method, sorted(ratios)


def table(summary):
    print("| lierne | | as fast as | lines | lowest | median | highest |", "|---|---|---|---|---|---|---|", sep="\n")
    before = None
    for heading, label, method, ratios in summary:
        print(f"| {heading if heading != before else ''} | {label} | {method} | {len(ratios)} | {ratios[0]:.2f} | "
              f"{statistics.median(ratios):.2f} | {ratios[-1]:.2f} |")
        before = heading


LEFT, WIDTH, TOP, STEP = 340, 460, 60, 20
LOW, HIGH = math.log2(0.125), math.log2(32)
BLUE, GREY, RED = "#0b5cad", "#6b7280", "#b91c1c"
# As the command's pictures have it (src/tool/draw/svg.h).
DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(0.92) hue-rotate(180deg); } }"


def x_of(value):
    return round(LEFT + WIDTH * (min(max(math.log2(value), LOW), HIGH) - LOW) / (HIGH - LOW))


def text(x, y, words, anchor="start", colour="#111827", size=12):
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def upright(value, bottom, colour):
    return f'<line x1="{x_of(value)}" y1="{TOP}" x2="{x_of(value)}" y2="{bottom}" stroke="{colour}"/>'


def svg(summary):
    body, y, before = [], TOP, None
    for heading, label, method, ratios in summary:
        if heading != before:
            y += STEP + STEP // 2
            body.append(f'<text x="20" y="{y}" font-size="13" font-weight="bold" fill="#111827">{heading}</text>')
            before = heading
        y += STEP
        colour = GREY if method.startswith("bound") else BLUE
        low, middle, high = (x_of(value) for value in (ratios[0], statistics.median(ratios), ratios[-1]))
        body += [text(30, y, label), text(LEFT - 15, y, method, "end", GREY),
                 f'<line x1="{low}" y1="{y - 4}" x2="{high}" y2="{y - 4}" stroke="{colour}" stroke-width="3"/>',
                 f'<circle cx="{middle}" cy="{y - 4}" r="5" fill="{colour}"/>']
    ticks = [2.0 ** power for power in range(int(LOW), int(HIGH) + 1)]
    rules = [upright(tick, y + 10, "#e5e7eb") for tick in ticks if tick != 1] + [upright(1, y + 10, RED)]
    names = [text(x_of(tick), at, f"{tick:g}", "middle", RED if tick == 1 else GREY) for tick in ticks for at in (TOP - 8, y + 28)]
    height = y + 58
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{height}" '
          f'viewBox="0 0 {LEFT + WIDTH + 30} {height}" font-family="sans-serif">',
          f'<rect width="{LEFT + WIDTH + 30}" height="{height}" fill="#ffffff"/>',
          f"<style>{DARK}</style>",
          text(20, 26, "How many times as fast lierne is: lowest, median (dot), highest of all lines", size=15),
          text(x_of(1) + 30, y + 42, "lierne is faster", colour=RED),
          f'<path d="M{x_of(1) + 125} {y + 38}H{x_of(8)}" stroke="{RED}" fill="none"/>',
          f'<path d="M{x_of(8) + 8} {y + 38}l-8 -4v8z" fill="{RED}"/>',
          *rules, *names, *body, "</svg>", sep="\n")


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in ("table", "svg"):
        sys.exit("usage: ratios.py FOLDER table|svg")
    {"table": table, "svg": svg}[sys.argv[2]](summarise(sys.argv[1]))


if __name__ == "__main__":
    main()
