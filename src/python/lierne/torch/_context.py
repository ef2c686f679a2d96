"""How a context is made under torchrun."""
from __future__ import annotations

import collections
import logging
import typing
import zlib

import torch
import torch.distributed as dist

import lierne
from lierne._library import arguments, sized
from lierne._types import Integers
from lierne.torch._store import StoreCalls

# Contexts of the same members are made in one order on all of these, so that their names agree.
_contexts = collections.Counter()


def context(over: typing.Literal["distributed", "node"] = "distributed", group: typing.Any = None,
            store: typing.Any = None, device: typing.Any = None, *, timeout: typing.Optional[float] = None,
            nodes: typing.Optional[Integers] = None, check: bool = False, max_groups: int = 0,
            members: typing.Optional[typing.Sequence[int]] = None,
            world_size: typing.Optional[int] = None,
            context_name: typing.Optional[str] = None,
            log: typing.Optional[logging.Logger] = None) -> lierne.Context:
    """A lierne.Context of all ranks of the job. Collective; all ranks make contexts in one order.

    over: "distributed" or "node", as lierne.torch says. group: the process group whose backend moves the data, None
    for the default one; it has all ranks. store: a c10d store, by default that of torch.distributed.
    device: of tensors that are moved over="node", a CUDA device ("cuda" for the current one), or None for the
    host; over="distributed" moves those of any device. options: as lierne.Context; with members, these ranks
    alone call. Raises ValueError, or lierne.errors as Context.oob, Context.node and Context.use_cuda."""
    options = arguments(locals(), "over", "group", "store", "device")
    if over not in ("node", "distributed"):
        raise ValueError(f"over is {over!r}, must be 'distributed' or 'node'")
    if device is not None and (over != "node" or torch.device(device).type != "cuda"):
        raise ValueError(f"device is {device!r} over {over!r}, must be a CUDA device over 'node', or None")
    sized("nodes", nodes, dist.get_world_size())
    members, name = _named(options)
    if over == "node":
        made = lierne.Context.node(**{"name": name, **options})
        _use_device(made, device)
    else:
        calls = _store_calls(store, members, name)
        made = lierne.Context.oob(calls.rank, calls.nranks, calls, **options)
        made.prefix = name
    made.routed, made.group = over == "distributed", group
    return made


def _use_device(made, device):
    """Where every rank's or no rank's tensors are on a device; a context that cannot be for it is closed."""
    if device is None:
        return
    try:
        with torch.cuda.device(torch.device(device)):
            made.use_cuda()
    except BaseException:
        made.close()
        raise


def _named(options):
    """(members, a name that the context shares with no other of the job); sets world_size where the
    options name members."""
    members = tuple(options.get("members") or range(dist.get_world_size()))
    if dist.get_rank() not in members:
        raise ValueError(f"rank {dist.get_rank()} is none of the {len(members)} members: only these call")
    if options.get("members"):
        options["world_size"] = options["world_size"] or dist.get_world_size()
    _contexts[members] += 1
    return members, f"lierne/{zlib.crc32(repr(members).encode())}/{_contexts[members]}"


def _store_calls(store, members, name):
    """Planning over the store."""
    if store is None:
        store = dist.distributed_c10d._get_default_store()
    return StoreCalls(dist.PrefixStore(name, store), members.index(dist.get_rank()), len(members))
