# SPDX-License-Identifier: Apache-2.0
"""Runs codec_bench, keeps what it measured, and prints it as a table."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

OPERATIONS = {
    "encode": "encode",
    "encode_scaled": "scaled",
    "encode_residual": "with residual",
    "decode": "decode",
    "decode_add": "decode_add",
}


def cpu_name() -> str:
    """Return the processor's name, as the kernel has it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


def table(rows: list[dict[str, Any]], instruction_set: str) -> str:
    """Return GB/s of floats, and in brackets the part of memcpy's, as Markdown."""
    rows = [row for row in rows if row["instruction_set"] == instruction_set]
    lines = [f"| {instruction_set} | {' | '.join(OPERATIONS.values())} |", "|---" * (len(OPERATIONS) + 1) + "|"]
    for codec in dict.fromkeys(row["codec"] for row in rows):
        of = {row["operation"]: row for row in rows if row["codec"] == codec}
        cells = [f"{of[name]['gb_per_s']:.1f} ({of[name]['of_memcpy']:.2f})" for name in OPERATIONS]
        lines.append(f"| {codec} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=Path, nargs="?", help="codec_bench; without it the file is shown again")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results.json")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    if arguments.binary:
        command = [arguments.binary, str(arguments.mib), str(arguments.rounds)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows = [json.loads(line) for line in output.splitlines()]
        text = ",\n  ".join(json.dumps(row) for row in rows)
        arguments.json.write_text(f'{{"cpu": {json.dumps(cpu_name())}, "rows": [\n  {text}\n]}}\n')
    rows = json.loads(arguments.json.read_text())["rows"]
    for name in dict.fromkeys(row["instruction_set"] for row in rows):
        print(table(rows, name) + "\n")


if __name__ == "__main__":
    main()
