# SPDX-License-Identifier: Apache-2.0
"""What a group says that it would choose, through NumPy and through torch, is what it then does."""

from typing import Any

import braid
import numpy as np
import pytest
import torch
import torch.distributed as dist
from arrays import join
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

KEYS = ["collective", "family", "predicted_s", "runners_up", "reason", "shares", "chunk_bytes"]


def family_used(stats: list[dict[str, Any]], collective: str) -> str:
    (row,) = [row for row in stats if row["collective"] == collective]
    return row["family"]


def explain_arrays(rank: Rank) -> dict[str, Any]:
    with join(rank) as comm:
        told = comm.explain("all_reduce", 80)
        assert list(told) == KEYS
        comm.all_reduce(np.ones(10))
        comm.all_gather(np.ones(1000))
        comm.reduce_scatter(np.ones(1000 * rank.size), "prod")
        stats = comm.stats()
        assert told["family"] == family_used(stats, "all_reduce")
        gathered = 8000 * rank.size  # the whole of all_gather's output and of reduce_scatter's input
        assert comm.explain("all_gather", gathered)["family"] == family_used(stats, "all_gather")
        scattered = comm.explain("reduce_scatter", gathered, "float64", "prod")
        assert scattered["family"] == family_used(stats, "reduce_scatter")
        for row in stats:
            if row["collective"] in ("all_gather", "reduce_scatter"):
                assert row["bytes"] == gathered
        return told


def explain_tensors(rank: Rank) -> dict[str, Any]:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    told: dict[str, Any] = backend.explain("all_reduce", 4000, dtype="bfloat16", op="avg")
    assert list(told) == KEYS
    dist.all_reduce(torch.ones(2000, dtype=torch.bfloat16), dist.ReduceOp.AVG)
    assert told["family"] == family_used(backend.stats(), "all_reduce")
    with pytest.raises(ValueError, match="there are all_reduce, "):
        backend.explain("allreduce", 8)
    with pytest.raises(ValueError, match="-8 bytes"):
        backend.explain("all_reduce", -8)
    return told


def refuse(rank: Rank) -> None:
    with join(rank) as comm:
        for arguments, message in [
            (("allreduce", 8), "there are all_reduce, "),
            (("all_reduce", -8), "-8 bytes"),
            (("all_reduce", 8, "float31"), "there are float64, "),
            (("all_reduce", 8, "float32", "mean"), "there are avg, "),
            (("all_reduce", 8, "float32", "band"), "band"),
            (("broadcast", 8, "float32", "sum", 1), "root 1"),
        ]:
            with pytest.raises(ValueError, match=message):
                comm.explain(*arguments)
    with pytest.raises(braid.CommunicatorError, match="closed"):
        comm.explain("all_reduce", 8)


def test_arrays() -> None:
    told = run_ranks(explain_arrays, 3, join=False)
    assert told[1:] == told[:-1]  # all ranks say the same
    assert told[0]["predicted_s"] > 0
    assert told[0]["reason"].startswith("all_reduce of 128 B on 3 ranks: " + told[0]["family"])
    assert {row["family"] for row in told[0]["runners_up"]} == (
        {"ring", "doubling", "halving_doubling", "direct", "gather_all", "double_tree"} - {told[0]["family"]}
    )


def test_tensors() -> None:
    told = run_ranks(explain_tensors, 3)
    assert told[1:] == told[:-1]
    assert "is rounded once" in told[0]["reason"]


@pytest.mark.parametrize("explain", [explain_arrays, explain_tensors])
def test_what_is_forced(explain: Any) -> None:
    forced = {"BRAID_ALGORITHM": "all_reduce=ring"}
    for told in run_ranks(explain, 2, join=explain is explain_tensors, environment=forced):
        assert told["family"] == "ring"
        assert told["runners_up"] == []
        assert "forced" in told["reason"]


def test_wrong_arguments() -> None:
    run_ranks(refuse, 1, join=False)
