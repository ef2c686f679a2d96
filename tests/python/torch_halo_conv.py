"""Convolutions and pooling of lierne.torch on parts of tensors, against the undivided module of torch: outputs,
gradients of inputs and parameters, and second derivatives, over both ways to move data. Whole numbers in float64,
so that every order of sums has the same bits."""
import copy
import datetime
import functools
import unittest.mock

import numpy as np
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import lierne
import lierne.torch
from lierne.torch import HaloConv
from torch_harness import contexts, main, raises, same, test


def whole_numbers(shape, seed):
    return torch.from_numpy(np.random.default_rng(seed).integers(-3, 4, shape)).double()


def filled(module, seed=5):
    """The module with whole numbers for parameters."""
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(whole_numbers(parameter.shape, seed + i))
    return module


def mesh_of(*sizes):
    """A mesh of all ranks, made once."""
    if sizes not in mesh_of.made:
        mesh_of.made[sizes] = init_device_mesh("cpu", sizes, mesh_dim_names=tuple("yx"[-len(sizes):]))
    return mesh_of.made[sizes]


mesh_of.made = {}


def derivatives(module, x, local=lambda y: y):
    """Output, gradients of input and parameters, and those of the squares of these."""
    y = module(x)
    weights = [p for p in module.parameters()]
    weight_of = lambda t: (torch.arange(t.numel(), dtype=t.dtype) % 3 - 1).reshape(t.shape)  # noqa: E731
    upstream = weight_of(torch.empty(y.shape, dtype=y.dtype))
    if isinstance(y, DTensor):
        upstream = distribute_tensor(upstream, y.device_mesh, y.placements, src_data_rank=None).to_local()
    out = y.to_local() if isinstance(y, DTensor) else y
    first = torch.autograd.grad((out * out * upstream).sum() / 2, [x, *weights], create_graph=True)
    own = [g.to_local() if isinstance(g, DTensor) else g for g in first]
    # Every rank has the same gradients of parameters, which are one variable.
    second = sum((g ** 2).sum() for g in own)
    return [y, *first, *torch.autograd.grad(second / 2, [x, *weights])]


def full(t):
    return t.full_tensor().detach() if isinstance(t, DTensor) else t.detach()


def compare(module, shape, mesh, placements, what, context=None, source=None):
    x = whole_numbers(shape, 1)
    expected = derivatives(module, x.clone().requires_grad_())
    own = distribute_tensor(x, mesh, source or placements, src_data_rank=None).requires_grad_()
    wrapped = HaloConv.wrap(module, mesh, placements, context)
    got = derivatives(wrapped, own)
    assert got[0].placements == tuple(placements), what
    assert wrapped.output_shape(shape) == tuple(got[0].shape) == tuple(expected[0].shape), what
    names = ["output", *("gradient", *(n for n, _ in module.named_parameters())),
             *("second gradient", *("second " + n for n, _ in module.named_parameters()))]
    for name, a, b in zip(names, got, expected):
        same(full(a), full(b), (what, name))


MODES = ("zeros", "circular", "reflect", "replicate")


@test
def convolutions():
    """Strides, dilation, padding and its modes, groups, even kernels; parts without outputs; axes that no dim cuts."""
    square, line, column = mesh_of(2, 2), mesh_of(4), mesh_of(2, 2)
    cases = [
        (nn.Conv1d(2, 3, 3, padding=1), (2, 2, 9), line, [Shard(2)]),
        (nn.Conv1d(2, 4, 4, stride=3, padding=2, groups=2), (2, 2, 11), line, [Shard(2)]),
        (nn.Conv1d(1, 1, 5, padding=4, dilation=2), (1, 1, 6), line, [Shard(2)]),
        (nn.Conv1d(2, 2, 7, stride=5), (2, 2, 13), line, [Shard(2)]),  # 2 outputs: two ranks have none
        (nn.Conv2d(2, 3, 3, padding="same", bias=False), (2, 2, 6, 5), square, [Shard(2), Shard(3)]),
        (nn.Conv2d(2, 3, (4, 2), padding="same", dilation=(1, 3)), (2, 2, 6, 7), square, [Shard(2), Shard(3)]),
        (nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), (3, 2, 7, 6), square, [Shard(0), Shard(2)]),
        (nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 2, 9, 9), square, [Shard(2), Shard(2)]),
        (nn.Conv2d(2, 2, 3, padding=1), (2, 2, 6, 6), column, [Replicate(), Shard(3)]),
        (nn.Conv2d(2, 2, 3, padding=1), (4, 2, 3, 3), line, [Shard(0)]),
        (nn.Conv2d(2, 2, 1, stride=2), (1, 2, 7, 3), line, [Shard(2)]),
        (nn.Conv3d(1, 2, (2, 3, 3), padding=1, stride=(1, 2, 1)), (2, 1, 3, 5, 4), square, [Shard(2), Shard(3)]),
        (nn.Conv3d(2, 1, 3, padding=1), (4, 2, 3, 4, 3), square, [Shard(0), Shard(3)]),  # 5 axes, 4 of them cut or merged
        (nn.Conv3d(2, 1, 2, padding=1), (0, 2, 3, 4, 5), line, [Shard(4)]),  # a batch of none
    ]
    for mode in MODES[1:]:
        cases += [(nn.Conv1d(2, 2, 3, padding=2, padding_mode=mode), (2, 2, 9), line, [Shard(2)]),
                  (nn.Conv2d(1, 2, (3, 5), stride=(1, 2), padding=(1, 2), padding_mode=mode), (2, 1, 5, 7), square,
                   [Shard(2), Shard(3)]),
                  (nn.Conv3d(1, 1, 3, padding=1, padding_mode=mode), (2, 1, 3, 4, 4), line, [Shard(3)])]
    for number, (module, shape, mesh, placements) in enumerate(cases):
        compare(filled(module.double()), shape, mesh, placements, (number, module))


