"""Hangs: the rank that the others wait for, and dumps for PyTorch's analyser of flight recorders.

    lierne.hangs.find("dumps")               # the folder that LIERNE_DUMP_DIR named
    lierne.hangs.to_torch("dumps", "out")    # then: python -m
                                             # torch.distributed.flight_recorder.fr_trace out
"""
from __future__ import annotations

import glob
import json
import os
import pickle
import typing

from lierne._library import Spec, call, ffi, handle, lib, text
from lierne._types import Report

if typing.TYPE_CHECKING:
    from lierne.context import Context

KINDS = ("none", "absent", "missing", "late", "silent", "mismatch", "ended", "failed")
WHATS = ("forward", "adjoint", "coalesced forward", "coalesced adjoint", "control", "round")
TORCH_VERSION = "2.10"
TORCH_PREFIX = "lierne_rank_"


def _take(out):
    try:
        return text(out[0])
    finally:
        lib.lierne_text_destroy(out[0])


def find(folder: typing.Union[str, os.PathLike[str]]) -> Report:
    """What lierne_hang_find finds, as a dict: its fields, and the report as text."""
    spec, out = Spec("lierne_hang"), ffi.new("char **")
    call(lib.lierne_hang_find, spec.at, out, os.fspath(folder).encode())
    names = [name for name, _ in ffi.typeof("lierne_hang").fields if name != "size"]
    found = {name: getattr(spec.at, name) for name in names}
    found.update(kind=KINDS[found["kind"]], text=_take(out))
    found["what"] = WHATS[found["what"]] if found["waiting"] >= 0 else None
    return found


def read(path: typing.Union[str, os.PathLike[str]]) -> Report:
    """A dump as a dict (docs/hangs.md)."""
    out = ffi.new("char **")
    call(lib.lierne_recorder_file_get_json, out, os.fspath(path).encode())
    return json.loads(_take(out))


def status(context: Context) -> Report:
    """How a context of this process is doing, as a dict."""
    out = ffi.new("char **")
    call(lib.lierne_context_get_status_json, out, handle(context, "context"))
    return json.loads(_take(out))


def trace(context: Context) -> typing.List[Report]:
    """The latest calls of this rank as events of the Chrome trace format, a list of dicts: those of all
    ranks, joined in one list, as a JSON file open in Perfetto (lierne_context_get_trace). Not collective."""
    out = ffi.new("char **")
    call(lib.lierne_context_get_trace, out, handle(context, "context"))
    return json.loads(f"[{_take(out)}]")


def _calls(dump):
    """The executing calls of a dump: [begin, state, end] of each, in their order."""
    calls = {}
    for entry in dump["entries"]:
        key = entry.get("what"), entry.get("plan"), entry.get("number")
        if entry["event"] == "call":
            calls[key] = [entry, "scheduled", None]
        elif key in calls and entry["event"] == "stage":
            calls[key][1] = "started"
        elif key in calls and entry["event"] == "end" and entry["status"] == "LIERNE_OK":
            calls[key][1:] = "completed", entry
    return calls.values()


def _nanoseconds(entry):
    return round(entry["time"] * 1e9) if entry else None


def _call_name(dump, begin):
    """As messages name it (docs/hangs.md)."""
    name = dump["plans"].get(str(begin["plan"]))
    of = f" '{name}'" if name else ""
    return f"{begin['what']} {begin['number']} of plan {begin['plan']}{of}"


def _torch_entry(dump, begin, state, end):
    """Any rank may send to any other in a call, and all must make the same one: as all-reduces do.
    What differs between calls, plan and direction, stands in the place of their size."""
    size = [[begin["plan"] + 1, WHATS.index(begin["what"]) + 1]]
    return {"pg_id": 0, "process_group": (dump["context"], "lierne"),
            "collective_seq_id": begin["place"], "p2p_seq_id": 0, "op_id": begin["place"],
            "profiling_name": "c10d:all_reduce", "time_created_ns": _nanoseconds(begin),
            "input_sizes": size, "input_dtypes": ["Byte"], "output_sizes": size,
            "output_dtypes": ["Byte"], "state": state,
            "time_discovered_started_ns": None if state == "scheduled" else _nanoseconds(begin),
            "time_discovered_completed_ns": _nanoseconds(end), "retired": state == "completed",
            "timeout_ms": round(dump["timeout"] * 1000), "is_p2p": False,
            "frames": [{"name": _call_name(dump, begin),
                        "filename": "lierne", "line": begin["place"]}]}


def to_torch(folder: typing.Union[str, os.PathLike[str]],
             out: typing.Union[str, os.PathLike[str]]) -> typing.List[int]:
    """Writes the dumps of a folder as PyTorch's flight recorder would, a file per rank in `out`."""
    ranks = {}
    for path in sorted(glob.glob(os.path.join(os.fspath(folder), "*.lierne"))):
        dump = read(path)
        torch = ranks.setdefault(dump["rank"], {"version": TORCH_VERSION, "entries": [],
                                                "pg_config": {}, "pg_status": {}})
        members = dump["members"] or list(range(dump["world"]))
        torch["pg_config"][dump["context"]] = {"name": dump["context"], "desc": "lierne",
                                               "ranks": str(members)}
        torch["entries"] += [_torch_entry(dump, *call) for call in _calls(dump)]
    os.makedirs(out, exist_ok=True)
    for rank, torch in ranks.items():
        torch["entries"].sort(key=lambda entry: entry["time_created_ns"])
        for number, entry in enumerate(torch["entries"]):
            entry["record_id"] = number
        with open(os.path.join(out, f"{TORCH_PREFIX}{rank}"), "wb") as file:
            pickle.dump(torch, file)
    return sorted(ranks)
