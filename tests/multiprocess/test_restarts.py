# SPDX-License-Identifier: Apache-2.0
"""torchrun starts the ranks again after a death: strategies begin anew, too."""

import subprocess
import sys
from pathlib import Path

import pytest
from leftovers import nothing_left_behind
from slowness import limit

pytestmark = pytest.mark.multiprocess

# In the second attempt rank 0 comes last: the others must not take what the first attempt has left in the store.
SCRIPT = """
import os, signal, sys, threading, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
model = DistributedDataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if attempt == "1" and rank == 0:
    threading.Event().wait(1.0)
for step in range(30):
    if attempt == "0" and rank == 1 and step == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    model(torch.ones(4, 3)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
sys.stdout.write(f"rank {rank} has ended in attempt {attempt}\\n")
"""


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["parameter_server", "local"])
def test_a_second_attempt_takes_nothing_of_the_first(strategy: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with nothing_left_behind():
        done = subprocess.run(
            [
                *(sys.executable, "-m", "braid.cli", "run", "--nproc", "3", "--max-restarts", "1"),
                *("--strategy", strategy, str(script)),
            ],
            capture_output=True,
            text=True,
            timeout=limit(200),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        assert f"rank {rank} has ended in attempt 1\n" in done.stdout, done.stdout + done.stderr
