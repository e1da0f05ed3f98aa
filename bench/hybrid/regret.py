# SPDX-License-Identifier: Apache-2.0
"""How much longer all_reduce takes than with the best algorithm: the choice against each one forced."""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
MIB = 1 << 20
# bytes -> calls that are timed together, rounds of all algorithms at least and at most, and seconds that suffice
SIZES = {
    1 << 10: (1, 40, 120, 6.0),
    64 << 10: (2, 4, 24, 6.0),
    MIB: (1, 4, 6, 6.0),
    4 * MIB: (1, 4, 4, 8.0),
    64 * MIB: (1, 2, 4, 8.0),
}
PAUSE_S = 0.006  # before a tiny vector: one comes alone, and finds the lab's buckets full
HOSTS = (2, 3, 4, 6)
# The largest on cards six times as fast, by no more than so many algorithms, the best before.
FASTER, CONTENDERS = 6, 3
# With hosts that only help to sum: how many, where they can (two ranks have no use of them), and up to what size.
HELPERS, HELPED, LARGEST_HELPED = (1, 2), (3, 4, 6), MIB
# With one rank on each host the hierarchical algorithms are the flat ones.
ALGORITHMS = ("ring", "doubling", "halving_doubling", "direct", "gather_all", "double_tree")
AUTO = "auto"
# Of n hosts, up and down in percent of the fast card's rate.
PROFILES = {
    "equal": lambda n: [(100, 100)] * n,
    "one at 0.8": lambda n: [(100, 100)] * (n - 1) + [(80, 80)],
    "one at 0.25": lambda n: [(100, 100)] * (n - 1) + [(25, 25)],
    "up 100 down 50, and reverse": lambda n: [(100, 50) if host % 2 == 0 else (50, 100) for host in range(n)],
}
MBIT = 100  # per second, of the fast card
# An algorithm so much slower than the best in so many rounds is not measured on, nor at larger sizes.
HOPELESS, GLANCES = 1.8, {1 << 10: 8, 64 << 10: 3, MIB: 1, 4 * MIB: 1, 64 * MIB: 1}


@dataclass
class Task:
    """What one lab's ranks measure."""

    folder: str
    sizes: list[int]
    effort: float
    algorithms: list[str] = field(default_factory=lambda: list(ALGORITHMS))
    helpers: int = 0


# ---- a rank


def be_a_rank(task: Task) -> None:
    """Time the choice and every algorithm in turn; rank 0 writes what was found."""
    import braid

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    comms = {}
    for name in (AUTO, *ALGORITHMS):
        os.environ["BRAID_ALGORITHM"] = "" if name == AUTO else f"all_reduce={name}"
        os.environ["BRAID_SERVERS"] = str(task.helpers or "") if name == AUTO else ""
        comms[name] = braid.Communicator(
            f"file://{task.folder}/meeting", rank=rank, size=size, name=name, timeout_s=120
        )
    found, lost = [], set(ALGORITHMS) - set(task.algorithms)
    gc.disable()
    for nbytes in task.sizes:
        plan = comms[AUTO].explain("all_reduce", nbytes)
        twin = comms[plan["algorithm"]].explain("all_reduce", nbytes)
        # What is forced has no help, nor the links of the group that awaits it.
        twins = plan_of(plan) == plan_of(twin)
        if not twins and not task.helpers:
            raise SystemExit(f"{nbytes} bytes: forced, {plan['algorithm']} has another plan: {plan} {twin}")
        live = [name for name in comms if name not in lost or name == plan["algorithm"]]
        times, slow = time_all({name: comms[name] for name in live}, nbytes, task.effort, plan["algorithm"])
        predicted = {plan["algorithm"]: plan["predicted_s"]}
        predicted |= {other["algorithm"]: other["predicted_s"] for other in plan["runners_up"]}
        case = {
            "bytes": nbytes,
            "chosen": plan["algorithm"],
            "shares": plan["shares"],
            "segments": plan["segments"],
        }
        case |= {"helped": len(plan["shares"]) > size, "effort": task.effort}
        case["predicted_us"] = {name: round(1e6 * predicted[name]) for name in ALGORITHMS if name in predicted}
        found.append(case | summary(times, plan["algorithm"] if twins else None))
        if nbytes >= 64 << 10:  # what is slow for tiny tensors need not be for others
            lost |= slow
    if rank == 0:
        Path(task.folder, "found.json").write_text(json.dumps(found))
    for comm in comms.values():
        comm.barrier()
        comm.close()


def plan_of(explained: dict) -> tuple:
    return explained["algorithm"], explained["chunk_bytes"], [round(share, 3) for share in explained["shares"]]


