# SPDX-License-Identifier: Apache-2.0
"""Time to accuracy of every strategy on three emulated clusters, and `braid advise`'s choice beside the best.

Each method tries three learning rates with the first seed, and keeps the quickest for the other seeds. One process
per worker does all runs of a cluster, so no run pays for starting. Methods take turns, so a slower machine slows
all. Writes results.json; picture.py draws it. Needs root, for `braid lab`.
"""

import argparse
import json
import statistics
import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from braid._bench.machine import facts
from braid._rivals import has_finished
from braid.lab import Job, Lab, environments, unavailable
from clusters import CLUSTERS, Cluster
from methods import METHODS, RATES, Method
from train import BATCH, GOES_ON, LOOK_EVERY, TARGET

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
NBYTES = 4 * (64 * 1024 + 1024 + 1024 * 10 + 10)
MOST_S = 3000.0

Run = dict[str, Any]


def train(cluster: Cluster, runs: list[Run]) -> list[Run]:
    """Do runs one after another on the hosts of a cluster."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = folder / "results.jsonl"
        folder.joinpath("plan.json").write_text(json.dumps({"runs": runs, "sample_ms": cluster.sample_ms}))
        for number in range(len(runs)):
            folder.joinpath(f"stop{number}").write_bytes(struct.pack("q", GOES_ON))
        with Lab(cluster.hosts) as lab, folder.joinpath("errors").open("w+") as errors:
            command = [sys.executable, str(HERE / "train.py"), name]
            with Job(environments(lab, [1] * len(lab.hosts)), command, stderr=errors) as job:
                codes = job.wait(MOST_S)
            if not has_finished(codes, [results]):
                errors.seek(0)
                sys.exit(f"workers ended with {codes}:\n{errors.read()[-4000:]}")
        return [json.loads(line) for line in results.read_text().splitlines()]


def seconds(run: Run) -> float:
    """Return the time to the target, or infinity if the run did not come there."""
    looks = [look[2] for look in run["curve"][-3:]]
    return run["curve"][-1][0] if len(looks) == 3 and sum(looks) / 3 >= TARGET else float("inf")


def overhead_ms(cluster: Cluster, runs: list[Run]) -> float:
    """Return what a step took beside the computing that is slept: backward, optimizer and looks, on shared cores.

    Local steps show it: between two meetings, which are 10 steps apart, a look after 5 steps has seen none. Rank 0
    computes the samples, and is never the slow one.
    """
    alone = []
    for run in runs:
        if run["method"]["name"] in ("LocalSGD", "DiLoCo"):
            ends = [0.0, *(look[0] for look in run["curve"])]
            alone += [after - before for before, after in zip(ends[::2], ends[1::2], strict=False)]
    step_ms = 1000 * statistics.median(alone) / LOOK_EVERY if alone else 0.0
    return max(0.0, step_ms - BATCH * cluster.sample_ms[0])


def training_samples(runs: list[Run]) -> int:
    """Return how many samples the plain all-reduce needed, the median of its seeds; 0 if it was not trained."""
    plain = next(method.name for method in METHODS if method.advice == "all_reduce")
    return int(statistics.median(run["samples_of_all"] for run in mine)) if (mine := chosen(runs, plain)) else 0


def advised(cluster: Cluster, runs: list[Run]) -> dict[str, Any]:
    """Return what `braid advise` says for the cluster, on its stated links.

    It is told the runs' time of a step, and how long the training with the plain all-reduce is.
    """
    sample_ms = ",".join(f"{each:g}" for each in cluster.sample_ms)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [
            *(sys.executable, "-m", "braid.cli", "advise", "--batch", str(BATCH * len(cluster.speeds))),
            *("--bytes", str(NBYTES), "--sample-ms", sample_ms, "--hosts", cluster.hosts, "--json", file.name),
            *("--overhead-ms", f"{overhead_ms(cluster, runs):.2f}"),
        ]
        if samples := training_samples(runs):
            command += ["--training-samples", str(samples)]
        subprocess.run(command, check=True, capture_output=True)
        said: dict[str, Any] = json.load(file)
        return said


def as_advised(said: dict[str, Any], trained: list[Method]) -> Method | None:
    """Return the advised way to train, if it is local steps with a period that was not trained."""
    advice = said["advice"]
    if advice["preference"] != "local_steps" or any(is_advised(method, advice) for method in trained):
        return None
    text = advice["how"].rpartition(", ")[2].strip('"')
    return Method(f"{advice['name']}, every {advice['period']}", advice["name"], text)


def is_advised(method: Method, advice: dict[str, Any]) -> bool:
    """Return whether a method is what was advised. Local steps also have to have the advised period."""
    is_local = advice["preference"] == "local_steps"
    return method.advice == advice["name"] and (not is_local or f'"{method.strategy}"' in advice["how"])


def methods_of(runs: list[Run]) -> list[Method]:
    """Return the methods of runs, in the order of the runs."""
    return list(dict.fromkeys(Method(**run["method"]) for run in runs))


def measure(cluster: Cluster, methods: list[Method], seeds: int, limit_s: float) -> list[Run]:
    """Try each method's learning rates with seed 0, and train with the best of them on the other seeds."""

    def plan(method: Method, rate: float, seed: int) -> Run:
        return {"method": asdict(method), "rate": rate, "seed": seed, "limit_s": limit_s}

    tried = train(
        cluster, [plan(method, method.rates[place], 0) for place in range(len(RATES)) for method in methods]
    )
    best = {
        method: min((run for run in tried if run["method"]["name"] == method.name), key=seconds)["rate"]
        for method in methods
    }
    if seeds < 2:
        return tried
    return tried + train(
        cluster, [plan(method, best[method], seed) for seed in range(1, seeds) for method in methods]
    )


