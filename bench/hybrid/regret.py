# SPDX-License-Identifier: Apache-2.0
"""How much longer all_reduce takes than with the best family that there is: the choice against each one forced."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
MIB = 1 << 20
SIZES = {1 << 10: 10, 64 << 10: 2, MIB: 1, 4 * MIB: 1}  # bytes -> calls that are timed together
HOSTS = (2, 3, 4, 6)
# With one rank on each host the hierarchical families are the flat ones.
FAMILIES = ("ring", "doubling", "halving_doubling", "direct", "gather_all", "double_tree")
AUTO = "auto"
PROFILES = {
    "equal": lambda n: [f"{n}x100mbit"],
    "one at 0.8": lambda n: [f"{n - 1}x100mbit", "1x80mbit"],
    "one at 0.25": lambda n: [f"{n - 1}x100mbit", "1x25mbit"],
    "up 100 down 50, and reverse": lambda n: (
        ["1x100mbit/50mbit", "1x50mbit/100mbit"] * (n // 2) + ["1x100mbit/50mbit"] * (n % 2)
    ),
}
# A family so much slower than the best at first sight is measured once; when slower still, not at larger sizes.
HOPELESS, LOST = 1.4, 1.8


# ---- a rank


def be_a_rank(folder: str, rounds: int) -> None:
    """Time the choice and every family in turn; rank 0 writes what was found."""
    import braid

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    comms = {}
    for name in (AUTO, *FAMILIES):
        os.environ["BRAID_ALGORITHM"] = "" if name == AUTO else f"all_reduce={name}"
        comms[name] = braid.Communicator(
            f"file://{folder}/meeting", rank=rank, size=size, name=name, timeout_s=120
        )
    found, names = [], list(comms)
    for nbytes, calls in SIZES.items():
        plan = comms[AUTO].explain("all_reduce", nbytes)
        times = time_all({name: comms[name] for name in names}, nbytes, calls, rounds)
        medians = {name: statistics.median(seconds) for name, seconds in times.items()}
        predicted = {plan["family"]: plan["predicted_s"]}
        predicted |= {other["family"]: other["predicted_s"] for other in plan["runners_up"]}
        case = {"bytes": nbytes, "chosen": plan["family"], "shares": plan["shares"], "times_s": times}
        found.append(case | {"predicted_s": {name: predicted[name] for name in FAMILIES if name in predicted}})
        if nbytes >= MIB:
            names = [name for name in names if name == AUTO or medians[name] <= LOST * min(medians.values())]
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    for comm in comms.values():
        comm.barrier()
        comm.close()


def time_all(comms: dict, nbytes: int, calls: int, rounds: int) -> dict[str, list[float]]:
    """Return seconds per call of each, by round; the first round only warms up, unless it was all there was."""
    import numpy as np

    control = comms[AUTO]
    pattern = (np.arange(nbytes // 4) % 1000).astype(np.float32)
    expected = pattern * control.size + control.size * (control.size - 1) / 2
    first: dict[str, float] = {}
    times: dict[str, list[float]] = {name: [] for name in comms}
    live = list(comms)
    for number in range(1 + rounds):
        order = live[number % len(live) :] + live[: number % len(live)]
        stamps = []
        for name in order:
            x = np.zeros_like(pattern) if number else pattern + np.float32(control.rank)
            comms[name].barrier()
            start = time.monotonic()
            for _ in range(calls if number else 1):
                comms[name].all_reduce(x)
            stamps += [start, time.monotonic()]
            if not number and not np.array_equal(x, expected):
                raise SystemExit(f"rank {control.rank}: wrong results of {name} at {nbytes} bytes")
        stamps_of_all = control.all_gather(np.array(stamps)).reshape(control.size, len(order), 2)
        # From the last rank's entry to the last one's return, on the machine's common clock.
        seconds = stamps_of_all.max(axis=0) @ (-1.0, 1.0) / (calls if number else 1)
        for name, spent in zip(order, seconds.tolist(), strict=True):
            (times[name].append if number else lambda spent, name=name: first.update({name: spent}))(spent)
        if not number and nbytes >= MIB:
            live = [name for name in live if name == AUTO or first[name] <= HOPELESS * min(first.values())]
    return {name: [round(spent, 7) for spent in spents or [first[name]]] for name, spents in times.items()}


# ---- all of them


def measure(hosts: str, rounds: int) -> list[dict]:
    """Measure all sizes in one lab; links are measured once, and remembered while it lasts."""
    from braid.lab import Job, Lab, environments

    with tempfile.TemporaryDirectory() as folder, Lab(hosts) as lab:
        places = environments(lab, [1] * len(lab.hosts))
        places = [(host, {name: own[name] for name in own if name != "BRAID_LINKS"}) for host, own in places]
        environment = {name: os.environ[name] for name in os.environ if name != "BRAID_LINKS"}
        command = [sys.executable, str(FOLDER / "regret.py"), "--rank", folder, str(rounds)]
        with Job(places, command, env=environment | {"BRAID_CACHE_DIR": f"{folder}/cache"}) as job:
            codes = job.wait(300)
        if any(codes):
            raise SystemExit(f"{hosts}: the ranks ended with {codes}")
        return json.loads(Path(folder, "found.json").read_text())


def judge(case: dict) -> tuple[str, float, float]:
    """Return the best family, how much longer the choice took, and how much longer its own family did, forced.

    The two runs of one plan differ by noise alone.
    """
    medians = {name: statistics.median(seconds) for name, seconds in case["times_s"].items()}
    best = min(FAMILIES, key=lambda name: medians.get(name, float("inf")))
    forced = medians.get(case["chosen"], float("nan"))
    return best, medians[AUTO] / medians[best] - 1, forced / medians[best] - 1


def table(report: dict) -> list[str]:
    """Return Markdown: regret by cluster and size, and its median and worst."""
    lines = [
        "| n | links | " + " | ".join(size_text(size) for size in SIZES) + " |",
        "|---" * (2 + len(SIZES)) + "|",
    ]
    regrets: dict[int, list[float]] = {size: [] for size in SIZES}
    of_choice: dict[int, list[float]] = {size: [] for size in SIZES}
    for cluster in report["clusters"]:
        cells = []
        for case in cluster["cases"]:
            best, regret, forced = judge(case)
            regrets[case["bytes"]].append(regret)
            of_choice[case["bytes"]].append(forced)
            instead = "" if best == case["chosen"] else f" ({best})"
            cells.append(f"{100 * regret:.0f} % {case['chosen']}{instead}")
        lines.append(f"| {cluster['n']} | {cluster['profile']} | {' | '.join(cells)} |")
    for title, by_size in (("", regrets), (", its family forced", of_choice)):
        for what, of in (("median", statistics.median), ("worst", max)):
            cells = [f"{100 * of(by_size[size]):.0f} %" for size in SIZES]
            every = of([value for values in by_size.values() for value in values])
            lines.append(f"| {what}{title} | of all: {100 * every:.0f} % | {' | '.join(cells)} |")
    return lines


def size_text(count: int) -> str:
    return f"{count // MIB} MiB" if count >= MIB else f"{count >> 10} KiB"


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], int(sys.argv[3]))
        return
    from braid._bench.machine import facts

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="Of all families in turn, after one that warms up.")
    parser.add_argument("--quick", action="store_true", help="Three rounds, of 2 and 4 hosts.")
    parser.add_argument("--show", action="store_true", help="Measure nothing; print the table of what is there.")
    arguments = parser.parse_args()
    path = FOLDER / "regret.json"
    if not arguments.show:
        rounds = 3 if arguments.quick else arguments.rounds
        report = {"rounds": rounds, "machine": facts.facts(), "clusters": []}
        start = time.monotonic()
        for n in (2, 4) if arguments.quick else HOSTS:
            for profile, links in PROFILES.items():
                hosts = ",".join(links(n))
                cases = measure(hosts, rounds)
                report["clusters"].append({"n": n, "profile": profile, "hosts": hosts, "cases": cases})
                seen = ", ".join(f"{100 * judge(case)[1]:.0f} %" for case in cases)
                print(f"{time.monotonic() - start:.0f} s: {hosts}: {seen}", flush=True)
        report["seconds"] = round(time.monotonic() - start)
        path.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(table(json.loads(path.read_text()))))


if __name__ == "__main__":
    main()
