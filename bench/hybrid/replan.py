# SPDX-License-Identifier: Apache-2.0
"""A card that becomes slow in mid-run and recovers: what each all_reduce takes, and when plans change."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
MIB = 1 << 20


def be_a_rank(folder: str, size: int, steps: int) -> None:
    """All-reduce again and again; print a line of JSON after each."""
    import time

    import braid
    import numpy as np

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    pattern = (np.arange(size // 4) % 1000).astype(np.float32)
    expected = pattern * ranks + ranks * (ranks - 1) / 2
    with braid.Communicator(f"file://{folder}/meeting", rank=rank, size=ranks, timeout_s=120) as comm:
        for step in range(steps):
            x = pattern + np.float32(rank)
            comm.barrier()
            start = time.monotonic()
            comm.all_reduce(x)
            seconds = time.monotonic() - start
            line = {"step": step, "seconds": round(seconds, 4), "right": bool(np.array_equal(x, expected))}
            if rank == 0:
                plan = comm.explain("all_reduce", size)
                line |= {"algorithm": plan["algorithm"], "shares": [round(share, 3) for share in plan["shares"]]}
            print(json.dumps(line), flush=True)


def measure(hosts: str, size: int, steps: int, changes: dict[int, float]) -> list[dict]:
    """Run it; after the steps that `changes` names the last host's card gets another share of its rate."""
    from braid.lab import Job, Lab, environments

    with tempfile.TemporaryDirectory() as folder, Lab(hosts) as lab:
        slow, rate = lab.hosts[-1], lab.hosts[-1].spec.up_bits_per_s
        command = [sys.executable, str(FOLDER / "replan.py"), "--rank", folder, str(size), str(steps)]
        with Job(environments(lab, [1] * len(lab.hosts)), command, stdout=subprocess.PIPE, text=True) as job:
            lines = []
            for line in job.ranks[0].stdout:
                lines.append(json.loads(line))
                if share := changes.get(lines[-1]["step"] + 1):
                    lab.set_rate(slow, rate * share)
            others = [[json.loads(line) for line in rank.stdout] for rank in job.ranks[1:]]
            codes = job.wait(60)
    if any(codes) or len(lines) != steps:
        raise SystemExit(f"the ranks ended with {codes} after {len(lines)} of {steps} steps")
    for step, line in enumerate(lines):
        line["right"] = line["right"] and all(other[step]["right"] for other in others)
    return lines


def plan_of(line: dict) -> tuple:
    return line["algorithm"], tuple(line["shares"])


def plan_text(line: dict) -> str:
    return line["algorithm"] + (
        f" {'/'.join(f'{share:.2f}' for share in line['shares'])}" if line["shares"] else ""
    )


def story(report: dict) -> list[str]:
    """Say what happened: between two changes, of card or plan, the median time."""
    lines, changes = report["steps"], {int(step): share for step, share in report["changes"].items()}
    starts = sorted(
        {0, *changes} | {i for i in range(1, len(lines)) if plan_of(lines[i]) != plan_of(lines[i - 1])}
    )
    text = ["| from step | card | plan | all_reduces | median s |", "|---|---|---|---|---|"]
    share = 1.0
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        share = changes.get(start, share)
        median = statistics.median(line["seconds"] for line in lines[start:end])
        text.append(f"| {start} | {share:.2f} | {plan_text(lines[start])} | {end - start} | {median:.3f} |")
    wrong = sum(not line["right"] for line in lines)
    return [*text, "", f"{len(lines)} all_reduces of {report['bytes']} bytes on {report['hosts']}, {wrong} wrong"]


def draw(report: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    lines = report["steps"]
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    axes.plot([line["step"] for line in lines], [line["seconds"] for line in lines], ".-", color="C0")
    for step, share in report["changes"].items():
        axes.axvline(int(step) - 0.5, color="C3", linestyle="--")
        axes.annotate(f"card at {share:.2f}", (int(step), axes.get_ylim()[1]), va="top", color="C3", fontsize=8)
    for before, after in itertools.pairwise(lines):
        if plan_of(before) != plan_of(after):
            axes.axvline(after["step"] - 0.5, color="C2", linestyle=":")
            axes.annotate(plan_text(after), (after["step"], 0), rotation=90, va="bottom", color="C2", fontsize=7)
    axes.set(
        xlabel="all_reduce", ylabel="s", ylim=(0, None), title=f"{report['bytes'] >> 20} MiB, {report['hosts']}"
    )
    figure.savefig(path, dpi=110)


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    from braid._bench.machine import facts

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="4x100mbit", help="Of a lab; it is the last one's card that changes.")
    parser.add_argument("--mib", type=int, default=2, help="Size of the vector.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--slow-at", type=int, default=20, help="Before this step.")
    parser.add_argument("--back-at", type=int, default=60)
    parser.add_argument("--share", type=float, default=1 / 3, help="Of its rate, what is left of the card.")
    parser.add_argument("--show", action="store_true", help="Measure nothing; show what is there.")
    arguments = parser.parse_args()
    path = FOLDER / "replan.json"
    if not arguments.show:
        changes = {arguments.slow_at: round(arguments.share, 3), arguments.back_at: 1.0}
        report = {
            "hosts": arguments.hosts,
            "bytes": arguments.mib * MIB,
            "changes": changes,
            "machine": facts.facts(),
            "steps": measure(arguments.hosts, arguments.mib * MIB, arguments.steps, changes),
        }
        path.write_text(json.dumps(report, indent=1) + "\n")
    report = json.loads(path.read_text())
    draw(report, path.with_suffix(".png"))
    print("\n".join(story(report)))


if __name__ == "__main__":
    main()
