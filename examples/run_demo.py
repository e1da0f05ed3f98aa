# SPDX-License-Identifier: Apache-2.0
"""The same training script on Gloo and, unedited, on braid: what is equal, and what each step costs.

On emulated hosts with one slow link a strategy stands beside both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from braid._rivals import has_finished
from braid.lab import unavailable
from rich.console import Console
from rich.table import Table

SCRIPT = Path(__file__).with_name("train_digits_ddp.py")
LEAST_ACCURACY = 0.95
UNEQUAL_HOSTS = "3x200mbit,1x40mbit"
LAB_EPOCHS = 2
STRATEGY, STRATEGY_EPOCHS = "local:sync_every=10", 10
GLOO_TRIES = 2  # now and then one of its processes aborts at its end
# Both sum the same float32 gradients, in another order: the curves part by rounding alone.
MOST_LOSS_DIFFERENCE = 0.02


@dataclass
class Run:
    """What one training run left behind."""

    losses: list[float]
    accuracy: float
    seconds: float  # of all steps
    step_ms: float  # median
    communication_ms: float  # median over steps of the summed time that all-reduces were under way
    stats: list[dict[str, Any]]


def train(
    launcher: list[str], epochs: int, console: Console, title: str, *, is_rival: bool = False, **environment: str
) -> Run:
    """Train; SystemExit if that fails. A rival may try again, and its run counts once its results are written."""
    console.rule(title)
    with tempfile.TemporaryDirectory() as folder:
        history, stats = Path(folder, "history.json"), Path(folder, "stats")
        command = [
            *[sys.executable, "-m", *launcher, str(SCRIPT)],
            *["--epochs", str(epochs), "--history", str(history)],
        ]
        own = {"BRAID_STATS": str(stats), "OMP_NUM_THREADS": "1"}
        for left in reversed(range(GLOO_TRIES if is_rival else 1)):
            code = subprocess.run(command, check=False, env={**os.environ, **own, **environment}).returncode
            if code == 0:
                break
            if is_rival and has_finished(code, [history]):
                console.print(f"this run ended with exit code {code}, after it had written its results")
                break
            console.print(f"this run ended with exit code {code}, see above{'; once more:' if left else ''}")
        else:
            raise SystemExit(1)
        data = json.loads(history.read_text())
        rank_0 = Path(f"{stats}.rank0.json")
        groups = json.loads(rank_0.read_text()) if rank_0.exists() else []
    steps = len(data["losses"])
    buckets = len(data["communication_seconds"]) // steps
    per_step = [sum(data["communication_seconds"][i * buckets : (i + 1) * buckets]) for i in range(steps)]
    return Run(
        losses=data["losses"],
        accuracy=data["accuracy"],
        seconds=sum(data["step_seconds"]),
        step_ms=1000 * statistics.median(data["step_seconds"]),
        communication_ms=1000 * statistics.median(per_step),
        stats=[row for group in groups for row in group["operations"]],
    )


def size(count: int) -> str:
    for unit, bytes_ in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_:
            return f"{count / bytes_:.3g} {unit}"
    return f"{count} B"


def report(gloo: Run, braid: Run, difference: float, ranks: int, where: str, console: Console) -> None:
    table = Table(title=f"Digits CNN, {ranks} ranks of DistributedDataParallel on {where}")
    for column in ("", "Gloo", "braid"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("final test accuracy", f"{100 * gloo.accuracy:.1f} %", f"{100 * braid.accuracy:.1f} %")
    table.add_row("final loss", f"{gloo.losses[-1]:.4f}", f"{braid.losses[-1]:.4f}")
    table.add_row("step time, median", f"{gloo.step_ms:.2f} ms", f"{braid.step_ms:.2f} ms")
    table.add_row(
        "of it all-reduce under way", f"{gloo.communication_ms:.2f} ms", f"{braid.communication_ms:.2f} ms"
    )
    console.print(table)
    console.print(f"largest difference of the two loss curves: {difference:.2g} over {len(gloo.losses)} steps")
    if where == "this machine" and ranks > (os.cpu_count() or 1):
        console.print(
            f"{ranks} ranks share {os.cpu_count()} cores, so these times hold waits for a core, too: "
            "do not compare them"
        )

    carried = Table(title="Which algorithm carried what (rank 0)")
    for column in ("collective", "algorithm", "sizes", "calls", "mean time"):
        carried.add_column(column)
    for row in braid.stats:
        sizes = size(row["min_bytes"])
        if row["max_bytes"] != row["min_bytes"]:
            sizes += f" .. {size(row['max_bytes'])}"
        mean = f"{1e6 * row['seconds'] / row['calls']:.0f} us"
        carried.add_row(row["collective"], row["algorithm"], sizes, str(row["calls"]), mean)
    console.print(carried)


def compare(gloo: Run, braid: Run, ranks: int, where: str, console: Console) -> list[str]:
    """Show both runs; return what is wrong."""
    difference = max(abs(a - b) for a, b in zip(gloo.losses, braid.losses, strict=True))
    report(gloo, braid, difference, ranks, where, console)
    problems = []
    if not braid.stats:
        problems.append("braid carried nothing: the take-over did not happen")
    if difference > MOST_LOSS_DIFFERENCE:
        problems.append(f"the loss curves differ by more than {MOST_LOSS_DIFFERENCE}")
    return problems


def report_strategy(gloo: Run, braid: Run, local: Run, console: Console) -> list[str]:
    """Show a strategy beside plain DistributedDataParallel; return what is wrong."""
    # Fewer bytes leave time for more epochs.
    table = Table(title=f"A tenth of the bytes: {STRATEGY_EPOCHS} epochs beside DDP's {LAB_EPOCHS}")
    for column in ("", "DDP on Gloo", "DDP on braid", STRATEGY):
        table.add_column(column, justify="left" if not column else "right")
    runs = (gloo, braid, local)
    table.add_row("steps", *(str(len(run.losses)) for run in runs))
    table.add_row("seconds in steps", *(f"{run.seconds:.1f}" for run in runs))
    table.add_row("test accuracy", *(f"{100 * run.accuracy:.1f} %" for run in runs))
    console.print(table)
    return [] if local.accuracy > braid.accuracy else [f"{STRATEGY} learnt no more in {STRATEGY_EPOCHS} epochs"]


def on_unequal_hosts(console: Console) -> list[str]:
    """Train on an emulated cluster with one slow host, on both, and with a strategy; return what is wrong."""
    launcher = ["braid.cli", "lab", "--hosts", UNEQUAL_HOSTS, "--", sys.executable]
    title = f"the script on Gloo, four hosts: {UNEQUAL_HOSTS}"
    gloo = train(launcher, LAB_EPOCHS, console, title, is_rival=True)
    title = "the same script, the same hosts, on braid"
    braid = train(launcher, LAB_EPOCHS, console, title, BRAID_TAKEOVER="gloo")
    ranks = sum(int(group.split("x")[0]) for group in UNEQUAL_HOSTS.split(","))
    problems = compare(gloo, braid, ranks, f"hosts of {UNEQUAL_HOSTS}", console)
    title = f"the same script, the same hosts, with the strategy {STRATEGY}"
    local = train(launcher, STRATEGY_EPOCHS, console, title, BRAID_TAKEOVER="gloo", BRAID_STRATEGY=STRATEGY)
    return problems + report_strategy(gloo, braid, local, console)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    console = Console()
    ranks = ["--nproc-per-node", str(arguments.ranks)]
    launcher = ["torch.distributed.run", *ranks]
    gloo = train(launcher, arguments.epochs, console, "the script on Gloo", is_rival=True)
    braid = train(["braid.cli", "run", *ranks], arguments.epochs, console, "the same script under braid run")
    problems = compare(gloo, braid, arguments.ranks, "this machine", console)
    if braid.accuracy < LEAST_ACCURACY:
        problems.append(f"accuracy below {100 * LEAST_ACCURACY:.0f} %")
    if reason := unavailable():
        console.print(f"*** NO UNEQUAL HOSTS WERE TRIED: {reason} ***")
    else:
        problems += on_unequal_hosts(console)
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
