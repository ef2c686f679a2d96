"""lierne.torch.deepmd's registered operators on ranks of torchrun: deepmd-kit's schemas, its golden swaps,
what is written and what is not, derivatives, and graphs. 1 rank: this rank alone. With LIERNE_TORCH_LIBRARY, the
path of liblierne_torch, the operators are those of that library."""
import gc
import os
import subprocess

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne.torch import deepmd
from package_rows import Rows
from report import golden
from torch_harness import contexts, leaf, main, raises, same, test

LIBRARY = os.environ.get("LIERNE_TORCH_LIBRARY")
if LIBRARY:
    torch.ops.load_library(LIBRARY)
    raises(RuntimeError, "is registered already", deepmd.register_operators)
else:
    deepmd.register_operators()
    deepmd.register_operators()


def test_on_1(function):
    return test(function, 1)


def numbers(*values):
    return torch.tensor(values, dtype=torch.int32)


class Swaps:
    """The lists of a rank as LAMMPS hands them over."""

    def __init__(self, part):
        self.arrays = [np.array(rows or [0], np.int32) for rows in part["sendlist"]]
        self.lists = [torch.tensor([rows.ctypes.data for rows in self.arrays], dtype=torch.int64),
                      *(numbers(*part[name]) for name in ("sendproc", "recvproc", "sendnum", "recvnum"))]
        self.nlocal, self.nghost = part["nlocal"], part["nghost"]

    def call(self, operator, x, communicator):
        return operator(*self.lists, x, communicator, numbers(self.nlocal)[0], numbers(self.nghost)[0])


def golden_swaps():
    file = golden("halo")
    cases = [c for c in file["cases"] if c["world"] == dist.get_world_size() and c["nswap"]
             and not {"phantom", "null"} & set(c) and c.get("upstream") != "q"]
    assert len(cases) >= 2, len(cases)
    for case in cases:
        part = case["ranks"][dist.get_rank()]
        ghosts = np.full((part["nghost"], file["width"]), -9999.0)
        x = np.concatenate([Rows.f(part["gid"][:part["nlocal"]], file["width"]), ghosts])
        yield Swaps(part), part, x, Rows.h(dist.get_rank(), len(x), file["width"])


def golden_operators(communicator):
    for swaps, part, values, upstream in golden_swaps():
        n, back = swaps.nlocal, np.ravel(part["backward_local"])
        x, g = leaf(values), torch.as_tensor(upstream)
        out, = swaps.call(torch.ops.deepmd.border_op, x, communicator)
        assert out.data_ptr() == x.data_ptr() and torch.equal(out.detach(), x.detach())
        same(x[n:].detach(), np.ravel(part["forward_ghost"]))
        before = g.clone()
        out.backward(g)
        same(x.grad[:n], back)
        explicit = swaps.call(torch.ops.deepmd.border_op_backward, g, communicator)
        assert torch.equal(explicit, x.grad) and not explicit[n:].any() and torch.equal(g, before)
        x = leaf(values)
        out = swaps.call(torch.ops.deepmd_export.border_op, x, communicator)
        assert torch.equal(x.detach(), torch.as_tensor(values)) and out.data_ptr() != x.data_ptr()
        same(out[n:].detach(), np.ravel(part["forward_ghost"]))
        assert torch.equal(torch.autograd.grad(out, x, g)[0], explicit)
        dots = torch.stack([(out.detach() * g).sum(), (torch.as_tensor(values)[:n] * explicit[:n]).sum()])
        dist.all_reduce(dots)
        assert dots[0] == dots[1] != 0, dots


@test
def golden_operators_on_4_ranks():
    for context in contexts():
        name = deepmd.communicator(context)
        assert name.dtype == torch.int64 and name.shape == (1,) and name.item() > 0
        assert torch.equal(name, deepmd.communicator(context))
        golden_operators(name)


@test_on_1
def golden_operators_alone():
    golden_operators(torch.zeros(1, dtype=torch.int64))


def own_swap(nlocal=3, rows=(0, 1)):
    return Swaps({"sendlist": [list(rows)], "sendproc": [0], "recvproc": [0], "sendnum": [len(rows)],
                  "recvnum": [len(rows)], "nlocal": nlocal, "nghost": len(rows)})


SELF = torch.zeros(1, dtype=torch.int64)


