"""Names and interfaces of other libraries' balancing, over lierne.

    from lierne.torch.compat import get_seqlen_balanced_partitions   # was: verl.utils.seqlen_balancing
    from lierne.torch.compat import prepare_dynamic_batch, restore_dynamic_batch
    from lierne.torch.compat import Qwen3VLEncoderDataBalance        # was: veomni.utils.data_balance.data_balance
    from lierne.torch.compat import SORTING_ALGO_FUNC                # was: ...data_balance.balance_sorting_algo

verl's partitions and micro-batches are the same ones, item by item, and also exist where parts stay empty or
equal sizes do not divide. Qwen3VLEncoderDataBalance, which was EncoderDataBalance, assigns as VeOmni does, with
mode="lpt", or moves only what must move."""
from __future__ import annotations

import copy
import heapq
import math
import typing

import numpy as np
import torch
import torch.distributed as dist

import lierne
from lierne._library import arguments
from lierne.errors import CapacityError
from lierne.torch._agree import largest
from lierne.torch.samples import Samples
from lierne._types import Integers, Mode

__all__ = ["EncoderDataBalance", "Qwen3VLEncoderDataBalance", "SORTING_ALGO_FUNC", "calculate_workload", "ceildiv",
           "get_group_balanced_partitions", "get_reverse_idx", "get_seqlen_balanced_partitions", "karmarkar_karp",
           "log_seqlen_unbalance", "post_mbs_balancing_greedy_without_pad", "prepare_dynamic_batch",
           "rearrange_micro_batches", "restore_dynamic_batch", "roundup_divisible"]


def _whole(what, values):
    """Lengths as integers, also floats without a fraction, as sums of a mask may be."""
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return values
    for i, value in enumerate(values.tolist()):
        if not value.is_integer():
            raise TypeError(f"{what}[{i}] is {value}, must be a whole number")
    return values.astype(np.int64)


def get_seqlen_balanced_partitions(seqlen_list: typing.Sequence[int], k_partitions: int,
                                   equal_size: bool) -> typing.List[typing.List[int]]:
    """verl's: k_partitions lists of the indices of items, ascending, so that the sums of their lengths are
    nearly equal; equal_size: as many items in each, or one more where k does not divide them, which verl
    rejects. Fewer items than partitions leave some empty, which verl rejects, too."""
    lengths = _whole("seqlen_list", seqlen_list)
    counts = [len(lengths)] + [0] * (k_partitions - 1)
    made = lierne.Assignment(lengths, counts, np.zeros(len(lengths), np.int64), mode="kk",  # no rows, of a workload
                             equal_items=bool(equal_size))
    partitions = [[] for _ in range(k_partitions)]
    for item, part in enumerate(made.ranks.tolist()):
        partitions[part].append(item)
    return partitions


karmarkar_karp = get_seqlen_balanced_partitions  # of the same arguments; verl's own has no order of items


def calculate_workload(seqlen_list: typing.Any) -> typing.Any:
    """verl's cost of a sequence, or of a tensor of lengths: 24576 L + L^2, that of a model of 7 B parameters."""
    return 24576 * seqlen_list + seqlen_list**2


def get_group_balanced_partitions(seqlen_list: typing.Sequence[int], uid_list: typing.Sequence[typing.Any],
                                  k_partitions: int) -> typing.List[typing.List[int]]:
    """verl's: samples with one uid, which follow one another, stay together; as many groups in each part, or
    one more where k_partitions does not divide them, which verl rejects."""
    if len(uid_list) != len(seqlen_list):
        raise ValueError(f"uid_list has {len(uid_list)} entries, must have {len(seqlen_list)}, as seqlen_list")
    groups: typing.List[typing.List[int]] = []
    for i, uid in enumerate(uid_list):
        if i > 0 and uid == uid_list[i - 1]:
            groups[-1].append(i)
        else:
            groups.append([i])
    costs = [sum(calculate_workload(int(seqlen_list[i])) for i in group) for group in groups]
    return [[i for group in part for i in groups[group]]
            for part in get_seqlen_balanced_partitions(costs, k_partitions, True)]


