"""Sample routing: which rank computes which sample (lierne/samples.h is the manual).

    a = Assignment(costs, counts)         # the items of all ranks, and how many of them each rank has
    mine = np.flatnonzero(a.ranks == context.rank)
"""
import numpy as np

from lierne._library import Spec, call, ffi, lib, sized

_MODES = {"shed": lib.LIERNE_BALANCE_SHED, "lpt": lib.LIERNE_BALANCE_LPT, "kk": lib.LIERNE_BALANCE_KK,
          "contiguous": lib.LIERNE_BALANCE_CONTIGUOUS, "caller": lib.LIERNE_BALANCE_CALLER}


class Assignment:
    """A rank for each item, so that all ranks compute as much. Pure: every rank that calls it with the
    same arguments has the same result.

    costs: [items], or [items, costs]; counts: the number of items of each rank, in the order of ranks.
    rows and segments as in lierne_items. mode: "shed", "lpt", "kk", "contiguous", or "caller" with
    `assignment`. Options: cost, tolerance, max_items, max_rows, min_items, equal_items, nodes.
    Raises errors.InfeasibleError where no assignment keeps the caps.

    `ranks` (int32) and `loads` (int64) are numpy arrays, `report` is a dict of the fields of
    lierne_assignment_report."""

    def __init__(self, costs, counts, rows=None, segments=None, mode="shed", **options):
        if mode not in _MODES:
            raise ValueError(f"mode is {mode!r}, must be one of {', '.join(_MODES)}")
        costs = np.asarray(costs)
        nitems = len(costs)
        nsegments = nitems if segments is None else int(np.sum(segments))
        items = Spec("lierne_items", nitems=nitems, ncosts=costs.size // nitems if nitems else 1,
                     cost=costs.reshape(-1) if nitems else None, rows=sized("rows", rows, nsegments),
                     segments=sized("segments", segments, nitems))
        counts = np.ascontiguousarray(counts, np.int64)
        for name, count in (("nodes", len(counts)), ("assignment", nitems)):
            sized(name, options.get(name), count)
        spec = Spec("lierne_balance_spec", mode=_MODES[mode], **options)
        out = ffi.new("lierne_assignment **")
        call(lib.lierne_assignment_create, out, items.at, ffi.cast("int64_t *", counts.ctypes.data),
             len(counts), spec.at)
        made = ffi.gc(out[0], lib.lierne_assignment_destroy)
        report = Spec("lierne_assignment_report")
        call(lib.lierne_assignment_get_report, report.at, made)
        ranks, loads = lib.lierne_assignment_get_ranks(made), lib.lierne_assignment_get_loads(made)
        self.ranks = np.frombuffer(ffi.buffer(ranks, 4 * nitems), np.int32).copy()
        self.loads = np.frombuffer(ffi.buffer(loads, 8 * len(counts)), np.int64).copy()
        self.report = {name: getattr(report.at, name)
                       for name, _ in ffi.typeof("lierne_assignment_report").fields if name != "size"}
