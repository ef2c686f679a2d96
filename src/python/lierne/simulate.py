"""A bridge of a configuration file on all ranks of its world, in this process, checked element by
element against what the layouts say."""
from __future__ import annotations

import typing

import os
import numpy as np

from lierne._library import ffi, last_error, lib
from lierne._types import Report, Shape
from lierne.config import Config
from lierne.context import World
from lierne.plan import Plan


def _layouts(spec):
    """Handles of the bridge's three layouts: tensor at src, tensor at dst, gradient of the output."""
    outs = [ffi.new("lierne_layout **") for _ in range(3)]
    status = lib.lierne_layout_create_bridge(*outs, spec)
    if status:
        raise last_error(status)
    return [ffi.gc(out[0], lib.lierne_layout_destroy) for out in outs]


def _boxes(layout, rank):
    count = ffi.new("size_t *")
    lib.lierne_layout_get_boxes(ffi.NULL, 0, count, layout, rank)
    boxes = ffi.new("lierne_box[]", max(count[0], 1))
    lib.lierne_layout_get_boxes(boxes, count[0], count, layout, rank)
    # Copied: a slice of cffi does not keep its array alive.
    return [(list(box.start), list(box.size), list(box.local)) for box in boxes[0:count[0]]]


def _value(start, sizes, shape):
    """An exact integer for every global index of a box, different for neighbours on every axis."""
    index = np.zeros((), np.int64)
    for axis, size in enumerate(shape):
        along = np.arange(start[axis], start[axis] + sizes[axis])
        index = np.add.outer(index * size, along) if index.ndim else index * size + along
    return index % 1000003 + 1


def _each_box(layout, rank, shape):
    """(place in the rank's buffer, values) of what the rank owns."""
    for start, sizes, local in _boxes(layout, rank):
        place = tuple(slice(local[a], local[a] + sizes[a]) for a in range(len(shape)))
        yield place, _value(start, sizes, shape)


def _fill(layout, rank, shape, local, factor):
    data = np.full(local, -7, np.int64)
    for place, values in _each_box(layout, rank, shape):
        data[place] = values * factor
    return data


def _compare(layout, rank, shape, got, factor):
    wrong = checked = 0
    for place, values in _each_box(layout, rank, shape):
        wrong += int((got[place] != values * factor).sum())
        checked += values.size
    return np.array([checked, wrong])


def _contribution(grid, view, rank, partial):
    """What a rank's gradient is multiplied with, and the sum of that over cp."""
    dims = grid.dims(view)
    if not partial or "cp" not in dims:
        return 1, 1
    inside = grid.rank_offset <= rank < grid.rank_offset + grid.size
    cp = dims["cp"]
    return (grid.coords(rank, view)["cp"] + 1 if inside else 1), cp * (cp + 1) // 2


def simulate(path: typing.Union[str, os.PathLike[str]], bridge: typing.Optional[str] = None,
             shape: typing.Optional[Shape] = None) -> Report:
    """Runs a bridge of a configuration file forward and adjoint on all of its ranks.

    bridge: its name, by default the first. shape: another global shape, by default the file's (all
    ranks together need 16 bytes per element and copy). Returns
    {"world": n, "forward": {"checked": n, "wrong": n}, "adjoint": {...}}, counting elements."""
    config = Config(path)
    name = bridge or config.bridges[0]
    found = lib.lierne_config_get_bridge(config._handle, name.encode())
    if not found:
        raise KeyError(f"the file has no bridge {name!r} (it has {', '.join(config.bridges)})")
    spec = ffi.new("lierne_bridge_spec *", found[0])
    spec.size = ffi.sizeof("lierne_bridge_spec")
    spec.dtype = lib.LIERNE_DTYPE_I64
    if shape is not None and len(shape) != spec.naxes:
        raise ValueError(f"shape has {len(shape)} axes, that of the bridge {spec.naxes}")
    sizes = ffi.new("int64_t[]", list(shape or spec.shape[0:spec.naxes]))
    spec.shape = sizes
    with World(config.world_size, nodes=config.nodes) as world:
        return _run(world, spec, tuple(sizes), config, name)


def _run(world, spec, shape, config, name):
    src, dst, gradient = _layouts(spec)
    n = len(world)
    plans = [Plan(world[r], lib.lierne_plan_create_bridge, world[r]._handle, spec) for r in range(n)]
    grid = config.grids[ffi.string(lib.lierne_config_get_bridge_dst(config._handle,
                                                                     name.encode())).decode()]
    view = ffi.string(spec.dst_view).decode() if spec.dst_view else "base"
    partial = spec.gradient_owner == lib.LIERNE_GRADIENT_OWNER_PARTIAL
    factors = [_contribution(grid, view, r, partial) for r in range(n)]
    data = [_fill(src, r, shape, plans[r].shapes()[0], 1) for r in range(n)]
    requests = [plan.begin(x) for plan, x in zip(plans, data)]
    forward = sum(_compare(dst, r, shape, requests[r].wait(), 1) for r in range(n))
    data = [_fill(gradient, r, shape, plans[r].shapes("adjoint")[0], factors[r][0])
            for r in range(n)]
    requests = [plan.begin(x, direction="adjoint") for plan, x in zip(plans, data)]
    adjoint = sum(_compare(src, r, shape, requests[r].wait(), factors[r][1]) for r in range(n))
    count = lambda pair: {"checked": int(pair[0]), "wrong": int(pair[1])}  # noqa: E731
    return {"world": n, "forward": count(forward), "adjoint": count(adjoint)}
