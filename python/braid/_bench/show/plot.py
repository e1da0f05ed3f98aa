# SPDX-License-Identifier: Apache-2.0
"""A report as a picture: latency and bus bandwidth over size, one line per contestant."""

import importlib.util
import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid._bench.results import REFERENCE, Case, Report
from braid._bench.show import summary, units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")

# The palette of Okabe and Ito, which people who do not see all colours can tell apart. The markers help them, and
# print, further; as the two lists have no common divisor, combinations do not come back soon.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_GREY = "#666666"
_NOISY: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white", "zorder": 5}
_WRONG: dict[str, Any] = {
    "linestyle": "none",
    "marker": "x",
    "color": "#CC0000",
    "markersize": 11,
    "markeredgewidth": 2.5,
    "zorder": 6,
}

_LEFT = 0.02
_LABELS = 8  # of sizes below a panel
_PER_ROW = 10  # of the legend
_CAPTION_WIDTH = 210
_FEW_DECADES = 300  # a time axis that spans less than this has labels at 2 and 5 too
_FAR = 3  # times what was measured: a limit above that is not worth the space of the panel


class PlotError(Exception):
    """A picture that cannot be drawn: one line that says why and what to do."""


def check_path(path: Path) -> None:
    """Raise PlotError where plot() could not write that file. To be asked before anything is measured."""
    if path.suffix.lower() not in SUFFIXES:
        raise PlotError(f"--plot writes {', '.join(SUFFIXES)}, by the end of the file's name, not {path.name}")
    if not path.parent.is_dir():
        raise PlotError(f"--plot: there is no folder {path.parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotError("--plot needs matplotlib: pip install '.[bench]' in a clone of braid")


def plot(report: Report, path: Path) -> None:
    """Draw a report into a file, in the format that its suffix says. Raises PlotError."""
    check_path(path)
    if not _measured(report):
        raise PlotError("--plot: there is nothing to draw: no size was measured")
    import matplotlib
    from matplotlib.figure import Figure

    # A bare Figure draws by Agg, SVG or PDF, as the suffix asks for, and never opens a window.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
        figure = Figure(figsize=(13, 6.4), dpi=110, facecolor="white")
        figure.subplots_adjust(left=0.06, right=0.97, top=0.79, bottom=0.16, wspace=0.14)
        latency, bandwidth = figure.subplots(1, 2)
        _draw_latency(latency, report)
        _draw_bandwidth(bandwidth, report)
        for axes in (latency, bandwidth):
            _draw_sizes(axes, report)
        _draw_legend(figure, latency, report)
        _draw_words(figure, report)
        try:
            figure.savefig(path)
        except OSError as error:
            raise PlotError(f"--plot: {path}: {error.strerror}") from error


def _draw_latency(axes: "Axes", report: Report) -> None:
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    axes.set_title("Time of a call: median, and from minimum to 95th percentile", loc="left", fontsize=10.5)
    cases = _measured(report)
    sizes = [case.bytes for case in cases]
    for name, style in _styles(report):
        low = [case.measurements[name].min_us if name in case.measurements else math.nan for case in cases]
        high = [case.measurements[name].p95_us if name in case.measurements else math.nan for case in cases]
        axes.fill_between(sizes, low, high, color=style["color"], alpha=0.13, linewidth=0)
        _draw_line(axes, name, style, cases, _p50_us)
    _draw_limit(axes, cases, lambda limit_us, case: limit_us)
    found = [one for case in cases for one in case.measurements.values()]
    # The limit of small sizes is far below what anybody reaches, and would take most of the panel.
    bottom, top = min(one.min_us for one in found) / 1.5, max(one.p95_us for one in found) * 1.5
    axes.set_ylim(bottom, top)
    if top / bottom < _FEW_DECADES:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: _short_time(value))
    axes.yaxis.set_minor_formatter(lambda value, _: "")


def _draw_bandwidth(axes: "Axes", report: Report) -> None:
    axes.set_title("Bus bandwidth in GB/s", loc="left", fontsize=10.5)
    cases = _measured(report)
    for name, style in _styles(report):
        _draw_line(axes, name, style, cases, Case.busbw_gb_s)
    _draw_limit(axes, cases, _limit_gb_s)
    highest = max(case.busbw_gb_s(name) for case in cases for name in case.measurements)
    limit = max((_limit_gb_s(case.limit_us, case) for case in cases if case.limit_us), default=0)
    # One rank alone has no bus, and no bandwidth of it.
    axes.set_ylim(0, 1.06 * (limit if highest < limit < _FAR * highest else highest) or 1)


