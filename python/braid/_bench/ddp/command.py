# SPDX-License-Identifier: Apache-2.0
"""What ``braid bench ddp`` asks for, checked before anything starts; and what is done with what was found."""

import os
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from braid import _machine
from braid._bench.ddp import measure
from braid._bench.ddp.models import MODEL_NAMES, model
from braid._bench.ddp.results import DdpReport, DdpSettings
from braid._bench.ddp.text import lines
from braid._bench.machine import facts
from braid._bench.machine.busy import busy_beside, check_busy
from braid._bench.ranks.contestants import IN_TORCH, Setting, parse_against, preload
from braid._bench.ranks.team import Recipe, TeamError
from braid._bench.ranks.teams import teams_for
from braid._bench.results import REFERENCE
from braid._bench.show.progress import Progress
from braid._bench.workload import UsageError
from braid._torch.adapter import ensure_adapter

# What a rank takes: a parameter and its gradient, and torch itself.
_BYTES_PER_PARAMETER = 8
_BYTES_PER_RANK = 300 << 20


@dataclass(frozen=True)
class DdpRequest:
    """The command line, as given."""

    model: str
    ranks: int
    compute: str
    batch: int | None
    bucket_cap_mb: float | None
    threads: int
    against: str
    seconds: float
    busy: int
    json: Path | None
    command: list[str]

    def settings(self) -> DdpSettings:
        """Return what is to be measured; UsageError when it makes no sense."""
        if self.model not in MODEL_NAMES:
            raise UsageError(f"--model: there is no {self.model!r}, expected one of {', '.join(MODEL_NAMES)}")
        for option, value in (
            ("--ranks", self.ranks),
            ("--batch", self.batch),
            ("--bucket-cap-mb", self.bucket_cap_mb),
            ("--threads", self.threads),
            ("--time", self.seconds),
        ):
            if value is not None and value <= 0:
                raise UsageError(f"{option}: expected more than 0, got {value:g}")
        check_busy(self.busy)
        if self.json and (self.json.is_dir() or not os.access(self.json.parent, os.W_OK)):
            raise UsageError(f"--json: cannot write {self.json}")
        return DdpSettings(
            self.model,
            self.ranks,
            self._compute_ms(),
            self.batch,
            self.bucket_cap_mb,
            self.threads,
            self.busy,
        )

    def _compute_ms(self) -> float | None:
        if self.compute == "measured":
            return None
        try:
            milliseconds = float(self.compute)
        except ValueError:
            milliseconds = -1
        if not 0 <= milliseconds < 1e6:
            raise UsageError(f"--compute: expected measured, or the milliseconds of a step, got {self.compute!r}")
        return milliseconds


def execute(request: DdpRequest) -> int:
    """Carry out one ``braid bench ddp``; return its exit code: 1 when gradients were wrong or braid failed.

    Raises:
        UsageError: the request makes no sense, or there is too little memory for it.
    """
    settings = request.settings()
    against = parse_against(request.against)
    skipped = {
        name: "DistributedDataParallel needs a backend of torch" for name in against if name not in IN_TORCH
    }
    names = [REFERENCE, *(name for name in against if name not in skipped)]
    _check_memory(settings, len(names))
    ensure_adapter()
    recipes = [Recipe(name, measure.RANK_CLASS, settings.of_rank(name)) for name in names]
    modules = [*preload(names, Setting(settings.ranks)), "braid._bench.ddp.rank"]
    machine = facts.facts()
    with Progress() as progress, teams_for(recipes, settings.ranks, modules) as (teams, failed):
        if REFERENCE in failed:
            raise TeamError(f"braid's own ranks did not start: {failed[REFERENCE]}")
        disturbance = facts.Disturbance()
        with busy_beside(settings.busy):
            report = measure.measure(
                teams,
                settings,
                rounds=measure.MOST_ROUNDS,
                seconds=request.seconds,
                on_turn=lambda name, done, planned: progress.say(f"{name}, round {done + 1}"),
                team_error=TeamError,
            )
        report.machine = machine | disturbance.so_far()
    report.skipped |= skipped | failed
    report.command = request.command
    progress.show(Text(line) for line in lines(report))
    if request.json:
        report.write(request.json)
        progress.show([Text(f"wrote {request.json}")])
    return int(_failed(report))


def _failed(report: DdpReport) -> bool:
    return REFERENCE in report.skipped or any(found.wrong for found in report.measurements.values())


def _check_memory(settings: DdpSettings, contestants: int) -> None:
    each = _BYTES_PER_PARAMETER * model(settings.model).elements + _BYTES_PER_RANK
    needed, available = contestants * settings.ranks * each, _machine.memory_bytes().get("available")
    if available is not None and needed > available:
        raise UsageError(
            f"{settings.model} needs about {needed / 2**30:.1f} GiB for {contestants} contestants of "
            f"{settings.ranks} ranks, and {available / 2**30:.1f} GiB are available: use fewer of either"
        )
