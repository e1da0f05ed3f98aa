# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a PowerSGD step of one matrix, on one thread: braid's passes, and torch's operators."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from braid import _core
from braid._bench.intervals import median_interval
from braid._machine import cpu_model

CASES = [(4500, 4500, 4), (4500, 1024, 4), (512, 4608, 4), (4500, 4500, 1), (4500, 4500, 32)]


class TorchOps:
    """Every buffer is there before, and operators work in place."""

    def __init__(self, rows: int, columns: int, rank: int) -> None:
        self.gradient, self.matrix = torch.randn(rows, columns), torch.zeros(rows, columns)
        self.p, self.q = torch.empty(rows, rank), torch.randn(columns, rank)
        self.basis = torch.empty(rows, rank)

    def project(self) -> None:
        torch.mm(self.matrix.add_(self.gradient), self.q, out=self.p)

    def orthonormalize(self) -> None:
        self.basis.copy_(torch.linalg.qr(self.p).Q)

    def gather(self) -> None:
        torch.mm(self.matrix.T, self.basis, out=self.q)

    def rebuild(self) -> None:
        torch.mm(self.basis, self.q.T, out=self.gradient)
        self.matrix.sub_(self.gradient)


class Braid:
    """The calls of python/braid/compression/low_rank.py."""

    def __init__(self, other: TorchOps) -> None:
        (rows, columns), rank = other.gradient.shape, other.q.shape[1]
        self.product = _core.LowRank(rows, columns, rank)
        self.gradient = other.gradient.numpy().copy()
        self.matrix = np.zeros_like(self.gradient)
        self.p, self.sent = np.zeros((rank, rows), np.float32), np.zeros((rank, rows), np.float32)
        self.q = other.q.T.contiguous().numpy()

    def project(self) -> None:
        rows = self.gradient.shape[0]
        self.product.project(self.gradient, self.matrix, self.sent, self.q, self.p, 0, rows)

    def orthonormalize(self) -> None:
        np.copyto(self.sent, self.p)
        assert self.product.orthonormalize(self.sent)

    def gather(self) -> None:
        self.product.gather(self.matrix, self.sent, self.q, 0, self.gradient.shape[1])

    def rebuild(self) -> None:
        self.product.rebuild(self.sent, self.q, self.gradient, 0, self.gradient.shape[0])


STAGES = ("project", "orthonormalize", "gather", "rebuild")


def check(ours: Braid, theirs: TorchOps) -> None:
    """Both make the same mean gradients, but for roundings, or the times say nothing."""
    given = theirs.gradient.clone()
    for _ in range(2):
        for stage in STAGES:
            getattr(ours, stage)()
            getattr(theirs, stage)()
        scale = float(theirs.gradient.abs().max())
        assert float((theirs.gradient - torch.from_numpy(ours.gradient)).abs().max()) < 1e-3 * scale
        theirs.gradient.copy_(given)
        ours.gradient[:] = given.numpy()


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(rows: int, columns: int, rank: int, rounds: int) -> dict[str, Any]:
    torch.manual_seed(1)
    theirs = TorchOps(rows, columns, rank)
    ours = Braid(theirs)
    check(ours, theirs)
    copied, source = np.empty_like(ours.matrix), np.ones_like(ours.matrix)
    times: dict[str, dict[str, list[float]]] = {who: {s: [] for s in STAGES} for who in ("braid", "torch")}
    copies = []
    for turn in range(rounds + 1):
        # Stage by stage in turns, after the other's memory has gone through the caches.
        for stage in STAGES:
            taken = {"torch": seconds(getattr(theirs, stage)), "braid": seconds(getattr(ours, stage))}
            if turn > 0:  # the first round warms up
                for who, value in taken.items():
                    times[who][stage].append(value * 1e3)
        copies.append(seconds(lambda: np.copyto(copied, source)) * 1e3)

    def summary(values: list[float]) -> dict[str, Any]:
        return {"median": round(median(values), 3), "interval": [round(end, 3) for end in median_interval(values)]}

    def ratio(slower: list[float], faster: list[float]) -> dict[str, Any]:
        # Within a round, so that what slowed the machine down slowed both.
        return summary([a / b for a, b in zip(slower, faster, strict=True)])

    step = {who: [sum(row) for row in zip(*stages.values(), strict=True)] for who, stages in times.items()}
    return {
        "rows": rows,
        "columns": columns,
        "rank": rank,
        "memcpy_ms": summary(copies[1:]),
        "ms": {who: {s: summary(row) for s, row in stages.items()} for who, stages in times.items()},
        "step_ms": {who: summary(row) for who, row in step.items()},
        "torch_over_braid": {
            **{stage: ratio(times["torch"][stage], times["braid"][stage]) for stage in STAGES},
            "step": ratio(step["torch"], step["braid"]),
        },
    }


def table(cases: list[dict[str, Any]]) -> str:
    lines = ["| matrix, rank | memcpy | " + " | ".join(STAGES) + " | step |", "|---" * (len(STAGES) + 3) + "|"]
    for case in cases:
        cells = [f"{case['rows']} x {case['columns']}, {case['rank']}", f"{case['memcpy_ms']['median']:.2f} ms"]
        for stage in (*STAGES, "step"):
            ms = [
                (case["step_ms"][who] if stage == "step" else case["ms"][who][stage])["median"]
                for who in ("torch", "braid")
            ]
            ratio = case["torch_over_braid"][stage]
            low, high = ratio["interval"]
            cells.append(f"{ms[0]:.2f} / {ms[1]:.2f} ms, {ratio['median']:.1f}x ({low:.1f}-{high:.1f})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = [measure(*case, arguments.rounds) for case in CASES]
    report = {
        "processor": cpu_model(),
        "instruction_set": _core.reduce_instruction_set(),
        "torch": torch.__version__,
        "commit": _core.commit,
        "rounds": arguments.rounds,
        "cases": found,
    }
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table(found))
