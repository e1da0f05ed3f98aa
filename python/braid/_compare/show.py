# SPDX-License-Identifier: Apache-2.0
"""The table, the sentences and the picture of ``braid compare``."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from braid._bench.show import units
from braid._compare.results import Result

_COLOURS = ("#000000", "#0072B2", "#009E73", "#CC79A7")  # of Okabe and Ito, as in other pictures
_POINTS = 25


def complete(results: Sequence[Result]) -> list[Result]:
    """Return those that did not fail."""
    return [one for one in results if one.blocks and not one.failure]


def table(results: Sequence[Result], is_on_one_host: bool) -> Table:
    """Return one row for each way that did not fail."""
    found = complete(results)
    samples = min(one.samples for one in found)
    seconds = min(one.seconds for one in found)
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("", no_wrap=True)
    has_batches = any(step.samples for one in found for rank in one.steps for step in rank)
    unit = "samples" if has_batches else "steps"
    titles = [
        "ms a\nstep",
        f"times\n{found[0].name}",
        f"loss, {samples}\n{unit}",
        f"loss,\n{units.number(seconds, 2)} s",
        *([] if is_on_one_host else ["sent a\nstep"]),
    ]
    for title in titles:
        shown.add_column(title, justify="right", no_wrap=True)
    shown.add_column("carried by")
    for one in found:
        cells = [
            units.number(1000 * one.step_s, 3),
            units.number(one.times_as_fast_as(found[0])[0], 3),
            _loss(one.loss_after_samples(samples)),
            _loss(one.loss_after_seconds(seconds)),
        ]
        if not is_on_one_host:
            cells.append(units.size(round(one.bytes_per_step)))
        shown.add_row(one.name, *cells, one.algorithm)
    return shown


def sentences(results: Sequence[Result]) -> list[str]:
    """Return a sentence for each way beside the first, and one for each that failed."""
    found = complete(results)
    lines = []
    for one in found[1:]:
        median, low, high = one.times_as_fast_as(found[0])
        rounds = f"{units.number(low, 3)} to {units.number(high, 3)} in {len(one.blocks)} rounds"
        times = f"{one.name}: {units.number(median, 3)} times as fast as {found[0].name} ({rounds})"
        lines.append(f"{times}: {one.why}." if one.why else f"{times}.")
    return [*lines, *(f"failed, {one.failure}" for one in results if one.failure)]


def document(results: Sequence[Result], about: dict[str, Any]) -> dict[str, Any]:
    """Return all of it for a JSON file: seconds, bytes, and every step of every rank."""
    rows = []
    for one in results:
        row: dict[str, Any] = asdict(one)
        if one.blocks:
            row["step_s"], row["bytes_per_step"] = one.step_s, one.bytes_per_step
        rows.append(row)
    return {**about, "ways": rows}


def draw(results: Sequence[Result], title: str, path: Path) -> None:
    """Draw each way's loss over the seconds that it has trained."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for at, (one, colour) in enumerate(zip(complete(results), _COLOURS, strict=False)):
        curve = [point for point in one.curve(_POINTS) if math.isfinite(point[1])]
        if not curve:
            continue
        axes.plot(*zip(*curve, strict=True), color=colour)
        # Where curves fall they are apart, and each label has a height of its own.
        highest, lowest = max(loss for _, loss in curve), min(loss for _, loss in curve)
        height = lowest + (0.8 - 0.18 * at) * (highest - lowest)
        beside = next((point for point in curve if point[1] <= height), curve[-1])
        axes.annotate(one.name, beside, (6, 4), textcoords="offset points", color=colour, fontweight="bold")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_title(title, loc="left", fontsize=10.5)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("loss of the workers' own batches")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