@test
def transposed_convolutions():
    square, line = mesh_of(2, 2), mesh_of(4)
    cases = [
        (nn.ConvTranspose1d(2, 3, 2, stride=2), (2, 2, 8), line, [Shard(2)]),
        (nn.ConvTranspose1d(2, 4, 5, stride=3, padding=2, output_padding=1, groups=2), (2, 2, 7), line, [Shard(2)]),
        (nn.ConvTranspose1d(2, 1, 3, dilation=3, output_padding=2, bias=False), (2, 2, 5), line, [Shard(2)]),
        (nn.ConvTranspose1d(1, 1, 4, stride=4), (1, 1, 2), line, [Shard(2)]),  # 2 inputs, 8 outputs
        (nn.ConvTranspose2d(3, 2, (3, 2), stride=2, padding=1, output_padding=1), (2, 3, 4, 5), square,
         [Shard(2), Shard(3)]),
        (nn.ConvTranspose2d(3, 2, 3, stride=(2, 1), padding=(1, 0)), (3, 3, 4, 3), square, [Shard(0), Shard(2)]),
        (nn.ConvTranspose3d(1, 2, 2, stride=2), (2, 1, 2, 3, 4), square, [Shard(2), Shard(3)]),
        (nn.ConvTranspose3d(2, 1, 3, padding=1), (2, 2, 3, 4, 2), square, [Replicate(), Shard(3)]),
    ]
    for number, (module, shape, mesh, placements) in enumerate(cases):
        compare(filled(module.double()), shape, mesh, placements, (number, module))


@test
def pooling():
    square, line = mesh_of(2, 2), mesh_of(4)
    cases = [
        (nn.MaxPool1d(3, 2, 1), (2, 2, 9), line, [Shard(2)]),
        (nn.MaxPool1d(2), (2, 2, 9), line, [Shard(2)]),
        (nn.MaxPool1d(2, ceil_mode=True), (2, 2, 9), line, [Shard(2)]),
        (nn.MaxPool1d(5, 4), (2, 2, 9), line, [Shard(2)]),  # 2 outputs: two ranks have none
        (nn.MaxPool2d(3, (2, 1), 1, dilation=(1, 2), ceil_mode=True), (2, 2, 8, 7), square, [Shard(2), Shard(3)]),
        (nn.MaxPool2d(2), (2, 4, 6, 5), square, [Shard(1), Shard(3)]),
        (nn.MaxPool3d(2, 1, 1), (2, 1, 3, 5, 4), square, [Shard(2), Shard(3)]),
        (nn.AvgPool1d(4, 4), (2, 2, 16), line, [Shard(2)]),
        (nn.AvgPool1d(2, 3, 1, ceil_mode=True), (2, 2, 10), line, [Shard(2)]),
        (nn.AvgPool2d(2, 2, 1), (2, 2, 9, 8), square, [Shard(2), Shard(3)]),
        (nn.AvgPool2d(4, 3, 2, ceil_mode=True, count_include_pad=False), (2, 2, 9, 8), square, [Shard(2), Shard(3)]),
        (nn.AvgPool2d(2, 1, 1, divisor_override=2), (2, 2, 9, 8), square, [Shard(1), Shard(3)]),
        (nn.AvgPool3d((1, 2, 2), 2, ceil_mode=True), (2, 1, 3, 5, 4), square, [Shard(3), Shard(4)]),
        (nn.AvgPool1d(2), (2, 3, 6), line, [Shard(1)]),  # 3 channels: a rank has none
        (nn.MaxPool2d(2, 1), (2, 1, 5, 4), square, [Shard(2), Shard(1)]),
    ]
    for number, (module, shape, mesh, placements) in enumerate(cases):
        compare(module, shape, mesh, placements, (number, module))