def _draw_line(
    axes: "Axes", name: str, style: dict[str, Any], cases: list[Case], value: Callable[[Case, str], float]
) -> None:
    # Without a value the line has a gap: it must not look as if something was measured there.
    values = [value(case, name) if name in case.measurements else math.nan for case in cases]
    axes.plot([case.bytes for case in cases], values, label=name, clip_on=False, **style)
    mine = [case for case in cases if name in case.measurements]
    noisy = [case for case in mine if case.noise]
    wrong = [case for case in mine if case.measurements[name].wrong]
    for marked, how in ((noisy, {**style, **_NOISY}), (wrong, _WRONG)):
        axes.plot([case.bytes for case in marked], [value(case, name) for case in marked], clip_on=False, **how)


def _draw_limit(axes: "Axes", cases: list[Case], value: Callable[[float, Case], float]) -> None:
    points = [(case.bytes, value(case.limit_us, case)) for case in cases if case.limit_us]
    if points:
        axes.plot(
            *zip(*points, strict=True),
            color=_GREY,
            linestyle="--",
            linewidth=1.3,
            label="limit of the memory",
            zorder=1,
        )


def _draw_sizes(axes: "Axes", report: Report) -> None:
    sizes = [case.bytes for case in _measured(report)]
    low, high = min(sizes), max(sizes)
    axes.set_xscale("log", base=2)
    axes.set_xlim(low / 1.5, high * 1.5)
    powers = range((low - 1).bit_length(), high.bit_length())
    # The smallest step that leaves few enough labels to stand beside each other.
    step = next(step for step in (1, 2, 4, 10, 64) if sum(power % step == 0 for power in powers) <= _LABELS)
    axes.set_xticks([2**power for power in powers if power % step == 0] or [low])
    axes.set_xticks([2**power for power in powers], minor=True)
    axes.xaxis.set_major_formatter(lambda value, _: units.size(round(value)))
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.set_xlabel("size")
    axes.grid(color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)


def _draw_legend(figure: "Figure", axes: "Axes", report: Report) -> None:
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if any(case.noise for case in _measured(report)):
        handles.append(Line2D([], [], marker="o", color=_GREY, **_NOISY))
        labels.append("noisy")
    if any(found.wrong for case in _measured(report) for found in case.measurements.values()):
        handles.append(Line2D([], [], **_WRONG))
        labels.append("wrong results")
    place = {"loc": "center left", "bbox_to_anchor": (_LEFT - 0.006, 0.868)}
    figure.legend(handles, labels, ncols=_PER_ROW, frameon=False, columnspacing=1.8, **place)


def _draw_words(figure: "Figure", report: Report) -> None:
    figure.text(_LEFT, 0.962, ", ".join(summary.subject(report)), fontsize=14, fontweight="bold", va="center")
    cpu, hardware = report.machine.get("cpu"), summary.hardware(report.machine)
    # The processor is worth more than a caption: it decides more than anything else.
    above, below = ([str(cpu)], hardware[1:]) if cpu else ([], hardware)
    subtitle = ", ".join([*above, *summary.manner(report)])
    figure.text(_LEFT, 0.920, subtitle, fontsize=10.5, color=_GREY, va="center")
    caption = textwrap.wrap(", ".join([*below, *summary.software(report.machine)]), _CAPTION_WIDTH)
    figure.text(_LEFT, 0.045, "\n".join(caption), fontsize=8, color=_GREY, va="center", linespacing=1.4)


def _styles(report: Report) -> list[tuple[str, dict[str, Any]]]:
    styles = []
    for index, name in enumerate(report.contestants):
        reference = name == REFERENCE
        style = {
            "color": _COLOURS[index % len(_COLOURS)],
            "marker": _MARKERS[index % len(_MARKERS)],
            "markersize": 5.5,
            "linewidth": 2.2 if reference else 1.5,
            "zorder": 4 if reference else 3,
        }
        if any(name in case.measurements for case in report.cases):
            styles.append((name, style))
    return styles


def _measured(report: Report) -> list[Case]:
    return sorted((case for case in report.cases if case.bytes and case.measurements), key=lambda case: case.bytes)


def _p50_us(case: Case, name: str) -> float:
    return case.measurements[name].p50_us


def _limit_gb_s(limit_us: float, case: Case) -> float:
    return case.bytes / limit_us / 1e3 * case.busbw_factor


def _short_time(time_us: float) -> str:
    if time_us >= 1e6:
        return f"{time_us / 1e6:g} s"
    return f"{time_us / 1e3:g} ms" if time_us >= 1e3 else f"{time_us:g} µs"
