# SPDX-License-Identifier: Apache-2.0
"""Lists calls of sleep() in Python tests. A test waits for what it needs, with eventually() of tests/waiting.py.

sleeps_baseline.txt holds the number of calls that each file may have; a file with more fails. --lower writes
smaller numbers into it, never larger ones. Some sleeps stay: a slow worker, a peer that is busy.
"""

import re
import sys
from pathlib import Path

import baseline

BASELINE = "tools/sleeps_baseline.txt"
OWN = "tests/waiting.py"
_CALL = re.compile(r"\bu?sleep\(")


def sleeps(root: Path) -> dict[str, list[int]]:
    """Return the lines that sleep, by file; files without any are left out."""
    found = {}
    for path in sorted((root / "tests").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        lines = [number for number, line in enumerate(path.read_text().splitlines(), 1) if _CALL.search(line)]
        if lines and name != OWN:
            found[name] = lines
    return found


def check(root: Path) -> list[str]:
    """Return one line for each file that sleeps more often than the baseline allows."""
    allowed = baseline.read(root / BASELINE)
    return [
        f"{name}: sleeps in lines {', '.join(map(str, lines))}; {allowed.get(name, 0)} allowed: use eventually()"
        for name, lines in sleeps(root).items()
        if len(lines) > allowed.get(name, 0)
    ]


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    if sys.argv[1:] == ["--lower"]:
        counts = {name: len(lines) for name, lines in sleeps(here).items()}
        head = "The sleeps that each test file may have; check_sleeps.py --lower lowers them."
        print(f"check_sleeps: the baseline allows {baseline.lower(here / BASELINE, counts, head)}")
    problems = check(here)
    print("\n".join(problems) if problems else "check_sleeps: no new sleeps in tests")
    sys.exit(bool(problems))
