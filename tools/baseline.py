# SPDX-License-Identifier: Apache-2.0
"""A number per file of findings that are older than a check: they may become fewer, never more."""

from pathlib import Path


def read(path: Path) -> dict[str, int]:
    """Return how many findings each file may have."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: int(count) for count, name in (line.split() for line in lines if not line.startswith("#"))}


def lowered(baseline: dict[str, int], counts: dict[str, int]) -> dict[str, int]:
    """Return the baseline with the smaller number of each file; no file is added, and no number grows."""
    smaller = {name: min(count, counts.get(name, 0)) for name, count in baseline.items()}
    return {name: count for name, count in smaller.items() if count}


def lower(path: Path, counts: dict[str, int], head: str) -> int:
    """Write the baseline anew below a line of comment, and return how many findings it still allows."""
    rest = lowered(read(path), counts)
    path.write_text(f"# {head}\n" + "".join(f"{count} {name}\n" for name, count in sorted(rest.items())))
    return sum(rest.values())
