# SPDX-License-Identifier: Apache-2.0
"""One bit an element minimizes what it should with error feedback, and provably something else without."""

import braid
import pytest
import torch
from hosts_apart import join_apart
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

ELEMENTS = 6000


def minimize(rank: Rank, target: torch.Tensor, remembers: bool) -> torch.Tensor:
    """Go down the mean over ranks of |x - target|^2 / 2, with steps that become shorter."""
    x = torch.zeros(ELEMENTS)
    residual = torch.zeros(ELEMENTS)
    for step in range(300):
        gradient = x - target
        braid.lossy_all_reduce(gradient, "sign", residual=residual if remembers else None)
        x -= 0.2 / (1 + step / 10) * gradient
    return x


def find_the_mean(rank: Rank) -> None:
    """Of three ranks one wants 3, the others 0. The mean is 1; but of three signs, two are for less than that.

    At the mean the gradients are -2, 1 and 1. Without feedback a rank's message has their signs and the mean of
    their magnitudes, so messages are not 0 on the whole where gradients are.
    """
    join_apart(rank)
    size = 1 + torch.arange(ELEMENTS) % 7 / 7
    target = torch.where(torch.arange(ELEMENTS) % rank.size == rank.rank, 3 * size, torch.zeros(ELEMENTS))
    off = [float((minimize(rank, target, remembers) - size).norm() / size.norm()) for remembers in (True, False)]
    assert off[0] < 0.02
    assert off[1] > 0.5


def test_signs_need_error_feedback() -> None:
    run_ranks(find_the_mean, 3, wire="tcp", join=False)
