# SPDX-License-Identifier: Apache-2.0
"""``braid bench --device`` and ``braid info`` on the simulated device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from braid import cli
from braid._bench.collectives import COLLECTIVES
from braid._bench.ranks.contestants import Setting, UnavailableError, braid_recipe, recipe_for
from braid._bench.ranks.teams import teams_for
from braid._bench.rounds import Budget, CaseRun
from braid._bench.workload import workload
from ranks import Rank, run_ranks, start_fork_server
from slowness import limit

pytestmark = pytest.mark.multiprocess

SIM = Setting(2, "torch", device="sim=simulated:load")


@pytest.fixture(autouse=True)
def _find_the_device(monkeypatch) -> None:
    start_fork_server()
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_every_collective_on_tensors_of_a_device() -> None:
    """Results are checked where they lie; Gloo says why it has no part."""
    recipes = [braid_recipe(SIM), recipe_for("gloo", None, SIM)]
    with teams_for(recipes, 2, ["torch", "torch.distributed"]) as (teams, skipped):
        assert not skipped
        assert teams["braid"].ask("about")[0].endswith("braid, sim")
        for name in COLLECTIVES:
            work = workload(name, "float32", "sum", 5000, 2, None, False)
            case = CaseRun(teams, work, 2, Budget(0.02, calls=2), lambda *_: None).run()
            found = case.measurements.get("braid")
            assert found is not None, (name, case.refused)
            assert found.wrong == 0, name
            if name != "barrier":
                assert "gloo" in case.refused, name


def test_who_has_no_part() -> None:
    """MPI's arrays are in host memory; a device that is not there is a reason, not a crash."""
    with pytest.raises(UnavailableError, match="in host memory alone"):
        recipe_for("mpich", None, SIM)
    with teams_for([braid_recipe(Setting(1, "torch", device="xpu"))], 1, []) as (_, skipped):
        assert "finds no device xpu on this machine" in skipped["braid"]


def test_the_command(capsys, tmp_path: Path) -> None:
    """The report names the device; a form that makes no sense is refused."""
    out = tmp_path / "r.json"
    arguments = ["bench", "all_reduce", "--sizes", "64", "--iters", "2", "--against", "none"]
    assert cli.main([*arguments, "--device", SIM.device, "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    assert report["settings"]["device"] == "sim"
    assert report["cases"][0]["limit_us"] is None
    assert cli.main([*arguments, "--device", "sim=nothing"]) == 2
    assert "--device: expected cpu, cuda" in capsys.readouterr().err
    assert cli.main([*arguments, "--device", "cuda", "--api", "array"]) == 2


def predictions(rank: Rank) -> None:
    import simulated

    sim = simulated.load()
    rank.join()
    import torch
    import torch.distributed as dist

    sim.set_delays(on_pool=3000)
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("sim"))
    host, device = backend.explain("all_reduce", 1 << 20), backend.explain("all_reduce", 1 << 20, device="sim")
    assert host["copies_s"] == 0
    assert 0.006 <= device["copies_s"] < 30
    assert device["predicted_s"] == pytest.approx(host["predicted_s"] + device["copies_s"])
    host, device = backend.explain("all_reduce", 64 << 20), backend.explain("all_reduce", 64 << 20, device="sim")
    longest = max(host["predicted_s"], device["copies_s"] / 2)
    assert longest <= device["predicted_s"] < host["predicted_s"] + device["copies_s"], "copied in pieces"
    with pytest.raises(TypeError, match="braid has no path for tensors on device xpu"):
        backend.explain("all_reduce", 8, device="xpu")
    ones = torch.ones(3, device="sim")
    dist.all_reduce(ones)
    assert ones.cpu().tolist() == [rank.size] * 3


def test_predictions_have_the_copies() -> None:
    """They are measured on the device; the group works on after that."""
    run_ranks(predictions, 2, join=False)


def ways(rank: Rank) -> tuple[str, str]:
    import simulated

    simulated.load()
    from braid._torch.adapter import load_adapter
    from braid._torch.paths import device_paths

    assert "not built" in {row.device: row.why for row in device_paths(None)}["sim"]
    simulated.offer_flags()
    return {row.device: (row.path, row.why) for row in device_paths(load_adapter())}["sim"]


BLOCKS, NO_LEG = "wait() blocks the CPU (BRAID_STREAM_WAITS is off)", "no local leg (BRAID_LOCAL_LEG is off)"


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, f"{BLOCKS}; {NO_LEG}"),
        ({"BRAID_STREAM_WAITS": "1"}, f"wait() lets the stream wait (BRAID_STREAM_WAITS=1); {NO_LEG}"),
        (
            {"BRAID_LOCAL_LEG": "sim:braid"},
            f"{BLOCKS}; braid carries them within hosts (BRAID_LOCAL_LEG=sim:braid)",
        ),
        ({"BRAID_LOCAL_LEG": "cpu:gloo"}, f"{BLOCKS}; no local leg (BRAID_LOCAL_LEG=cpu:gloo has none for sim)"),
    ],
)
def test_the_way_of_a_device(environment: dict[str, str], why: str) -> None:
    """As ``braid info`` tells it."""
    assert run_ranks(ways, 1, join=False, environment=environment)[0] == ("through the host", why)


@pytest.mark.long
def test_the_goals_are_judged(tmp_path: Path) -> None:
    """bench/gpu/goals.py runs through on the simulated device; Gloo has no part there."""
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "bench/gpu/goals.py", str(tmp_path), "--device", SIM.device, "--time", "0.1"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        timeout=limit(240),
        check=True,
    )
    goals = json.loads((tmp_path / "goals.json").read_text())
    assert [goal["met"] is None for goal in goals] == [False, False, True]
    assert goals[0]["numbers"]["copies_us"]["down"] > 0


@pytest.mark.long
def test_calls_are_compared_with_another_version(tmp_path: Path) -> None:
    """bench/device/cpu_calls.py, with this version as the other one."""
    import braid

    own = [sys.executable, "bench/device/cpu_calls.py", "--package", str(Path(braid.__file__).parents[1])]
    numbers = ["--ranks", "1,2", "--pairs", "5", "--calls", "20", "--out", str(tmp_path / "calls.json")]
    subprocess.run([*own, *numbers], cwd=Path(__file__).parents[2], timeout=limit(240), check=True)
    rows = json.loads((tmp_path / "calls.json").read_text())["rows"]
    assert [(row["ranks"], row["pairs"]) for row in rows] == [(1, 5), (2, 5)]
    for row in rows:
        assert row["before_us"] > 0 < row["after_us"]
        assert row["ratio_quartiles_low"] <= row["ratio"] <= row["ratio_quartiles_high"]


@pytest.mark.long
def test_deaths_are_measured(tmp_path: Path) -> None:
    """bench/device/death.py: whichever way tensors go, all streams drain, and errors name the rank."""
    own = [sys.executable, "bench/device/death.py", "--deaths", "1", "--bytes", str(1 << 20)]
    out = tmp_path / "death.json"
    subprocess.run([*own, "--out", str(out)], cwd=Path(__file__).parents[2], timeout=limit(240), check=True)
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 3
    for row in rows:
        assert row["survivors_whose_error_names_the_rank"] == row["survivors"] == 3, row["way"]
