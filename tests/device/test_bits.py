# SPDX-License-Identifier: Apache-2.0
"""Every operation on tensors of the simulated device gives the CPU's bits, whatever is late."""

import sys
from pathlib import Path

import pytest
from ranks import Rank, run_ranks

pytestmark = [pytest.mark.multiprocess]


def equals_the_cpu(rank: Rank, schedules: list[str], seeds: int) -> int:
    """Run all cases under each schedule; return the number of tensors that were compared."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulated
    import torch

    sim = simulated.load()
    rank.join()
    from cases import CASES, bits
    from schedules import SHORT_US, delays

    compared = 0
    for case in CASES:
        us = SHORT_US // 5 if case.__name__ == "reductions" else SHORT_US  # it has many operations
        expected = list(bits(case(rank.rank, rank.size, torch.Tensor.clone)))
        for schedule in schedules:
            for seed in range(seeds):
                sim.set_delays(**delays(schedule, rank.rank, us=us, seed=seed))
                results = case(rank.rank, rank.size, lambda tensor: tensor.to("sim"))
                for index, (mine, cpu) in enumerate(zip(bits(results), expected, strict=True)):
                    assert mine == cpu, f"{case.__name__}, {schedule}, seed {seed}: tensor {index} differs"
                    compared += 1
    sim.set_delays()
    sim.synchronize()
    return compared


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.long), 3])
def test_every_operation_has_the_bits_of_the_cpu(ranks: int) -> None:
    """All schedules, one seed."""
    from schedules import SCHEDULES

    compared = run_ranks(equals_the_cpu, ranks, list(SCHEDULES), 1, join=False)
    assert min(compared) > 500


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_operation_has_the_bits_of_the_cpu_with_many_seeds(ranks: int) -> None:
    """Twenty seeds of random delays."""
    run_ranks(equals_the_cpu, ranks, ["random"], 20, join=False, timeout_s=280)
