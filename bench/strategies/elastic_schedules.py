# SPDX-License-Identifier: Apache-2.0
"""Repeats the table of You, Buluc and Demmel 2017: how fast each schedule of elastic averaging is.

Eight emulated hosts. Computing is a sleep, so two cores are enough. The host with the parameter server has slower
links than the others, as the paper's CPU has. The length of the vector makes communication 87 % of a round in
which workers come to the server one at a time. Prints a table; --json writes the numbers. Needs root, as
`braid lab` does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKERS = 8
GOODPUT = 0.957  # of what a shaped card passes, the part that is not headers
ONE_AT_A_TIME = "one at a time"
SCHEDULES = [ONE_AT_A_TIME, "round_robin", "first_come", "hogwild", "sync1", "sync2", "sync3"]
PAPER = {ONE_AT_A_TIME: 1.0, "sync1": 3.7, "sync2": 4.8, "sync3": 5.3}
PAPER_EXPOSED = {ONE_AT_A_TIME: 0.87, "sync3": 0.14}


@dataclass(frozen=True)
class Task:
    """What is measured. Rates in bytes per second that TCP carries, times in seconds."""

    compute_s: float
    slow: float
    fast: float
    elements: int

    @property
    def slow_s(self) -> float:
        """The time that the vector takes over the server's link, one way."""
        return 4 * self.elements / self.slow

    @property
    def fast_s(self) -> float:
        """The time that it takes between other hosts, one way."""
        return 4 * self.elements / self.fast

    def predicted_s(self, schedule: str) -> float:
        """Return the time of a round: the paper's formulas, for a server that is one of the workers' hosts."""
        tree = 2 * math.ceil(math.log2(WORKERS))
        if schedule == ONE_AT_A_TIME:
            return self.compute_s + 2 * (WORKERS - 1) * self.slow_s
        if schedule == "sync1":
            return self.compute_s + tree * self.slow_s
        if schedule == "sync2":
            return self.compute_s + tree * self.fast_s
        if schedule == "sync3":
            return max(self.compute_s, tree * self.fast_s)
        # Links carry both ways at once, and some workers compute while others push.
        return max(self.compute_s + 2 * self.slow_s, (WORKERS - 1) * self.slow_s)


def elements_for(share: float, compute_s: float, slow: float) -> int:
    """Return the length of the vector with which communication is that share of a round one at a time."""
    exchange_s = share / (1 - share) * compute_s / (2 * (WORKERS - 1))
    return int(exchange_s * slow / 4)


# ---- on a rank


def rounds_of(schedule: str, elements: int, compute_s: float, rounds: int) -> dict[str, float]:
    """Train with a schedule; return the time of a round, and how much of it was spent on waiting."""
    import braid.strategies as bs
    import torch
    import torch.distributed as dist
    from torch import nn

    class Vector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(elements))

    rank, token = dist.get_rank(), torch.zeros(1)
    model = Vector()
    model.weight.grad = torch.ones(elements)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    in_turns = schedule == ONE_AT_A_TIME
    options: dict[str, Any] = {"schedule": "first_come" if in_turns else schedule}
    if not schedule.startswith("sync"):
        options["servers"] = [0]

    def step() -> None:
        if in_turns:
            dist.barrier()
        time.sleep(compute_s)
        if in_turns and rank > 0:
            dist.recv(token, rank - 1)
        optimizer.step()
        if in_turns and rank < WORKERS - 1:
            dist.send(token, rank + 1)

    with bs.ElasticAverage(model, optimizer, sync_every=1, **options) as strategy:
        for _ in range(2):
            step()
        dist.barrier()
        waited_us, begun = strategy.stats()["exposed_us"], time.perf_counter()
        for _ in range(rounds):
            step()
        round_s = (time.perf_counter() - begun) / rounds
        stats = strategy.stats()
        waited_s = (stats["exposed_us"] - waited_us) / 1e6 / rounds
        # One at a time, waiting for the others' turns is communication, too.
        both = torch.tensor([round_s, round_s - compute_s if in_turns else waited_s])
        strategy.settle()
        dist.all_reduce(both)
    mean = (both / WORKERS).tolist()
    return {"round_s": mean[0], "exposed": mean[1] / mean[0], "root": stats.get("root", 0)}