def drawn(seed):
    """A random module, shape and cut."""
    r = np.random.default_rng(seed)
    n, pick = int(r.integers(1, 4)), lambda *numbers: int(r.choice(numbers))
    kernel, stride = [pick(1, 2, 3) for _ in range(n)], [pick(1, 2, 3) for _ in range(n)]
    kind = pick(0, 0, 1, 2, 3)
    if kind < 2:
        dilation, padding = [pick(1, 1, 2) for _ in range(n)], [pick(0, 1, 2) for _ in range(n)]
        options = {"stride": stride, "dilation": dilation, "padding": padding, "bias": bool(r.random() < 0.7)}
        if kind == 0:
            module = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n - 1](2, 2, kernel, padding_mode=MODES[pick(0, 1, 2, 3)], **options)
        else:
            extra = [pick(*range(max(s, d))) for s, d in zip(stride, dilation)]
            module = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[n - 1](
                2, 2, kernel, output_padding=extra, **options)
    else:
        padding, ceil = [pick(0, k // 2) for k in kernel], bool(r.random() < 0.5)
        if kind == 2:
            module = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[n - 1](kernel, stride, padding, ceil_mode=ceil)
        else:
            kernel = [k if k != 3 else 4 for k in kernel]  # sums of whole numbers divided exactly, mostly
            module = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[n - 1](kernel, stride, padding, ceil,
                                                                      bool(r.random() < 0.5))
    shape = (2, 2, *(pick(5, 6, 7, 8) for _ in range(n)))
    axes = [2 + int(a) for a in r.permutation(n)]
    cuts = [Shard(axes[0])] if n == 1 or r.random() < 0.4 else [Shard(axes[0]), Shard(axes[1] if n == 3 or r.random() < 0.7 else 0)]
    return filled(module.double()), shape, cuts


@test
def random_modules():
    for context in contexts():
        for seed in range(20):
            module, shape, placements = drawn(seed)
            mesh = mesh_of(4) if len(placements) == 1 else mesh_of(2, 2)
            compare(module, shape, mesh, placements, (seed, module, shape, placements), context)


@functools.partial(test, ranks=3)
def worlds():
    """Jobs of other sizes, where shares are uneven and a ring has one or two ranks."""
    n = dist.get_world_size()
    for context in contexts():
        for module, shape in ((nn.Conv1d(2, 2, 3, 2, 1), (1, 2, 8)), (nn.ConvTranspose1d(2, 2, 3, 2, 1, 1), (1, 2, 8)),
                              (nn.MaxPool1d(3, 2, 1), (1, 2, 8)),
                              (nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), (1, 2, 7, 4))):
            compare(filled(module.double()), shape, mesh_of(n), [Shard(2)], (n, module), context)


@test
def sources():
    """A DTensor of other placements is moved in the same exchange; its gradient has its own placements."""
    square = mesh_of(2, 2)
    for module in nn.Conv2d(2, 3, 3, 2, 1), nn.ConvTranspose2d(2, 3, 2, 2), nn.MaxPool2d(2):
        for source in [Shard(1), Replicate()], [Shard(3), Shard(2)], [Replicate(), Replicate()]:
            compare(filled(module.double()), (2, 2, 6, 8), square, [Shard(2), Shard(3)], (module, source), source=source)
    for source in [Shard(3), Replicate()], [Replicate(), Replicate()]:
        compare(filled(nn.ConvTranspose3d(2, 1, 2, padding=1).double()), (2, 2, 3, 4, 2), square, [Replicate(), Shard(3)],
                ("5 axes", source), source=source)
    whole, conv = whole_numbers((1, 2, 8, 3), 3), filled(nn.Conv2d(2, 2, 3, padding=1).double())
    x = DTensor.from_local((whole * [1, 2, -3, 1][dist.get_rank()]).requires_grad_(), mesh_of(4), [Partial()])
    x.retain_grad()
    out = HaloConv.wrap(conv, mesh_of(4), [Shard(2)])(x)
    same(out.full_tensor().detach(), conv(whole).detach())
    out.to_local().sum().backward()
    alone = whole.clone().requires_grad_()
    conv(alone).sum().backward()
    same(x.grad.full_tensor(), alone.grad, "every contribution has the whole gradient, once")


@test
def local_tensors():
    """What a rank has of a tensor, by any placements of lierne; the result is its share of the outputs."""
    rank, conv = dist.get_rank(), filled(nn.Conv1d(2, 3, 3, padding=2, stride=1, dilation=2).double())
    whole = whole_numbers((2, 2, 16), 2)
    alone = whole.clone().requires_grad_()
    expected = conv(alone)
    (expected * expected).sum().backward()
    parameters = [p.grad.clone() for p in conv.parameters()]
    zigzag = [*range(2 * rank, 2 * rank + 2), *range(14 - 2 * rank, 16 - 2 * rank)]
    rows = np.array([3, 1, 1, 0, 2, 2, 3, 3, 0, 0, 1, 2, 3, 3, 3, 0])
    for context in contexts():
        for placement, mine in ((lierne.ShardZigzag(2), zigzag), (lierne.ShardRows(2, rows), np.flatnonzero(rows == rank)),
                                (lierne.Shard(2, [9, 0, 1, 6]), np.split(np.arange(16), [9, 9, 10])[rank])):
            conv.zero_grad()
            mine = torch.as_tensor(np.asarray(mine))
            x = whole[:, :, mine].requires_grad_()
            out = HaloConv.wrap(conv, lierne.Grid({"x": 4}), {"x": placement}, context)(x, (2, 2, 16))
            same(out.detach(), expected[:, :, mine].detach(), placement)
            (out * out).sum().backward()
            same(x.grad, alone.grad[:, :, mine], placement)
            for p, gradient in zip(conv.parameters(), parameters):
                same(p.grad, gradient, placement)


@test
def other_dtypes():
    """float32, bfloat16 and float16, and autocast: to their rounding."""
    mesh, whole = mesh_of(2, 2), torch.randn(2, 4, 9, 8, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)  # parameters
    for module in nn.Conv2d(4, 4, 3, 2, 1), nn.ConvTranspose2d(4, 4, 3, 2), nn.AvgPool2d(3, 2, 1, count_include_pad=False):
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 4e-2), (torch.float16, 5e-3), (None, 4e-2)):
            module = module.to(dtype or torch.float32)
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype is None):
                results = []
                for is_cut in False, True:
                    module.zero_grad()
                    x = whole.to(dtype or torch.float32, copy=True)
                    x = distribute_tensor(x, mesh, [Shard(2), Shard(3)], src_data_rank=None) if is_cut else x
                    x.requires_grad_()
                    y = (HaloConv.wrap(module, mesh, [Shard(2), Shard(3)]) if is_cut else module)(x)
                    (y.to_local() if is_cut else y).float().square().sum().backward()
                    results.append([full(t) for t in (y, x.grad, *(p.grad for p in module.parameters()))])
            for a, b in zip(*results):
                assert a.dtype == b.dtype
                scale = a.abs().max().item()
                torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance * scale)


