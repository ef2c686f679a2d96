"""Pictures of shapes and their captions, drawn by rule: nothing is downloaded.

A picture has 16 x 16 pixels and shows one shape, small or large, on the left or on the right, in noise.
Its caption is "a large circle is on the left ." with the words that fit. python data.py prints some."""
import torch

SIDE = 16
SHAPES, SIZES, SIDES = ("circle", "square", "triangle", "cross"), ("small", "large"), ("left", "right")
WORDS = ("<start>", "a", "is", "on", "the", ".") + SHAPES + SIZES + SIDES
NWORDS = 8  # of a caption


def draw(shape, large, right, dy):
    """A picture without noise: 1 inside the shape, 0 outside."""
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    y, x, r = y - SIDE // 2 - dy, x - (11 if right else 4), 4 if large else 2
    inside = {"circle": x * x + y * y <= r * r,
              "square": (x.abs() <= r) & (y.abs() <= r),
              "triangle": (y.abs() <= r) & (2 * x.abs() <= y + r),
              "cross": ((x.abs() <= r // 2) & (y.abs() <= r)) | ((y.abs() <= r // 2) & (x.abs() <= r))}
    return inside[shape].double()


def caption(shape, large, right):
    """The numbers of a caption's words."""
    words = f"a {SIZES[large]} {shape} is on the {SIDES[right]} .".split()
    return [WORDS.index(word) for word in words]


def batch(size, step):
    """(pictures, captions) of a step, the same on every rank: (size, 16, 16), (size, NWORDS)."""
    random = torch.Generator().manual_seed(step)
    picks = [torch.randint(n, (size,), generator=random).tolist() for n in (len(SHAPES), 2, 2, 5)]
    kinds = [(SHAPES[shape], large, right, dy - 2) for shape, large, right, dy in zip(*picks)]
    noise = torch.randn(size, SIDE, SIDE, generator=random, dtype=torch.float64)
    pictures = torch.stack([draw(*kind) for kind in kinds]) + 0.1 * noise
    return pictures, torch.tensor([caption(*kind[:3]) for kind in kinds])


if __name__ == "__main__":
    for picture, words in zip(*batch(4, 0)):
        print("\n".join("".join(" #"[int(pixel > 0.5)] for pixel in row) for row in picture))
        print(" ".join(WORDS[word] for word in words))
