# SPDX-License-Identifier: Apache-2.0
"""Runs a long command with its output in a file, and says on the screen how far it is.

`python tools/with_progress.py TITLE LOG COMMAND...` tells every 15 s the time so far. Where the command builds, it
also tells the count of the newest step, as in "[120/491]". On a terminal one line is written anew each second. It
shows the last 60 lines of a command that fails, and passes the exit code on.
"""

import re
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

STEP = re.compile(r"\[\d+/\d+\]")
LINES = 60


def newest_step(log: Path) -> str:
    """Return the count of the last step that a build wrote, or nothing."""
    found = STEP.findall(log.read_text(errors="replace")[-20_000:])
    return f" {found[-1]}" if found else ""


def run(title: str, log: Path, command: list[str], every_s: float, end: str) -> int:
    """Run the command; return its exit code.

    Args:
        title: what is told of it.
        log: the file for its output.
        command: with its arguments.
        every_s: seconds between two reports.
        end: what ends a report: a new line, or a return to its beginning.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        while True:
            try:
                code = process.wait(every_s)
                break
            except subprocess.TimeoutExpired:
                print(f"{title}: {time.monotonic() - begun:.0f} s{newest_step(log)}", end=end, flush=True)
    print(f"{title}: {'done' if code == 0 else 'failed'} after {time.monotonic() - begun:.0f} s", flush=True)
    if code:
        with log.open(errors="replace") as output:
            sys.stderr.writelines(deque(output, LINES))
    return code


if __name__ == "__main__":
    is_terminal = sys.stdout.isatty()
    sys.exit(
        run(
            sys.argv[1],
            Path(sys.argv[2]),
            sys.argv[3:],
            every_s=1.0 if is_terminal else 15.0,
            end="\r" if is_terminal else "\n",
        )
    )
