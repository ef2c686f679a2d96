"""A backend of torch.distributed: the collectives of c10d, and send and recv, over lierne, of host memory.

    import lierne.torch.backend
    dist.init_process_group("lierne")           # or new_group(ranks, backend="lierne")

A call's sums are those of lierne/collective.h: from rank 0 to the last, so equal bits in every run and on every
rank. Shared memory moves the bytes between ranks of one node; between nodes the job's store does, which is slow.

The calls of a group run one after another, in the order of the program, those of every sender, receiver and tag
beside them. A call that the caller waits for runs in its own thread; a thread of the group runs the others, and
makes progress meanwhile. Plans are kept by what they are made from, which all ranks of a call have in common.
That is why ranks tell each other the splits of an uneven all-to-all first."""
from __future__ import annotations

import datetime
import hashlib
import socket
import threading
import typing

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, ReduceOp, Work

import lierne
from lierne.torch._calls import Endpoint, Line, Pending, Together

Tensors, Lists = typing.List[torch.Tensor], typing.List[typing.List[torch.Tensor]]  # of one call
_REDUCTIONS = {ReduceOp.SUM: "sum", ReduceOp.AVG: "avg", ReduceOp.MAX: "max", ReduceOp.MIN: "min",
               ReduceOp.PRODUCT: "prod"}
_BITWISE = {ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor}
# What is true if any or all of its operands are: reductions of bool.
_LOGICAL = {"sum": "max", "max": "max", "prod": "min", "min": "min"}


def _flat(tensor):
    """The elements in order; a copy where they are not contiguous. A tensor that is this already takes no call: each
    takes as long as a short message."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    return tensor if tensor.dim() == 1 else tensor.view(-1)


def _bytes(tensor):
    flat = _flat(tensor)
    return flat if flat.dtype == torch.uint8 else flat.view(torch.uint8)


def _joined(tensors):
    """Tensors one after another, without a copy if their memory is so."""
    parts = [_bytes(tensor) for tensor in tensors]
    at = parts[0].data_ptr()
    for part in parts:
        if part.data_ptr() != at or part.untyped_storage().data_ptr() != parts[0].untyped_storage().data_ptr():
            return torch.cat(parts)
        at += part.numel()
    return parts[0].as_strided((at - parts[0].data_ptr(),), (1,))


def _split(joined, tensors):
    """Writes what _joined, of the same tensors, has."""
    at = 0
    for tensor in tensors:
        nbytes = tensor.numel() * tensor.element_size()
        _store(tensor, joined[at:at + nbytes])
        at += nbytes


def _store(tensor, flat):
    """Writes the elements of a tensor, from flat ones, unless these are the tensor's own."""
    if not tensor.numel() or flat.data_ptr() == tensor.data_ptr():
        return
    if flat.dtype != tensor.dtype:
        flat = flat.view(tensor.dtype)
    (tensor.detach() if tensor.requires_grad else tensor).copy_(flat if tensor.dim() == 1 else flat.view(tensor.shape))


def _reducible(tensor, op):
    """The elements as lierne adds them, and the name of its reduction."""
    reduction = _REDUCTIONS.get(op)
    if reduction is None:
        raise ValueError(f"backend lierne: it has no reduction {op}")
    flat = _flat(tensor)
    if flat.dtype == torch.bool and reduction in _LOGICAL:
        return flat.view(torch.uint8), _LOGICAL[reduction]
    if flat.is_complex() and reduction in ("sum", "avg"):
        return torch.view_as_real(flat).view(-1), reduction
    return flat, reduction


