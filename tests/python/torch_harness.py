"""What the programs on ranks of torchrun have in common. Every rank runs every test; a failure ends the
program, so that no rank waits for another. Arguments: names of tests; by default all that are for this
number of ranks."""
import datetime
import os
import sys
import traceback

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch

WAYS = ("distributed", "node")
TESTS = []


def test(function, ranks=4):
    function.ranks = ranks
    TESTS.append(function)
    return function


def test_on_8(function):
    return test(function, 8)


def contexts():
    for way in WAYS:
        with lierne.torch.context(over=way, timeout=60) as context:
            yield context


def same(got, expected, what=""):
    got, expected = torch.as_tensor(got), torch.as_tensor(expected, dtype=got.dtype)
    assert torch.equal(got.reshape(-1), expected.reshape(-1)), (what, got, expected)


def raised(kind, function, *arguments, **options):
    """The error of this kind that a call raises."""
    try:
        function(*arguments, **options)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def raises(kind, text, function, *arguments, **options):
    """A call raises an error of this kind, whose message has this text."""
    error = raised(kind, function, *arguments, **options)
    assert text in str(error), error


def gathered(text):
    """The texts of all ranks, on all of them."""
    texts = [None] * dist.get_world_size()
    dist.all_gather_object(texts, text)
    return texts


def leaf(array, dtype=torch.float64):
    return torch.as_tensor(np.asarray(array), dtype=dtype).clone().requires_grad_()


ENCODER = {"tp": 1, "dp": 4}
LLM = {"tp": 1, "cp": 2, "dp": 2}


def bridge(context, dtype=torch.float64, shape=(8, 4, 3), **options):
    return lierne.torch.Bridge(context, lierne.Grid(ENCODER), lierne.Grid(LLM), shape, dtype,
                               sequence_axis=1, **options)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)  # fills what torch leaves uninitialised with NaN
    names, n = sys.argv[1:], dist.get_world_size()
    chosen = [t for t in TESTS if (t.__name__ in names if names else t.ranks == n)]
    for function in chosen:
        try:
            function()
            dist.barrier()
        except BaseException:
            traceback.print_exc()
            print(f"FAIL {function.__name__} on rank {dist.get_rank()}", flush=True)
            os._exit(1)
    if dist.get_rank() == 0:
        print(f"{len(chosen)} passed, 0 failed")
    dist.destroy_process_group()
