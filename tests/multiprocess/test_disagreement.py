# SPDX-License-Identifier: Apache-2.0
"""Ranks that are not in the same operation: both sides are told, and by name."""

import pytest
import torch
import torch.distributed as dist
from ranks import Rank, error_of, run_ranks

pytestmark = pytest.mark.multiprocess


def disagree_on_size(rank: Rank) -> None:
    text = error_of(lambda: dist.all_reduce(torch.ones(10 + (rank.rank == 1))))
    assert "rank 1" in text, text
    assert "40" in text, text
    assert "44" in text, text
    # Whoever hears of it before it has begun is told of the operation that failed.
    assert "all_reduce #1" in text or "operation 1" in text, text
    rank.meet("told")  # else a rank could hear of the end of another first


def disagree_on_operation(rank: Rank) -> None:
    if rank.rank == 1:
        text = error_of(lambda: dist.broadcast(torch.ones(10), 0))
    else:
        text = error_of(lambda: dist.all_reduce(torch.ones(10)))
    assert "all_reduce" in text, text
    assert "broadcast" in text, text
    rank.meet("told")  # else a rank could hear of the end of another first


def disagree_on_dtype(rank: Rank) -> None:
    dtype = torch.int32 if rank.rank == 1 else torch.float32
    text = error_of(lambda: dist.all_reduce(torch.ones(10, dtype=dtype)))
    assert "int32" in text, text
    assert "float32" in text, text
    rank.meet("told")  # else a rank could hear of the end of another first


def disagree_on_message_size(rank: Rank) -> None:
    if rank.rank == 0:
        dist.isend(torch.ones(11), 1)
        rank.wait_for("done", 1)
    if rank.rank == 1:
        text = error_of(lambda: dist.recv(torch.ones(10), 0))
        assert "40" in text, text
        assert "44" in text, text
        rank.mark("done")


@pytest.mark.long_over_tcp
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("function", [disagree_on_size, disagree_on_operation, disagree_on_dtype])
def test_disagreement(function: object, wire: str, size: int) -> None:
    run_ranks(function, size, wire=wire)


def test_disagreement_on_a_message(wire: str) -> None:
    run_ranks(disagree_on_message_size, 2, wire=wire)