@test
def interior_comes_first():
    """Rank 1 sends nothing before rank 0 has computed outputs: rank 0 must not wait for it first."""
    rank, conv = dist.get_rank(), filled(nn.Conv2d(1, 1, 3, padding=1).double())
    x = distribute_tensor(whole_numbers((1, 1, 16, 4), 3), mesh_of(4), [Shard(2)], src_data_rank=None)
    store, convolve, computed = dist.distributed_c10d._get_default_store(), torch.convolution, []

    def signal(piece, *arguments):
        out = convolve(piece, *arguments)
        computed.append(out.shape[2])
        if rank == 0:
            store.set(f"lierne/computed/{len(contexts_seen)}", "1")
        return out

    contexts_seen = []
    for context in contexts():
        wrapped = HaloConv.wrap(conv, mesh_of(4), [Shard(2)], context)
        wrapped(x)  # plans
        contexts_seen.append(context)
        computed.clear()
        if rank == 1:
            store.wait([f"lierne/computed/{len(contexts_seen)}"], datetime.timedelta(seconds=30))
        with unittest.mock.patch("torch.convolution", signal):
            out = wrapped(x)
        assert computed == ([3, 1] if rank in (0, 3) else [2, 1, 1]), "interior, then border"
        same(out.full_tensor().detach(), conv(x.full_tensor()).detach())


