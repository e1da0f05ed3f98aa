# SPDX-License-Identifier: Apache-2.0
"""How much longer all_reduce takes than with the best family that there is: the choice against each one forced."""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
MIB = 1 << 20
# bytes -> calls that are timed together, rounds of all families at most, and seconds after which there are enough
SIZES = {1 << 10: (1, 120, 6.0), 64 << 10: (2, 24, 6.0), MIB: (1, 6, 6.0), 4 * MIB: (1, 4, 8.0)}
PAUSE_S = 0.006  # before a tiny vector: one comes alone, and finds the lab's buckets full
LEAST_ROUNDS = 4
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
# A family so much slower than the best in so many rounds is not measured on, nor at larger sizes.
HOPELESS, GLANCES = 1.8, {1 << 10: 8, 64 << 10: 3, MIB: 1, 4 * MIB: 1}


# ---- a rank


def be_a_rank(folder: str, effort: float, largest: int) -> None:
    """Time the choice and every family in turn; rank 0 writes what was found."""
    import braid

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    comms = {}
    for name in (AUTO, *FAMILIES):
        os.environ["BRAID_ALGORITHM"] = "" if name == AUTO else f"all_reduce={name}"
        comms[name] = braid.Communicator(
            f"file://{folder}/meeting", rank=rank, size=size, name=name, timeout_s=120
        )
    found, lost = [], set()
    gc.disable()
    for nbytes in (size for size in SIZES if size <= largest):
        plan = comms[AUTO].explain("all_reduce", nbytes)
        twin = comms[plan["family"]].explain("all_reduce", nbytes)
        if plan_of(plan) != plan_of(twin):
            raise SystemExit(f"{nbytes} bytes: forced, {plan['family']} has another plan: {plan} {twin}")
        live = [name for name in comms if name not in lost or name == plan["family"]]
        times, lost = time_all({name: comms[name] for name in live}, nbytes, effort, plan["family"])
        predicted = {plan["family"]: plan["predicted_s"]}
        predicted |= {other["family"]: other["predicted_s"] for other in plan["runners_up"]}
        case = {"bytes": nbytes, "chosen": plan["family"], "shares": plan["shares"], "segments": plan["segments"]}
        case["predicted_us"] = {name: round(1e6 * predicted[name]) for name in FAMILIES if name in predicted}
        found.append(case | summary(times, plan["family"]))
        if nbytes < 64 << 10:
            lost = set()  # what is slow for tiny tensors need not be for others
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    for comm in comms.values():
        comm.barrier()
        comm.close()


def plan_of(explained: dict) -> tuple:
    return explained["family"], explained["chunk_bytes"], [round(share, 3) for share in explained["shares"]]


