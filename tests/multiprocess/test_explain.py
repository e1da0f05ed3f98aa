# SPDX-License-Identifier: Apache-2.0
"""What a group says that it would choose, through NumPy and through torch, is what it then does."""

import json
from pathlib import Path
from typing import Any

import braid
import numpy as np
import pytest
import torch
import torch.distributed as dist
from arrays import join
from braid._bench.ddp.buckets import Gradient, buckets_of
from braid.cli import main
from braid.lab import unavailable
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

KEYS = [
    *("collective", "algorithm", "predicted_s", "runners_up", "reason", "shares", "chunk_bytes", "segments"),
    "copies_s",
]
KEYS_OF_TENSORS = [*KEYS, "local_leg", "local_leg_reason"]


def algorithm_used(stats: list[dict[str, Any]], collective: str) -> str:
    (row,) = [row for row in stats if row["collective"] == collective]
    return row["algorithm"]


def explain_arrays(rank: Rank) -> dict[str, Any]:
    with join(rank) as comm:
        told = comm.explain("all_reduce", 80)
        assert list(told) == KEYS
        assert told["copies_s"] == 0
        comm.all_reduce(np.ones(10))
        comm.all_gather(np.ones(1000))
        comm.reduce_scatter(np.ones(1000 * rank.size), "prod")
        stats = comm.stats()
        assert told["algorithm"] == algorithm_used(stats, "all_reduce")
        gathered = 8000 * rank.size  # the whole of all_gather's output and of reduce_scatter's input
        assert comm.explain("all_gather", gathered)["algorithm"] == algorithm_used(stats, "all_gather")
        scattered = comm.explain("reduce_scatter", gathered, "float64", "prod")
        assert scattered["algorithm"] == algorithm_used(stats, "reduce_scatter")
        for row in stats:
            if row["collective"] in ("all_gather", "reduce_scatter"):
                assert row["bytes"] == gathered
        return told


def explain_tensors(rank: Rank) -> dict[str, Any]:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    told: dict[str, Any] = backend.explain("all_reduce", 4000, dtype="bfloat16", op="avg")
    assert list(told) == KEYS_OF_TENSORS
    dist.all_reduce(torch.ones(2000, dtype=torch.bfloat16), dist.ReduceOp.AVG)
    assert told["algorithm"] == algorithm_used(backend.stats(), "all_reduce")
    with pytest.raises(ValueError, match="there are all_reduce, "):
        backend.explain("allreduce", 8)
    with pytest.raises(ValueError, match="-8 bytes"):
        backend.explain("all_reduce", -8)
    return told


def cut_gradients(rank: Rank) -> None:
    module = torch.nn.Sequential(*(torch.nn.Linear(700, 700) for _ in range(40)))
    for cap in (None, 7):
        ddp = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=cap)
        for _ in range(4):  # the third knows what the second has made of the first
            ddp(torch.ones(1, 700)).sum().backward()
        names = [name for name, _ in module.named_parameters()]
        gradients = [Gradient(name, tuple(module.get_parameter(name).shape), "float32") for name in names]
        sizes = [str(bucket.bytes) for bucket in buckets_of(gradients, cap)]
        assert len(sizes) > 2
        assert ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(", ") == sizes


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
    assert told[0]["reason"].startswith("all_reduce of 128 B on 3 ranks: " + told[0]["algorithm"])
    assert {row["algorithm"] for row in told[0]["runners_up"]} == (
        {"ring", "doubling", "halving_doubling", "direct", "gather_all", "double_tree"} - {told[0]["algorithm"]}
    )


def test_tensors() -> None:
    told = run_ranks(explain_tensors, 3)
    assert told[1:] == told[:-1]
    assert "is rounded once" in told[0]["reason"]


@pytest.mark.parametrize("explain", [explain_arrays, explain_tensors])
def test_what_is_forced(explain: Any) -> None:
    forced = {"BRAID_ALGORITHM": "all_reduce=ring"}
    for told in run_ranks(explain, 2, join=explain is explain_tensors, environment=forced):
        assert told["algorithm"] == "ring"
        assert told["runners_up"] == []
        assert "forced" in told["reason"]


def test_buckets_are_those_of_ddp() -> None:
    run_ranks(cut_gradients, 1)


@pytest.mark.alone
@pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}")
def test_explain_asks_a_lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, again = tmp_path / "found.json", tmp_path / "again.json"
    asked = ["explain", "all_reduce", "--sizes", "64,16M"]
    assert main([*asked, "--lab", "1gbit,200mbit,1gbit", "--json", str(found)]) == 0
    assert "all_reduce, 3 ranks on 3 hosts" in capsys.readouterr().out
    document = json.loads(found.read_text())
    small, large = document["operations"]
    assert (small["bytes"], large["bytes"]) == (64, 16 << 20)
    assert small["predicted_s"] < large["predicted_s"]
    assert large["algorithm"] == "direct"
    assert large["shares"][1] < large["shares"][0]  # as measured
    topology = tmp_path / "cluster.txt"
    topology.write_text(document["topology"])
    assert main([*asked, "--topology", str(topology), "--json", str(again)]) == 0
    assert json.loads(again.read_text()) == document


def test_wrong_arguments() -> None:
    run_ranks(refuse, 1, join=False)
