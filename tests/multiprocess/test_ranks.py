# SPDX-License-Identifier: Apache-2.0
"""What a test shows of ranks that come too late, and which ends of a rank it takes."""

import os
import sys
import threading

import pytest
import torch
import torch.distributed as dist
from ranks import Rank, RanksFailedError, run_ranks
from waiting import eventually

pytestmark = pytest.mark.multiprocess


def modules_of(rank: Rank) -> set[str]:
    return set(sys.modules)


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU a rank imports by itself what may use it")
def test_ranks_have_what_takes_long_to_import() -> None:
    """Whatever else this run has collected. Otherwise each rank of a strategy takes a second of CPU time."""
    (modules,) = run_ranks(modules_of, 1, join=False)
    assert {"torch._dynamo", "torch._inductor.compile_fx", "braid.strategies"} <= modules


def wait_for_nobody(rank: Rank) -> None:
    dist.barrier()
    if rank.rank == 0:
        rank.wait_for("never", 1)
    dist.all_reduce(torch.ones(3))


@pytest.mark.long
def test_who_comes_too_late_shows_stacks_and_operations() -> None:
    with pytest.raises(RanksFailedError) as caught:
        run_ranks(wait_for_nobody, 2, timeout_s=4.0)
    first, second = str(caught.value).split("rank 1 ended with status -9: no result")
    assert "rank 0 ended with status -9: no result" in first
    assert "in wait_for_nobody" in first
    assert "operations that are not over: 0" in first
    assert "in wait_for_nobody" in second
    assert "operations that are not over: 1" in second
    assert "'input_sizes': [[3]]" in second


def abort_at_the_end(rank: Rank) -> int:
    """Return a result; abort when all is written, as Gloo does at times."""
    result = rank.folder / f"result.{rank.rank}"

    def abort() -> None:
        eventually(result.exists, "the result")
        os.abort()

    threading.Thread(target=abort).start()
    return 7


def test_a_rival_may_abort_once_it_has_returned() -> None:
    with pytest.raises(RanksFailedError, match="rank 0 ended with status -6"):
        run_ranks(abort_at_the_end, 1, join=False)
    assert run_ranks(abort_at_the_end, 1, join=False, rival=True) == [7]
