"""What the ranks of a context tell each other before they plan, in one element."""
import torch

import lierne
from lierne.torch import Operation


def largest(context, number, device="cpu"):
    """The largest number of all ranks, an int32. Collective; its plan is kept with the context."""
    agree = context.__dict__.get("agreement")
    if agree is None:
        agree = Operation(lierne.all_reduce(context, 1, "i32", reduction="max"))
        context.agreement = agree
    return int(agree(torch.tensor([number], dtype=torch.int32, device=device)))
