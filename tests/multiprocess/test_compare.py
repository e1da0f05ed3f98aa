# SPDX-License-Identifier: Apache-2.0
"""``braid compare``: whole runs, with scripts that name no backend, Gloo or braid."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from braid.cli import main
from braid.lab import unavailable

pytestmark = pytest.mark.multiprocess

SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group(*sys.argv[1:2])
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(int(sys.argv[2])):
    given = torch.randn(8, 40, generator=data)
    optimizer.zero_grad()
    (model(given) - given.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    {more}
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the command sets it in this process


def compare(
    folder: Path, arguments: list[str], of_script: list[str], more: str = ""
) -> tuple[int, dict[str, Any]]:
    script, kept = folder / "train.py", folder / "found.json"
    script.write_text(SCRIPT.format(more=more))
    code = main(["compare", "--json", str(kept), *arguments, str(script), *of_script])
    return code, {row["name"]: row for row in json.loads(kept.read_text())["ways"]} if kept.exists() else {}


@pytest.mark.parametrize("backend", ["braid", pytest.param("gloo", marks=pytest.mark.long)])
def test_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str) -> None:
    code, found = compare(tmp_path, ["--steps", "20"], [backend, "1000"])
    out = capsys.readouterr().out
    assert code == 0, out
    assert set(found) == {"Gloo", "braid"}
    assert "braid, auto" not in out
    losses = {name: [[step["loss"] for step in rank] for rank in row["steps"]] for name, row in found.items()}
    for rank in (0, 1):
        assert len(losses["braid"][rank]) == 12 + 20  # the first ones and those that were timed
        assert losses["braid"][rank] == pytest.approx(losses["Gloo"][rank], rel=1e-4)
    assert all(len(row["blocks"]) == 10 and row["blocks"][0]["steps"] == 4 for row in found.values())
    # Only braid knows an algorithm, so the script's "braid" was Gloo in the other job.
    assert [bool(found[name]["algorithm"]) for name in ("Gloo", "braid")] == [False, True]
    assert re.search(r"^10 rounds of 2 steps in each way take some [\d.]+ s$", out, re.MULTILINE), out
    assert "braid: " in out
    assert " times as fast as Gloo (" in out


@pytest.mark.long
@pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}")
def test_unequal_hosts_with_a_proposed_strategy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = SCRIPT.replace("Linear(40, 1)", "Sequential(torch.nn.Linear(40, 4000), torch.nn.Linear(4000, 1))")
    script, kept = tmp_path / "train.py", tmp_path / "found.json"
    script.write_text(wide.format(more=""))
    options = ["--hosts", "1x200mbit,1x50mbit", "--steps", "20", "--json", str(kept)]
    code = main(["compare", *options, str(script), "gloo", "100000"])
    out = capsys.readouterr().out
    assert code == 0, out
    found = {row["name"]: row for row in json.loads(kept.read_text())["ways"]}
    assert list(found)[:3] == ["Gloo", "braid", "braid, auto"]
    assert len(found) == 4, out
    assert "`braid advise` proposes" in out
    for row in found.values():
        assert row["blocks"], out
        assert sum(len(rank) for rank in row["steps"]) > 2 * 12
    # 164 kB of parameters: each of two hosts sends as much, with Gloo as with braid.
    for name in ("Gloo", "braid"):
        assert 2 * 650_000 < found[name]["bytes_per_step"] < 2 * 900_000
    assert "sent a" in out


@pytest.mark.long
def test_workers_that_wait_for_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = "__import__('threading').Event().wait(0.02 * dist.get_rank())"
    options = ["--steps", "20", "--strategy", "parameter_server:mode=ssp,staleness=2", "--nproc", "3"]
    code, found = compare(tmp_path, options, ["gloo", "100000"], late)
    out = capsys.readouterr().out
    assert code == 0, out
    counts = [len(rank) for rank in found["parameter_server:mode=ssp,staleness=2"]["steps"]]
    assert min(counts) > 12
    assert max(counts) <= min(counts) + 4


@pytest.mark.long
def test_a_script_that_fails_on_braid_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails = "assert step < 15 or not __import__('os').environ['BRAID_TAKEOVER'], f'no {step}'"
    code, found = compare(tmp_path, ["--steps", "20"], ["gloo", "100000"], fails)
    out = capsys.readouterr().out
    assert code == 1, out
    assert "failed, braid: rank " in out
    assert "AssertionError: no 15" in out
    assert len(found["Gloo"]["blocks"]) == 10


@pytest.mark.long
def test_a_rival_that_fails_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails = "assert step < 3 or __import__('os').environ['BRAID_TAKEOVER']"
    code, found = compare(tmp_path, ["--steps", "20"], ["gloo", "100000"], fails)
    out = capsys.readouterr().out
    assert code == 0, out
    assert "failed, Gloo: rank " in out
    assert len(found["braid"]["blocks"]) == 10


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        pytest.param("5", "ended before its optimizer had made 13 steps", marks=pytest.mark.long),
        pytest.param("20", "ended before 10 rounds were over", marks=pytest.mark.long),
    ],
)
def test_a_short_script(tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: str, says: str) -> None:
    code, _ = compare(tmp_path, ["--steps", "20"], ["gloo", steps])
    out, err = capsys.readouterr()
    assert says in out + err
    assert code == (1 if steps == "5" else 0)
