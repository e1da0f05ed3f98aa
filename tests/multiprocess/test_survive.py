# SPDX-License-Identifier: Apache-2.0
"""``braid run --survive`` and ``braid lab --survive``: a worker of gossip that dies stops nobody."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from braid.cli import main
from braid.lab import unavailable
from slowness import limit

pytestmark = pytest.mark.multiprocess

SCRIPT = """
import os, signal, sys, threading, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(9, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    model(torch.randn(4, 9)).square().mean().backward()
    optimizer.step()
    if step == 10 and str(dist.get_rank()) in sys.argv[1:]:
        os.kill(os.getpid(), signal.SIGKILL)
print(f"rank {dist.get_rank()} ends\\n", end="", flush=True)
"""


def run(folder: Path, *dies: str) -> "subprocess.CompletedProcess[str]":
    script = folder / "train.py"
    script.write_text(SCRIPT)
    options = ["--survive", "--nproc", "3", "--strategy", "gossip"]
    command = [sys.executable, "-m", "braid.cli", "run", *options, str(script), *dies]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit(120), check=False)


@pytest.mark.parametrize("dies", ["1", pytest.param("0", marks=pytest.mark.long)])
def test_the_others_train_to_their_end(tmp_path: Path, dies: str) -> None:
    done = run(tmp_path, dies)
    assert done.returncode == 0, done.stderr
    rest = sorted({"0", "1", "2"} - {dies})
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} ends" for rank in rest]
    assert f"braid: rank {dies} was killed by SIGKILL\n" in done.stderr
    assert done.stderr.endswith("braid: 2 of 3 ranks ended well\n")


@pytest.mark.long
def test_a_job_of_which_nobody_is_left_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "0", "1", "2")
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    assert "ended well" not in done.stderr


@pytest.mark.long
@pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}")
@pytest.mark.parametrize(("survive", "code"), [(["--survive"], 0), ([], 3)])
def test_in_the_lab(capfd: pytest.CaptureFixture[str], survive: list[str], code: int) -> None:
    # Without --survive the lab ends rank 0 ten seconds after the other.
    does = f"case $RANK in 0) sleep {12 if survive else 100}; echo end;; 1) exit 3;; esac"
    assert main(["lab", "--hosts", "2x1gbit", *survive, "--", "sh", "-c", does]) == code
    out, err = capfd.readouterr()
    assert (out == "end\n") == bool(survive)
    assert "rank 1 on h1 ended with exit code 3" in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-restarts", "1"], "leave out --max-restarts"),
        (["--nnodes", "1:2"], "the nodes must be known beforehand"),
        (["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:1"], "the nodes must be known beforehand"),
    ],
)
def test_options_that_mean_something_else(
    capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    assert main(["run", "--survive", *options, __file__]) == 2
    assert says in capsys.readouterr().err
