#!/usr/bin/env python3
"""Prints set_boxes.json: tensor sets with boxes, without lierne. A destination is what a model's own code makes of the
sources, by slices, concatenations and transpositions of nested lists; a rank's part of a tensor is a slice of it. Boxes
say the same to lierne, and nothing here reads them. Element e of tensor t is 1 + e + 1000 t; gradients number the
elements of destinations in the same way, from 100000 on."""
import itertools
import json


def numbered(shape, number):
    if not shape:
        return next(number)
    return [numbered(shape[1:], number) for _ in range(shape[0])]


def sources(*shapes, first=1):
    return [numbered(shape, itertools.count(first + 1000 * t)) for t, shape in enumerate(shapes)]


def shape_of(tensor):
    return [len(tensor), *shape_of(tensor[0])] if isinstance(tensor, list) else []


def flat(tensor):
    return [x for row in tensor for x in flat(row)] if isinstance(tensor, list) else [tensor]


def transposed(matrix):
    return [list(column) for column in zip(*matrix)]


def sliced(tensor, axis, start, end):
    return tensor[start:end] if axis == 0 else [sliced(row, axis - 1, start, end) for row in tensor]


def grid(first, **dims):
    return {"shape": list(dims.values()), "dim_names": list(dims), "rank_offset": first}


