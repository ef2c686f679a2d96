"""HyperCommGrid, and what the bridges between two grids share."""
from __future__ import annotations

import dataclasses
import math
import numbers
import os
import typing

import torch.distributed as dist

import lierne
from lierne._library import call, ffi
from lierne.torch._groups import timeout_of


def _world_size():
    if "WORLD_SIZE" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    if dist.is_initialized():
        return dist.get_world_size()
    raise RuntimeError("the world size is unknown: WORLD_SIZE is not set and torch.distributed is "
                       "not initialised")


def _dims(shape, names, view=None):
    """name -> size; rejects what a dict would hide."""
    what = f"View {view!r}" if view else "Grid"
    if len(shape) != len(names):
        raise ValueError(f"len(shape) {shape} != len(dim_names) {names}")
    if len(set(names)) != len(names):
        raise ValueError(f"{what} has duplicate dim_names: {names}")
    if any(not isinstance(size, numbers.Integral) or size <= 0 for size in shape):
        raise ValueError(f"{what} shape must be positive ints, got {shape}")
    return {name: int(size) for name, size in zip(names, shape)}


@dataclasses.dataclass
class _View:
    """A factorisation of the grid's ranks, with lists of its own."""
    name: str
    shape: list
    dim_names: list
    shared_dims: list


def destroy_group(group: typing.Any) -> typing.Any:
    """Destroys a process group that this rank is in, or nothing."""
    if group is not None and group is not dist.GroupMember.NON_GROUP_MEMBER:
        dist.destroy_process_group(group)


def new_private_group(ranks: typing.Sequence[int], backend: typing.Any) -> typing.Any:
    """A group for the traffic of one purpose. Collective over the world; None to ranks outside."""
    group = dist.new_group(ranks, backend=backend, timeout=timeout_of(dist.group.WORLD))
    return None if group is dist.GroupMember.NON_GROUP_MEMBER else group


def sizes_of(grid: typing.Any) -> typing.Dict[str, int]:
    """name -> size of a HyperCommGrid's dims."""
    return dict(zip(grid.dim_names, grid.shape))


def grid_of(grid: typing.Any) -> typing.Any:
    """The lierne.Grid of a HyperCommGrid, of this class or of Megatron-LM's own."""
    return grid.grid if hasattr(grid, "grid") else lierne.Grid(
        _dims(grid.shape, grid.dim_names), grid.rank_offset, _world_size())


