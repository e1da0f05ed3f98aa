# SPDX-License-Identifier: Apache-2.0
"""A report as rows for a spreadsheet or a data frame, one per case and contestant. Nothing is an empty cell."""

import csv
from collections.abc import Iterator
from typing import Any, TextIO

from braid._bench.results import Case, Report

_SETTINGS = ("ranks", "dtype", "op", "api", "in_place", "cold", "layout")

# Programs of others read this by name and maybe by place: add at the end.
HEADER = (
    "collective",
    *_SETTINGS,
    "bytes",
    "count",
    "contestant",
    "p50_us",
    "p95_us",
    "min_us",
    "mean_us",
    "calls",
    "rounds",
    "algbw_gb_s",
    "busbw_gb_s",
    "wrong",
    "algorithm",
    "predicted_us",
    "ratio",
    "ratio_low",
    "ratio_high",
    "limit_us",
    "percent_of_limit",
    "noise",
    "refused",
)


def write(report: Report, file: TextIO) -> None:
    """Write the header and all rows. Open the file with ``newline=""``, as the module csv wants it."""
    writer = csv.DictWriter(file, HEADER, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(report))


def rows(report: Report) -> Iterator[dict[str, Any]]:
    """Yield what is known of each case and contestant, by names of the header."""
    settings = {name: report.settings.get(name) for name in _SETTINGS}
    for case in report.cases:
        for name in report.contestants:
            if name in case.measurements or name in case.refused:
                yield {"collective": report.collective, **settings, **_of_case(case), **_of_contestant(case, name)}


def _of_case(case: Case) -> dict[str, Any]:
    return {"bytes": case.bytes, "count": case.count, "limit_us": case.limit_us, "noise": case.noise}


def _of_contestant(case: Case, name: str) -> dict[str, Any]:
    found = case.measurements.get(name)
    if found is None:
        return {"contestant": name, "refused": case.refused[name]}
    row: dict[str, Any] = {
        "contestant": name,
        "p50_us": found.p50_us,
        "p95_us": found.p95_us,
        "min_us": found.min_us,
        "mean_us": found.mean_us,
        "calls": found.calls,
        "rounds": len(found.rounds_us),
        "wrong": found.wrong,
        "algorithm": found.algorithm,
        "predicted_us": found.predicted_us,
    }
    if case.bytes:
        row |= {"algbw_gb_s": case.algbw_gb_s(name), "busbw_gb_s": case.busbw_gb_s(name)}
    if case.limit_us is not None:
        row["percent_of_limit"] = 100 * case.limit_us / found.p50_us
    if name in case.ratios:
        ratio = case.ratios[name]
        row |= {"ratio": ratio.median, "ratio_low": ratio.low, "ratio_high": ratio.high}
    return row
