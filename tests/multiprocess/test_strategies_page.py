# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/strategies.md and of the docstrings run, and the examples learn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--nproc-per-node"],
    "braid run": ["braid.cli", "run", "--nproc"],
}


def run(launcher: str, ranks: int, *script: str) -> str:
    command = [sys.executable, "-m", *LAUNCHERS[launcher], str(ranks), *script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("strategy", ["ParameterServer", "Hybrid", "ElasticAverage", "DiLoCo", "Gossip"])
def test_the_page(strategy: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "strategies.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (block,) = (block for block in blocks if f"bs.{strategy}(" in block)
    script = tmp_path / "script.py"
    script.write_text(block + 'print(f"accuracy {accuracy:.3f}", flush=True)\n')
    found = re.findall(r"accuracy ([\d.]+)", run("torchrun", 2, str(script)))
    assert len(found) == 2
    assert min(map(float, found)) > 0.9


@pytest.mark.long
@pytest.mark.parametrize(("launcher", "mode"), [("torchrun", "async"), ("braid run", "ssp")])
def test_the_example(launcher: str, mode: str) -> None:
    said = run(launcher, 4, str(ROOT / "examples" / "parameter_server.py"), "--mode", mode)
    accuracy = re.search(r"test accuracy ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > 93, said
    assert re.search(r"staleness of the gradients that rank 0's shard got: .*\d+: \d+", said), said


@pytest.mark.parametrize(
    ("launcher", "schedule"),
    [pytest.param("torchrun", "first_come", marks=pytest.mark.long), ("braid run", "sync3")],
)
def test_the_elastic_example(launcher: str, schedule: str) -> None:
    said = run(launcher, 4, str(ROOT / "examples" / "elastic_average.py"), "--schedule", schedule)
    accuracy = re.search(r"test accuracy of the centre ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > 93, said


@pytest.mark.parametrize(
    ("launcher", "options"),
    [
        pytest.param(
            "torchrun",
            ["--strategy", "local", "--sync-every", "4", "--warmup-steps", "8"],
            marks=pytest.mark.long,
        ),
        ("braid run", ["--num-fragments", "2", "--delay", "1", "--alpha", "0.5", "--compression", "int4"]),
        pytest.param("torchrun", ["--quorum", "3", "--slow-ms", "20"], marks=pytest.mark.long),
    ],
)
def test_the_example_of_local_steps(launcher: str, options: list[str]) -> None:
    said = run(launcher, 4, str(ROOT / "examples" / "diloco.py"), *options)
    accuracy = re.search(r"test accuracy of the centre ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > 93, said


@pytest.mark.parametrize(
    ("launcher", "mode"),
    [pytest.param("torchrun", "push_sum", marks=pytest.mark.long), ("braid run", "symmetric")],
)
def test_the_gossip_example(launcher: str, mode: str) -> None:
    said = run(launcher, 4, str(ROOT / "examples" / "gossip.py"), "--mode", mode)
    accuracy = re.search(r"test accuracy of the mean ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > 93, said


@pytest.mark.long
def test_the_example_of_groups() -> None:
    said = run("braid run", 4, str(ROOT / "examples" / "hybrid.py"), "--groups", "0+1/2/3")
    accuracy = re.search(r"groups \[\[0, 1\], \[2\], \[3\]\], test accuracy ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > 93, said
    assert len(re.findall(r"rank \d: 88 steps", said)) == 4, said


@pytest.mark.parametrize(
    "name", ["DiLoCo", "ElasticAverage", "Hybrid", "LocalSGD", "ParameterServer", "from_text"]
)
def test_docstrings(name: str) -> None:
    code = f"""
import doctest
import braid.strategies as bs
(found,) = doctest.DocTestFinder(recurse=False).find(bs.{name}, "{name}")
result = doctest.DocTestRunner().run(found)
assert result.attempted > 3 and not result.failed
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
