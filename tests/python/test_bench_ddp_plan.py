# SPDX-License-Identifier: Apache-2.0
"""The plan of ``braid bench ddp``, and what its times are made into."""

import dataclasses
from pathlib import Path

import pytest
from braid._bench.ddp import measure
from braid._bench.ddp.results import DdpReport, DdpSettings
from braid._bench.ddp.text import lines
from braid._bench.report_file import ReportError
from braid._bench.results import Report

pytestmark = pytest.mark.unit


class TeamStub:
    """Takes planned times, and one rank in two is quicker."""

    def __init__(
        self, name: str, milliseconds: dict[str, float], log: list[str], fails_after: int = 10**9
    ) -> None:
        self.name, self.milliseconds, self.log, self.fails_after = name, milliseconds, log, fails_after

    def ask(self, method: str, *arguments: str, timeout_s: float) -> list[object]:
        self.fails_after -= 1
        if self.fails_after < 0:
            raise RuntimeError("rank 1 ended")
        match method:
            case "check":
                return [0, 3 if self.name == "odd" else 0]
            case "facts":
                return [{**FACTS}, {**FACTS}]
            case "step":
                self.log.append(f"{self.name} {arguments[0]}")
                return [self.milliseconds[arguments[0]] / 2e3, self.milliseconds[arguments[0]] / 1e3]
        raise AssertionError(method)


FACTS = {"parameters": 80, "tensors": 3, "gradient_bytes": 320, "batch": 1, "bucket_bytes": [160, 160]}
SETTINGS = DdpSettings("resnet50", 2, compute_ms=100)
FAST = {"full": 110.0, "compute": 100.0, "communication": 42.0, "bare": 2.0}
SLOW = {"full": 130.0, "compute": 100.0, "communication": 62.0, "bare": 2.0}
HIDING = {"full": 100.0, "compute": 100.0, "communication": 42.0, "bare": 2.0}


def test_measured_times_and_ratios(tmp_path: Path) -> None:
    log: list[str] = []
    teams = {"braid": TeamStub("braid", FAST, log), "odd": TeamStub("odd", SLOW, log)}
    report = measure.measure(teams, SETTINGS, rounds=4)
    braid, odd = report.measurements["braid"], report.measurements["odd"]
    assert braid.step_ms.median == pytest.approx(110)  # that of the slowest rank
    assert braid.exposed_ms.median == pytest.approx(10)
    assert braid.communication_ms.median == pytest.approx(40)
    assert braid.hidden is not None
    assert braid.hidden.median == pytest.approx(0.75)
    assert (braid.wrong, odd.wrong) == (0, 6)
    ratios = report.ratios["odd"]
    assert ratios.exposed is not None
    assert ratios.exposed.median == pytest.approx(3)
    assert ratios.communication is not None
    assert ratios.communication.high == pytest.approx(1.5)

    path = tmp_path / "report.json"
    report.write(path)
    assert DdpReport.read(path) == report
    with pytest.raises(ReportError, match="another kind: ddp, not collective"):
        Report.read(path)

    text = lines(report)
    assert "resnet50, 2 ranks, computing for 100 ms (asleep, as if on an accelerator), 4 rounds" in text[0]
    assert "2 buckets, as torch cuts them: 0.0 0.0 MB" in text[2]
    row = next(line for line in text if line.startswith("odd")).split()
    assert row[1:7] == ["130.0", "100.0", "30.0", "60.0", "50", "6"]
    assert row[7:10] == ["3.00x", "[3.00,", "3.00]"]
    assert "WRONG: odd: 6 elements of averaged gradients" in text


def test_contestants_take_turns_in_both_orders() -> None:
    log: list[str] = []
    teams = {name: TeamStub(name, FAST, log) for name in ("braid", "gloo")}
    measure.measure(teams, SETTINGS, rounds=2)
    turns = [line.split()[0] for line in log[2 * len(measure.KINDS) :: len(measure.KINDS)]]
    assert turns == ["braid", "gloo", "gloo", "braid"]
    assert [line.split()[1] for line in log[: len(measure.KINDS)]] == list(measure.KINDS)


def test_time_ends_the_rounds_but_not_before_there_are_enough() -> None:
    report = measure.measure({"braid": TeamStub("braid", FAST, [])}, SETTINGS, rounds=50, seconds=0)
    assert report.rounds == measure.LEAST_ROUNDS


def test_a_team_that_breaks_is_skipped() -> None:
    teams = {"braid": TeamStub("braid", FAST, []), "gloo": TeamStub("gloo", SLOW, [], fails_after=9)}
    report = measure.measure(teams, SETTINGS, rounds=5)
    assert report.skipped == {"gloo": "rank 1 ended"}
    assert list(report.measurements) == ["braid"]
    assert report.rounds == 5
    assert "skipped gloo: rank 1 ended" in lines(report)
    broken = measure.measure({"braid": TeamStub("braid", FAST, [], fails_after=0)}, SETTINGS)
    assert broken.measurements == {}
    assert broken.rounds == 0
    assert "skipped braid: rank 1 ended" in lines(broken)


def test_nothing_exposed_gives_no_ratio() -> None:
    teams = {"braid": TeamStub("braid", HIDING, []), "gloo": TeamStub("gloo", SLOW, [])}
    report = measure.measure(teams, SETTINGS, rounds=3)
    assert report.ratios["gloo"].exposed is None
    assert next(line for line in lines(report) if line.startswith("gloo")).split()[7] == "-"
    silent = measure.measurement({kind: [5.0, 6.0] for kind in measure.KINDS}, 0)
    assert silent.hidden is None


def test_what_makes_numbers_doubtful_is_noted() -> None:
    slow = dataclasses.replace(SETTINGS, compute_ms=50)
    notes = measure.measure({"braid": TeamStub("braid", FAST, [])}, slow, rounds=3).notes
    assert notes == ["braid computes for 100 ms: torch needs longer than was given"]
