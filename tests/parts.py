# SPDX-License-Identifier: Apache-2.0
"""Splits what takes long into parts, of which each run of continuous integration does one.

`python tests/parts.py 3` prints the part that the last commit picks, as "2/3".
"""

import subprocess
import sys
from collections.abc import Sequence
from zlib import crc32


def read_part(part: str) -> tuple[int, int]:
    """Return the place, from 0, and the number of parts of "K/N", with K from 1."""
    place, _, parts = part.partition("/")
    if not (place.isdecimal() and parts.isdecimal() and 1 <= int(place) <= int(parts)):
        raise ValueError(f"a part is given as K/N, with K from 1 to N; this is {part!r}")
    return int(place) - 1, int(parts)


def is_in_part(name: str, part: str) -> bool:
    """Return whether a test, by its name, belongs to part K of N, given as "K/N"."""
    place, parts = read_part(part)
    return crc32(name.encode()) % parts == place


def dealt(names: Sequence[str], part: str) -> list[str]:
    """Return those of part K of N, where the names are dealt in turn, there and back.

    For few names of which some take long. Where these come first, the parts take about equally long.
    """
    place, parts = read_part(part)
    turns = [*range(parts), *reversed(range(parts))]
    return [name for number, name in enumerate(names) if turns[number % len(turns)] == place]


def part_of(commit: str, parts: int) -> str:
    """Return the part that a commit's hash picks."""
    return f"{int(commit, 16) % parts + 1}/{parts}"


if __name__ == "__main__":
    head = subprocess.run(["git", "rev-parse", "HEAD"], stdout=subprocess.PIPE, text=True, check=True).stdout
    print(part_of(head.strip(), int(sys.argv[1])))
