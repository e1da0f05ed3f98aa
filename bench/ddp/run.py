# SPDX-License-Identifier: Apache-2.0
"""Gradients of real models through DDP: runs `braid bench ddp` for several, and prints the table of the README."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # of the checkout, wherever that is
# Model and computing: milliseconds of a step, about what a small accelerator takes, or done on this processor.
CASES = [
    ("resnet50", "100"),
    ("vgg16", "300"),
    ("bert-base", "300"),
    ("gpt2", "400"),
    ("dlrm", "20"),
    ("resnet50", "measured"),
]


def measure(model: str, compute: str, arguments: argparse.Namespace) -> dict:
    path = FOLDER / f"{model}_{compute}.json"
    command = [sys.executable, "-m", "braid.cli", "bench", "ddp", "--model", model, "--compute", compute]
    command += ["--ranks", str(arguments.ranks), "--time", str(arguments.time), "--json", str(path)]
    subprocess.run(command, check=True)
    return json.loads(path.read_text())


def row(model: str, compute: str, report: dict) -> str:
    cells = [model, f"{report['facts']['gradient_bytes'] / 1e6:.0f} MB", compute]
    for name in ("gloo", "braid"):
        found = report["measurements"][name]
        cells += [f"{found[key]['median']:.1f}" for key in ("step_ms", "exposed_ms", "communication_ms")]
    ratios = report["ratios"]["gloo"]
    cells += [interval(ratios[key]) for key in ("exposed", "communication")]
    return f"| {' | '.join(cells)} |"


def interval(ratio: dict | None) -> str:
    return f"{ratio['median']:.3g} [{ratio['low']:.3g}, {ratio['high']:.3g}]" if ratio else "not to be told"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--time", type=float, default=25, help="seconds per case")
    arguments = parser.parse_args()
    rows = [row(model, compute, measure(model, compute, arguments)) for model, compute in CASES]
    titles = ["model", "gradients", "computing ms"]
    titles += [f"{name}: {part}" for name in ("Gloo", "braid") for part in ("step ms", "exposed", "comm.")]
    titles += ["exposed, Gloo / braid", "comm., Gloo / braid"]
    print(f"\n| {' | '.join(titles)} |", "|---" * len(titles) + "|", *rows, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