def time_all(comms: dict, nbytes: int, effort: float, chosen: str) -> tuple[dict[str, list[float]], set[str]]:
    """Return seconds per call of each, by round, and whom not to ask again.

    All ranks see the same times, and so leave out the same algorithms and end after the same round.
    """
    import numpy as np

    calls, least_rounds, most_rounds, enough_s = SIZES[nbytes]
    control = comms[AUTO]
    pattern = (np.arange(nbytes // 4) % 1000).astype(np.float32)
    expected = pattern * control.size + control.size * (control.size - 1) / 2
    times: dict[str, list[float]] = {name: [] for name in comms}
    lost: set[str] = set()
    live = list(comms)
    begun = 0.0
    for number in range(1 + most_rounds):
        order = random.Random(number).sample(live, len(live))  # so that each follows each other
        stamps = []
        for name in order:
            x = np.zeros_like(pattern) if number else pattern + np.float32(control.rank)
            if number and nbytes < MIB:
                comms[name].all_reduce(x)  # its connections were idle while others were measured
            comms[name].barrier()
            if nbytes < 64 << 10:
                time.sleep(PAUSE_S)
            start = time.monotonic()
            for _ in range(calls if number else 1):
                comms[name].all_reduce(x)
            stamps += [start, time.monotonic()]
            if not number and not np.array_equal(x, expected):
                raise SystemExit(f"rank {control.rank}: wrong results of {name} at {nbytes} bytes")
        stamps_of_all = control.all_gather(np.array(stamps)).reshape(control.size, len(order), 2)
        # From the last rank's entry to the last one's return, on the machine's common clock.
        seconds = stamps_of_all.max(axis=0) @ (-1.0, 1.0)
        if not number:  # only warms up
            begun = float(stamps_of_all.max())
            continue
        for name, spent in zip(order, seconds.tolist(), strict=True):
            times[name].append(spent / calls)
        if number == GLANCES[nbytes]:
            medians = {name: statistics.median(times[name]) for name in live}
            slow = {name for name in live if medians[name] > HOPELESS * min(medians.values())}
            lost = slow - {AUTO, chosen}
            live = [name for name in live if name not in lost]
        if number >= least_rounds and float(stamps_of_all.max()) - begun > enough_s * effort:
            break
    return times, lost


def summary(times: dict[str, list[float]], twin: str | None) -> dict:
    """Return medians, and what the plan that was chosen takes as a multiple of each other's time, by round.

    Where that plan can be forced, as `twin`, it ran twice in every round: how far apart these are is noise.
    """
    both = list(zip(times[AUTO], times[twin or AUTO], strict=True))
    own = [sum(pair) / 2 for pair in both]
    multiples = {
        name: round(statistics.median(a / b for a, b in zip(own, spent, strict=False)), 3)
        for name, spent in times.items()
        if name not in (AUTO, twin)
    }
    return {
        "rounds": len(own),
        "median_us": {name: round(1e6 * statistics.median(spent), 1) for name, spent in times.items()},
        "multiples": multiples,
        "forced": round(statistics.median(a / b for a, b in both), 3) if twin else None,
    }


# ---- all of them


def measure(links: list[tuple[int, int]], task: Task) -> list[dict]:
    """Measure all sizes in one lab; links are measured once, and remembered while it lasts."""
    from braid.lab import Job, Lab, environments

    hosts = ",".join(f"1x{up}mbit/{down}mbit" for up, down in links + [(MBIT, MBIT)] * task.helpers)
    with tempfile.TemporaryDirectory() as task.folder, Lab(hosts) as lab:
        places = environments(lab, [1] * len(links) + [0] * task.helpers)
        places = [(host, {name: own[name] for name in own if name != "BRAID_LINKS"}) for host, own in places]
        environment = {name: os.environ[name] for name in os.environ if name != "BRAID_LINKS"}
        environment["BRAID_CACHE_DIR"] = f"{task.folder}/cache"
        command = [sys.executable, str(FOLDER / "regret.py"), "--rank", json.dumps(asdict(task))]
        server = [sys.executable, "-m", "braid.cli", "aggregator", "--join", f"file://{task.folder}/meeting"]
        for host in lab.hosts[len(links) :]:
            host.start(server, env=environment | {"BRAID_INTERFACE": "eth0"})
        with Job(places, command, env=environment) as job:
            codes = job.wait(600)
        if any(codes):
            raise SystemExit(f"{hosts}: the ranks ended with {codes}")
        return json.loads(Path(task.folder, "found.json").read_text())


def measure_cluster(n: int, profile: str, helpers: int, effort: float, largest: int) -> dict:
    """Measure all sizes on the hosts of one profile, and the largest on faster ones."""
    links = [(up * MBIT // 100, down * MBIT // 100) for up, down in PROFILES[profile](n)]
    largest = min(largest, LARGEST_HELPED) if helpers else largest
    small = [size for size in SIZES if size <= min(largest, 4 * MIB)]
    cases = measure(links, Task("", small, effort, helpers=helpers))
    if largest >= 64 * MIB:
        took = {name: us for name, us in cases[-1]["median_us"].items() if name != AUTO}
        contenders = sorted(took, key=took.__getitem__)[:CONTENDERS]
        faster = [(up * FASTER, down * FASTER) for up, down in links]
        cases += measure(faster, Task("", [64 * MIB], effort, contenders))
    load = round(os.getloadavg()[0], 1)
    return {"n": n, "helpers": helpers, "profile": profile, "load": load, "cases": cases}


def judge(case: dict) -> tuple[str, float]:
    """Return the best algorithm, and how much longer the choice took."""
    best = max(case["multiples"], key=case["multiples"].__getitem__)
    regret = case["multiples"][best] - 1
    return (best, regret) if regret > 0 else (case["chosen"], 0.0)


def table(clusters: list[dict]) -> list[str]:
    """Return Markdown: regret by cluster and size, its median and worst, and what noise does."""
    sizes = sorted({case["bytes"] for cluster in clusters for case in cluster["cases"]})
    lines = [
        "| n | links | " + " | ".join(size_text(size) for size in sizes) + " |",
        "|---" * (2 + len(sizes)) + "|",
    ]
    regrets: dict[int, list[float]] = {size: [] for size in sizes}
    noise: dict[int, list[float]] = {size: [] for size in sizes}
    for cluster in clusters:
        cells = dict.fromkeys(sizes, "")
        for case in cluster["cases"]:
            best, regret = judge(case)
            regrets[case["bytes"]].append(regret)
            if case["forced"]:
                noise[case["bytes"]].append(abs(case["forced"] - 1))
            chosen = case["chosen"] + (" with help" if case["helped"] else "")
            instead = "" if regret == 0 else f" ({best})"
            cells[case["bytes"]] = f"{100 * regret:.0f} % {chosen}{instead}"
        hosts = f"{cluster['n']} + {cluster['helpers']}" if cluster["helpers"] else cluster["n"]
        lines.append(f"| {hosts} | {cluster['profile']} | {' | '.join(cells.values())} |")
    for title, by_size in (("regret", regrets), ("same plan twice", noise)):
        for what, of in (("median", statistics.median), ("worst", max)):
            if all(by_size.values()):
                found = [f"{100 * of(by_size[size]):.0f} %" for size in sizes]
                every = of([value for values in by_size.values() for value in values])
                lines.append(f"| {title}, {what} | of all: {100 * every:.0f} % | {' | '.join(found)} |")
    return lines


def size_text(count: int) -> str:
    return f"{count // MIB} MiB" if count >= MIB else f"{count >> 10} KiB"


def show(clusters: list[dict]) -> None:
    for helped in (False, True):
        if of := [cluster for cluster in clusters if bool(cluster["helpers"]) == helped]:
            print("\n".join([*table(of), ""]))


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(Task(**json.loads(sys.argv[2])))
        return
    from braid._bench.machine import facts

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effort", type=float, default=1.0, help="A multiple of each case's own time.")
    parser.add_argument("--hosts", default=",".join(map(str, HOSTS)), help="How many, of each kind of links.")
    parser.add_argument("--helpers", default="0," + ",".join(map(str, HELPERS)), help="How many hosts only sum.")
    parser.add_argument("--largest", type=int, default=64 * MIB, help="No larger vectors than that, in bytes.")
    parser.add_argument("--show", action="store_true", help="Measure nothing; print the tables of what is there.")
    arguments = parser.parse_args()
    path = FOLDER / "regret.json"
    report = json.loads(path.read_text()) if path.exists() else {"clusters": []}
    if not arguments.show:
        grid = [
            (k, n, profile) for k, n, profile in product((0, *HELPERS), HOSTS, PROFILES) if n in HELPED or not k
        ]
        hosts, helping = (set(map(int, text.split(","))) for text in (arguments.hosts, arguments.helpers))
        if not hosts <= set(HOSTS) or not helping <= {0, *HELPERS}:
            parser.error(f"expected --hosts of {HOSTS}, --helpers of {(0, *HELPERS)}")
        report["machine"] = facts.facts()
        clusters = {(one["helpers"], one["n"], one["profile"]): one for one in report["clusters"]}
        start = time.monotonic()
        for helpers, n, profile in (one for one in grid if one[0] in helping and one[1] in hosts):
            cluster = measure_cluster(n, profile, helpers, arguments.effort, arguments.largest)
            seen = ", ".join(f"{100 * judge(case)[1]:.0f} %" for case in cluster["cases"])
            print(f"{time.monotonic() - start:.0f} s: {n} + {helpers}, {profile}: {seen}", flush=True)
            # What was not measured now stays as it is.
            before = clusters.get((helpers, n, profile), {"cases": []})["cases"]
            by_size = {case["bytes"]: case for case in [*before, *cluster["cases"]]}
            clusters[helpers, n, profile] = cluster | {"cases": [by_size[size] for size in sorted(by_size)]}
            report["clusters"] = [clusters[one] for one in grid if one in clusters]
            path.write_text(json.dumps(report, indent=1) + "\n")
    show(report["clusters"])


if __name__ == "__main__":
    main()