def time_all(comms: dict, nbytes: int, effort: float, chosen: str) -> tuple[dict[str, list[float]], set[str]]:
    """Return seconds per call of each, by round, and whom not to ask again.

    All ranks see the same times, and so leave out the same families and end after the same round.
    """
    import numpy as np

    calls, most_rounds, enough_s = SIZES[nbytes]
    control = comms[AUTO]
    pattern = (np.arange(nbytes // 4) % 1000).astype(np.float32)
    expected = pattern * control.size + control.size * (control.size - 1) / 2
    times: dict[str, list[float]] = {name: [] for name in comms}
    lost: set[str] = set()
    live = list(comms)
    begun = 0.0
    for number in range(1 + most_rounds):
        order = live[number % len(live) :] + live[: number % len(live)]
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
        if number >= LEAST_ROUNDS and float(stamps_of_all.max()) - begun > enough_s * effort:
            break
    return times, lost


def summary(times: dict[str, list[float]], chosen: str) -> dict:
    """Return medians, and what the plan that was chosen takes as a multiple of each other's time, by round.

    It ran twice in every round, chosen and forced: how far apart these are is what noise does.
    """
    twice = list(zip(times[AUTO], times[chosen], strict=True))
    own = [sum(pair) / 2 for pair in twice]
    multiples = {
        name: round(statistics.median(a / b for a, b in zip(own, spent, strict=False)), 3)
        for name, spent in times.items()
        if name not in (AUTO, chosen)
    }
    return {
        "rounds": len(own),
        "median_us": {name: round(1e6 * statistics.median(spent), 1) for name, spent in times.items()},
        "multiples": multiples,
        "forced": round(statistics.median(a / b for a, b in twice), 3),
    }


# ---- all of them


def measure(hosts: str, effort: float, largest: int) -> list[dict]:
    """Measure all sizes in one lab; links are measured once, and remembered while it lasts."""
    from braid.lab import Job, Lab, environments

    with tempfile.TemporaryDirectory() as folder, Lab(hosts) as lab:
        places = environments(lab, [1] * len(lab.hosts))
        places = [(host, {name: own[name] for name in own if name != "BRAID_LINKS"}) for host, own in places]
        environment = {name: os.environ[name] for name in os.environ if name != "BRAID_LINKS"}
        command = [sys.executable, str(FOLDER / "regret.py"), "--rank", folder, str(effort), str(largest)]
        with Job(places, command, env=environment | {"BRAID_CACHE_DIR": f"{folder}/cache"}) as job:
            codes = job.wait(300)
        if any(codes):
            raise SystemExit(f"{hosts}: the ranks ended with {codes}")
        return json.loads(Path(folder, "found.json").read_text())


def judge(case: dict) -> tuple[str, float]:
    """Return the best family, and how much longer the choice took."""
    best = max(case["multiples"], key=case["multiples"].__getitem__)
    regret = case["multiples"][best] - 1
    return (best, regret) if regret > 0 else (case["chosen"], 0.0)


def table(report: dict) -> list[str]:
    """Return Markdown: regret by cluster and size, its median and worst, and what noise does."""
    sizes = [case["bytes"] for case in report["clusters"][0]["cases"]]
    lines = [
        "| n | links | " + " | ".join(size_text(size) for size in sizes) + " |",
        "|---" * (2 + len(sizes)) + "|",
    ]
    regrets: dict[int, list[float]] = {size: [] for size in sizes}
    noise: dict[int, list[float]] = {size: [] for size in sizes}
    for cluster in report["clusters"]:
        cells = []
        for case in cluster["cases"]:
            best, regret = judge(case)
            regrets[case["bytes"]].append(regret)
            noise[case["bytes"]].append(abs(case["forced"] - 1))
            instead = "" if best == case["chosen"] else f" ({best})"
            cells.append(f"{100 * regret:.0f} % {case['chosen']}{instead}")
        lines.append(f"| {cluster['n']} | {cluster['profile']} | {' | '.join(cells)} |")
    for title, by_size in (("regret", regrets), ("same plan twice", noise)):
        for what, of in (("median", statistics.median), ("worst", max)):
            cells = [f"{100 * of(by_size[size]):.0f} %" for size in sizes]
            every = of([value for values in by_size.values() for value in values])
            lines.append(f"| {title}, {what} | of all: {100 * every:.0f} % | {' | '.join(cells)} |")
    return lines


def size_text(count: int) -> str:
    return f"{count // MIB} MiB" if count >= MIB else f"{count >> 10} KiB"


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
        return
    from braid._bench.machine import facts

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effort", type=float, default=1.0, help="A multiple of each case's own time.")
    parser.add_argument("--hosts", default=",".join(map(str, HOSTS)), help="How many, of each kind of links.")
    parser.add_argument("--largest", type=int, default=4 * MIB, help="No larger vectors than that, in bytes.")
    parser.add_argument("--show", action="store_true", help="Measure nothing; print the table of what is there.")
    arguments = parser.parse_args()
    path = FOLDER / "regret.json"
    if not arguments.show:
        report = {"effort": arguments.effort, "machine": facts.facts(), "clusters": []}
        asked_for = [int(n) for n in arguments.hosts.split(",")]
        if path.exists() and set(asked_for) != set(HOSTS):  # the others stay as they are
            report["clusters"] = [
                one for one in json.loads(path.read_text())["clusters"] if one["n"] not in asked_for
            ]
        start = time.monotonic()
        for n in asked_for:
            for profile, links in PROFILES.items():
                hosts = ",".join(links(n))
                cases = measure(hosts, arguments.effort, arguments.largest)
                load = round(os.getloadavg()[0], 1)
                report["clusters"].append(
                    {"n": n, "profile": profile, "hosts": hosts, "load": load, "cases": cases}
                )
                seen = ", ".join(f"{100 * judge(case)[1]:.0f} %" for case in cases)
                print(f"{time.monotonic() - start:.0f} s: {hosts}: {seen}", flush=True)
                report["clusters"].sort(key=lambda one: one["n"])
                path.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(table(json.loads(path.read_text()))))


if __name__ == "__main__":
    main()
