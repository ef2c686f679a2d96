"""The bridge as Megatron-LM's recipe does it, over PyTorch's gloo: timed like the other methods, but
in processes of its own, as gloo and MPI do not share any.

    RANK=r WORLD_SIZE=n MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python3 gloo.py   # for each rank r

The gradient is cloned and summed over cp, then narrowed or gathered; gathering brings the batch to
the front and back. Prints the median and the quartiles, and gloo's 25th percentile is the fairer
figure from 16 MiB up, where it has two modes."""
import statistics
import time

import torch
import torch.distributed as dist

ROUNDS = 15
KINDS = {  # name, ranks: source (tp, dp), destination (tp, cp, dp)
    ("a fan-in", 2): ((1, 2), (2, 1, 1)), ("b fan-out", 2): ((2, 1), (1, 1, 2)),
    ("c fan-in cp2", 2): ((1, 2), (1, 2, 1)), ("a fan-in", 4): ((1, 4), (2, 1, 2)),
    ("b fan-out", 4): ((2, 2), (1, 1, 4)), ("c fan-in cp2", 4): ((1, 4), (1, 2, 2)),
    ("d fan-out cp2", 4): ((4, 1), (1, 2, 2)), ("a fan-in", 8): ((2, 4), (4, 1, 2)),
    ("b fan-out", 8): ((4, 2), (2, 1, 4)), ("c fan-in cp2", 8): ((2, 4), (2, 2, 2)),
    ("d fan-out cp2", 8): ((4, 2), (1, 2, 4)),
}
LOADS = {"large f32": (torch.float32, 4, 1024, 1024), "large bf16": (torch.bfloat16, 4, 1024, 1024),
         "small f32": (torch.float32, 2, 64, 256)}


def group_of(color_of):
    """This rank's group among those of equal color; every rank makes all of them."""
    mine = None
    for color in sorted({color_of(r) for r in range(dist.get_world_size())}):
        ranks = [r for r in range(dist.get_world_size()) if color_of(r) == color]
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = group
    return mine


class Bridge:
    def __init__(self, src, dst, axis):
        (stp, sdp), (dtp, dcp, ddp) = src, dst
        self.axis, self.cp, self.fan_in = axis, dcp, sdp > ddp
        self.dp_ratio = max(sdp, ddp) // min(sdp, ddp)
        fine_tp, fine_cp = (stp, 1) if self.fan_in else (dtp, dcp)
        dp_rank = lambda r: r // (fine_tp * fine_cp)
        self.share = dp_rank(dist.get_rank()) % self.dp_ratio
        self.gather_group = group_of(lambda r: (dp_rank(r) // self.dp_ratio, r % (fine_tp * fine_cp)))
        self.cp_group = group_of(lambda r: (r // (dtp * dcp), r % dtp))

    def gather(self, x):
        x = x.movedim(self.axis, 0).contiguous()
        parts = [torch.empty_like(x) for _ in range(self.dp_ratio)]
        dist.all_gather(parts, x, group=self.gather_group)
        return torch.cat(parts).movedim(0, self.axis).contiguous()

    def narrow(self, x):
        size = x.shape[self.axis] // self.dp_ratio
        return x.narrow(self.axis, self.share * size, size).contiguous()

    def forward(self, x):
        return self.gather(x) if self.fan_in else self.narrow(x)

    def adjoint(self, g):
        if self.cp > 1:
            g = g.clone()
            dist.all_reduce(g, group=self.cp_group)
        return self.narrow(g) if self.fan_in else self.gather(g)


def timed(call):
    dist.barrier()
    start = time.monotonic()
    call()
    ends = torch.tensor([time.monotonic(), -start], dtype=torch.float64)
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    return 1e3 * float(ends.sum())


def run(kind, load, axis, dirty):
    dtype, b, s, h = LOADS[load]
    bridge = Bridge(*KINDS[kind, dist.get_world_size()], axis)
    wide = b * bridge.dp_ratio
    shape = lambda n: (n, s, h) if axis == 0 else (s, n, h)
    x = torch.ones(shape(b if bridge.fan_in else wide), dtype=dtype)
    g = torch.ones(shape(wide if bridge.fan_in else b), dtype=dtype) / bridge.cp
    assert bridge.forward(x).shape == g.shape and bool((bridge.adjoint(g) == 1).all())
    times = []
    for _ in range(ROUNDS):
        if dirty:
            x.fill_(1)
            g.fill_(1 / bridge.cp)
        times.append([timed(lambda: bridge.forward(x)), timed(lambda: bridge.adjoint(g))])
    both = sorted(f + a for f, a in times)
    if dist.get_rank() == 0:
        print("%-58s %9.3f %9.3f %9.3f (%.3f - %.3f)" % (
            "%d ranks, %s, %s, batch axis %d, %s" % (
                dist.get_world_size(), kind, load, axis, "dirty" if dirty else "hot"),
            statistics.median(t[0] for t in times), statistics.median(t[1] for t in times),
            statistics.median(both), both[ROUNDS // 4], both[3 * ROUNDS // 4]), flush=True)


def main():
    dist.init_process_group("gloo")
    for kind, ranks in KINDS:
        for load in LOADS:
            for axis in (0, 1):
                for dirty in (False, True):
                    if ranks == dist.get_world_size():
                        try:
                            run(kind, load, axis, dirty)
                        except RuntimeError as error:  # a type that this gloo cannot add
                            if dist.get_rank() == 0:
                                print("%s, %s: %s" % (kind, load, error), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
