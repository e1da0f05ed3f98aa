# SPDX-License-Identifier: Apache-2.0
"""Two reports of the same measurement, an older and a newer one: what changed by more than noise."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from braid._bench.intervals import median_interval
from braid._bench.results import REFERENCE, Case, Report, ReportError
from braid._bench.show import summary, units
from braid._bench.show.columns import Cell, Column, Columns

# These differ between any two runs and say nothing by themselves.
_MAY_DIFFER = {"copy_gb_s", "add_gb_s", "load_before", "load_after", "steal_share"}

Interval = tuple[float, float]


def compare(old: Report, new: Report) -> list[str]:
    """Return lines: warnings, one row per size and contestant that both have, and a summary.

    Raises ReportError where the two are not about the same thing.
    """
    require_comparable(old, new)
    if not any(_pairs(old, new)):
        raise ReportError("not comparable: the two reports have no size of the same contestant in common")
    width = max(10, *(len(name) for name in new.contestants))
    columns = Columns(
        [
            Column("size", "", 8),
            Column("contestant", "", width, left=True),
            Column("old p50", "us", 8),
            Column("new p50", "us", 8),
            Column("change", "", 8),
            Column("time is", "", 7, left=True),
            Column(f"old x {REFERENCE}", "[95 %]", 18),
            Column(f"new x {REFERENCE}", "[95 %]", 18),
            Column(f"{REFERENCE} against it is", "", 7, left=True),
        ]
    )
    lines = [", ".join([*summary.subject(new), *summary.manner(new)]), *_warnings(old, new), ""]
    lines += [line.plain for line in columns.titles()]
    by_time: Counter[str] = Counter()
    by_ratio: dict[str, Counter[str]] = {}
    for before, after, name in _pairs(old, new):
        time, ratio = _time_verdict(before, after, name), _ratio_verdict(before, after, name)
        if name == REFERENCE:
            by_time[time] += 1
        elif ratio:
            by_ratio.setdefault(name, Counter())[ratio] += 1
        lines.append(columns.line(_row(before, after, name, time, ratio)).plain)
    return [*lines, "", *_remarks(old, new), *_summary(by_time, by_ratio)]


def require_comparable(old: Report, new: Report) -> None:
    """Raise ReportError unless both are about the same thing; what was found does not matter."""
    different: list[tuple[str, Any, Any]] = [("collective", old.collective, new.collective)]
    different += [(name, old.settings.get(name), new.settings.get(name)) for name in summary.SUBJECT]
    for name, before, after in different:
        if before != after:
            raise ReportError(
                f"not comparable: {name} is {_shown(before)} in the old report, {_shown(after)} in the new"
            )


def _warnings(old: Report, new: Report) -> list[str]:
    lines = []
    for before, after in ((old.settings, new.settings), (old.machine, new.machine)):
        flat_before, flat_after = _flat(before), _flat(after)
        for name in dict.fromkeys([*flat_before, *flat_after]):
            was, became = flat_before.get(name), flat_after.get(name)
            if was != became and name not in _MAY_DIFFER:
                lines.append(f"warning: {name}: old {_shown(was)}, new {_shown(became)}")
    return lines


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= {f"version of {part}": of for part, of in value.items()} if name == "versions" else {name: value}
    return flat


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def _pairs(old: Report, new: Report) -> Iterator[tuple[Case, Case, str]]:
    before = {case.bytes: case for case in old.cases}
    for after in new.cases:
        for name in new.contestants:
            was = before.get(after.bytes)
            if was is not None and name in was.measurements and name in after.measurements:
                yield was, after, name


def _row(before: Case, after: Case, name: str, time: str, ratio: str) -> list[Cell]:
    was, became = before.measurements[name].p50_us, after.measurements[name].p50_us
    texts = [
        ("~" if before.noise or after.noise else "") + units.size(after.bytes),
        name,
        units.number(was),
        units.number(became),
        f"{100 * (became - was) / was:+.1f}%",
        time,
        units.ratio(before.ratios.get(name)),
        units.ratio(after.ratios.get(name)),
        ratio,
    ]
    return [Cell(text) for text in texts]


def _time_verdict(before: Case, after: Case, name: str) -> str:
    was, became = before.measurements[name].rounds_us, after.measurements[name].rounds_us
    if not was or not became:
        return ""
    return _verdict(median_interval(was), median_interval(became), "faster", "slower")


def _ratio_verdict(before: Case, after: Case, name: str) -> str:
    was, became = before.ratios.get(name), after.ratios.get(name)
    if was is None or became is None:
        return ""
    # A contestant that takes less of the reference's time than before means that the reference has lost.
    return _verdict((was.low, was.high), (became.low, became.high), "slower", "faster")


def _verdict(was: Interval, became: Interval, when_less: str, when_more: str) -> str:
    if became[1] < was[0]:
        return when_less
    if became[0] > was[1]:
        return when_more
    return "same"


def _remarks(old: Report, new: Report) -> list[str]:
    lines = []
    matched = {(after.bytes, name) for _, after, name in _pairs(old, new)}
    for age, report in (("old", old), ("new", new)):
        measured = [(case.bytes, name) for case in report.cases for name in case.measurements]
        alone = [f"{units.size(size)} {name}" for size, name in measured if (size, name) not in matched]
        if alone:
            lines.append(f"only in the {age} report: {', '.join(alone)}")
        for case in report.cases:
            for name, found in case.measurements.items():
                if found.wrong:
                    lines.append(f"wrong results in the {age} report: {units.size(case.bytes)} {name}")
        if any(case.noise for case in report.cases):
            lines.append(f"~ some sizes of the {age} report are noisy")
    return lines


def _summary(by_time: Counter[str], by_ratio: dict[str, Counter[str]]) -> list[str]:
    lines = [f"{REFERENCE} against {name}: {_counts(verdicts)}" for name, verdicts in by_ratio.items()]
    if by_time:
        lines.append(f"{REFERENCE} by time alone: {_counts(by_time)}")
    return [
        *lines,
        "'same' where 95 % intervals overlap. A machine drifts between two runs: where times and ratios disagree,",
        "believe the ratios, whose two sides ran in turn.",
    ]


def _counts(verdicts: Counter[str]) -> str:
    return ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in ("faster", "slower", "same"))
