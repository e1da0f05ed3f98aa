# SPDX-License-Identifier: Apache-2.0
"""What a run found, as plain data: ``--json`` writes it, and tables, plots and comparisons read nothing else."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from braid._bench.intervals import median_interval
from braid._bench.report_file import ReportError as ReportError
from braid._bench.report_file import read_report, write_report

KIND = "collective"
REFERENCE = "braid"


@dataclass(frozen=True)
class Ratio:
    """Time of a contestant over that of the reference, of paired rounds: the median and its 95 % interval."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, times: Sequence[float], reference: Sequence[float]) -> Self:
        """Return that of two contestants' times of the same rounds; the reference's are above 0."""
        ratios = [time / ours for time, ours in zip(times, reference, strict=True)]
        return cls(statistics.median(ratios), *median_interval(ratios))


@dataclass(frozen=True)
class Measurement:
    """One contestant in one case. The time of a call is from the last rank's entry to the last rank's return."""

    p50_us: float
    p95_us: float
    min_us: float
    mean_us: float
    calls: int
    rounds_us: list[float]  # the median of each round, in the order of the rounds
    wrong: int  # elements of the results that were not what they should be, over all ranks and checks
    algorithm: str = ""  # where the contestant tells
    predicted_us: float | None = None  # where it has a model of costs


@dataclass
class Case:
    """One size, measured on all contestants in turn."""

    bytes: int
    count: int  # elements
    busbw_factor: float  # bus bandwidth over algorithm bandwidth
    limit_us: float | None = None  # the time that the machine's memory bandwidth allows
    measurements: dict[str, Measurement] = field(default_factory=dict)  # by contestant
    refused: dict[str, str] = field(default_factory=dict)  # contestant -> why it cannot do this one
    ratios: dict[str, Ratio] = field(default_factory=dict)  # by contestant other than the reference
    noise: str = ""  # why the numbers should not be trusted, if so

    def algbw_gb_s(self, contestant: str) -> float:
        """Bytes over the median time, in GB/s (10^9 bytes)."""
        return self.bytes / self.measurements[contestant].p50_us / 1e3

    def busbw_gb_s(self, contestant: str) -> float:
        """What a link between neighbours would carry, whatever the number of ranks: comparable to its speed."""
        return self.algbw_gb_s(contestant) * self.busbw_factor


@dataclass
class Report:
    """One run of ``braid bench COLLECTIVE``."""

    collective: str
    settings: dict[str, Any]  # ranks, dtype, op, api, in_place, cold, layout, algorithm
    contestants: list[str]  # as shown, the reference first
    skipped: dict[str, str] = field(default_factory=dict)  # contestant -> why it could not take part
    machine: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what a reader should know, one line each

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        write_report(path, KIND, self)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what write() wrote. Raises ReportError, with a line that says what is wrong."""
        return read_report(path, KIND, lambda data: cls(**{**data, "cases": list(map(_case, data["cases"]))}))


def _case(data: dict[str, Any]) -> Case:
    measurements = {name: Measurement(**value) for name, value in data.pop("measurements").items()}
    ratios = {name: Ratio(**value) for name, value in data.pop("ratios").items()}
    return Case(**data, measurements=measurements, ratios=ratios)