def log_seqlen_unbalance(seqlen_list: typing.Sequence[int], partitions: typing.Sequence[typing.Sequence[int]],
                         prefix: str) -> typing.Dict[str, float]:
    """verl's metrics: the sums of consecutive equal runs of items, and those of the partitions."""
    size = max(1, len(seqlen_list) // len(partitions))
    before = [sum(seqlen_list[i:i + size]) for i in range(0, len(seqlen_list), size)]
    after = [sum(seqlen_list[i] for i in partition) for partition in partitions]
    return {f"{prefix}/min": min(before), f"{prefix}/max": max(before),
            f"{prefix}/minmax_diff": max(before) - min(before), f"{prefix}/balanced_min": min(after),
            f"{prefix}/balanced_max": max(after), f"{prefix}/mean": sum(before) / len(partitions)}


def ceildiv(a: int, b: int) -> int:
    return -(a // -b)


def roundup_divisible(a: int, b: int) -> int:
    return ceildiv(a, b) * b


def get_reverse_idx(idx_map: typing.Sequence[int]) -> typing.List[int]:
    """The inverse of a permutation, a list."""
    inverse = list(idx_map)
    for place, item in enumerate(idx_map):
        inverse[item] = place
    return inverse


def _tokens(batch):
    """Of each sample of a batch."""
    ids = batch["input_ids"] if "input_ids" in batch.keys() else None
    if ids is not None and ids.is_nested:
        return ids.offsets().diff().tolist()
    return batch["attention_mask"].sum(dim=1).long().tolist()


def _take(value, rows):
    """Rows of a field of a batch. One value for the whole batch, which has no rows, stays."""
    if isinstance(value, torch.Tensor) and value.is_nested:
        samples = value.unbind()
        return torch.nested.as_nested_tensor([samples[row] for row in rows], layout=torch.jagged)
    return value[rows] if getattr(value, "shape", ()) else value


def _micro_batch(batch, rows):
    fields = {name: _take(value, rows) for name, value in batch.items()}
    return fields if isinstance(batch, dict) else type(batch)(fields, batch_size=[len(rows)])


def _most(numbers, group):
    """The largest of each of these numbers on the ranks of a process group; None: of this rank."""
    if group is None or not dist.is_initialized():
        return numbers
    told: typing.List[typing.Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, numbers, group=group)
    return [max(column) for column in zip(*told)]


def _divide(tokens, costs, max_token_len, least, step, group):
    """Parts of nearly equal costs: as few as keep max_token_len, as many on all ranks of a group."""
    needed = max(least or 1, min(len(tokens), ceildiv(sum(tokens), max_token_len)))
    needed, longest, few = _most([needed, max(tokens, default=0), -len(tokens)], group)
    if longest > max_token_len:
        raise ValueError(f"a forced group exceeds max_token_len: samples that stay together have {longest} tokens, must "
                         f"have at most {max_token_len}")
    for count in range(roundup_divisible(needed, step), -few + 1, step):
        parts = get_seqlen_balanced_partitions(costs, count, False)
        most, = _most([max(sum(tokens[i] for i in part) for part in parts)], group)
        if most <= max_token_len:
            return parts
    raise ValueError(f"{needed} or more micro-batches are needed, and a rank has {-few} samples, or groups of them, for "
                     "the same micro-batch count across DP ranks")


def rearrange_micro_batches(batch: typing.Any, max_token_len: int, dp_group: typing.Any = None,
                            num_batches_divided_by: typing.Optional[int] = None, same_micro_num_in_dp: bool = True,
                            min_num_micro_batch: typing.Optional[int] = None, use_dynamic_bsz_balance: bool = True,
                            force_group_size: int = 1) -> typing.Tuple[typing.List[typing.Any],
                                                                       typing.List[typing.List[int]]]:
    """verl's: (micro-batches, the samples of each). batch: a TensorDict or a dict of tensors, with attention_mask or
    with nested input_ids. Micro-batches have nearly equal calculate_workload and at most max_token_len tokens; they
    are at least min_num_micro_batch, a multiple of num_batches_divided_by, and as many on all ranks of dp_group if
    same_micro_num_in_dp, which then is collective. use_dynamic_bsz_balance: the smaller ones come first and last.
    force_group_size: so many consecutive samples stay together. Raises ValueError where there is no such division."""
    lengths = _tokens(batch)
    if len(lengths) % force_group_size:
        raise ValueError(f"force_group_size is {force_group_size}, and does not divide {len(lengths)} samples")
    groups = [range(i, i + force_group_size) for i in range(0, len(lengths), force_group_size)]
    costs = [sum(calculate_workload(lengths[i]) for i in group) for group in groups]
    parts = _divide([sum(lengths[i] for i in group) for group in groups], costs, max_token_len, min_num_micro_batch,
                    num_batches_divided_by or 1, dp_group if same_micro_num_in_dp else None)
    if use_dynamic_bsz_balance:
        parts.sort(key=lambda part: (sum(costs[group] for group in part), part[:1]), reverse=True)
        parts = parts[::2][::-1] + parts[1::2]
    samples = [[i for group in part for i in groups[group]] for part in parts]
    return [_micro_batch(batch, rows) for rows in samples], samples


def prepare_dynamic_batch(data: typing.Any, max_token_len: int, dp_group: typing.Any = None,
                          num_batches_divided_by: typing.Optional[int] = None, same_micro_num_in_dp: bool = True,
                          min_num_micro_batch: typing.Optional[int] = None, use_dynamic_bsz_balance: bool = True
                          ) -> typing.Tuple[typing.List[typing.Any], typing.List[typing.List[int]]]:
    """verl's: rearrange_micro_batches of a DataProto, with its other arrays, and a copy of its meta_info each."""
    batches, samples = rearrange_micro_batches(data.batch, max_token_len, dp_group, num_batches_divided_by,
                                               same_micro_num_in_dp, min_num_micro_batch, use_dynamic_bsz_balance)
    return [type(data).from_dict(tensors=dict(batch.items()),
                                 non_tensors={name: array[rows] for name, array in data.non_tensor_batch.items()},
                                 meta_info=copy.deepcopy(data.meta_info))
            for batch, rows in zip(batches, samples)], samples


def restore_dynamic_batch(data: torch.Tensor, batch_idx_list: typing.Sequence[typing.Sequence[int]]) -> torch.Tensor:
    """verl's: the rows of all micro-batches, one after the other, in the order of their samples."""
    order = [i for samples in batch_idx_list for i in samples]
    if len(order) != data.shape[0]:
        raise ValueError(f"batch_idx_list has {len(order)} samples, and there are {data.shape[0]} rows")
    return _take(data, get_reverse_idx(order))


def _item_costs(table, dim, cost_exponent, cost_fn):
    """(the cost of each row, their order: the highest first)"""
    lengths = table[:, dim]
    if cost_fn is None:
        exponent = 2 if cost_exponent is None else cost_exponent
        if not 0 <= exponent < math.inf:
            raise ValueError(f"cost_exponent is {exponent}, must be finite and at least 0")
        # As VeOmni's: equal lengths in the order of torch's sort, which is not that of rows.
        return [length**exponent for length in lengths.tolist()], torch.argsort(lengths.float(), descending=True)
    if cost_exponent is not None:
        raise ValueError("cost_fn and cost_exponent are given, and must not both be")
    costs = cost_fn(table.clone(), dim)
    if isinstance(costs, torch.Tensor) and costs.dim() == 2 and costs.shape[1] == 1:
        costs = costs[:, 0]
    if isinstance(costs, torch.Tensor) and costs.dim() == 2 and len(costs) == len(table):
        raise NotImplementedError("Vector costs: cost_fn must give one cost per row")
    if not isinstance(costs, torch.Tensor) or costs.shape != lengths.shape:
        raise ValueError("cost_fn must give a tensor of one cost per row")
    costs = _numbers("a cost", costs)
    return costs, torch.tensor(sorted(range(len(costs)), key=lambda i: -costs[i]), dtype=torch.int64)


def _numbers(what, tensor):
    numbers = tensor.tolist()
    for i, number in enumerate(numbers):
        if not 0 <= number < math.inf:
            raise ValueError(f"row {i}: {what} is {number}, must be finite and at least 0")
    return numbers


def post_mbs_balancing_greedy_without_pad(
        all_data_lengths: torch.Tensor, num_replicas: int, dim: int, *, cost_exponent: typing.Optional[float] = None,
        cost_fn: typing.Optional[typing.Callable[[torch.Tensor, int], torch.Tensor]] = None
        ) -> typing.List[torch.Tensor]:
    """VeOmni's sorter: for each replica the rows of all_data_lengths, [items, columns], that it gets, the
    highest cost first. Column dim has lengths, of which a power is the cost, the square where cost_exponent is
    None; or cost_fn(table, dim) gives the costs. Loads are numbers of Python: integers are exact."""
    if all_data_lengths.dim() != 2 or not 0 <= dim < all_data_lengths.shape[1]:
        raise ValueError(f"all_data_lengths has shape {tuple(all_data_lengths.shape)} and dim is {dim}: it must be "
                         "[items, columns], and dim a column")
    if num_replicas < 1:
        raise ValueError(f"num_replicas is {num_replicas}, must be at least 1")
    _numbers("the length", all_data_lengths[:, dim])
    costs, order = _item_costs(all_data_lengths, dim, cost_exponent, cost_fn)
    items = order.tolist()
    parts = [[item] for item in items[:num_replicas]] + [[] for _ in range(num_replicas - len(items))]
    loads = [(sum(costs[item] for item in part), rank) for rank, part in enumerate(parts)]
    heapq.heapify(loads)
    for item in items[num_replicas:]:
        load, rank = loads[0]
        parts[rank].append(item)
        heapq.heapreplace(loads, (load + costs[item], rank))
    return [all_data_lengths[part] for part in parts]


SORTING_ALGO_FUNC = {"post_mbs_balancing_greedy_without_pad": post_mbs_balancing_greedy_without_pad}


class EncoderDataBalance:
    """VeOmni's: balance_data before the vision encoder, data_bridge after it.

    context: a lierne.torch.context over the ranks among which images are balanced; the default is one of
    all ranks. spatial_merge_unit: rows before the encoder per row after it, for instance 4. mode: "lpt", as
    VeOmni assigns, "shed" (few images move) or another one of lierne.Samples, with its options; an image
    costs its length squared. The order of images on a rank is that of their numbers, not VeOmni's; what
    data_bridge returns is in the caller's order, as VeOmni's.

    Capacities grow when a step needs more than all before: all ranks then make their plans again."""

    def __init__(self, sorting_algo_name: str = "post_mbs_balancing_greedy_without_pad", spatial_merge_unit: int = 1,
                 context: typing.Optional[lierne.Context] = None, mode: Mode = "lpt", *,
                 destination: typing.Optional[typing.Mapping[str, typing.Any]] = None, cost: int = 0,
                 tolerance: typing.Optional[int] = None, max_items: int = 0, max_rows: int = 0, min_items: int = 0,
                 equal_items: bool = False, nodes: typing.Optional[Integers] = None,
                 assignment: typing.Optional[Integers] = None) -> None:
        options = arguments(locals(), "sorting_algo_name", "spatial_merge_unit", "context")
        if sorting_algo_name not in SORTING_ALGO_FUNC:
            raise ValueError(f"sorting_algo_name is {sorting_algo_name!r}, must be "
                             f"{' or '.join(map(repr, SORTING_ALGO_FUNC))}")
        self.merge_down_ratio = 1 if spatial_merge_unit is None else spatial_merge_unit
        if self.merge_down_ratio < 1:
            raise ValueError(f"spatial_merge_unit is {spatial_merge_unit}, must be at least 1")
        self.context = lierne.torch.context() if context is None else context
        self._options = options
        self._samples, self._last, self._capacity = {}, {}, [1, 1]  # items, rows of a rank

    def _make(self, dispatch, ret, data_type):
        """The Samples of these tensors with the capacity of now; collective where there are none yet."""
        key = data_type, dispatch, ret
        if key not in self._samples:
            items, rows = self._capacity
            self._samples[key] = Samples(self.context, dispatch, ret, max_items=items, max_rows=rows, max_inflight=1,
                                         max_returned_rows=max(1, rows // self.merge_down_ratio))
        return self._samples[key]

    def _grow(self, items, rows):
        """After an update that all ranks rejected: what they need now, and space for more."""
        self._samples = {}  # not closed: a backward that is still to come keeps its own
        needs = [largest(self.context, items), largest(self.context, rows)]
        grown = [max(have, need + need // 4) for have, need in zip(self._capacity, needs)]
        self._capacity = grown if grown != self._capacity else [grown[0], grown[1] + grown[1] // 4 + 1]

    def _update(self, grid_thw, data_type, dispatch=(), ret=()):
        lengths = grid_thw.prod(dim=1).cpu().numpy()
        while True:
            samples = self._make(dispatch, ret, data_type)
            try:
                samples.update(lengths * lengths, lengths, returned_rows=lengths // self.merge_down_ratio,
                               **self._options)
                return samples
            except CapacityError:
                self._grow(len(lengths), int(lengths.sum()))

    def balance_data(self, pixel_values: torch.Tensor, grid_thw: torch.Tensor,
                     data_type: str = "image") -> typing.Tuple[torch.Tensor, torch.Tensor]:
        """(pixel_values, grid_thw) of the images that this rank computes. pixel_values: [patches, ...], those
        of this rank's images one after the other; grid_thw: [images, 3], frames, height and width, whose
        product is the number of patches. Collective."""
        pixels, grids = (tuple(pixel_values.shape[1:]), pixel_values.dtype), ((3,), grid_thw.dtype, "segments")
        self._last[data_type] = grid_thw
        samples = self._update(grid_thw, data_type, dispatch=(pixels, grids))
        return samples.dispatch(pixel_values, grid_thw)

    def data_bridge(self, hidden_state: torch.Tensor,
                    deepstack_feature_lists: typing.Optional[typing.Sequence[torch.Tensor]] = None,
                    require_grad: bool = True,
                    data_type: str = "image") -> typing.Tuple[torch.Tensor, typing.List[torch.Tensor]]:
        """(hidden_state, deepstack_feature_lists) of this rank's own images, in their order. Collective, with
        gradients unless require_grad is False."""
        features = [hidden_state, *(deepstack_feature_lists or [])]
        with torch.set_grad_enabled(torch.is_grad_enabled() and require_grad):
            results = self._bridge(features, data_type)
        return results[0], list(results[1:])

    def _bridge(self, features, data_type):
        """Results have widths that are not known before: plans of their own, of the same assignment."""
        returned = tuple((tuple(feature.shape[1:]), feature.dtype) for feature in features)
        samples = self._update(self._last[data_type], data_type, ret=returned)
        results = samples.ret(*features)
        return results if isinstance(results, tuple) else (results,)

    @staticmethod
    def rank_table_mapping(rank_table: typing.Sequence[torch.Tensor], dp_rank: int) -> typing.Tuple[
            typing.List[torch.Tensor], typing.List[torch.Tensor]]:
        """Of a sorter's result, whose rows begin with the rank that has an item and the item's number there: the
        numbers of dp_rank's items that go to each rank, and the table."""
        table = [rows if isinstance(rows, torch.Tensor) else torch.stack(list(rows)) for rows in rank_table]
        return [rows[rows[:, 0] == dp_rank, 1] for rows in table], table


class Qwen3VLEncoderDataBalance(EncoderDataBalance):
    """EncoderDataBalance by its later name, with the arguments in its order. Options as there."""

    def __init__(self, spatial_merge_unit: int, sorting_algo_name: str = "post_mbs_balancing_greedy_without_pad",
                 context: typing.Optional[lierne.Context] = None, mode: Mode = "lpt", *,
                 destination: typing.Optional[typing.Mapping[str, typing.Any]] = None, cost: int = 0,
                 tolerance: typing.Optional[int] = None, max_items: int = 0, max_rows: int = 0, min_items: int = 0,
                 equal_items: bool = False, nodes: typing.Optional[Integers] = None,
                 assignment: typing.Optional[Integers] = None) -> None:
        super().__init__(sorting_algo_name, spatial_merge_unit, **arguments(locals(), "sorting_algo_name",
                                                                            "spatial_merge_unit"))
