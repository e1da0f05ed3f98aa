# SPDX-License-Identifier: Apache-2.0
"""`braid run --compression` and BRAID_COMPRESSION: unchanged scripts send fewer bytes."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import braid.hooks
import pytest
import torch
import torch.distributed as dist
from braid.compression import automatic
from hosts_apart import SLOW, join_apart
from ranks import Rank, run_ranks
from slowness import limit
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess

SCRIPT = """
import os, sys
os.environ["BRAID_HOST"] = "host-" + os.environ["RANK"]
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200))
for _ in range(3):
    model(torch.ones(1, 200)).sum().backward()
import braid
sys.stdout.write(f"{[row.codec for row in braid.hooks.state_of(model).report()]}\\n")
dist.destroy_process_group()
"""


def train(
    rank: Rank, change: Callable[[Any], object] = lambda model: None, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, dict[str, str]]:
    torch.manual_seed(0)
    layers = (nn.Linear(8, 200), nn.Tanh(), nn.Linear(200, 200), nn.Linear(200, 2))
    model = DistributedDataParallel(nn.Sequential(*layers), process_group=group)
    change(model)
    torch.manual_seed(rank.rank)
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(4, 8)).square().sum().backward()
    if group is None and not model._comm_hooks:
        pickle.dumps(model)
    state = braid.hooks.state_of(model)
    codecs = {row.parameter: row.codec for row in state.report()} if state else {}
    return model.module[2].weight.grad.clone(), codecs


def compress_automatically(rank: Rank) -> str:
    join_apart(rank)
    gloo = dist.new_group(backend="gloo")
    exact, _ = train(rank)
    for _ in range(2):
        automatic.install("int8,warmup:1")
    for change, group in (
        (lambda model: model.register_comm_hook(None, allreduce_hook), None),
        (lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE), None),
        (lambda model: None, gloo),
    ):
        grad, told = train(rank, change, group)
        assert not told
        torch.testing.assert_close(grad, exact)
    grad, told = train(rank)
    assert {name: codec for name, codec in told.items() if codec != "exact"} == {"2.weight": "int8"}
    assert not torch.equal(grad, exact)
    assert (grad - exact).abs().max() < 0.02 * exact.abs().max()
    # A hook that the script registers after the first call replaces ours.
    for late in (
        lambda model: model.register_comm_hook(None, allreduce_hook),
        lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE),
    ):

        def call_first(model: Any, late: Callable[[Any], object] = late) -> None:
            model(torch.ones(1, 8)).sum().backward()
            assert braid.hooks.state_of(model)
            late(model)

        grad, told = train(rank, call_first)
        assert not told
        torch.testing.assert_close(grad, exact)
    model = DistributedDataParallel(nn.Linear(200, 200))
    compiled = torch.compile(model, backend="eager")
    for _ in range(3):
        compiled(torch.ones(1, 200)).sum().backward()
    assert {row.codec for row in braid.hooks.state_of(model).report()} == {"int8", "exact"}
    automatic.install("off")
    assert not train(rank)[1]
    automatic.install("int9")
    with pytest.raises(ValueError, match="BRAID_COMPRESSION: compression 'int9'"):
        train(rank)
    return (rank.folder / f"log.{rank.rank}").read_text()


def test_automatic_installation() -> None:
    first, second = run_ranks(compress_automatically, 2, wire="tcp", join=False)
    line = "braid: gradients may be compressed: int8,warmup:1 (unset BRAID_COMPRESSION to stop)"
    assert first.count(line) == 1
    assert line not in second
    assert first.count("gradients stay exact, in spite of BRAID_COMPRESSION: this needs a group on braid") == 1


@pytest.mark.long
def test_run(tmp_path: Path) -> None:
    script, links = tmp_path / "train.py", tmp_path / "links.toml"
    script.write_text(SCRIPT)
    links.write_text(SLOW)
    words = ["--nproc", "2", "--links", str(links), "--compression", "int8,warmup:1", str(script)]
    done = subprocess.run(
        [sys.executable, "-m", "braid.cli", "run", *words],
        env={name: value for name, value in os.environ.items() if name != "BRAID_COMPRESSION"},
        capture_output=True,
        text=True,
        timeout=limit(200),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("['int8', 'exact']") == 2 or done.stdout.count("['exact', 'int8']") == 2
    assert "braid: gradients may be compressed: int8" in done.stderr
