# SPDX-License-Identifier: Apache-2.0
"""A script that raises an error inside a strategy ends by that error, and by nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest
from slowness import limit

pytestmark = [pytest.mark.multiprocess]

RUNS = 3

SCRIPT = """
import sys, torch, torch.distributed as dist
import braid.strategies as bs
dist.init_process_group("gloo")
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
strategy = bs.from_text(sys.argv[1], model, optimizer)
with strategy:
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    raise RuntimeError("mine")
"""


# Three runs hardly miss the fault below, but start nine processes that import torch. test_end_of_python.py has
# quick tests of its kind.
@pytest.mark.long
@pytest.mark.parametrize("strategy", ["diloco:sync_every=20", "elastic:schedule=sync1,sync_every=1"])
def test_an_error_ends_the_ranks_by_itself(tmp_path: Path, strategy: str) -> None:
    """A thread of the strategy was inside torch when Python ended: C++ then aborted every second run."""
    script = tmp_path / "raises.py"
    script.write_text(SCRIPT)
    braid = str(Path(sys.executable).parent / "braid")
    for _ in range(RUNS):
        done = subprocess.run(
            [braid, "run", "--nproc", "2", str(script), strategy],
            capture_output=True,
            text=True,
            timeout=limit(200),
        )
        assert done.returncode == 1
        assert "RuntimeError: mine" in done.stderr
        assert "terminate called" not in done.stderr
        assert "SIGABRT" not in done.stderr