@test_on_1
def schemas_are_deepmds():
    arguments = ("Tensor sendlist, Tensor sendproc, Tensor recvproc, Tensor sendnum, Tensor recvnum, Tensor {}, "
                 "Tensor communicator, Tensor nlocal, Tensor nghost")
    for operator, expected in (
            (torch.ops.deepmd.border_op, f"deepmd::border_op({arguments.format('g1')}) -> Tensor[]"),
            (torch.ops.deepmd.border_op_backward,
             f"deepmd::border_op_backward({arguments.format('grad_g1')}) -> Tensor"),
            (torch.ops.deepmd_export.border_op, f"deepmd_export::border_op({arguments.format('g1')}) -> Tensor"),
            (torch.ops.deepmd_export.border_op_backward,
             f"deepmd_export::border_op_backward({arguments.format('grad_g1')}) -> Tensor"),
            (torch.ops.deepmd_export.allreduce_min_int,
             "deepmd_export::allreduce_min_int(Tensor value, Tensor communicator) -> Tensor")):
        assert str(operator.default._schema) == expected, operator.default._schema


@test_on_1
def any_dtype_shape_and_stride():
    swaps = own_swap()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        for shape in ((5,), (5, 4), (5, 2, 3)):
            x = torch.arange(int(np.prod(shape))).reshape(shape).to(dtype)
            expected = torch.cat([x[:3], x[:2]])
            assert torch.equal(swaps.call(torch.ops.deepmd.border_op, x, SELF)[0], expected)
            assert torch.equal(x, expected)
    wide = torch.arange(40.0).reshape(5, 8)
    view, rest = wide[:, ::2], wide[:, 1::2].clone()
    swaps.call(torch.ops.deepmd.border_op, view, SELF)
    assert torch.equal(view[3:], view[:2]) and torch.equal(wide[:, 1::2], rest)


@test_on_1
def what_autograd_saved_before_stays_usable():
    """As with deepmd-kit: rows that are overwritten have no gradient."""
    swaps, h = own_swap(), leaf(np.arange(10.0).reshape(5, 2) / 7)
    out, = swaps.call(torch.ops.deepmd.border_op, h.tanh(), SELF)
    (out * torch.arange(10.0).reshape(5, 2)).sum().backward()
    scale = torch.arange(10.0).double().reshape(5, 2)
    expected = torch.zeros(5, 2).double()
    expected[:3] = scale[:3]
    expected[:2] += scale[3:]
    assert torch.allclose(h.grad, expected * (1 - h.detach().tanh() ** 2), rtol=1e-14, atol=0)


