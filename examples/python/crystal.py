# Energy and forces of a crystal by a graph network: its atoms on all ranks, and the same on one.
# torchrun --nproc-per-node 4 crystal.py [FILE.poscar]
import os
import sys
import typing

import torch
import torch.distributed as dist

import lierne.torch

WIDTH, LAYERS, RADIUS = 8, 3, 3.5
QUARTZ = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/structures/quartz.poscar")


def read(path: str, times: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Positions, elements and cell vectors of times^3 cells; atoms are moved a little, so that symmetry
    leaves no force zero."""
    with open(path) as file:
        lines = file.read().splitlines()
    cell = torch.tensor([[float(x) for x in line.split()] for line in lines[2:5]]).double()
    counts = [int(count) for count in lines[6].split()]
    fractions = torch.tensor([[float(x) for x in line.split()] for line in lines[8:8 + sum(counts)]])
    cells = torch.cartesian_prod(*[torch.arange(times)] * 3).reshape(-1, 3)
    at = (fractions.double()[:, None] + cells).reshape(-1, 3) @ cell * float(lines[1])
    noise = torch.randn(at.shape, generator=torch.Generator().manual_seed(1), dtype=at.dtype)
    elements = torch.repeat_interleave(torch.tensor(counts)).repeat_interleave(len(cells))
    return at + 0.05 * noise, elements, cell * float(lines[1]) * times


def bonds(at: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(source, target, shift of the source's image) of all pairs that are nearer than RADIUS."""
    shifts = torch.cartesian_prod(*[torch.arange(-1, 2)] * 3).double() @ cell
    length = (at[:, None, None] + shifts - at[:, None]).norm(dim=3)  # source, target, image
    source, target, image = ((length < RADIUS) & (length > 0)).nonzero(as_tuple=True)
    return source, target, shifts[image]


def energy(at: torch.Tensor, elements: torch.Tensor, source: torch.Tensor, target: torch.Tensor, shift: torch.Tensor,
           ghosts_of_3: typing.Any = None, ghosts: typing.Any = None) -> torch.Tensor:
    """The energy of these atoms; without exchanges, of all. source counts own atoms, then ghosts."""
    random = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=at.dtype)

    rows = at if ghosts is None else torch.cat([at, ghosts_of_3(at)])
    length = (rows[source] + shift - at[target]).norm(dim=1, keepdim=True)
    radial = torch.exp(-(length - torch.linspace(1, RADIUS, WIDTH)) ** 2) * (1 - length / RADIUS) ** 2
    state = draw(2, WIDTH)[elements]
    for _ in range(LAYERS):
        rows = state if ghosts is None else torch.cat([state, ghosts(state)])
        messages = rows[source] * (radial @ draw(WIDTH, WIDTH))
        heard = torch.zeros_like(state).index_add(0, target, messages)
        state = state + torch.tanh(heard @ draw(WIDTH, WIDTH) * WIDTH ** -0.5)
    return (state @ draw(WIDTH)).sum()


dist.init_process_group("gloo")
at, elements, cell = read(sys.argv[1] if sys.argv[1:] else QUARTZ, 2)
source, target, shift = bonds(at, cell)
at.requires_grad_()
whole = energy(at, elements, source, target, shift)
whole.backward()

with lierne.torch.context() as context:
    owner = torch.from_numpy(lierne.partition_morton(at.detach().numpy(), context.world_size))
    mine = owner[target] == context.rank
    plans = [lierne.torch.Graph(context, owner, source[mine], target[mine], torch.float64,
                                row_shape=(width,)) for width in (3, WIDTH)]
    lists = {name: torch.as_tensor(value) for name, value in plans[0].plan.lists().items()}
    own = at.detach()[lists["owned"]].requires_grad_()
    part = energy(own, elements[lists["owned"]], lists["edge_source"], lists["edge_target"],
                  shift[mine], *plans)
    part.backward()  # also sends the forces on ghosts to their owners
    total = lierne.torch.Operation(lierne.all_reduce(context, 1, torch.float64))(part.detach().reshape(1))
    forces, expected = -own.grad, -at.grad[lists["owned"]]
    assert abs(total.item() - whole.item()) < 1e-12 * abs(whole.item()), (total, whole)
    assert (forces - expected).abs().max() < 1e-12 * expected.abs().max()
    print(f"rank {context.rank}: {len(own)} atoms, {lists['nghosts']} ghosts, energy {total.item():.9f}, "
          f"largest force {forces.norm(dim=1).max():.6f}, apart {(forces - expected).abs().max():.0e}")
dist.destroy_process_group()
