"""Grids (process meshes) and layouts (where a tensor lives on one)."""
from __future__ import annotations

import copy
import dataclasses
import operator
import reprlib
import typing

import numpy as np

from lierne._arrays import dtype_name, dtype_number
from lierne._library import Spec, call, choice, ffi, handle, lib, make, sized, text
from lierne._types import DType, DeviceMesh, Integers, Shape

if typing.TYPE_CHECKING:
    from lierne.packing import Packing


def _words(names):
    for name in names:
        _check_name(name)
    return [ffi.new("char[]", name.encode()) for name in names]


def _check_name(name):
    if not isinstance(name, str):
        raise TypeError(f"a dim is named {name!r}, must be named by a str")


def _check_dims(dims):
    if not hasattr(dims, "items"):
        raise TypeError(f"dims is {dims!r}, must be a dict: name -> size")
    for name in dims:
        _check_name(name)


class Grid:
    """A process mesh: named dims over the consecutive ranks rank_offset to rank_offset + size - 1.

    dims: name -> size, the first dim varying FASTEST (as Megatron-LM; the reverse of a torch
    DeviceMesh, for which there is Grid.from_device_mesh). world_size: ranks of the world, by default
    those up to the grid's last rank; all grids of a context need the context's. name: for messages.

    Raises errors.InvalidError, NameError, DimSizeError, DuplicateError, OversizedError and others
    with the C message."""

    def __init__(self, dims: typing.Mapping[str, int], rank_offset: int = 0,
                 world_size: typing.Optional[int] = None, name: typing.Optional[str] = None) -> None:
        _check_dims(dims)
        for dim, size in dims.items():
            if not hasattr(size, "__index__"):
                raise TypeError(f"the size of dim {dim!r} is {size!r}, must be a whole number")
        sizes = [operator.index(size) for size in dims.values()]
        if world_size is None:
            world_size = max(rank_offset + int(np.prod(sizes, dtype=np.int64)), 1)
        spec = Spec("lierne_grid_spec", ndims=len(sizes), names=list(dims), sizes=sizes,
                    rank_offset=rank_offset, world_size=world_size, name=name)
        self._own(make("lierne_grid", lib.lierne_grid_create, spec.at))

    @property
    def name(self) -> typing.Optional[str]:
        """The name that the grid was given, or None."""
        return text(lib.lierne_grid_get_name(self._handle))

    def _own(self, handle, owner=None):
        """Takes a handle: its own, or one that `owner` (a Config) keeps."""
        self._owner = owner
        self._handle = handle if owner else ffi.gc(handle, lib.lierne_grid_destroy)

    @classmethod
    def _borrowed(cls, handle, owner):
        grid = cls.__new__(cls)
        grid._own(handle, owner)
        return grid

    @classmethod
    def from_device_mesh(cls, mesh: DeviceMesh, world_size: typing.Optional[int] = None) -> Grid:
        """The grid of a torch DeviceMesh, whose dims stand slowest first: they are turned round.

        mesh: anything with .mesh (ranks, as a tensor or an array) and .mesh_dim_names. The ranks
        must be consecutive and every dim must have one stride; a transposed mesh is a grid with
        another order of dims. world_size: by default that of torch.distributed if it is
        initialised, else the ranks up to the mesh's last one. Raises TypeError and ValueError."""
        if not hasattr(mesh, "mesh") or not hasattr(mesh, "mesh_dim_names"):
            raise TypeError(f"{reprlib.repr(mesh)} is no DeviceMesh and no grid")
        ranks = np.asarray(mesh.mesh)
        names = mesh.mesh_dim_names
        if not names or len(names) != ranks.ndim:
            raise ValueError(f"the mesh names its dims {names}; a grid needs {ranks.ndim} names")
        dims, offset = _dims_of(ranks, names)
        return cls(dims, offset, world_size or _world_of(ranks))

    def add_view(self, name: str, dims: typing.Mapping[str, int], shared: typing.Sequence[str] = (),
                 with_view: typing.Optional[str] = None) -> None:
        """Adds another factorisation of the same ranks. dims: name -> size, fastest first. shared:
        dims that form the same groups as the dims of these names in with_view (base)."""
        _check_dims(dims)
        spec = Spec("lierne_view_spec", name=name, ndims=len(dims), names=list(dims),
                    sizes=list(dims.values()), nshared=len(shared), shared=list(shared),
                    **{"with": with_view})
        call(lib.lierne_grid_add_view, self._handle, spec.at)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return lib.lierne_grid_get_size(self._handle)

    @property
    def rank_offset(self) -> int:
        """The first rank."""
        return lib.lierne_grid_get_rank_offset(self._handle)

    @property
    def world_size(self) -> int:
        """Number of ranks of the world."""
        return lib.lierne_grid_get_world_size(self._handle)

    @property
    def views(self) -> typing.List[str]:
        """Names of the views, "base" first."""
        n = lib.lierne_grid_get_nviews(self._handle)
        return [text(lib.lierne_grid_get_view_name(self._handle, i)) for i in range(n)]

    def dims(self, view: str = "base") -> typing.Dict[str, int]:
        """name -> size of the dims of a view, fastest first."""
        view = view.encode()
        n = lib.lierne_grid_get_ndims(self._handle, view)
        if n < 0:
            raise KeyError(f"the grid has no view {view.decode()!r} (it has {', '.join(self.views)})")
        return {text(lib.lierne_grid_get_dim_name(self._handle, view, i)):
                lib.lierne_grid_get_dim_size(self._handle, view, i) for i in range(n)}

    def coords(self, rank: int, view: str = "base") -> typing.Dict[str, int]:
        """name -> coordinate of a rank of the world in a view."""
        dims = self.dims(view)
        coords = ffi.new("int[]", max(len(dims), 1))
        call(lib.lierne_grid_get_coords, coords, self._handle, view.encode(), rank)
        return dict(zip(dims, coords))

    def rank(self, coords: typing.Mapping[str, int], view: str = "base") -> int:
        """The rank at coordinates: name -> coordinate, one per dim."""
        out = ffi.new("int *")
        missing = [name for name in self.dims(view) if name not in coords]
        if missing:
            raise KeyError(f"coords has no {missing[0]!r}: it needs one coordinate per dim")
        values = ffi.new("int[]", [coords[name] for name in self.dims(view)] or [0])
        call(lib.lierne_grid_get_rank, out, self._handle, view.encode(), values)
        return out[0]

    def groups(self, *dims: str, view: str = "base", ordered: bool = False) -> typing.List[typing.List[int]]:
        """The groups of ranks that differ in these dims only, as lists of ranks.

        Ranks ascend inside a group and groups ascend by first rank; with ordered, the first dim named
        varies slowest inside a group."""
        function = lib.lierne_grid_get_groups_ordered if ordered else lib.lierne_grid_get_groups
        ranks = ffi.new("int[]", self.size)
        count, size = ffi.new("int *"), ffi.new("int *")
        words = _words(dims)
        names = ffi.new("char *[]", words)
        call(function, ranks, count, size, self._handle, view.encode(), names, len(words))
        flat = list(ranks)
        return [flat[i * size[0]:(i + 1) * size[0]] for i in range(count[0])]

    def key(self, *dims: str, view: str = "base") -> str:
        """The identity of the groups of these dims: "dp-tp"."""
        words = _words(dims)
        names = ffi.new("char *[]", words)
        needed = ffi.new("size_t *")
        where = (self._handle, view.encode(), names, len(words))
        call(lib.lierne_grid_get_key, ffi.NULL, 0, needed, *where)
        out = ffi.new("char[]", needed[0])
        call(lib.lierne_grid_get_key, out, needed[0], needed, *where)
        return text(out)

    def __repr__(self) -> str:
        return f"Grid({self.dims()}, rank_offset={self.rank_offset}, world_size={self.world_size})"