def rank_main(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("braid")
    found = {}
    for schedule in arguments.schedules.split(","):
        found[schedule] = rounds_of(schedule, arguments.elements, arguments.compute_s, arguments.rounds)
    if dist.get_rank() == 0:
        Path(arguments.rank_writes).write_text(json.dumps(found))
    dist.destroy_process_group()


# ---- the table


def measure(task: Task, schedules: list[str], rounds: int, hosts: str) -> dict[str, dict[str, float]]:
    """Run all schedules in one lab; return what each rank 0 wrote."""
    from braid.lab import Job, Lab, environments

    with tempfile.TemporaryDirectory() as folder, Lab(hosts) as lab:
        written = Path(folder) / "found.json"
        command = [sys.executable, os.path.abspath(__file__), "--rank-writes", str(written)]  # noqa: PTH100
        command += ["--schedules", ",".join(schedules), "--elements", str(task.elements)]
        command += ["--compute-s", str(task.compute_s), "--rounds", str(rounds)]
        log = Path(folder) / "log"
        with log.open("wb") as file:
            options = {"stdout": file, "stderr": subprocess.STDOUT}
            with Job(environments(lab, [1] * WORKERS), command, **options) as job:
                codes = job.wait(timeout_s=600)
        if any(codes):
            raise SystemExit(f"ranks ended with {codes}:\n{log.read_text()[-3000:]}")
        found: dict[str, dict[str, float]] = json.loads(written.read_text())
        return found


def table(task: Task, found: dict[str, dict[str, float]]) -> list[str]:
    """Return a Markdown table. Ratios say how many times faster than one at a time."""
    lines = [
        "| schedule | round | predicted | faster | predicted | paper | exposed | paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    base_s, base_predicted_s = found[ONE_AT_A_TIME]["round_s"], task.predicted_s(ONE_AT_A_TIME)
    for schedule, row in found.items():
        predicted_s = task.predicted_s(schedule)
        paper, exposed = PAPER.get(schedule), PAPER_EXPOSED.get(schedule)
        lines.append(
            f"| {schedule} | {1000 * row['round_s']:.0f} ms | {1000 * predicted_s:.0f} ms "
            f"| {base_s / row['round_s']:.2f}x | {base_predicted_s / predicted_s:.2f}x "
            f"| {f'{paper}x' if paper else ''} "
            f"| {100 * row['exposed']:.0f} % | {f'{100 * exposed:.0f} %' if exposed else ''} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mbit", type=float, default=20.0, help="rate of the server's card, each way")
    parser.add_argument("--better", type=float, default=2.2, help="the other cards are that many times faster")
    parser.add_argument("--compute-s", type=float, default=0.15, help="the sleep in each step")
    parser.add_argument("--communication", type=float, default=0.87, help="its share of a round one at a time")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--schedules", default="", help="comma separated; all by default")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--elements", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rank-writes", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_writes:
        return rank_main(arguments)
    schedules = arguments.schedules.split(",") if arguments.schedules else list(SCHEDULES)
    schedules = [ONE_AT_A_TIME, *(name for name in schedules if name != ONE_AT_A_TIME)]
    slow, fast = (GOODPUT * rate * 1e6 / 8 for rate in (arguments.mbit, arguments.mbit * arguments.better))
    task = Task(arguments.compute_s, slow, fast, elements_for(arguments.communication, arguments.compute_s, slow))
    hosts = f"1x{arguments.mbit:g}mbit,{WORKERS - 1}x{arguments.mbit * arguments.better:g}mbit"
    print(f"{hosts}, {4 * task.elements / 1e3:.0f} kB of parameters, {1000 * task.compute_s:.0f} ms of computing")
    found = measure(task, schedules, arguments.rounds, hosts)
    print("\n".join(table(task, found)))
    if arguments.json:
        arguments.json.write_text(json.dumps({"hosts": hosts, **vars(task), "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
