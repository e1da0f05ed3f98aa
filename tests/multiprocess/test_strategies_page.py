# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/strategies.md and of the docstrings run, and the examples learn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from slowness import limit

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
LEARNT = 85  # percent; guessing has 10, and who trains without waiting has 92 to 98 by the machine's load
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--nproc-per-node"],
    "braid run": ["braid.cli", "run", "--nproc"],
}


def run(launcher: str, ranks: int, *script: str) -> str:
    command = [sys.executable, "-m", *LAUNCHERS[launcher], str(ranks), *script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit(200), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PAGE = (ROOT / "docs" / "strategies.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TEMPLATE = next(block for block in BLOCKS if "import torch" in block)
THEIR_LINE = re.compile(r"^strategy = .*\n", re.MULTILINE)
CALLS = {
    "DiLoCo": "strategy = bs.DiLoCo(model, opt, sync_every=20)",
    "ParameterServer": "strategy = opt = bs.ParameterServer(",
    "Hybrid": "strategy = opt = bs.Hybrid(",
    "HALoS": "strategy = bs.DiLoCo(\n",
    "ElasticAverage": "strategy = bs.ElasticAverage(",
    "LocalSGD": "strategy = bs.LocalSGD(",
    "Gossip": "strategy = bs.Gossip(",
}


def test_the_page_has_these_examples() -> None:
    lines = [THEIR_LINE.search(TEMPLATE)[0], *(block for block in BLOCKS if block is not TEMPLATE)]
    starts = {name: [line for line in lines if line.startswith(call)] for name, call in CALLS.items()}
    assert {name: len(found) for name, found in starts.items()} == dict.fromkeys(CALLS, 1)
    assert len(lines) == len(CALLS), "an example of the page has no test"


@pytest.mark.long
def test_the_script_as_the_page_has_it(tmp_path: Path) -> None:
    ((ranks, name),) = re.findall(r"Start it with `braid run --nproc (\d+) (\S+)`", PAGE)
    assert f"Save as `{name}`" in PAGE
    path = tmp_path / name
    path.write_text(TEMPLATE)
    said = run("braid run", int(ranks), str(path))
    (accuracy,) = re.findall(r"^accuracy ([\d.]+)$", said, re.MULTILINE)  # of rank 0 alone
    assert float(accuracy) > 0.9


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
def test_the_page(name: str, tmp_path: Path) -> None:
    """Put the lines of each strategy into the page's script, as a reader does."""
    lines = [block for block in BLOCKS if block.startswith(CALLS[name])] or THEIR_LINE.findall(TEMPLATE)
    assert len(lines) == 1
    script, count = THEIR_LINE.subn(lambda _: lines[0], TEMPLATE)
    assert count == 1
    if name == "HALoS":
        assert "strategy.settle()" in script
        script = script.replace("strategy.settle()", "strategy.settle(everyone=True)")
    path = tmp_path / "strategy.py"
    path.write_text(script + 'print(f"on one rank: {accuracy:.3f}", flush=True)\n')
    found = re.findall(r"on one rank: ([\d.]+)", run("torchrun", 2, str(path)))
    assert len(found) == 2
    assert min(map(float, found)) > LEARNT / 100


@pytest.mark.long
@pytest.mark.parametrize(("launcher", "mode"), [("torchrun", "async"), ("braid run", "ssp")])
def test_the_example(launcher: str, mode: str) -> None:
    said = run(launcher, 4, str(ROOT / "examples" / "parameter_server.py"), "--mode", mode)
    accuracy = re.search(r"test accuracy ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > LEARNT, said
    assert re.search(r"staleness of the gradients that rank 0's shard got: .*\d+: \d+", said), said


@pytest.mark.long
@pytest.mark.parametrize(("launcher", "schedule"), [("torchrun", "first_come"), ("braid run", "sync3")])
def test_the_elastic_example(launcher: str, schedule: str) -> None:
    said = run(launcher, 4, str(ROOT / "examples" / "elastic_average.py"), "--schedule", schedule)
    accuracy = re.search(r"test accuracy of the centre ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > LEARNT, said


@pytest.mark.long
@pytest.mark.parametrize(
    ("launcher", "options"),
    [
        ("torchrun", ["--strategy", "local", "--sync-every", "4", "--warmup-steps", "8"]),
        ("braid run", ["--num-fragments", "2", "--delay", "1", "--alpha", "0.5", "--compression", "int4"]),
        ("torchrun", ["--quorum", "3", "--slow-ms", "20"]),
    ],
)
def test_the_example_of_local_steps(launcher: str, options: list[str]) -> None:
    said = run(launcher, 4, str(ROOT / "examples" / "diloco.py"), *options)
    accuracy = re.search(r"test accuracy of the centre ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > LEARNT, said


@pytest.mark.long
@pytest.mark.parametrize(("launcher", "mode"), [("torchrun", "push_sum"), ("braid run", "symmetric")])
def test_the_gossip_example(launcher: str, mode: str) -> None:
    said = run(launcher, 4, str(ROOT / "examples" / "gossip.py"), "--mode", mode)
    accuracy = re.search(r"test accuracy of the mean ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > LEARNT, said


@pytest.mark.long
def test_the_example_of_groups() -> None:
    said = run("braid run", 4, str(ROOT / "examples" / "hybrid.py"), "--groups", "0+1/2/3")
    accuracy = re.search(r"groups \[\[0, 1\], \[2\], \[3\]\], test accuracy ([\d.]+) %", said)
    assert accuracy, said
    assert float(accuracy[1]) > LEARNT, said
    assert len(re.findall(r"rank \d: 88 steps", said)) == 4, said


def test_docstrings() -> None:
    code = """
import doctest
import braid.strategies as bs
for name in ("DiLoCo", "ElasticAverage", "Hybrid", "LocalSGD", "ParameterServer", "from_text"):
    (found,) = doctest.DocTestFinder(recurse=False).find(getattr(bs, name), name)
    result = doctest.DocTestRunner().run(found)
    assert result.attempted > 3 and not result.failed, name
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=limit(200), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