@test
def as_modules():
    """Copies have parameters of their own; frozen ones, checkpoints and torch.compile work as with torch's modules."""
    mesh, cut = mesh_of(2, 2), [Shard(2), Shard(3)]
    conv = filled(nn.Conv2d(2, 2, 3, padding=1).double())
    whole = whole_numbers((1, 2, 5, 6), 4)
    alone = whole.clone().requires_grad_()
    conv(conv(alone)).sum().backward()
    parameters = [p.grad.clone() for p in conv.parameters()]
    wrapped = HaloConv.wrap(conv, mesh, cut)
    copied = copy.deepcopy(wrapped)
    assert [*copied.state_dict()] == ["module.weight", "module.bias"]
    with torch.no_grad():
        copied.module.weight.zero_()
    twice = lambda x: wrapped(wrapped(x))  # noqa: E731
    for function in (twice, lambda x: torch.utils.checkpoint.checkpoint(twice, x, use_reentrant=False),
                     torch.compile(twice, backend="eager")):
        conv.zero_grad()
        x = distribute_tensor(whole, mesh, cut, src_data_rank=None).requires_grad_()
        function(x).to_local().sum().backward()
        same(x.grad.full_tensor(), alone.grad)
        for p, gradient in zip(conv.parameters(), parameters):
            same(p.grad, gradient)
    conv.requires_grad_(False)
    x = distribute_tensor(whole, mesh, cut, src_data_rank=None).requires_grad_()
    twice(x).to_local().sum().backward()
    same(x.grad.full_tensor(), alone.grad, "frozen")
    with torch.inference_mode():
        same(wrapped(x).full_tensor(), conv(whole))


@test
def bad_arguments():
    """One of each kind; all ranks get the same error, and modules work afterwards."""
    mesh, cut, conv = mesh_of(4), [Shard(2)], nn.Conv1d(2, 2, 3)
    wrap = HaloConv.wrap
    x = distribute_tensor(torch.ones(1, 2, 8), mesh, cut, src_data_rank=None)
    hooked = nn.Conv1d(2, 2, 3)
    hooked.register_forward_hook(lambda *_: None)

    class Own(nn.Conv1d):
        def forward(self, x):
            return x

    spread = nn.Conv1d(2, 2, 3)
    spread.weight = nn.Parameter(distribute_tensor(spread.weight.detach(), mesh, [Replicate()], src_data_rank=None))
    bad = [
        (TypeError, "the module is a Linear", lambda: wrap(nn.Linear(2, 2), mesh, cut)),
        (TypeError, "the module is a Own", lambda: wrap(Own(2, 2, 3), mesh, cut)),
        (ValueError, "return_indices", lambda: wrap(nn.MaxPool1d(2, return_indices=True), mesh, cut)),
        (ValueError, "forward hooks", lambda: wrap(hooked, mesh, cut)),
        (TypeError, "parameter 'weight' is a DTensor", lambda: wrap(spread, mesh, cut)),
        (ValueError, "placements has 2 entries", lambda: wrap(conv, mesh, cut * 2)),
        (ValueError, "cut axis 1, the channels", lambda: wrap(conv, mesh, [Shard(1)])(x)),
        (ValueError, "the input has 2 channels, must have 3", lambda: wrap(nn.Conv1d(3, 2, 3), mesh, cut)(x)),
        (ValueError, "the input has 3 axes, must have 4", lambda: wrap(nn.Conv2d(2, 2, 3), mesh, cut)(x)),
        (ValueError, "shape is None", lambda: wrap(conv, mesh, cut)(x.to_local())),
        (ValueError, "must have (1, 2, 3) on this rank" if dist.get_rank() < 3 else "must have (1, 2, 0)",
         lambda: wrap(conv, mesh, cut)(x.to_local(), (1, 2, 9))),
        (ValueError, "must have (1, 2, 3) on this rank" if dist.get_rank() < 3 else "must have (1, 2, 0)",
         lambda: wrap(nn.ConvTranspose1d(2, 2, 3), mesh, cut)(x.to_local(), (1, 2, 9))),
        (TypeError, "the input is a DTensor, but", lambda: wrap(conv, mesh, [lierne.Shard(2)])(x)),
        (ValueError, "the DTensor has (1, 2, 8)", lambda: wrap(conv, mesh, cut)(x, (1, 2, 9))),
        (lierne.errors.InvalidError, "", lambda: wrap(nn.Conv1d(2, 2, 9), mesh, cut)(x)),
    ]
    for kind, text, call in bad:
        raises(kind, text, call)
    wrapped = wrap(conv, mesh, cut)
    conv.register_forward_pre_hook(lambda *_: None)
    raises(ValueError, "forward hooks", lambda: wrapped(x))
    conv._forward_pre_hooks.clear()
    same(wrapped(x).full_tensor().detach(), conv(torch.ones(1, 2, 8)).detach())


if __name__ == "__main__":
    main()
