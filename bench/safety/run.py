# SPDX-License-Identifier: Apache-2.0
"""What thousands of silent connections to rank 0's listener cost a job: groups new and running, the process."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from braid._machine import cpu_model, is_virtual

HERE = Path(__file__).parent
RANKS = 2
SIZES = (64 << 10, 1 << 20)
TURNS = 8
SETTLE_S = 2.0  # after the last of the strangers has connected


class Job:
    """Two ranks that talk over TCP, of one installation of braid."""

    def __init__(self, python: str, folder: Path) -> None:
        own = {"BRAID_TRANSPORTS": "tcp", "BRAID_INTERFACE": "lo", "OMP_NUM_THREADS": "1"}
        self.ranks = [
            subprocess.Popen(
                [python, str(HERE / "rank.py"), str(folder), str(rank), str(RANKS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **own},
            )
            for rank in range(RANKS)
        ]
        self.groups = 0
        first = self.ask("form", "running")
        # "rank 0: tcp 127.0.0.1:4711"
        self.host, _, self.port = first[1]["wires"][0].split("tcp ", 1)[1].partition(" ")[0].rpartition(":")

    def ask(self, *order: Any) -> list[dict[str, Any]]:
        for rank in self.ranks:
            assert rank.stdin
            rank.stdin.write(json.dumps(order) + "\n")
            rank.stdin.flush()
        return [json.loads(rank.stdout.readline()) for rank in self.ranks if rank.stdout]

    def form(self) -> dict[str, Any]:
        self.groups += 1
        name = f"new-{self.groups}"
        answers = self.ask("form", name)
        self.ask("leave", name)
        return {
            "s": max(a["s"] for a in answers),
            "error": next((a["error"] for a in answers if "error" in a), None),
        }

    def running(self, seconds: float) -> dict[str, dict[int, float]]:
        """Microseconds of one all_reduce by size, and of the processor in rank 0, in turns, since load changes."""
        turns: dict[int, list[dict[str, float]]] = {size: [] for size in SIZES}
        for _ in range(TURNS):
            for size in SIZES:
                turns[size].append(self.ask("time", "running", size, seconds / TURNS / len(SIZES))[0])
        return {
            what: {size: median(turn[what] for turn in row) for size, row in turns.items()}
            for what in ("us", "cpu_us")
        }

    def idle(self, seconds: float) -> float:
        """The share of a core that rank 0 takes while it has nothing to do."""
        before = self.ask("look")[0]["cpu_s"]
        time.sleep(seconds)
        return (self.ask("look")[0]["cpu_s"] - before) / seconds

    def close(self) -> None:
        for rank in self.ranks:
            assert rank.stdin
            rank.stdin.close()
        for rank in self.ranks:
            rank.wait()


class Flood:
    """The strangers, while this is entered."""

    def __init__(self, job: Job, count: int) -> None:
        self.command = [sys.executable, str(HERE / "flood.py"), job.host.strip("[]"), job.port, str(count)]
        self.begun = 0

    def __enter__(self) -> Flood:
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        if self.process.stdout.readline() != "standing\n":
            sys.exit("the strangers could not connect")
        time.sleep(SETTLE_S)
        return self

    def __exit__(self, *_: object) -> None:
        last, _ = self.process.communicate()
        self.begun = json.loads(last)["begun"]
        time.sleep(SETTLE_S)


def measure_pair(job: Job, options: argparse.Namespace) -> dict[str, Any]:
    alone = {"forming": job.form(), "running": job.running(options.seconds), "look": job.ask("look")[0]}
    alone["idle"] = job.idle(options.seconds / 2)
    with Flood(job, options.strangers) as flood:
        # First what must not have been stirred by a group that forms.
        flooded = {"idle": job.idle(options.seconds / 2), "running": job.running(options.seconds)}
        flooded["forming"] = job.form()
        flooded["look"] = job.ask("look")[0]
    return {"alone": alone, "flooded": flooded, "begun": flood.begun}


def spread(values: list[float], digits: int) -> dict[str, Any]:
    return {"median": round(median(values), digits), "range": [round(end(values), digits) for end in (min, max)]}


def summary(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    def each(which: str, pick: Any) -> list[Any]:
        return [pick(pair[which]) for pair in pairs]

    def slower(size: int, what: str) -> list[float]:
        # Within a pair, so that what slowed the machine down slowed both.
        return [pair["flooded"]["running"][what][size] / pair["alone"]["running"][what][size] for pair in pairs]

    first = pairs[0]["alone"]["look"]
    looks = each("flooded", lambda p: p["look"])
    return {
        "forming_s": {w: spread(each(w, lambda p: p["forming"]["s"]), 3) for w in ("alone", "flooded")},
        "failed_to_form": sum(pair["flooded"]["forming"]["error"] is not None for pair in pairs),
        "why": next((e for e in each("flooded", lambda p: p["forming"]["error"]) if e), None),
        "running": {
            str(size): {
                "alone_us": spread(each("alone", lambda p, s=size: p["running"]["us"][s]), 1),
                "slower": spread(slower(size, "us"), 3),
                "alone_cpu_us": spread(each("alone", lambda p, s=size: p["running"]["cpu_us"][s]), 1),
                "more_cpu": spread(slower(size, "cpu_us"), 3),
            }
            for size in SIZES
        },
        "idle_share_of_core": {w: spread(each(w, lambda p: p["idle"]), 4) for w in ("alone", "flooded")},
        "grown_bytes": max(look["resident_bytes"] for look in looks) - first["resident_bytes"],
        "descriptors": {"alone": first["descriptors"], "flooded": max(look["descriptors"] for look in looks)},
        "connections_begun": [pair["begun"] for pair in pairs],
    }


def of(cell: dict[str, Any], form: str = "g") -> str:
    low, high = cell["range"]
    return f"{cell['median']:{form}} ({low:{form}} to {high:{form}})"


def formed(run: dict[str, Any], which: str) -> str:
    failed = run["failed_to_form"] if which == "flooded" else 0
    return (f"{failed} of {len(run['connections_begun'])} failed, after " if failed else "") + of(
        run["forming_s"][which]
    )


def rows(run: dict[str, Any]) -> list[tuple[str, str]]:
    found = [(f"a new group forms, {which}, s", formed(run, which)) for which in ("alone", "flooded")]
    for size, one in run["running"].items():
        found += [
            (f"all_reduce of {int(size) >> 10} KiB, alone, us", of(one["alone_us"])),
            ("flooded / alone", of(one["slower"], ".2f")),
            ("processor time of rank 0 in it, alone, us", of(one["alone_cpu_us"])),
            ("flooded / alone", of(one["more_cpu"], ".2f")),
        ]
    share, descriptors = run["idle_share_of_core"], run["descriptors"]
    idle = [f"{100 * share[which]['median']:.1f}" for which in ("alone", "flooded")]
    return [
        *found,
        ("rank 0 idle, alone / flooded, % of a core", " / ".join(idle)),
        ("rank 0 grew by, MiB", f"{run['grown_bytes'] / 2**20:.1f}"),
        ("descriptors of rank 0, alone / flooded", f"{descriptors['alone']} / {descriptors['flooded']}"),
    ]


def table(runs: dict[str, dict[str, Any]]) -> str:
    lines = [f"| | {' | '.join(runs)} |", "|---" * (len(runs) + 1) + "|"]
    for same in zip(*(rows(run) for run in runs.values()), strict=True):
        lines.append(f"| {same[0][0]} | {' | '.join(value for _, value in same)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strangers", type=int, default=5000)
    parser.add_argument("--pairs", type=int, default=21, help="rounds, each without strangers and with them")
    parser.add_argument("--seconds", type=float, default=2.0, help="of all_reduce in each half of a round")
    parser.add_argument("--beside", metavar="PYTHON", help="also measure the braid of this interpreter, in turns")
    parser.add_argument("--json", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    pythons = {**({"before": options.beside} if options.beside else {}), "now": sys.executable}
    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        for who, python in pythons.items():
            (own := Path(folder, who)).mkdir()
            jobs[who] = Job(python, own)
        pairs: dict[str, list[dict[str, Any]]] = {who: [] for who in jobs}
        for _ in range(options.pairs):
            for who, job in jobs.items():
                pairs[who].append(measure_pair(job, options))
        for job in jobs.values():
            job.close()
    runs = {who: summary(rows) for who, rows in pairs.items()}
    report = {
        "processor": cpu_model(),
        "virtual": is_virtual(),
        "cores": os.cpu_count(),
        "kernel": platform.release().split("-")[0],
        "load": round(os.getloadavg()[2], 1),
        "strangers": options.strangers,
        "ranks": RANKS,
        "runs": runs,
    }
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
