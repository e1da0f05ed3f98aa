# SPDX-License-Identifier: Apache-2.0
"""What ``braid bench ddp`` found, as plain data."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from braid._bench.intervals import median_interval
from braid._bench.report_file import read_report, write_report
from braid._bench.results import Ratio

KIND = "ddp"


@dataclass(frozen=True)
class Estimate:
    """The median over all rounds, and its 95 % interval."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return that of some values; ValueError where there are none."""
        return cls(statistics.median(values), *median_interval(values))


@dataclass(frozen=True)
class DdpMeasurement:
    """One contestant. All times are those of a step, in ms, from the moment when all ranks were ready to the end
    of the slowest; differences and shares are taken in each round, before the median."""

    step_ms: Estimate  # computing and averaging
    compute_ms: Estimate  # only computing
    exposed_ms: Estimate  # what averaging adds to a step: the first less the second
    communication_ms: Estimate  # averaging gradients that are all ready at once, less a step that does nothing
    hidden: Estimate | None  # share of the communication that a step does not show; None where there is none
    rounds_ms: dict[str, list[float]]  # the steps of each kind, in the order of the rounds
    wrong: int  # elements of averaged gradients that were not what they should be, over all ranks and checks


@dataclass(frozen=True)
class DdpRatios:
    """Times of a contestant over those of the reference, of paired rounds; None where the reference's cannot be
    told from zero."""

    exposed: Ratio | None
    communication: Ratio | None


@dataclass(frozen=True)
class DdpSettings:
    """What is measured."""

    model: str
    ranks: int
    compute_ms: float | None = None  # given, and spent asleep; None for real matrix products
    batch: int | None = None  # samples of a step on one rank; None for the model's own number
    bucket_cap_mb: float | None = None  # MiB; None for torch's own choice
    threads: int = 1  # of torch, for the matrix products
    busy: int = 0  # processes that compute beside the ranks

    def of_rank(self, backend: str) -> dict[str, Any]:
        """Return what DdpRank is made with, besides rank, size and folder."""
        return {
            "backend": backend,
            "model": self.model,
            "compute_ms": self.compute_ms,
            "batch": self.batch,
            "bucket_cap_mb": self.bucket_cap_mb,
            "threads": self.threads,
        }


@dataclass
class DdpReport:
    """One run of ``braid bench ddp`` with one model."""

    settings: DdpSettings
    contestants: list[str]  # as shown, the reference first
    facts: dict[str, Any] = field(default_factory=dict)  # what a step sends, as DdpRank.facts() tells it
    skipped: dict[str, str] = field(default_factory=dict)  # contestant -> why it has no numbers
    measurements: dict[str, DdpMeasurement] = field(default_factory=dict)  # by contestant
    ratios: dict[str, DdpRatios] = field(default_factory=dict)  # by contestant other than the reference
    machine: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what a reader should know, one line each

    @property
    def rounds(self) -> int:
        """How many rounds were measured."""
        return max((len(found.rounds_ms["full"]) for found in self.measurements.values()), default=0)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        write_report(path, KIND, self)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what write() wrote. Raises ReportError, with a line that says what is wrong."""
        return read_report(path, KIND, cls._from)

    @classmethod
    def _from(cls, data: dict[str, Any]) -> Self:
        data["settings"] = DdpSettings(**data["settings"])
        data["measurements"] = {name: _measurement(value) for name, value in data["measurements"].items()}
        data["ratios"] = {name: _ratios(value) for name, value in data["ratios"].items()}
        return cls(**data)


def _measurement(data: dict[str, Any]) -> DdpMeasurement:
    for name in ("step_ms", "compute_ms", "exposed_ms", "communication_ms", "hidden"):
        data[name] = Estimate(**data[name]) if data[name] else None
    return DdpMeasurement(**data)


def _ratios(data: dict[str, Any]) -> DdpRatios:
    return DdpRatios(**{name: Ratio(**value) if value else None for name, value in data.items()})
