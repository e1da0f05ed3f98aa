# SPDX-License-Identifier: Apache-2.0
"""Prints one line for several runs of pytest: the sum of the summaries that end their logs."""

import re
import sys
from collections import Counter
from pathlib import Path

# In pytest's order.
WHAT = ["failed", "passed", "skipped", "xfailed", "xpassed", "warnings", "errors"]
SUMMARY = re.compile(r"^=+ (.*(?:passed|failed|error|skipped|no tests ran).*) in ([0-9.]+)s.* =+$", re.MULTILINE)


def sum_up(logs: list[str]) -> str:
    """Return the line; a log without a summary counts as an error."""
    total: Counter[str] = Counter()
    seconds = 0.0
    for log in logs:
        found = SUMMARY.findall(log)
        if not found:
            total["errors"] += 1
            continue
        counts, spent = found[-1]
        seconds += float(spent)
        for number, what in re.findall(r"(\d+) (\w+)", counts):
            total[{"error": "errors", "warning": "warnings"}.get(what, what)] += int(number)
    words = [f"{n} {what[:-1] if n == 1 and what[-1] == 's' else what}" for what in WHAT if (n := total[what])]
    return f"{' ' + (', '.join(words) or 'no tests ran') + f' in {seconds:.2f}s ':=^100}"


if __name__ == "__main__":
    print(sum_up([Path(name).read_text(errors="replace") for name in sys.argv[1:]]))
