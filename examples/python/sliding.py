# Attention to a sliding window of tokens: keys and values come as a halo, and documents stay apart. Results and
# gradients are those of one rank. torchrun --nproc-per-node 4 sliding.py
import torch
import torch.distributed as dist

import lierne
import lierne.torch

TOKENS, WINDOW, HEADS, WIDTH = 96, 11, 2, 4
documents = torch.tensor([0, 20, 23, 23, 71, 96])  # boundaries, as cu_seqlens has them


def document(tokens: torch.Tensor) -> torch.Tensor:
    return torch.bucketize(tokens, documents, right=True)


def attend(q: torch.Tensor, kv: torch.Tensor, at: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """q of the tokens `at` attend to kv of those at `positions`: the last WINDOW ones of their document."""
    back = at[:, None] - positions
    seen = (back >= 0) & (back < WINDOW) & (document(at)[:, None] == document(positions))
    scores = torch.einsum("qhw,khw->hqk", q, kv[:, 0]).masked_fill(~seen, -torch.inf)
    return torch.einsum("hqk,khw->qhw", scores.softmax(-1), kv[:, 1])


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    q, kv = torch.randn(TOKENS, HEADS, WIDTH), torch.randn(TOKENS, 2, HEADS, WIDTH).requires_grad_()
    weight = torch.randn(TOKENS, HEADS, WIDTH)
    everything = torch.arange(TOKENS)
    expected = attend(q, kv, everything, everything)
    (expected * weight).sum().backward()

    cp, spec = lierne.Grid({"cp": 4}), lierne.torch.DenseHalo({0: (WINDOW - 1, 0)}, segments=documents)
    placements = {"cp": lierne.ShardZigzag(0)}  # chunks c and 7 - c of 8
    windows = lierne.torch.halo_windows(cp, spec, placements, kv.shape)[0]
    mine = torch.cat([everything[core:core + n] for _, _, _, core, n in windows])
    part = kv.detach()[mine].requires_grad_()
    extended = lierne.torch.halo_exchange(part, cp, spec, placements, kv.shape)
    out = torch.cat([attend(q[core:core + n], extended[at:at + size], everything[core:core + n],
                            everything[start:start + size]) for start, size, at, core, n in windows])
    (out * weight[mine]).sum().backward()
    assert part.grad is not None and kv.grad is not None
    assert torch.allclose(out, expected[mine], rtol=1e-14, atol=1e-14)
    assert torch.allclose(part.grad, kv.grad[mine], rtol=1e-13, atol=1e-13)
    print(f"rank {dist.get_rank()}: {len(mine)} tokens, and {len(extended) - len(mine)} of other ranks in place of "
          f"{TOKENS - len(mine)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
