"""Draws the curve of train.py --json FILE as SVG: python plot.py FILE >training.svg

Above: the loss of one process as a line, that of 8 processes as rings on it. Below: how far losses and
encoder gradients are apart, each relative to its own size."""
import json
import math
import sys

LEFT, WIDTH, TOP, HEIGHT, BELOW, LOW = 70, 600, 40, 220, 310, 120
BLUE, ORANGE, GREEN = "#0b5cad", "#c2410c", "#15803d"
FLOOR = -18  # powers of ten: 0 is drawn here


def text(x, y, words, anchor="middle", colour="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def rule(y, label):
    return (f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDTH}" y2="{y:.1f}" stroke="#ddd"/>'
            + text(LEFT - 8, y + 4, label, "end"))


def ring(x, y, colour):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def losses(curve, x):
    top = math.ceil(max(serial for _, serial, _ in curve))
    y = lambda loss: TOP + HEIGHT * (1 - loss / top)  # noqa: E731
    line = " ".join(f"{x(i):.1f},{y(serial):.1f}" for i, (_, serial, _) in enumerate(curve))
    return [text(LEFT, TOP - 16, "loss: one process (line), 8 processes (rings)", "start"),
            *(rule(y(tick), tick) for tick in range(top + 1)),
            f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2"/>',
            *(ring(x(i), y(loss), ORANGE) for i, (loss, _, _) in enumerate(curve))]


def differences(curve, x):
    y = lambda power: BELOW + LOW * power / FLOOR  # noqa: E731
    at = lambda value: y(math.log10(value) if value else FLOOR)  # noqa: E731
    found = [text(LEFT, BELOW - 16, "relative difference of ", "start")
             .replace("</text>", f'<tspan fill="{ORANGE}">the loss</tspan> and of '
                      f'<tspan fill="{GREEN}">the encoder\'s gradients</tspan></text>'),
             *(rule(y(tick), f"1e{tick}" if tick else 1) for tick in (0, -6, -12)),
             rule(y(FLOOR), 0)]
    for i, (loss, serial, gradient) in enumerate(curve):
        found += [ring(x(i), at(abs(loss - serial) / serial), ORANGE), ring(x(i), at(gradient), GREEN)]
    return found


def main():
    with open(sys.argv[1]) as file:
        curve = json.load(file)
    x = lambda i: LEFT + WIDTH * (i + 0.5) / len(curve)  # noqa: E731
    body = [*losses(curve, x), *differences(curve, x),
            *(text(x(i), BELOW + LOW + 20, i) for i in range(0, len(curve), max(len(curve) // 10, 1))),
            text(LEFT + WIDTH / 2, BELOW + LOW + 40, "step")]
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {BELOW + LOW + 55}" '
          'font-family="sans-serif" font-size="13">',
          "<style>@media (prefers-color-scheme: dark) { svg { filter: invert(0.92) hue-rotate(180deg); } }</style>",
          '<rect width="100%" height="100%" fill="#fff"/>',
          *body, "</svg>", sep="\n")


if __name__ == "__main__":
    main()