def share(size: int, parts: int) -> typing.Any:
    """Sizes of torch.tensor_split: equal, the first ones one more."""
    return [size // parts + (i < size % parts) for i in range(parts)]


class HyperCommGrid:
    """A grid and the process groups made from it. shape, dim_names: fastest first; rank_offset: the
    first rank; backend: of the groups, None for the default one."""

    def __init__(self, shape: typing.Sequence[int], dim_names: typing.Sequence[str], rank_offset: int = 0,
                 backend: typing.Any = None) -> None:
        if len(shape) != len(dim_names):
            raise ValueError(f"len(shape) {shape} != len(dim_names) {dim_names}")
        world = _world_size()
        if rank_offset < 0:
            raise ValueError(f"rank_offset must be non-negative, got {rank_offset}")
        dims = _dims(shape, dim_names)
        try:
            self.grid = lierne.Grid(dims, rank_offset, world)
        except (lierne.errors.OversizedError, lierne.errors.OverflowError) as error:
            raise RuntimeError(f"Grid shape {shape} is over sized with world size {world} and rank "
                               f"offset {rank_offset}: {error}") from error
        except lierne.Error as error:
            raise ValueError(str(error)) from error
        self.shape, self.dim_names = list(shape), list(dim_names)
        self.rank_offset, self.backend, self.size = rank_offset, backend, self.grid.size
        self._views = {"base": _View("base", list(shape), list(dim_names), [])}
        self._pgs = {}

    def register_view(self, name: str, shape: typing.Sequence[int], dim_names: typing.Sequence[str],
                      shared_dims: typing.Optional[typing.Sequence[str]] = None) -> None:
        """Adds another factorisation of the grid's ranks. shared_dims form the same groups as the
        base dims of these names. Raises ValueError."""
        if name in self.grid.views:
            raise ValueError(f"View {name!r} is already registered")
        dims, shared = _dims(shape, dim_names, name), list(shared_dims or [])
        size = math.prod(dims.values())
        if size != self.size:
            raise ValueError(f"View {name!r} shape {shape} has size {size}, but the grid size is "
                             f"{self.size}")
        self._check_shared(name, dims, shared)
        try:
            self.grid.add_view(name, dims, shared)
        except lierne.Error as error:
            raise ValueError(str(error)) from error
        self._views[name] = _View(name, list(shape), list(dim_names), shared)

    def _check_shared(self, name, dims, shared):
        if len(set(shared)) != len(shared):
            raise ValueError(f"View {name!r} has duplicate shared_dims: {shared}")
        view = lierne.Grid(dims, self.rank_offset, self.rank_offset + self.size)
        for dim in shared:
            if dim not in self.dim_names:
                raise ValueError(f"Shared dim {dim!r} of view {name!r} is not in the base view "
                                 f"{self.dim_names}")
            if dim not in dims:
                raise ValueError(f"Shared dim {dim!r} of view {name!r} is not in the view's "
                                 f"dim_names {list(dims)}")
            base, own = self.grid.groups(dim), view.groups(dim)
            if base != own:
                raise ValueError(f"Shared dim {dim!r} has different membership across views: base "
                                 f"enumeration {base} != view {name!r} enumeration {own}")

    def _query(self, function, dims, view, **options):
        """A question to the grid, with the exceptions of Megatron's: KeyError for a view that is not
        there, ValueError for a dim."""
        names = [dims] if isinstance(dims, str) else dims
        view = view or "base"
        if view not in self.grid.views:
            raise KeyError(f"View {view!r} is not registered. Registered views: {self.grid.views}")
        own = list(self.grid.dims(view))
        if not isinstance(names, list):
            raise ValueError(f"{names!r} is not in view {view!r}: give a name or a list of names")
        for name in names:
            if name not in own:
                raise ValueError(f"{name!r} is not in view {view!r} with dim_names {own}")
        try:
            return function(*names, view=view, **options)
        except lierne.Error as error:
            raise ValueError(f"{dims!r}: each dim once: {error}") from error

    def get_rank_enum(self, dims: typing.Union[str, typing.Sequence[str]], *,
                      view: typing.Optional[str] = None) -> typing.List[typing.List[int]]:
        """The groups of ranks that create_pg makes for these dims."""
        return self._query(self.grid.groups, dims, view)

    def _order_dims(self, dims):
        """The dims from the slowest to the fastest, and the key of their group."""
        self._query(self.grid.key, dims, None)
        return self._order_dims_for(self.dim_names, dims)

    @staticmethod
    def _order_dims_for(dim_names, dims):
        """The same among these names of dims. Raises ValueError for a dim that is not among them."""
        names = [dims] if isinstance(dims, str) else dims
        for name in names:
            if name not in dim_names:
                raise ValueError(f"{name!r} is not in {list(dim_names)}")
        ordered = [name for name in reversed(dim_names) if name in names]
        return ordered, "-".join(ordered)

    def _gen_rank_enum(self, dims):
        """The same of the base view, with the first dim named varying slowest inside a group."""
        return self._query(self.grid.groups, list(dims), None, ordered=True)

    def _key(self, dims, view):
        """The key of a group in _pgs: of the base view its dims, slowest first; else with the view."""
        key = self._query(self.grid.key, dims, view)
        if not key.startswith("view:"):
            return key
        return view, tuple(self._order_dims_for(self._views[view].dim_names, dims)[0])

    def create_pg(self, dims: typing.Union[str, typing.Sequence[str]], *, view: typing.Optional[str] = None,
                  **kwargs: typing.Any) -> typing.Any:
        """Creates the process groups of these dims, once, and returns this rank's. Collective over
        the world. kwargs: of torch.distributed.new_subgroups_by_enumeration."""
        key = self._key(dims, view)
        if key in self._pgs:
            of_view = f" for view {view!r}" if isinstance(key, tuple) else ""
            raise KeyError(f"Process group {dims}{of_view} has already been created")
        ranks = self.get_rank_enum(dims, view=view)
        self._pgs[key], _ = dist.new_subgroups_by_enumeration(ranks, backend=self.backend, **kwargs)
        return self._pgs[key]

    def get_pg(self, dims: typing.Union[str, typing.Sequence[str]], *,
               view: typing.Optional[str] = None) -> typing.Any:
        """The process group that create_pg made for these dims. Raises KeyError; creates nothing."""
        key = self._key(dims, view)
        if key not in self._pgs:
            what = f"{dims} for view {view!r}" if isinstance(key, tuple) else f"for {key}"
            raise KeyError(f"Process group {what} hasn't been created. Call create_pg first.")
        return self._pgs[key]

    def destroy(self) -> None:
        """Destroys the process groups that this grid created and the rank is in."""
        for group in {id(g): g for g in self._pgs.values()}.values():
            destroy_group(group)
        self._pgs.clear()

    def is_current_rank_in_grid(self) -> bool:
        """Whether this process is in the grid."""
        return self.rank_offset <= dist.get_rank() < self.rank_offset + self.size


def _flat_groups(ranks, ngroups, size):
    flat = list(ranks[0][0:ngroups[0] * size[0]]) if ngroups[0] else []
    return [flat[i * size[0]:(i + 1) * size[0]] for i in range(ngroups[0])]


def groups_of(function: typing.Any, *arguments: typing.Any) -> typing.Any:
    out, ngroups, size = ffi.new("const int **"), ffi.new("int *"), ffi.new("int *")
    call(function, out, ngroups, size, *arguments)
    return _flat_groups(out, ngroups, size)


def ranks_of(function: typing.Any, *arguments: typing.Any) -> typing.Any:
    out, count = ffi.new("const int **"), ffi.new("int *")
    call(function, out, count, *arguments)
    return list(out[0][0:count[0]]) if count[0] else []
