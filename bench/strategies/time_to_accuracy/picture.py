# SPDX-License-Identifier: Apache-2.0
"""Draws results.json: time to accuracy of every method on each cluster, and curves against time and samples."""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from methods import Method
from run import RESULTS, chosen, methods_of, seconds

HERE = Path(__file__).resolve().parent
# Colours of Okabe and Ito, which people who do not see all colours can tell apart.
GREY, BLUE, GREEN, ORANGE, PINK = "#999999", "#0072B2", "#009E73", "#E69F00", "#CC79A7"
KINDS = {"Gloo": GREY, "exact": BLUE, "int8": GREEN, "local steps": ORANGE, "nobody waits": PINK}
LINES = ("-", "--", "-.", ":", (0, (1, 3)), (0, (5, 1, 1, 1, 1, 1)))


def kind(method: Method) -> str:
    """Return what gives a method its colour."""
    if method.backend == "gloo":
        return "Gloo"
    if method.strategy.startswith(("local", "diloco", "elastic")):
        return "local steps"
    if method.strategy:
        return "nobody waits"
    return "int8" if method.compression else "exact"


def bars(results: dict[str, Any], path: Path) -> None:
    """Draw the median time of each method on each cluster; a thin line is the range over seeds."""
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    for axes, (cluster, found) in zip(
        figure.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True
    ):
        methods = {method.name: method for method in methods_of(found["runs"])}
        times = {name: [seconds(run) for run in chosen(found["runs"], name)] for name in methods}
        names = sorted(times, key=lambda name: statistics.median(times[name]), reverse=True)
        finite = [max(each) for each in times.values() if max(each) < float("inf")]
        for at, name in enumerate(names):
            median = statistics.median(times[name])
            if median == float("inf"):
                axes.text(0, at, " not in time", va="center", fontsize=8)
                continue
            axes.barh(at, median, color=KINDS[kind(methods[name])])
            axes.plot([min(times[name]), min(max(times[name]), max(finite))], [at, at], color="black", linewidth=1)
            axes.text(median, at, f" {median:.2f}", va="bottom", fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_xlabel("seconds to the target")
        axes.set_title(f"{cluster}: {found['hosts']}\nbraid advise: {found['advised']['name']}", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    handles = [figure.axes[0].barh(0, 0, color=colour) for colour in KINDS.values()]
    figure.legend(handles, list(KINDS), loc="outside lower center", ncols=len(KINDS), frameon=False)
    figure.savefig(path, dpi=110)


def curves(results: dict[str, Any], path: Path) -> None:
    """Draw the accuracy of rank 0's model against time, and against samples of all workers, for the first seed."""
    figure = Figure(figsize=(13, 7), layout="constrained")
    grid = figure.subplots(2, len(results), squeeze=False, sharey=True)
    for column, (cluster, found) in enumerate(results.items()):
        used: dict[str, int] = {}
        for method in methods_of(found["runs"]):
            run = chosen(found["runs"], method.name)[0]
            of_all = run["samples_of_all"] / max(1, run["samples"])
            style = LINES[used.setdefault(kind(method), 0) % len(LINES)]
            used[kind(method)] += 1
            accuracies = [100 * look[2] for look in run["curve"]]
            for row, xs in enumerate(
                ([look[0] for look in run["curve"]], [of_all * look[1] for look in run["curve"]])
            ):
                grid[row][column].plot(
                    xs, accuracies, color=KINDS[kind(method)], linestyle=style, label=method.name, lw=1.2
                )
        for row, label in enumerate(("seconds", "samples of all workers")):
            grid[row][column].set_xlabel(label)
            grid[row][column].set_ylim(70, 100)
            grid[row][column].set_xscale("log")
            grid[row][column].spines[["top", "right"]].set_visible(False)
        grid[0][column].set_title(f"{cluster}: {found['hosts']}", fontsize=9)
        for row in (0, 1):
            grid[row][0].set_ylabel("test accuracy, %")
    labels = grid[0][0].get_legend_handles_labels()
    figure.legend(*labels, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--to", type=Path, default=HERE, help="a folder for the pictures")
    given = parser.parse_args()
    results = json.loads(given.json.read_text())["clusters"]
    bars(results, given.to / "time_to_accuracy.png")
    curves(results, given.to / "curves.png")


if __name__ == "__main__":
    main()
