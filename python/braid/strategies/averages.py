# SPDX-License-Identifier: Apache-2.0
"""How float buffers move: never out of the range of values that workers had.

A buffer such as BatchNorm's running variance is a moving average: each step moves it part of the way to a batch's
value. A difference of two such averages must not just be added to a third one. The sum can be a value that nobody
had, as a variance below zero. So servers move their averages part of the way to a worker's. And a worker adds what
it has changed meanwhile only as far as all values that it knows reach.
"""

import torch
from torch import Tensor

# The numbers of the servers' rule "sgd", which computes ``x -= rate (weight_decay x - u)``.
RULE = "sgd"


def towards(weight: float) -> dict[str, float]:
    """Return the numbers with which the rule moves x to ``(1 - weight) x + weight u``; push u with scale -1."""
    return {"rate": weight, "weight_decay": 1.0}


def merged(now: Tensor, sent: Tensor, average: Tensor) -> Tensor:
    """Return what a worker's averages become when those of others arrive.

    Args:
        now: this worker's averages; of any shape, like the others.
        sent: what they were when this worker sent them.
        average: what came back.

    Returns:
        `average`, plus what this worker has changed since it sent; but nothing outside of the three.

    Example:
        >>> merged(torch.tensor([4.0, 2.0]), torch.tensor([3.0, 8.0]), torch.tensor([2.0, 6.0]))
        tensor([3., 2.])
    """
    low = torch.minimum(torch.minimum(now, sent), average)
    high = torch.maximum(torch.maximum(now, sent), average)
    # Where nothing has changed, without a difference: of infinities it is not a number.
    return torch.where(now == sent, average, (average + (now - sent)).clamp(low, high))
