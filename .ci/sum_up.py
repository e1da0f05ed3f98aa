# SPDX-License-Identifier: Apache-2.0
"""Prints one line for several logs: the sum of pytest's summaries, and of tests that passed only the second time.

Ends with 1 if more than three did. A few may, on a busy machine; more than that is a defect of product or tests.
"""

import re
import sys
from collections import Counter
from pathlib import Path

MOST_FLAKY = 3
# In pytest's order.
WHAT = ["failed", "passed", "skipped", "xfailed", "xpassed", "warnings", "errors", "flaky", "quarantined"]
SUMMARY = re.compile(
    r"^=+ (.*(?:passed|failed|error|skipped|flaky|no tests ran).*) in ([0-9.]+)s.* =+$", re.MULTILINE
)
FLAKY = re.compile(r"^flaky: ", re.MULTILINE)


def count(logs: list[str]) -> tuple[Counter[str], float]:
    """Return how many tests had which outcome, and the seconds; a log without a summary counts as an error."""
    total: Counter[str] = Counter()
    seconds = 0.0
    for log in logs:
        total["flaky"] += len(FLAKY.findall(log))  # those in C++ are in no summary of pytest
        found = SUMMARY.findall(log)
        if not found:
            total["errors"] += 1
            continue
        counts, spent = found[-1]
        seconds += float(spent)
        for number, what in re.findall(r"(\d+) (\w+)", counts):
            if what != "flaky":
                total[{"error": "errors", "warning": "warnings"}.get(what, what)] += int(number)
    return total, seconds


def sum_up(logs: list[str]) -> str:
    """Return the line."""
    total, seconds = count(logs)
    words = [f"{n} {what[:-1] if n == 1 and what[-1] == 's' else what}" for what in WHAT if (n := total[what])]
    return f"{' ' + (', '.join(words) or 'no tests ran') + f' in {seconds:.2f}s ':=^100}"


if __name__ == "__main__":
    logs = [Path(name).read_text(errors="replace") for name in sys.argv[1:]]
    flaky = count(logs)[0]["flaky"]
    if flaky > MOST_FLAKY:
        print(f"FAILED: {flaky} tests passed only the second time; at most {MOST_FLAKY} may")
    print(sum_up(logs))
    sys.exit(flaky > MOST_FLAKY)