class LierneBackend(Backend):
    """What dist.init_process_group("lierne") makes of every group."""

    def __init__(self, store: dist.Store, rank: int, nranks: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, nranks)
        self._store, self._timeout = store, timeout
        self._options = Backend.Options("lierne", timeout)
        store.set(f"host/{rank}", socket.gethostname())
        self._hosts = [store.get(f"host/{i}").decode() for i in range(nranks)]
        self._group = Endpoint(dist.PrefixStore("group", store), rank, nranks, timeout, self._hosts)
        self._pairs, self._coalesced, self._barriers = {}, None, 0
        self._lock = threading.Lock()

    @property
    def options(self) -> Backend.Options:
        return self._options

    @property
    def supports_coalescing(self) -> bool:
        return True

    def getBackendName(self) -> str:
        return "lierne"

    def start_coalescing(self) -> None:
        self._coalesced = []

    def end_coalescing(self) -> Work:
        works, self._coalesced = self._coalesced, None
        return Together(works)

    def _submit(self, line, function, outputs, now):
        work = Pending(function, outputs)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return line.submit(work, now and self._coalesced is None)

    def _call(self, function, outputs, opts):
        return self._submit(self._group.line, function, outputs, not opts.asyncOp)

    # Collectives. Each has the tensors of one call, and what moves them then.

    def allreduce(self, tensors: Tensors, opts: typing.Any) -> Work:
        def move():
            for tensor in tensors:
                self._all_reduce(tensor, opts.reduceOp.op)
        return self._call(move, tensors, opts)

    allreduce_coalesced = allreduce

    def _all_reduce(self, tensor, op):
        if op in _BITWISE:
            return _store(tensor, self._fold(_flat(tensor), op))
        flat, reduction = _reducible(tensor, op)
        self._group.reduce(flat, reduction)
        _store(tensor, flat)

    def _fold(self, flat, op):
        """A bitwise reduction, which lierne has not, of all ranks' elements."""
        everyone = torch.empty((self.size(), *flat.shape), dtype=flat.dtype)
        self._gather_all(_bytes(everyone), _bytes(flat))
        result = everyone[0]
        for other in everyone[1:]:
            result = _BITWISE[op](result, other)
        return result

    def reduce(self, tensors: Tensors, opts: typing.Any) -> Work:
        def move():
            for tensor in tensors:
                kept = tensor if self.rank() == opts.rootRank else tensor.clone()
                self._all_reduce(kept, opts.reduceOp.op)
        return self._call(move, tensors, opts)

    def broadcast(self, tensors: Tensors, opts: typing.Any) -> Work:
        def move():
            for tensor in tensors:
                self._broadcast(tensor, opts.rootRank)
        return self._call(move, tensors, opts)

    def _broadcast(self, tensor, root):
        group, flat = self._group, _bytes(tensor)
        plan = group.plan(lierne.broadcast, None, flat.numel(), "bits8", root)
        if self.rank() == root:
            return group.execute(plan, None, flat)
        group.execute(plan, flat, flat[:0])
        _store(tensor, flat)

    def _gather_all(self, out, mine, counts=None):
        group = self._group
        group.execute(group.plan(lierne.all_gather, None, counts or mine.numel(), "bits8"), out, mine)

    def allgather(self, outputs: Lists, inputs: Tensors, opts: typing.Any) -> Work:
        def move():
            for outs, mine in zip(outputs, inputs):
                joined = _joined(outs)
                counts = tuple(out.numel() * out.element_size() for out in outs)
                self._gather_all(joined, _bytes(mine), counts if len(set(counts)) > 1 else None)
                _split(joined, outs)
        return self._call(move, outputs, opts)

    def allgather_coalesced(self, outputs: Lists, inputs: Tensors, opts: typing.Any) -> Work:
        return self.allgather([[outs[i] for outs in outputs] for i in range(len(inputs))], inputs, opts)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: typing.Any) -> Work:
        return self.all_gather_single_coalesced([output], [tensor], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: typing.Any) -> Work:
        def move():
            for output, mine in zip(outputs, inputs):
                flat = _bytes(output)
                self._gather_all(flat, _bytes(mine))
                _store(output, flat)
        return self._call(move, outputs, opts)

    def reduce_scatter(self, outputs: Tensors, inputs: Lists, opts: typing.Any) -> Work:
        def move():
            for output, parts in zip(outputs, inputs):
                counts = tuple(part.numel() for part in parts)
                self._reduce_scatter(output, _joined(parts).view(output.dtype), opts.reduceOp.op, counts)
        return self._call(move, outputs, opts)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: typing.Any) -> Work:
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: typing.Any) -> Work:
        def move():
            for output, parts in zip(outputs, inputs):
                self._reduce_scatter(output, parts, opts.reduceOp.op, (output.numel(),) * self.size())
        return self._call(move, outputs, opts)

    def _reduce_scatter(self, output, parts, op, counts):
        if op in _BITWISE:
            first = sum(counts[:self.rank()])
            return _store(output, self._fold(_flat(parts), op)[first:first + output.numel()])
        group = self._group
        flat, reduction = _reducible(parts, op)
        each = flat.numel() // max(parts.numel(), 1)  # 2 of complex numbers
        counts = [each * count for count in counts]
        out, _ = _reducible(output, op)
        plan = group.plan(lierne.reduce_scatter, (*counts, flat.dtype, reduction), counts, flat.dtype,
                          reduction=reduction)
        group.execute(plan, out, flat)
        _store(output, out)

    def gather(self, outputs: Lists, inputs: Tensors, opts: typing.Any) -> Work:
        def move():
            is_root = self.rank() == opts.rootRank
            for i, mine in enumerate(inputs):
                outs, flat = outputs[i] if is_root else [], _bytes(mine)
                joined = _joined(outs) if is_root else flat[:0]
                self._to_and_from(opts.rootRank, joined, flat, gather=True)
                _split(joined, outs)
        return self._call(move, outputs, opts)

    def scatter(self, outputs: Tensors, inputs: Lists, opts: typing.Any) -> Work:
        def move():
            is_root = self.rank() == opts.rootRank
            for i, output in enumerate(outputs):
                flat = _bytes(output)
                self._to_and_from(opts.rootRank, flat, _joined(inputs[i]) if is_root else flat[:0], gather=False)
                _store(output, flat)
        return self._call(move, outputs, opts)

    def _to_and_from(self, root, out, data, gather):
        """As many bytes from every rank to the root, or the reverse."""
        nranks, is_root = self.size(), self.rank() == root
        each = data.numel() if gather else out.numel()
        to_root = [each if rank == root else 0 for rank in range(nranks)]
        all_of_root = [each if is_root else 0] * nranks
        counts = (to_root, all_of_root) if gather else (all_of_root, to_root)
        plan = self._group.plan(lierne.all_to_all, ("gather" if gather else "scatter", root, each), counts[0],
                                "bits8", receive=counts[1])
        self._group.execute(plan, out, data)

    def all_to_all_single(self, output: torch.Tensor, tensor: torch.Tensor, output_splits: typing.List[int],
                          input_splits: typing.List[int], opts: typing.Any) -> Work:
        def move():
            flat, data = _bytes(output), _bytes(tensor)
            if output_splits or input_splits:
                self._uneven(flat, data, _split_bytes(output, output_splits, self.size()),
                             _split_bytes(tensor, input_splits, self.size()))
            else:
                count = data.numel() // self.size()
                self._group.execute(self._group.plan(lierne.all_to_all, None, count, "bits8"), flat, data)
            _store(output, flat)
        return self._call(move, [output], opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: typing.Any) -> Work:
        def move():
            joined = _joined(outputs)
            sizes = ([t.numel() * t.element_size() for t in tensors] for tensors in (outputs, inputs))
            self._uneven(joined, _joined(inputs), *sizes)
            _split(joined, outputs)
        return self._call(move, outputs, opts)

    def _uneven(self, out, data, receive, send):
        """All ranks hear who sends how much: then all know whether they have this plan."""
        everyone = torch.empty(self.size() * self.size(), dtype=torch.int64)
        self._gather_all(_bytes(everyone), _bytes(torch.tensor(send, dtype=torch.int64)))
        key = hashlib.blake2b(everyone.numpy().tobytes()).digest()
        self._group.execute(self._group.plan(lierne.all_to_all, (key,), send, "bits8", receive=receive), out, data)

    def barrier(self, opts: typing.Any) -> Work:
        def move():
            self._group.execute(self._group.plan(lierne.barrier, None), torch.empty(0), torch.empty(0))
        return self._call(move, [], opts)

    def monitored_barrier(self, opts: typing.Any, wait_all_ranks: bool = False) -> None:
        """Names the ranks that do not come, over the store: also where the group's context is dead."""
        self._barriers += 1
        store = dist.PrefixStore(f"monitored/{self._barriers}", self._store)
        limit = opts.timeout if opts.timeout.total_seconds() > 0 else self._timeout
        if self.rank():
            store.set(str(self.rank()), "")
            return store.wait(["end"], limit)
        until, missing = datetime.datetime.now() + limit, []
        for rank in range(1, self.size()):
            try:
                store.wait([str(rank)], max(until - datetime.datetime.now(), datetime.timedelta(milliseconds=1)))
            except RuntimeError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            raise RuntimeError(f"monitored_barrier: ranks {', '.join(map(str, missing))} did not come within "
                               f"{limit.total_seconds()} seconds")
        store.set("end", "")

    # Messages of two ranks: a context per sender, receiver and tag, made by the first call.

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Work:
        return self._message(tensors, self.rank(), dst, tag)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Work:
        return self._message(tensors, src, self.rank(), tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        raise RuntimeError("recv: backend lierne receives from a given rank; give src")

    def _message(self, tensors, src, dst, tag):
        sends = self.rank() == src
        if src == dst:
            raise ValueError(f"backend lierne: rank {src} cannot send to itself")
        with self._lock:
            line = self._pairs.setdefault((src, dst, tag), _Pair())

        def move():
            if line.endpoint is None:
                store = dist.PrefixStore(f"{src}-{dst}-{tag}", self._store)
                hosts = [self._hosts[src], self._hosts[dst]]
                line.endpoint = Endpoint(store, int(not sends), 2, self._timeout, hosts)
            for tensor in tensors:
                line.move(tensor, sends)
        return self._submit(line, move, tensors, False)

    def shutdown(self) -> None:
        """Closes the contexts, together with the other ranks, and so in an order that all have."""
        pairs, self._pairs = self._pairs, {}
        for key in sorted(pairs):
            pairs[key].close()
        if self._group is not None:
            self._group.close()
            self._group = None

    def abort(self) -> None:
        for endpoint in [self._group, *(pair.endpoint for pair in self._pairs.values())]:
            if endpoint is not None:
                endpoint.context.abort("the process group was aborted")


class _Pair(Line):
    """The messages of one sender, receiver and tag."""

    def __init__(self):
        super().__init__("lierne/messages")
        self.endpoint = None

    def move(self, tensor, sends):
        flat = _bytes(tensor)
        nothing, counts = flat[:0], [0, flat.numel()]
        send, receive = (counts, [0, 0]) if sends else ([0, 0], [flat.numel(), 0])
        plan = self.endpoint.plan(lierne.all_to_all, (flat.numel(),), send, "bits8", receive=receive)
        if sends:
            return self.endpoint.execute(plan, nothing, flat)
        self.endpoint.execute(plan, flat, nothing)
        _store(tensor, flat)

    def close(self):
        super().close()
        if self.endpoint is not None:
            self.endpoint.close()


def _split_bytes(tensor, splits, nranks):
    """Bytes to or from each rank, of the numbers of entries along the first axis."""
    rows = tensor.shape[0] if tensor.dim() else 0
    splits = splits or [rows // nranks] * nranks
    if sum(splits) != rows:
        raise ValueError(f"all_to_all_single: the splits {splits} sum to {sum(splits)}, the first axis has {rows}")
    each = tensor.numel() * tensor.element_size() // max(rows, 1)
    return [each * split for split in splits]


def _create(options, _):
    return LierneBackend(options.store, options.group_rank, options.group_size, options.timeout)


dist.Backend.register_backend("lierne", _create, extended_api=True, devices=["cpu"])
