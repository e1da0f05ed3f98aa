# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of a backend on Gloo and on braid, and compares with, or rewrites, the committed lists.

    python tests/conformance/run_suite.py check                            # all lists
    python tests/conformance/run_suite.py check --contestant braid-as-gloo --world 3 --only all_reduce
    python tests/conformance/run_suite.py update                           # write the lists anew

BRAID_CONFORMANCE_START=spawn starts each rank as PyTorch does, in a fresh Python; that takes ten times as long.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import lists
from contestants import CONTESTANTS, WORLD_SIZES, Contestant
from pool import Outcome, run_tests

TIMEOUT_S = 120


def compare(
    contestant: Contestant,
    world_size: int,
    *,
    jobs: int,
    wanted: Callable[[str], bool] = bool,
    logs: Path | None = None,
) -> tuple[list[Outcome], list[str]]:
    """Run the tests with `wanted` names, and return what became of them and what should not have.

    What is not as expected runs again by itself before it counts: the suite has tests with deadlines of a second,
    and a busy machine misses them.
    """
    listed = lists.read(contestant, world_size)
    problems: list[str] = []

    def choose(all_tests: Sequence[str]) -> list[str]:
        problems.extend(lists.gone(listed, all_tests))
        return [test for test in all_tests if wanted(test)]

    def differences(found: Sequence[Outcome]) -> dict[str, str]:
        if listed:
            return lists.differences(listed, found)
        return {one.test: one.line() for one in found if lists.verdict_of(one) == "failed"}

    outcomes = run_tests(contestant, world_size, choose, jobs=jobs, timeout_s=TIMEOUT_S)
    suspects = differences(outcomes)
    if suspects:
        again = run_tests(contestant, world_size, lambda _: sorted(suspects), jobs=1, timeout_s=TIMEOUT_S)
        second = differences(again)
        for test in sorted({*suspects} - {*second}):
            print(f"  as expected at the second try only: first {suspects[test]}", flush=True)
        by_name = {outcome.test: outcome for outcome in again}
        outcomes = [by_name.get(outcome.test, outcome) for outcome in outcomes]
        suspects = second
    if logs is not None:
        _keep(logs, contestant, world_size, outcomes)
    return outcomes, problems + [suspects[test] for test in sorted(suspects)]


def _keep(logs: Path, contestant: Contestant, world_size: int, outcomes: Sequence[Outcome]) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for outcome in outcomes:
        if outcome.log:
            (logs / f"{contestant.name}-{world_size}-{outcome.test}.log").write_text(outcome.log)


def _run_one(contestant: Contestant, world_size: int, options: argparse.Namespace) -> list[str]:
    print(f"{contestant.name}, {world_size} ranks:", flush=True)
    began = time.monotonic()
    outcomes, problems = compare(
        contestant, world_size, jobs=options.jobs, wanted=lambda test: options.only in test, logs=options.logs
    )
    numbers = Counter(outcome.verdict for outcome in outcomes)
    summary = ", ".join(f"{number} {verdict}" for verdict, number in numbers.most_common())
    print(f"  {summary}, {time.monotonic() - began:.0f} s", flush=True)
    if options.action == "update":
        lists.write(contestant, world_size, outcomes)
        known = lists.known_failures()
        problems = [
            f"{outcome.line()}; write the reason into {lists.KNOWN_FAILURES.name}"
            for outcome in outcomes
            if outcome.verdict in ("failed", "timed out") and outcome.test not in known
        ]
    for problem in problems:
        print(f"  {problem}", flush=True)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["check", "update"])
    parser.add_argument("--contestant", nargs="+", choices=list(CONTESTANTS), default=list(CONTESTANTS))
    parser.add_argument("--world", nargs="+", type=int, choices=WORLD_SIZES, default=list(WORLD_SIZES))
    parser.add_argument("--only", default="", help="tests whose names contain this; not with update")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at once")
    parser.add_argument("--logs", type=Path, help="a folder for the output of tests that fail")
    options = parser.parse_args()
    if options.action == "update" and options.only:
        parser.error("a list is written whole: update takes no --only")
    problems = []
    for name in options.contestant:
        for world_size in options.world:
            problems += _run_one(CONTESTANTS[name], world_size, options)
    broken = lists.broken_rules()
    print(
        "\n".join(broken)
        if broken
        else "rules: what Gloo passes braid passes, but for what known_failures.toml says"
    )
    return 1 if problems or broken else 0


if __name__ == "__main__":
    sys.exit(main())
