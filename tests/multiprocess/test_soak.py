# SPDX-License-Identifier: Apache-2.0
"""A few seconds of the soak (soak.py)."""

import pytest
from arrays import join
from ranks import Rank, run_ranks
from soak import soak

pytestmark = pytest.mark.multiprocess


def soak_a_little(rank: Rank) -> None:
    with join(rank) as comm:
        largest_block = 1 << (23 if rank.size == 2 else 20)  # many ranks on few cores take their time
        assert soak(comm, seconds=3, seed=20_000 + rank.size, largest_block=largest_block) >= 100


@pytest.mark.parametrize("ranks", [pytest.param(n, marks=pytest.mark.long) for n in (2, 3, 5)])
def test_random_operations_at_random_paces(ranks: int) -> None:
    run_ranks(soak_a_little, ranks)
