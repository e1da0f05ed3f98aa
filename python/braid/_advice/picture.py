# SPDX-License-Identifier: Apache-2.0
"""The advice as a picture: samples per second over the number of workers, and every strategy as a bar."""

from pathlib import Path

from braid._advice.candidate import Candidate, Preference
from braid._advice.choice import Advice

# The palette of Okabe and Ito, which people who do not see all colours can tell apart.
_COLOURS = {
    Preference.EXACT: "#0072B2",
    Preference.COMPRESSED: "#009E73",
    Preference.LOCAL_STEPS: "#E69F00",
    Preference.ASYNCHRONOUS: "#CC79A7",
}
_WORDS = {
    Preference.EXACT: "exact",
    Preference.COMPRESSED: "compressed",
    Preference.LOCAL_STEPS: "local steps",
    Preference.ASYNCHRONOUS: "asynchronous",
}


def draw(advice: Advice, path: Path) -> None:
    """Write the picture; .png, .svg or .pdf.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
        ValueError: the format is unknown.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    by_count, bars = figure.subplots(1, 2)
    for name, marker, style in (("all_reduce", "o", "-"), ("balanced batches", "s", "--")):
        best = _best_by_count([one for one in advice.ranked if one.name == name])
        by_count.plot(list(best), list(best.values()), marker=marker, linestyle=style, label=name, color="#0072B2")
    by_count.set_xlabel("workers that take part")
    by_count.set_ylabel("samples per second")
    by_count.set_ylim(bottom=0)
    by_count.xaxis.get_major_locator().set_params(integer=True)
    by_count.legend(frameon=False)
    everyone = len(advice.plain.workers)
    shown = _best_by_name(advice, everyone)
    for at, one in enumerate(reversed(shown)):
        is_chosen = one is advice.chosen
        bars.barh(
            at, one.worth, color=_COLOURS[one.preference], edgecolor="black", linewidth=2 if is_chosen else 0
        )
    bars.set_yticks(range(len(shown)), [_label(one, everyone) for one in reversed(shown)])
    bars.set_xlabel("samples per second, less what staleness loses")
    for preference in sorted({one.preference for one in shown}):
        bars.barh(0, 0, color=_COLOURS[preference], label=_WORDS[preference])
    bars.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=4)
    for axes in (by_count, bars):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def _best_by_count(found: list[Candidate]) -> dict[int, float]:
    best: dict[int, float] = {}
    for one in sorted(found, key=lambda one: len(one.workers)):
        best[len(one.workers)] = max(best.get(len(one.workers), 0.0), one.worth)
    return best


def _best_by_name(advice: Advice, everyone: int) -> list[Candidate]:
    """Return each strategy once: with all workers, or where fewer are better, with fewer."""
    best: dict[tuple[str, bool], Candidate] = {}
    for one in advice.ranked:  # the most worth first
        best.setdefault((one.name, len(one.workers) == everyone), one)
    return sorted(best.values(), key=lambda one: -one.worth)


def _label(one: Candidate, everyone: int) -> str:
    count = len(one.workers)
    return one.name if count == everyone else f"{one.name}, {count} of {everyone}"
