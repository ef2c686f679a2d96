# A U-Net on an image that 4 ranks have tiles of: its loss and gradients are those of one rank.
# torchrun --nproc-per-node 4 unet.py
import typing

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import lierne.torch


def unet(wrap: typing.Callable[[typing.Any], typing.Any]) -> typing.Any:
    torch.manual_seed(1)  # every rank has the same parameters
    return nn.ModuleDict({"first": wrap(nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")),
                          "down": wrap(nn.MaxPool2d(2)),
                          "inner": wrap(nn.Conv2d(8, 16, 5, padding=2)),
                          "up": wrap(nn.ConvTranspose2d(16, 8, 2, stride=2)),
                          "last": wrap(nn.Conv2d(16, 1, 3, padding=1))})


def forward(net: typing.Any, image: torch.Tensor) -> typing.Any:
    fine = torch.relu(net["first"](image))
    coarse = torch.relu(net["inner"](net["down"](fine)))
    return net["last"](torch.cat([fine, net["up"](coarse)], 1))


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    cut = [Shard(2), Shard(3)]
    image = torch.randn(1, 3, 26, 22, generator=torch.Generator().manual_seed(2))  # 13 x 11 behind the pooling
    alone = unet(lambda module: module)
    loss = forward(alone, image).square().mean()
    loss.backward()

    net = unet(lambda module: lierne.torch.HaloConv.wrap(module, mesh, cut))
    out = forward(net, distribute_tensor(image, mesh, cut))
    tile = out.to_local()
    own = tile.square().sum() / out.numel()  # the loss is the sum of these
    own.backward()
    total = own.detach().clone()
    dist.all_reduce(total)
    differences = [(mine.grad - theirs.grad).abs().max() / theirs.grad.abs().max()
                   for mine, theirs in zip(net.parameters(), alone.parameters())]
    assert abs(total - loss) < 1e-14 * loss and max(differences) < 1e-13, differences
    print(f"rank {dist.get_rank()}: a tile of {tile.shape[2]} x {tile.shape[3]}, loss {total:.6f} "
          f"(one rank: {loss:.6f}), gradients differ by {max(differences):.0e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
