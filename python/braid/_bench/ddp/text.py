# SPDX-License-Identifier: Apache-2.0
"""A report of ``braid bench ddp`` as text."""

from braid._bench.ddp.results import DdpMeasurement, DdpReport, Estimate
from braid._bench.results import REFERENCE, Ratio

_MOST_BUCKETS = 8  # that are listed by size
_TITLES = (
    (
        "",
        "step",
        "compute",
        "exposed",
        "comm.",
        "hidden",
        "#wrong",
        f"exposed / {REFERENCE}",
        f"comm. / {REFERENCE}",
    ),
    ("", "ms", "ms", "ms", "ms", "%", "", "[95 %]", "[95 %]"),
)


def lines(report: DdpReport) -> list[str]:
    """Return a report as lines without line ends: what was measured, a row per contestant, and what to know."""
    text = [*_header(report), ""]
    table = [*_TITLES, *(_row(report, name) for name in report.contestants if name in report.measurements)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    text += [_line(row, widths) for row in table]
    text += [f"skipped {name}: {reason}" for name, reason in report.skipped.items()]
    for name, found in report.measurements.items():
        if found.wrong:
            text.append(f"WRONG: {name}: {found.wrong} elements of averaged gradients")
    text += [f"note: {note}" for note in report.notes]
    return [*text, "", *_explanation()]


def _header(report: DdpReport) -> list[str]:
    settings, facts = report.settings, report.facts
    cap = "as torch cuts them" if settings.bucket_cap_mb is None else f"closed at {settings.bucket_cap_mb:g} MiB"
    compute = (
        f"computing on {settings.threads} thread{'s' * (settings.threads != 1)} per rank"
        if settings.compute_ms is None
        else f"computing for {settings.compute_ms:g} ms (asleep, as if on an accelerator)"
    )
    first = f"ddp, {settings.model}, {settings.ranks} ranks, {compute}, {report.rounds} rounds"
    if settings.busy:
        first += f", beside {settings.busy} busy process{'es' * (settings.busy != 1)}"
    if not facts:
        return [first]
    buckets = facts["bucket_bytes"]
    listed = f": {' '.join(f'{size / 1e6:.1f}' for size in buckets)} MB" if len(buckets) <= _MOST_BUCKETS else ""
    return [
        f"{first}, batch {facts['batch']}",
        f"{facts['parameters']:,} parameters in {facts['tensors']} tensors, "
        f"{facts['gradient_bytes'] / 1e6:.1f} MB of gradients per rank",
        f"{len(buckets)} buckets, {cap}{listed}",
    ]


def _row(report: DdpReport, name: str) -> tuple[str, ...]:
    found: DdpMeasurement = report.measurements[name]
    ratios = report.ratios.get(name)
    times = (found.step_ms, found.compute_ms, found.exposed_ms, found.communication_ms)
    return (
        name,
        *(f"{time.median:.1f}" for time in times),
        _percent(found.hidden),
        str(found.wrong),
        _ratio(ratios.exposed) if ratios else "",
        _ratio(ratios.communication) if ratios else "",
    )


def _percent(share: Estimate | None) -> str:
    return "-" if share is None else f"{100 * share.median:.0f}"


def _ratio(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    name, *cells = row
    return "  ".join(
        [name.ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells, widths[1:], strict=True))]
    ).rstrip()


def _explanation() -> list[str]:
    return [
        "exposed: what averaging adds to a step. comm.: averaging gradients that are all ready at once.",
        "hidden: the share of comm. not exposed; negative where computing and averaging disturb each other.",
        "-: not to be told from zero.",
    ]
