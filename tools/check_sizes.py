# SPDX-License-Identifier: Apache-2.0
"""Checks that source files stay small: more than 500 lines fail, more than 300 are listed."""

import sys
from pathlib import Path

ASK_ABOVE = 300
FAIL_ABOVE = 500
FOLDERS = ("csrc", "python", "tests", "bench", "examples", "tools", "cmake")
KINDS = {".cc", ".h", ".cu", ".cuh", ".py", ".pyi", ".sh", ".cmake"}

# Path -> why it may be longer.
EXCEPTIONS: dict[str, str] = {}


def line_counts(root: Path) -> dict[str, int]:
    """Return the number of lines of every source file, by its path relative to ``root``."""
    files = (path for folder in FOLDERS for path in sorted((root / folder).rglob("*")))
    return {
        path.relative_to(root).as_posix(): len(path.read_bytes().splitlines())
        for path in files
        if path.suffix in KINDS and path.is_file() and "__pycache__" not in path.parts
    }


def check(counts: dict[str, int], exceptions: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return what fails, and what is merely worth a look, one line each."""
    failures = [
        f"{path}: {lines} lines, the limit is {FAIL_ABOVE}: split it"
        for path, lines in counts.items()
        if lines > FAIL_ABOVE and path not in exceptions
    ]
    failures += [
        f"{path}: needs no exception (any more): remove it from tools/check_sizes.py"
        for path in exceptions
        if counts.get(path, 0) <= FAIL_ABOVE
    ]
    notes = [f"{path}: {lines} lines" for path, lines in counts.items() if ASK_ABOVE < lines <= FAIL_ABOVE]
    notes += [f"{path}: {counts[path]} lines, because {why}" for path, why in exceptions.items() if path in counts]
    return failures, notes


if __name__ == "__main__":
    all_counts = line_counts(Path(__file__).resolve().parent.parent)
    failed, noted = check(all_counts, EXCEPTIONS)
    for line in noted:
        print(f"check_sizes: note: {line}")
    print("\n".join(failed) if failed else f"check_sizes: {len(all_counts)} files are small enough")
    sys.exit(bool(failed))