def span(size, n, counts, coordinate):
    """The share of a coordinate: by counts, or sizes that differ by one at most, the larger first."""
    counts = counts or [size // n + (c < size % n) for c in range(n)]
    return sum(counts[:coordinate]), sum(counts[:coordinate + 1])


def part(tensor, side_grid, cuts, rank):
    """What a rank has of a tensor: cuts is per dim of the grid (axis, counts or None), or None for a copy each."""
    shape = shape_of(tensor)
    rank -= side_grid["rank_offset"]
    for size, cut in zip(side_grid["shape"], cuts):  # the first dim runs fastest
        coordinate, rank = rank % size, rank // size
        if cut:
            tensor = sliced(tensor, cut[0], *span(shape[cut[0]], size, cut[1], coordinate))
    return flat(tensor)


def parts(tensors, side_grid, cuts):
    ranks = 1
    for size in side_grid["shape"]:
        ranks *= size
    first = side_grid["rank_offset"]
    return {str(r): [x for tensor, cut in zip(tensors, cuts) for x in part(tensor, side_grid, cut, r)]
            for r in range(first, first + ranks)}


def replaced(tensor, values):
    return [replaced(x, values) for x in tensor] if isinstance(tensor, list) else values.get(tensor, 0)


def side(tensors, side_grid, cuts):
    return {"grid": side_grid, "tensors": [{"shape": shape_of(tensor), "cuts": [c and list(c) for c in cut]}
                                           for tensor, cut in zip(tensors, cuts)]}


def case(name, world, src, src_grid, src_cuts, dst, dst_grid, dst_cuts, boxes):
    gradients = sources(*map(shape_of, dst), first=100001)
    came = [x for tensor in dst for x in flat(tensor)]
    back = dict(zip(came, (g for tensor in gradients for g in flat(tensor))))
    one = {"id": name, "world_size": world, "src": side(src, src_grid, src_cuts),
           "dst": side(dst, dst_grid, dst_cuts), "boxes": boxes,
           "input": parts(src, src_grid, src_cuts), "output": parts(dst, dst_grid, dst_cuts)}
    if len(set(came)) == len(came):  # otherwise the plan has no adjoint
        one["output_gradient"] = parts(gradients, dst_grid, dst_cuts)
        one["input_gradient"] = parts(replaced(src, back), src_grid, src_cuts)
    return one


def box(src, src_start, dst, dst_start, sizes, axes=None):
    return {"src": src, "src_start": src_start, "dst": dst, "dst_start": dst_start, "sizes": sizes, "axes": axes}


def fused_qkv(q, k, v, groups):
    """linear_qkv of Megatron-LM: of each group its queries, its key and its value."""
    nq, nk = len(q) // groups, len(k) // groups
    return [row for g in range(groups)
            for row in q[g * nq:(g + 1) * nq] + k[g * nk:(g + 1) * nk] + v[g * nk:(g + 1) * nk]]


def qkv_boxes(groups, queries, head, hidden, split=False):
    boxes = []
    for g in range(groups):
        at = g * (queries + 2) * head
        for tensor, start, rows in ((0, g * queries * head, queries * head), (1, g * head, head), (2, g * head, head)):
            places = ((0, [at, 0], tensor, [start, 0]) if split else (tensor, [start, 0], 0, [at, 0]))
            boxes.append(box(*places, [rows, hidden]))
            at += rows
    return boxes


def cases():
    rows, columns, copy = (0, None), (1, None), None
    q, k, v = sources([8, 3], [4, 3], [4, 3])  # 4 heads of 2 in 2 groups
    yield case("q, k, v of 2 groups into linear_qkv, tp 2 to tp 4", 4,
               [q, k, v], grid(0, tp=2, dp=2), [[rows, copy]] * 3,
               [fused_qkv(q, k, v, 2)], grid(0, tp=4), [[rows]], qkv_boxes(2, 2, 2, 3))
    q, k, v = sources([16, 2], [8, 2], [8, 2])  # 8 heads of 2 in 4 groups
    yield case("q, k, v of 4 groups into linear_qkv, tp 3 to tp 2 of other ranks", 5,
               [q, k, v], grid(0, tp=3), [[rows]] * 3,
               [fused_qkv(q, k, v, 4)], grid(3, tp=2), [[rows]], qkv_boxes(4, 2, 2, 2))
    yield case("linear_qkv of 4 groups into q, k, v, tp 4 to tp 3, uneven", 8,
               [numbered([32, 2], itertools.count(1))], grid(0, tp=4), [[rows]],
               [[row for g in range(4) for row in numbered([32, 2], itertools.count(1))[8 * g + a:8 * g + b]]
                for a, b in ((0, 4), (4, 6), (6, 8))], grid(5, tp=3), [[(0, [7, 0, 9])], [rows], [rows]],
               qkv_boxes(4, 2, 2, 2, split=True))
    gate, up = sources([6, 3], [6, 3])
    yield case("gate and up into one, tp 2 to tp 4", 4, [gate, up], grid(0, tp=2, dp=2), [[rows, copy]] * 2,
               [[gate, up]], grid(0, tp=4), [[(1, None)]],
               [box(t, [0, 0], 0, [t, 0, 0], [1, 6, 3], [-1, 0, 1]) for t in range(2)])
    yield case("gate and up one after the other, columns to rows, uneven", 3, [gate, up], grid(0, tp=2),
               [[columns]] * 2, [gate + up], grid(0, tp=3), [[(0, [1, 8, 3])]],
               [box(t, [0, 0], 0, [6 * t, 0], [6, 3]) for t in range(2)])
    experts = sources(*[[4, 3]] * 8)
    yield case("experts into one, tp 2 to ep 4", 4, experts, grid(0, tp=2, dp=2), [[rows, copy]] * 8,
               [experts], grid(0, ep=4), [[(0, None)]],
               [box(e, [0, 0], 0, [e, 0, 0], [1, 4, 3], [-1, 0, 1]) for e in range(8)])
    yield case("experts into one, transposed, tp 4 to ep 2 and tp 2", 8, experts, grid(0, tp=4), [[columns]] * 8,
               [[transposed(e) for e in experts]], grid(4, tp=2, ep=2), [[(2, None), (0, [5, 3])]],
               [box(e, [0, 0], 0, [e, 0, 0], [1, 3, 4], [-1, 1, 0]) for e in range(8)])
    words, norm = sources([7, 2], [2])
    yield case("tied embeddings, tp 2 to tp 3", 3, [words, norm], grid(0, tp=2), [[rows], [copy]],
               [words, norm, words], grid(0, tp=3), [[rows], [copy], [(0, [2, 4, 1])]],
               [box(0, [0, 0], 0, [0, 0], [7, 2]), box(1, [0], 1, [0], [2]), box(0, [0, 0], 2, [0, 0], [7, 2])])
    a, b = sources([5, 4], [2, 5])
    yield case("a transposed box between others, and elements that nobody takes, uneven", 5,
               [a, b], grid(0, tp=5), [[(0, [0, 2, 1, 1, 1])], [columns]],
               [[row_a + row_b for row_a, row_b in zip(transposed(a[1:4])[:2], b)] + [a[4] + a[0]]],
               grid(1, tp=4), [[(1, [3, 1, 0, 4])]],
               [box(0, [1, 0], 0, [0, 0], [2, 3], [1, 0]), box(1, [0, 0], 0, [0, 3], [2, 5]),
                box(0, [4, 0], 0, [2, 0], [1, 4]), box(0, [0, 0], 0, [2, 4], [1, 4])])


if __name__ == "__main__":
    print('{"cases": [')
    print(",\n".join(json.dumps(one) for one in cases()))
    print("]}")
