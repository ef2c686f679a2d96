"""A vision encoder and a causal transformer, as functions of a dict of parameters.

Both are written once, for one process and for many. What differs is `ways`: its copy and total are
the two ends of tensor parallelism (the identity whose gradient is summed over tp, and the sum over tp
whose gradient is the identity), and its gather gives the keys and values of all context-parallel
ranks. In one process all of them are the identity: see Alone."""
import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm

from data import NWORDS, SIDE, WORDS

PATCH, WIDTH, HEADS, LAYERS = 4, 32, 4, 2
NPATCHES = (SIDE // PATCH) ** 2
LENGTH = NPATCHES + NWORDS  # a sequence is a picture's patches, then the caption
# The axis that tensor parallelism cuts; the others are whole on every rank.
CUT = {"query": 1, "key": 1, "value": 1, "mix": 0, "up": 1, "up_bias": 0, "down": 0}


class Alone:
    """The ways of a single process."""
    tp = tp_rank = 1, 0

    @staticmethod
    def copy(x):
        return x

    total = gather = copy


def layer_shapes(prefix):
    shapes = {name: (WIDTH, WIDTH) for name in ("query", "key", "value", "mix")}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "up_bias": (4 * WIDTH,), "down": (4 * WIDTH, WIDTH)}
    return {f"{prefix}.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in shapes.items()}


def encoder_shapes():
    return {"patch": (PATCH * PATCH, WIDTH), "place": (NPATCHES, WIDTH), **layer_shapes("encoder")}


def llm_shapes():
    return {"word": (len(WORDS), WIDTH), "place": (LENGTH, WIDTH), **layer_shapes("llm"),
            "head": (WIDTH, len(WORDS))}


def part(name, tensor, tp, tp_rank):
    """What one of tp ranks has of a parameter or of its gradient."""
    axis = CUT.get(name.split(".")[-1])
    return tensor if axis is None else tensor.chunk(tp, axis)[tp_rank]


def parameters(shapes, seed, tp=1, tp_rank=0):
    """This rank's part of parameters that are drawn alike on every rank."""
    random, made = torch.Generator().manual_seed(seed), {}
    for name, shape in shapes.items():
        whole = torch.randn(shape, generator=random, dtype=torch.float64) * shape[0] ** -0.5
        made[name] = part(name, whole, tp, tp_rank).clone().requires_grad_()
    return made


def attention(x, p, ways, visible):
    """visible: (positions of this rank, all positions), which of them a position may see."""
    heads = lambda t: t.unflatten(2, (-1, WIDTH // HEADS)).transpose(1, 2)  # noqa: E731
    query, pair = x @ p["query"], torch.cat([x @ p["key"], x @ p["value"]], 2)
    key, value = ways.gather(pair).chunk(2, 2)
    scores = heads(query) @ heads(key).transpose(2, 3) / (WIDTH // HEADS) ** 0.5
    weights = scores.masked_fill(~visible, float("-inf")).softmax(3)
    return (weights @ heads(value)).transpose(1, 2).flatten(2) @ p["mix"]


def transformer(x, p, prefix, ways, visible):
    for layer in range(LAYERS):
        names = [name for name in p if name.startswith(f"{prefix}.{layer}.")]
        mine = {name.split(".")[-1]: p[name] for name in names}
        x = x + ways.total(attention(ways.copy(layer_norm(x, (WIDTH,))), mine, ways, visible))
        wide = gelu(ways.copy(layer_norm(x, (WIDTH,))) @ mine["up"] + mine["up_bias"])
        x = x + ways.total(wide @ mine["down"])
    return layer_norm(x, (WIDTH,))


def encode(pictures, p, ways):
    """(n, 16, 16) pictures -> (n, NPATCHES, WIDTH)."""
    patches = pictures.unflatten(2, (-1, PATCH)).unflatten(1, (-1, PATCH)).transpose(2, 3)
    x = patches.flatten(3).flatten(1, 2) @ p["patch"] + p["place"]
    everything = torch.ones(NPATCHES, NPATCHES, dtype=torch.bool)
    return transformer(x, p, "encoder", ways, everything)


def loss_of(features, captions, p, ways, positions):
    """The sum of the captions' cross entropies at this rank's positions of the sequence.

    features: (n, NPATCHES, WIDTH). positions: (k,) ascending within each chunk; range(LENGTH) where
    the sequence is whole. Every word is predicted from the patches and the words before it."""
    start = torch.full_like(captions[:, :1], WORDS.index("<start>"))
    words = p["word"][torch.cat([start, captions[:, :-1]], 1)]
    x = (torch.cat([features, words], 1) + p["place"])[:, positions]
    causal = torch.arange(LENGTH) <= positions[:, None]
    logits = transformer(x, p, "llm", ways, causal) @ p["head"]
    predicted = positions >= NPATCHES
    targets = captions[:, positions[predicted] - NPATCHES]
    return cross_entropy(logits[:, predicted].flatten(0, 1), targets.flatten(), reduction="sum")
