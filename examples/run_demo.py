# SPDX-License-Identifier: Apache-2.0
"""One training script, which nobody edits, on Gloo and on braid.

First on four emulated hosts, of which one has a slow link: braid's sums, its compression and a strategy stand
beside Gloo. Then on this machine alone. Last the script is trained to its end under ``braid run``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from braid.lab import unavailable
from rich.console import Console

SCRIPT = Path(__file__).with_name("train_digits_ddp.py")
LEAST_ACCURACY = 0.95
UNEQUAL_HOSTS = "3x200mbit,1x40mbit"
STRATEGY = "local:sync_every=10"
# Both sum the same float32 gradients, in another order: the curves part by rounding alone.
MOST_LOSS_DIFFERENCE = 0.02


def compare(options: list[str], title: str, console: Console) -> list[str]:
    """Run ``braid compare``; return what is wrong."""
    console.rule(title)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "found.json")
        script = [str(SCRIPT), "--epochs", "1000"]  # braid compare ends it before
        command = [sys.executable, "-m", "braid.cli", "compare", "--json", str(kept), *options, *script]
        if code := subprocess.run(command, check=False).returncode:
            return [f"{title}: braid compare ended with exit code {code}, see above"]
        found = {way["name"]: way for way in json.loads(kept.read_text())["ways"]}
    gloo, braid = ([step["loss"] for rank in found[name]["steps"] for step in rank] for name in ("Gloo", "braid"))
    if found["Gloo"]["failure"]:
        console.print("Gloo's run failed, so braid's losses are not compared with its")
        return []
    difference = max(abs(one - other) for one, other in zip(gloo, braid, strict=True))
    console.print(
        f"largest difference of the losses on Gloo and on braid, in {len(braid)} steps: {difference:.2g}"
    )
    if difference > MOST_LOSS_DIFFERENCE:
        return [f"{title}: the losses differ by more than {MOST_LOSS_DIFFERENCE}"]
    return []


def train(ranks: int, epochs: int, console: Console) -> list[str]:
    """Train the script to its end under ``braid run``; return what is wrong."""
    console.rule("the whole script under braid run")
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder, "history.json")
        options = ["--nproc", str(ranks), str(SCRIPT), "--epochs", str(epochs), "--history", str(history)]
        if code := subprocess.run([sys.executable, "-m", "braid.cli", "run", *options], check=False).returncode:
            return [f"braid run ended with exit code {code}, see above"]
        accuracy = json.loads(history.read_text())["accuracy"]
    if accuracy < LEAST_ACCURACY:
        return [f"accuracy {100 * accuracy:.1f} %, below {100 * LEAST_ACCURACY:.0f} %"]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="on this machine")
    parser.add_argument("--epochs", type=int, default=10, help="of the last part")
    parser.add_argument("--steps", type=int, default=50, help="that are timed, in each way")
    arguments = parser.parse_args()
    console, began = Console(highlight=False), time.monotonic()
    steps = ["--steps", str(arguments.steps)]
    problems = []
    if reason := unavailable():
        console.print(f"*** NO UNEQUAL HOSTS WERE TRIED: {reason} ***")
    else:
        console.print("three parts: unequal hosts (a minute and a half), this machine, the whole script")
        on_hosts = ["--hosts", UNEQUAL_HOSTS, "--strategy", STRATEGY, *steps]
        problems += compare(on_hosts, f"four emulated hosts, one behind a slow link: {UNEQUAL_HOSTS}", console)
    ranks = ["--nproc", str(arguments.ranks), *steps]
    problems += compare(ranks, f"this machine, {arguments.ranks} ranks", console)
    problems += train(arguments.ranks, arguments.epochs, console)
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    console.print(f"the demo took {time.monotonic() - began:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