@test_on_1
def derivatives_of_derivatives():
    swaps = own_swap()
    for space in ("deepmd", "deepmd_export"):
        operator = getattr(torch.ops, space).border_op
        x, g, v = (torch.randn(5, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
        out = swaps.call(operator, x * 1, SELF)
        back, = torch.autograd.grad(out[0] if isinstance(out, list) else out, x, g, create_graph=True)
        twice, = torch.autograd.grad(back, g, v)
        assert torch.equal(twice, torch.cat([v[:3], v[:2]]).detach())


@test_on_1
def exported_models():
    swaps = own_swap()

    class Model(torch.nn.Module):
        def forward(self, x, *lists):
            y = torch.ops.deepmd_export.border_op(*lists[:5], x * 2, *lists[5:])
            return y + torch.ops.deepmd_export.allreduce_min_int(lists[6].reshape(1), lists[5])

    lists = (*swaps.lists, SELF, numbers(3)[0], numbers(2)[0])
    x = torch.arange(10.0).reshape(5, 2)
    program = torch.export.export(Model(), (x, *lists))
    assert "deepmd_export.border_op" in str(program.graph), program.graph
    assert torch.equal(program.module()(x, *lists), 2 * torch.cat([x[:3], x[:2]]) + 3)
    for operator in (torch.ops.deepmd_export.border_op, torch.ops.deepmd_export.border_op_backward):
        torch.library.opcheck(operator.default, (*swaps.lists, x.requires_grad_(), *lists[5:]))
    torch.library.opcheck(torch.ops.deepmd_export.allreduce_min_int.default, (numbers(3), SELF))


@test_on_1
def what_does_not_fit_is_an_error():
    x = torch.zeros(5, 2)
    for swaps, communicator, kind, text in (
            (own_swap(), SELF + 99, ValueError, "the communicator is 99, which is no context"),
            (own_swap(rows=(0, 5)), SELF, IndexError, "row 5"),
            (own_swap(nlocal=4), SELF, ValueError, "5, 2")):
        try:
            swaps.call(torch.ops.deepmd.border_op, x, communicator)
            raise AssertionError("accepted")
        except kind as error:
            assert text in str(error), error


def ring(context, row, x):
    """Sends one row of two to the next rank."""
    swaps = Swaps({"sendlist": [[row]], "sendproc": [(context.rank + 1) % 4], "recvproc": [(context.rank - 1) % 4],
                   "sendnum": [1], "recvnum": [1], "nlocal": 2, "nghost": 1})
    return swaps.call(torch.ops.deepmd.border_op, x, deepmd.communicator(context))[0]


@test
def any_rank_may_change_its_lists():
    for context in contexts():
        rows = [0] * 4
        x = torch.arange(3.0).reshape(3, 1) + 10 * context.rank
        for subset in (*range(16), 15, 0, 5):
            rows = [row ^ (subset >> rank & 1) for rank, row in enumerate(rows)]
            left = (context.rank - 1) % 4
            for _ in range(2):
                same(ring(context, rows[context.rank], x)[2], [10.0 * left + rows[left]], (subset, rows))


@test
def a_backward_keeps_the_lists_of_its_forward():
    for context in contexts():
        older, newer = (torch.ones(3, 1, requires_grad=True) for _ in range(2))
        outs = ring(context, 0, older), ring(context, 1, newer)
        gc.collect()
        for y in outs:
            y.sum().backward()
        same(older.grad, [2, 1, 0])
        same(newer.grad, [1, 2, 0])


@test
def a_dtype_that_is_new_on_all_ranks():
    for context in contexts():
        for dtype in (torch.float32, torch.float64, torch.float32):
            x = torch.arange(3, dtype=dtype).reshape(3, 1) + 10 * context.rank
            same(ring(context, 1, x)[2], [10.0 * ((context.rank - 1) % 4) + 1])


@test
def the_smallest_of_all_ranks():
    for context in contexts():
        for dtype in (torch.int64, torch.int32):
            value = torch.tensor([[context.rank + 5, 7 - context.rank]], dtype=dtype)
            got = torch.ops.deepmd_export.allreduce_min_int(value, deepmd.communicator(context))
            assert got.tolist() == [[5, 4]] and got.dtype == dtype
    value = torch.tensor([3])
    alone = torch.ops.deepmd_export.allreduce_min_int(value, SELF)
    assert alone.tolist() == [3] and alone.data_ptr() != value.data_ptr()


def random_rows(rank):
    """Two swaps with the other rank of two, the second of which passes a ghost on; features and gradient."""
    swaps = Swaps({"sendlist": [[0, 2], [3, 1, 1]], "sendproc": [1 - rank] * 2, "recvproc": [1 - rank] * 2,
                   "sendnum": [2, 3], "recvnum": [2, 3], "nlocal": 3, "nghost": 5})
    return swaps, *(torch.from_numpy(np.random.default_rng([rank, k]).standard_normal((8, 3))) for k in (0, 1))


def python_operators(rank, communicator):
    """What this module's functions, none of them registered, make of random_rows."""
    swaps, x, g = random_rows(rank)
    forward, = swaps.call(deepmd.border_op, x, communicator)
    return torch.cat([forward, swaps.call(deepmd.border_op_backward, g, communicator)])


@test
def registered_operators_have_the_bits_of_the_functions():
    if dist.get_rank() > 1:
        return
    for way in ("distributed", "node"):
        with lierne.torch.context(over=way, members=[0, 1]) as context:
            expected, name = python_operators(context.rank, context), deepmd.communicator(context)
            assert torch.equal(expected, python_operators(context.rank, name))
            swaps, x, g = random_rows(context.rank)
            forward, = swaps.call(torch.ops.deepmd.border_op, x, name)
            backward = swaps.call(torch.ops.deepmd.border_op_backward, g, name)
            assert torch.equal(torch.cat([forward, backward]), expected)
        raises(ValueError, "closed" if not LIBRARY else "which is no context",
               lambda: swaps.call(torch.ops.deepmd.border_op, x, name))


@test
def a_program_without_python_has_the_same_bits():
    """tests/torch/deepmd.cpp on 2 ranks, each of which gives this process its rows."""
    if not LIBRARY or dist.get_rank() > 1:
        return
    with lierne.torch.context(over="node", members=[0, 1]) as context:
        rank, expected = context.rank, python_operators(context.rank, context)
    _, x, g = random_rows(rank)
    program = [os.path.join(os.path.dirname(LIBRARY), "tests/torch/deepmd"), LIBRARY, str(rank),
               f"deepmd-{os.environ['MASTER_PORT']}"]
    done = subprocess.run(program, input=torch.cat([x, g]).numpy().tobytes(), stdout=subprocess.PIPE, check=True,
                          timeout=60)
    same(torch.frombuffer(bytearray(done.stdout), dtype=torch.float64), expected)


@test_on_1
def a_plan_outlives_its_number_but_cannot_be_used():
    """A graph of autograd holds the plan of a context that is closed."""
    swaps, x = own_swap(), leaf(np.ones((5, 2)))
    with lierne.torch.context(over="node") as context:
        out, = swaps.call(torch.ops.deepmd.border_op, x * 1, deepmd.communicator(context))
    raises((RuntimeError, ValueError), "released" if LIBRARY else "closed", out.sum().backward)


if __name__ == "__main__":
    main()
