# SPDX-License-Identifier: Apache-2.0
"""Builds the C++ tests of one build folder and runs them; what came too late runs once more, alone.

A report of a sanitizer, a crash or a failed expectation is never tried again: see tests/late.py. With --part only
a part of the programs is built and run, and those whose folder has changed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from changed import recent_commits  # noqa: E402
from late import may_try_again  # noqa: E402
from parts import dealt  # noqa: E402
from slowness import VARIABLE, factor  # noqa: E402

FAILED = re.compile(r"^\s*\d+ - (\S+) \((.*?)\)", re.MULTILINE)


def changed_folders() -> set[str]:
    """Return the folders of csrc and tests/cpp that recent commits changed; none where there is no history."""
    if not (commits := recent_commits(ROOT)):
        return set()
    command = ["git", "diff", "--name-only", f"{commits[-1]}^", "HEAD", "--", "csrc", "tests/cpp"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return {path.removeprefix("tests/cpp/").removeprefix("csrc/").split("/")[0] for path in done.stdout.split()}


def names_of(build: Path) -> list[str]:
    """Return the names of all tests: "folder", or "folder.part"."""
    command = ["ctest", "--test-dir", build, "--show-only=json-v1"]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return [test["name"] for test in found["tests"]]


def folder_of(name: str) -> str:
    """Return the folder of a test."""
    return name.split(".")[0]


def wanted(names: Sequence[str], part: str, changed: set[str]) -> list[str]:
    """Return those of a part, and of the folders that changed."""
    tests_of = Counter(map(folder_of, names))
    folders = sorted(tests_of, key=lambda folder: (-tests_of[folder], folder))  # many tests: it takes long
    kept = {*dealt(folders, part), *changed}
    return [name for name in names if folder_of(name) in kept]


def ctest(options: argparse.Namespace, names: list[str], jobs: int) -> tuple[int, str]:
    """Run these tests; show and return what they print."""
    pattern = "|".join(re.escape(name) for name in names)
    command = [*options.wrapper.split(), "ctest", "--test-dir", str(options.build), "--output-on-failure"]
    environment = {**os.environ, "GTEST_BRIEF": "1"}
    with subprocess.Popen(
        [*command, "-R", f"^({pattern})$", "-j", str(jobs)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def part_of_log(log: str, name: str) -> str:
    """Return what one test printed, of the log of all: from its line of result to the next one's."""
    found = re.search(
        rf"^ *\d+/\d+ Test +#\d+: {re.escape(name)} .*?(?=^ *\d+/\d+ Test +#|^\d+% tests passed)", log, re.M | re.S
    )
    return found[0] if found else ""


def main() -> int:
    """Build, run, run again; 0 when all passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="a configured build folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--wrapper", default="", help="a command that starts ctest")
    parser.add_argument("--part", default="", metavar="K/N", help="run part K of N, and what has changed")
    options = parser.parse_args()
    print(f"limits of time: times {factor():.2f}; handed down in {VARIABLE}", flush=True)
    names = names_of(options.build)
    targets = ["braid_tests"]
    if options.part:
        names = wanted(names, options.part, changed_folders())
        targets = sorted({f"{folder_of(name).replace('/', '_')}_test" for name in names})
        print(f"part {options.part}, and what changed: {' '.join(names) or 'nothing'}", flush=True)
        if not names:
            return 0
    subprocess.run(["cmake", "--build", options.build, "--target", *targets], check=True)
    status, log = ctest(options, names, options.jobs)
    if status == 0:
        return 0
    failed = dict(FAILED.findall(log.rpartition("The following tests FAILED:")[2]))
    late = [name for name in failed if may_try_again(part_of_log(log, name) + f"***{failed[name]}")]
    if not late or len(late) < len(failed):
        return status
    print(f"again, alone: {' '.join(late)}", flush=True)
    status, _ = ctest(options, late, 1)
    if status == 0:
        for name in late:
            print(f"flaky: {name}, {failed[name]}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