def _stride(ranks, axis):
    """Ranks from one coordinate of an axis to the next; 1 for an axis of one."""
    first = np.moveaxis(ranks, axis, 0).reshape(ranks.shape[axis], -1)[:, 0]
    return int(first[1] - first[0]) if len(first) > 1 else 1


def _dims_of(ranks, names):
    """name -> size, fastest first, and the first rank of a mesh whose ranks form a grid."""
    offset = int(ranks.min())
    order = list(range(ranks.ndim))[::-1]
    if not np.array_equal(ranks.reshape(-1), offset + np.arange(ranks.size)):
        order.sort(key=lambda axis: _stride(ranks, axis))
    dims = {names[axis]: ranks.shape[axis] for axis in order}
    slowest_first = order[::-1]
    expected = offset + np.arange(ranks.size).reshape([ranks.shape[a] for a in slowest_first])
    if not np.array_equal(np.transpose(ranks, slowest_first), expected):
        raise ValueError(f"the ranks of the mesh {ranks.tolist()} are not those of a grid: "
                         "consecutive, with one stride per dim")
    return dims, offset


def _world_of(ranks):
    try:
        import torch.distributed as dist
        if dist.is_available() and dist.is_initialized():
            return dist.get_world_size()
    except ImportError:
        pass
    return int(ranks.max()) + 1


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where a tensor lies along one dim of a grid; made by the functions below."""
    kind: int
    axis: int = 0
    at: int = 0
    axis2: int = -1
    counts: typing.Optional[typing.Sequence[int]] = None
    rows: typing.Optional[typing.Sequence[int]] = None
    share: int = 0
    cut_order: int = 0


def Replicate() -> Placement:
    """Every coordinate holds the same."""
    return Placement(lib.LIERNE_PLACEMENT_REPLICATE)


def Shard(axis: int, counts: typing.Optional[typing.Sequence[int]] = None, chunk: bool = False,
          cut_order: int = 0) -> Placement:
    """The axis is cut into one contiguous share per coordinate: of `counts` elements; or balanced (as
    torch.tensor_split); or, with chunk, as torch.chunk and DTensor cut. Of the dims that cut one axis
    the lower cut_order cuts first, of equal ones the slower dim."""
    return Placement(lib.LIERNE_PLACEMENT_SHARD, axis, counts=counts, cut_order=cut_order,
                     share=lib.LIERNE_SHARE_RULE_CHUNK if chunk else lib.LIERNE_SHARE_RULE_BALANCED)


def ShardZigzag(axis: int, cut_order: int = 0) -> Placement:
    """2n chunks: coordinate c of n holds chunks c and 2n - 1 - c, in that order."""
    return Placement(lib.LIERNE_PLACEMENT_SHARD_ZIGZAG, axis, cut_order=cut_order)


def ShardRows(axis: int, rows: Integers, axis2: int = -1) -> Placement:
    """rows[i] is the coordinate that owns index i of the axis, or with axis2 >= 0 index (i, j)."""
    return Placement(lib.LIERNE_PLACEMENT_SHARD_ROWS, axis, axis2=axis2, rows=rows)


def ShardSegments(axis: int) -> Placement:
    """Whole segments of the packed axis: coordinate owner[i] of the packing has segment i."""
    return Placement(lib.LIERNE_PLACEMENT_SHARD_SEGMENTS, axis)


def SegmentZigzag(axis: int) -> Placement:
    """2n chunks of each padded segment of the packed axis: coordinate c of n has chunks c and 2n - 1 - c."""
    return Placement(lib.LIERNE_PLACEMENT_SEGMENT_ZIGZAG, axis)


def SegmentShard(axis: int, chunk: bool = False) -> Placement:
    """One share of each padded segment of the packed axis per coordinate, as Shard cuts an axis."""
    return Placement(lib.LIERNE_PLACEMENT_SEGMENT_SHARD, axis,
                     share=lib.LIERNE_SHARE_RULE_CHUNK if chunk else lib.LIERNE_SHARE_RULE_BALANCED)


def Partial() -> Placement:
    """Every coordinate holds a contribution; the value is their sum."""
    return Placement(lib.LIERNE_PLACEMENT_PARTIAL)


def At(coordinate: int) -> Placement:
    """Only this coordinate holds the tensor, as a pipeline stage does."""
    return Placement(lib.LIERNE_PLACEMENT_AT, at=coordinate)


def _check_lists(name, placement, size, shape):
    """The lists of a placement have as many entries as the C library reads; it names bad axes."""
    if not isinstance(placement, Placement):
        raise TypeError(f"the placement of dim {name!r} is {placement!r}; Shard, Replicate and others make "
                        "one")
    sized(f"counts of dim {name!r}", placement.counts, size)
    axes = [placement.axis] + [placement.axis2] * (placement.axis2 >= 0)
    if placement.rows is not None and all(0 <= axis < len(shape) for axis in axes):
        sized(f"rows of dim {name!r}", placement.rows, int(np.prod([shape[axis] for axis in axes])))


def _cut_shape(shape, halos):
    """The sizes that placements cut: of an axis with a stride its outputs."""
    outputs = {halo.axis: halo.outputs for halo in halos if halo.stride}
    return [outputs.get(axis, size) for axis, size in enumerate(shape)]


def _check_windows(halo, placements, dims):
    """The library reads a window per coordinate of the one dim that cuts the axis."""
    if not isinstance(halo, DenseHalo):
        raise TypeError(f"halos has {reprlib.repr(halo)}, must have lierne.DenseHalo")
    cuts = [dims[name] for name, placement in placements.items()
            if placement.kind == lib.LIERNE_PLACEMENT_SHARD and placement.axis == halo.axis]
    if len(cuts) < 2:
        sized(f"starts of axis {halo.axis}", halo.starts, cuts[0] if cuts else 1)
        sized(f"ends of axis {halo.axis}", halo.ends, cuts[0] if cuts else 1)


_BOUNDARIES = {name: getattr(lib, f"LIERNE_BOUNDARY_{name.upper()}")
               for name in ("none", "zero", "keep", "periodic", "mirror", "symmetric", "replicate")}
_STENCILS = {"box": lib.LIERNE_STENCIL_BOX, "star": lib.LIERNE_STENCIL_STAR}
_STORAGES = {"padded": lib.LIERNE_HALO_STORAGE_PADDED, "margins": lib.LIERNE_HALO_STORAGE_MARGINS}
Boundary = typing.Literal["none", "zero", "keep", "periodic", "mirror", "symmetric", "replicate"]


class DenseHalo:
    """Margins of an axis of a Layout: lo elements below and hi above what a rank has of it. boundary:
    what positions outside of the axis show (lierne/dense_halo.h). stride, outputs: the placements cut
    outputs, which read windows. segments: offsets of documents, as cu_seqlens. starts, ends: instead of
    widths, a window per coordinate of the dim that cuts the axis."""

    def __init__(self, axis: int, lo: int = 0, hi: int = 0, boundary: Boundary = "none", stride: int = 0,
                 outputs: int = 0, segments: typing.Optional[Integers] = None,
                 starts: typing.Optional[Integers] = None, ends: typing.Optional[Integers] = None) -> None:
        self.axis, self.lo, self.hi, self.stride, self.outputs = axis, lo, hi, stride, outputs
        self.boundary = choice("boundary", boundary, _BOUNDARIES)
        self.segments = segments
        self.nsegments = 0 if segments is None else np.asarray(segments).size - 1
        self.starts, self.ends = starts, ends

    @classmethod
    def convolution(cls, axis: int, size: int, kernel: int, stride: int = 1, dilation: int = 1, pad_lo: int = 0,
                    pad_hi: int = 0, boundary: Boundary = "zero") -> DenseHalo:
        """What a convolution reads of an axis of `size` elements, with this padding; the placements of the
        axis cut its outputs. Raises errors.InvalidError where it has no output."""
        spec = Spec("lierne_convolution_spec", elements=size, kernel=kernel, stride=stride, dilation=dilation,
                    pad_lo=pad_lo, pad_hi=pad_hi)
        halo = ffi.new("lierne_dense_halo *")
        call(lib.lierne_halo_from_convolution, halo, spec.at)
        return cls(axis, halo.lo, halo.hi, boundary, halo.stride, halo.outputs)


def _ranks(former):
    return ffi.new("int[]", [int(rank) for rank in former])


class Layout:
    """Where a tensor of a global shape lives on a grid.

    shape: global, 1 to 4 axes. dtype: as numpy, torch or lierne names it. placements: dim name ->
    placement; dims that are not named replicate. view: of the grid. full_axes: axes of which a rank
    stores the whole and owns a part. packing: a Packing of the axis packed_axis, whose size is the number
    of tokens. halos: a DenseHalo per axis that has one; stencil: "box", or "star" without corners;
    halo_storage: "padded" parts or the "margins" alone. Raises errors.InvalidError, IndivisibleError and
    others."""

    def __init__(self, grid: Grid, shape: Shape, dtype: DType, placements: typing.Mapping[str, Placement],
                 view: str = "base", full_axes: typing.Sequence[int] = (), packing: typing.Optional[Packing] = None,
                 packed_axis: int = 0, halos: typing.Sequence[DenseHalo] = (),
                 stencil: typing.Literal["box", "star"] = "box",
                 halo_storage: typing.Literal["padded", "margins"] = "padded") -> None:
        handle(grid, "grid")
        dims = grid.dims(view)
        unknown = set(placements) - set(dims)
        if unknown:
            raise KeyError(f"the grid has no dim {sorted(unknown)[0]!r} (dims: {', '.join(dims)})")
        for halo in halos:
            _check_windows(halo, placements, dims)
        for name, placement in placements.items():
            _check_lists(name, placement, dims[name], _cut_shape(shape, halos))
        packed = {} if packing is None else {"packed_axis": packed_axis, "segments": packing._segments,
                                             "packing": packing._packing}
        spec = Spec("lierne_layout_spec", **packed, grid=grid._handle, view=view, naxes=len(shape),
                    shape=list(shape), dtype=dtype_number(dtype),
                    placements=[placements.get(name, Replicate()) for name in dims],
                    full_axes=sum(1 << axis for axis in full_axes), nhalos=len(halos), halos=list(halos),
                    stencil=choice("stencil", stencil, _STENCILS),
                    halo_storage=choice("halo_storage", halo_storage, _STORAGES))
        self.grid, self.naxes, self.dtype = grid, len(shape), dtype_name(dtype)
        self._text = (f"Layout({grid!r}, {tuple(shape)}, {self.dtype!r}, {dict(placements)}, view={view!r}, "
                      f"full_axes={tuple(full_axes)}" + (f", halos={[vars(halo) for halo in halos]}, stencil={stencil!r}, "
                                                         f"halo_storage={halo_storage!r})" if halos else ")"))
        self._has_halos = len(halos) > 0
        self._handle = ffi.gc(make("lierne_layout", lib.lierne_layout_create, spec.at),
                              lib.lierne_layout_destroy)

    def shape(self, rank: int) -> typing.Tuple[int, ...]:
        """The shape of a rank's buffer; zeros if it holds nothing."""
        out = ffi.new("int64_t[]", self.naxes)
        call(lib.lierne_layout_get_shape, out, self._handle, rank)
        return tuple(out)

    def boxes(self, rank: int) -> typing.List[typing.Tuple[typing.Tuple[int, ...], ...]]:
        """What a rank owns: a list of (start, size, local), global indices and local ones per axis."""
        return self._boxes(lib.lierne_layout_get_boxes, self._handle, rank)

    def _boxes(self, function, *arguments):
        count = ffi.new("size_t *")
        call(function, ffi.NULL, 0, count, *arguments)
        boxes = ffi.new("lierne_box[]", max(count[0], 1))
        call(function, boxes, count[0], count, *arguments)
        cut = lambda values: tuple(values)[:self.naxes]  # noqa: E731
        return [(cut(box.start), cut(box.size), cut(box.local)) for box in boxes[0:count[0]]]

    def surviving(self, former: Integers) -> "Layout":
        """The layout of the same tensor on the ranks that are left after deaths: former[r] is the rank that rank r
        had in this layout's world, -1 if it was not there (Context.former_ranks). It is a source for
        lierne.Redistribute, which moves what survives. Raises errors.InvalidError, UnsupportedError (a halo)."""
        layout, ranks = copy.copy(self), _ranks(former)
        layout._handle = ffi.gc(make("lierne_layout", lib.lierne_layout_create_surviving, self._handle, ranks,
                                     len(ranks)), lib.lierne_layout_destroy)
        layout._text = f"{self._text}.surviving({list(ranks)})"
        return layout

    def find_lost(self, former: Integers) -> typing.List[typing.Tuple[typing.Tuple[int, ...], ...]]:
        """The boxes of the tensor that none of these ranks holds, disjoint and joined: a list of (start, size)."""
        ranks = _ranks(former)
        return [box[:2] for box in self._boxes(lib.lierne_layout_find_lost, self._handle, ranks, len(ranks))]

    def find_lost_in(self, dst: "Layout", rank: int) -> typing.List[typing.Tuple[typing.Tuple[int, ...], ...]]:
        """Of a layout of survivors: what a redistribution to dst does not write in a rank's buffer and the caller
        must load: a list of (start, size, local), global indices and local ones per axis."""
        return self._boxes(lib.lierne_redistribute_find_lost, self._handle, handle(dst, "layout"), rank)

    def windows(self, rank: int, axis: int) -> typing.List[typing.Tuple[int, ...]]:
        """The windows of a rank on an axis with a halo: a list of (start, size, local, core_start, core_size)."""
        count = ffi.new("size_t *")
        call(lib.lierne_layout_get_windows, ffi.NULL, 0, count, self._handle, rank, axis)
        windows = ffi.new("lierne_halo_window[]", max(count[0], 1))
        call(lib.lierne_layout_get_windows, windows, count[0], count, self._handle, rank, axis)
        return [(w.start, w.size, w.local, w.core_start, w.core_size) for w in windows[0:count[0]]]

    def margins(self, rank: int) -> typing.List[typing.Tuple[typing.Any, ...]]:
        """The boxes of margin storage: a list of (start, size, offset), positions per axis, and the element of
        the buffer where the box begins."""
        count = ffi.new("size_t *")
        call(lib.lierne_layout_get_margins, ffi.NULL, 0, count, self._handle, rank)
        boxes = ffi.new("lierne_margin[]", max(count[0], 1))
        call(lib.lierne_layout_get_margins, boxes, count[0], count, self._handle, rank)
        return [(tuple(box.start)[:self.naxes], tuple(box.size)[:self.naxes], box.offset)
                for box in boxes[0:count[0]]]

    def split(self, src: "Layout", rank: int) -> typing.List[typing.Tuple[typing.Any, ...]]:
        """Which outputs of a rank need nothing from others when a tensor moves here from src: disjoint boxes, a
        list of (start, size, interior), local numbers of outputs per axis. Those of the interior can be computed
        between begin and end."""
        count = ffi.new("size_t *")
        source = handle(src, "layout")
        call(lib.lierne_halo_get_split, ffi.NULL, 0, count, source, self._handle, rank)
        boxes = ffi.new("lierne_split_box[]", max(count[0], 1))
        call(lib.lierne_halo_get_split, boxes, count[0], count, source, self._handle, rank)
        return [(tuple(box.start)[:self.naxes], tuple(box.size)[:self.naxes], bool(box.interior))
                for box in boxes[0:count[0]]]

    def __repr__(self) -> str:
        return self._text
