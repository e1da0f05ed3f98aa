# SPDX-License-Identifier: Apache-2.0
"""A report as text: a header, the rows of each case as it ends, and a footer."""

from rich.text import Text

from braid._bench.results import REFERENCE, Case, Measurement, Report
from braid._bench.show import summary, units
from braid._bench.show.columns import Cell, Column, Columns

_WRONG = "bold red"
_NOISY = "yellow"
_BEST = "bold"
_MOST_REASONS = 4  # the report in JSON has all


def header(report: Report) -> list[Text]:
    """Return what is above the rows: what is measured, by whom, who could not take part, where, and the titles."""
    lines = [
        Text(", ".join([*summary.subject(report), *summary.manner(report)]), "bold"),
        Text(f"contestants: {', '.join(report.contestants)}"),
    ]
    lines += [Text(f"skipped {name}: {reason}", _NOISY) for name, reason in report.skipped.items()]
    for name, parts in (
        ("machine", summary.hardware(report.machine)),
        ("software", summary.software(report.machine)),
    ):
        if parts:
            lines.append(Text(f"{name}: {', '.join(parts)}"))
    hint = (
        f"x {REFERENCE}: time of the contestant / time of {REFERENCE}, of paired rounds; --explain tells the rest"
    )
    return [*lines, Text(hint, "dim"), Text(), *_columns(report).titles()]


def rows(report: Report, case: Case) -> list[Text]:
    """Return the rows of one case, one per contestant, the reference first."""
    columns = _columns(report)
    trusted = {name: found.p50_us for name, found in case.measurements.items() if not found.wrong}
    best = min(trusted, key=trusted.__getitem__) if len(trusted) > 1 else None
    lines = []
    for name in report.contestants:
        start = [
            Cell(("~" if case.noise else "") + units.size(case.bytes), _NOISY if case.noise else ""),
            Cell(str(case.count)),
            Cell(str(report.settings.get("dtype", ""))),
            Cell(name),
        ]
        if name in case.measurements:
            lines.append(columns.line([*start, *_results(case, name, case.measurements[name], name == best)]))
        elif name in case.refused:
            lines.append(columns.line([*start, Cell("n/a")]).append(f"  {case.refused[name]}"))
    return lines


def footer(report: Report) -> list[Text]:
    """Return what is below the rows: which of them not to believe, and what a reader should know."""
    lines = [Text(f"note: {note}") for note in report.notes]
    for case in report.cases:
        for name, found in case.measurements.items():
            if found.wrong:
                what = f"WRONG: {name} at {units.size(case.bytes)}: {found.wrong} elements of the results"
                lines.append(Text(what, _WRONG))
    noisy = [case for case in report.cases if case.noise]
    if noisy:
        lines.append(
            Text(f"~ {len(noisy)} of {len(report.cases)} sizes are noisy: look at the intervals.", _NOISY)
        )
        shown = list(dict.fromkeys(case.noise for case in noisy))[:_MOST_REASONS]
        for reason in shown:
            sizes = ", ".join(units.size(case.bytes) for case in noisy if case.noise == reason)
            lines.append(Text(f"  {sizes}: {reason}", _NOISY))
        lines.append(Text("  Run them again on an idle machine, or for longer with --time.", _NOISY))
    return [Text(), *lines] if lines else []


def text(report: Report) -> str:
    """Return a whole report without colours."""
    lines = header(report) + [line for case in report.cases for line in rows(report, case)] + footer(report)
    return "".join(f"{line.plain}\n" for line in lines)


def _columns(report: Report) -> Columns:
    dtype = len(str(report.settings.get("dtype", "")))
    return Columns(
        [
            Column("size", "", 7),
            Column("count", "", 8),
            Column("dtype", "", max(5, dtype), left=True),
            Column("contestant", "", max(7, *(len(name) for name in report.contestants)), left=True),
            Column("p50", "us", 6),
            Column("p95", "us", 6),
            Column("min", "us", 6),
            Column("algbw", "GB/s", 5),
            Column("busbw", "GB/s", 5),
            Column("#wrong", "", 6),
            Column("limit", "us", 6),
            Column("% of", "limit", 5),
            Column(f"x {REFERENCE}", "[95 %]", 18, left=True),
            # Narrower than its title: whoever tells an algorithm is the reference as a rule, which has no ratio.
            Column("algorithm", "", 5),
            Column("predicted", "us", 9),
        ]
    )


def _results(case: Case, name: str, found: Measurement, best: bool) -> list[Cell]:
    noisy = _NOISY if case.noise else ""
    rates = [case.algbw_gb_s(name), case.busbw_gb_s(name)] if case.bytes else []
    return [
        Cell(units.number(found.p50_us), f"{_BEST if best else ''} {noisy}".strip()),
        Cell(units.number(found.p95_us), noisy),
        Cell(units.number(found.min_us), noisy),
        *(Cell(units.number(rate), noisy) for rate in rates),
        *([Cell("")] * (2 - len(rates))),
        Cell(str(found.wrong), _WRONG if found.wrong else ""),
        Cell(units.optional(case.limit_us)),
        Cell(units.percent_of_limit(case.limit_us, found.p50_us)),
        Cell(units.ratio(case.ratios.get(name))),
        Cell(found.algorithm),
        Cell(units.optional(found.predicted_us)),
    ]