def chosen(runs: list[Run], method: str) -> list[Run]:
    """Return the runs of a method with the learning rate that it kept."""
    mine = [run for run in runs if run["method"]["name"] == method]
    if not mine:
        return []
    first = min((run for run in mine if run["seed"] == 0), key=seconds)
    return [run for run in mine if run["rate"] == first["rate"]]


def table(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return Markdown: for each cluster the median time, its range, the speedup over Gloo, samples and rate."""
    lines = []
    for cluster, found in results.items():
        runs = found["runs"]
        names = [method.name for method in methods_of(runs)]
        times = {name: [seconds(run) for run in chosen(runs, name)] for name in names}
        first = statistics.median(times[names[0]])
        best = min(statistics.median(each) for each in times.values())
        advice, trained = found["advised"], methods_of(runs)
        same = [method for method in trained if is_advised(method, advice)]
        note = "" if same else ", with the period that was trained,"
        same = same or [method for method in trained if method.advice == advice["name"]]
        advised_s = min((statistics.median(times[method.name]) for method in same), default=float("inf"))
        lines += [
            f"\n**{cluster}** (`{found['hosts']}`). `braid advise` says: {advice['name']}, "
            f"{advice['how']}. That{note} took {advised_s / best:.2f} times as long as the best.\n",
            f"| method | seconds to {100 * TARGET:g} % | times {names[0]} | samples of all | learning rate |",
            "|---|---|---|---|---|",
        ]
        for name in sorted(names, key=lambda name: statistics.median(times[name])):
            mine, time_s = chosen(runs, name), statistics.median(times[name])
            if time_s == float("inf"):
                lines.append(f"| {name} | not within {mine[0]['limit_s']:g} s | | | {mine[0]['rate']:g} |")
                continue
            samples = statistics.median(run["samples_of_all"] for run in mine)
            lines.append(
                f"| {name} | {time_s:.2f} ({min(times[name]):.2f} to {max(times[name]):.2f}) "
                f"| {first / time_s:.2f} | {samples:.0f} | {mine[0]['rate']:g} |"
            )
    return lines


def ranks(said: dict[str, Any], runs: list[Run]) -> list[str]:
    """Return Markdown: for each candidate that was trained its place by prediction and by measurement."""
    everyone = len(said["workload"]["workers"])
    predicted = {one["name"]: one for one in said["candidates"] if len(one["workers"]) == everyone}
    measured = {}
    for method in methods_of(runs):
        if any(is_advised(method, one) for one in predicted.values()) and (mine := chosen(runs, method.name)):
            speed = statistics.median(run["samples_of_all"] / run["curve"][-1][0] for run in mine)
            measured[method.advice] = statistics.median(map(seconds, mine)), speed
    by_worth = sorted(measured, key=lambda name: -predicted[name]["worth"])
    needed = training_samples(runs)
    lines = [
        "\n| candidate | place: predicted | measured | seconds: predicted | measured | samples/s: predicted "
        "| measured |",
        "|---|---|---|---|---|---|---|",
    ]
    for place, name in enumerate(sorted(measured, key=lambda name: measured[name][0]), 1):
        lines.append(
            f"| {name} | {by_worth.index(name) + 1} | {place} | {needed / predicted[name]['worth']:.2f} "
            f"| {measured[name][0]:.2f} | {predicted[name]['samples_per_s']:.0f} | {measured[name][1]:.0f} |"
        )
    return lines


def advise_anew(path: Path) -> None:
    """Put what `braid advise` says now into a file of results, and print its tables."""
    found = json.loads(path.read_text())
    for cluster in CLUSTERS:
        if cluster.name in found["clusters"]:
            mine = found["clusters"][cluster.name]
            said = advised(cluster, mine["runs"])
            mine["advised"] = said["advice"]
            print("\n".join(table({cluster.name: mine}) + ranks(said, mine["runs"])))
    path.write_text(json.dumps(found) + "\n")


def merged(before: list[Run], runs: list[Run]) -> list[Run]:
    """Return the runs of a cluster, with new ones in place of those of the same methods, by METHODS."""
    new = {run["method"]["name"] for run in runs}
    kept = [run for run in before if run["method"]["name"] not in new]
    order = [method.name for method in METHODS]
    end = len(order)  # of methods that were trained because they were advised
    places = {name: at for at, name in enumerate(order)}
    return sorted(kept + runs, key=lambda run: places.get(run["method"]["name"], end))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(",")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=60.0, help="the most seconds of one run")
    parser.add_argument("--methods", default="", help="names separated by semicolons; all by default")
    parser.add_argument("--clusters", default="", help="names separated by semicolons; all by default")
    parser.add_argument(
        "--advice", action="store_true", help="train nothing; ask for the advice anew, and merge it"
    )
    parser.add_argument("--merge", action="store_true", help="keep what --json has of other methods and clusters")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.advice:
        return advise_anew(given.json)
    if reason := unavailable():
        sys.exit(f"no emulated hosts here: {reason}")
    methods = [one for one in METHODS if not given.methods or one.name in given.methods.split(";")]
    clusters = [one for one in CLUSTERS if not given.clusters or one.name in given.clusters.split(";")]
    before = json.loads(given.json.read_text()) if given.merge else {"clusters": {}}
    results: dict[str, dict[str, Any]] = before["clusters"]
    for cluster in clusters:
        runs = results[cluster.name]["runs"] if given.merge and cluster.name in results else []
        runs = merged(runs, measure(cluster, methods, given.seeds, given.limit_s))
        said = advised(cluster, runs)
        if more := as_advised(said, methods_of(runs)):
            runs = merged(runs, measure(cluster, [more], given.seeds, given.limit_s))
        results[cluster.name] = {"hosts": cluster.hosts, "advised": said["advice"], "runs": runs}
        print("\n".join(table({cluster.name: results[cluster.name]})), flush=True)
        given.json.write_text(json.dumps({"machine": facts.facts(), "target": TARGET, "clusters": results}) + "\n")


if __name__ == "__main__":
    main()
