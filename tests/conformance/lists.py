# SPDX-License-Identifier: Apache-2.0
"""The committed lists of what becomes of each test, and what differs from them."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from contestants import BRAID, GLOO, WORLD_SIZES, Contestant
from pool import Outcome

FOLDER = Path(__file__).parent / "expected"
KNOWN_FAILURES = Path(__file__).parent / "known_failures.toml"
NO_REASON = "nobody has written down why"
UPDATE = "make conformance-update"

# Test -> "passed", "skipped: why" or "failed: why".
Expectations = dict[str, str]


def known_failures() -> dict[str, str]:
    """Return the reasons written by hand, by test."""
    groups = tomllib.loads(KNOWN_FAILURES.read_text()).get("known", [])
    return {test: group["why"] for group in groups for test in group["tests"]}


def path_of(contestant: Contestant, world_size: int) -> Path:
    return FOLDER / f"{contestant.name}-{world_size}.json"


def read(contestant: Contestant, world_size: int) -> Expectations:
    path = path_of(contestant, world_size)
    expectations: Expectations = json.loads(path.read_text()) if path.exists() else {}
    return expectations


def write(contestant: Contestant, world_size: int, outcomes: Iterable[Outcome]) -> None:
    """Write one list anew: sorted, a test per line, nothing in it that changes from run to run."""
    reasons = known_failures()
    lines = {
        outcome.test: f"{verdict_of(outcome)}: {why}" if (why := _why(outcome, reasons)) else "passed"
        for outcome in outcomes
    }
    FOLDER.mkdir(exist_ok=True)
    path_of(contestant, world_size).write_text(json.dumps(lines, indent=2, sort_keys=True) + "\n")


def verdict_of(outcome: Outcome) -> str:
    """Return the verdict as lists have it: to time out is to fail."""
    return "failed" if outcome.verdict == "timed out" else outcome.verdict


def _why(outcome: Outcome, reasons: Mapping[str, str]) -> str:
    if outcome.verdict in ("passed", "skipped"):
        return outcome.why
    return reasons.get(outcome.test, NO_REASON)


def verdict_in(line: str) -> str:
    return line.split(":", 1)[0]


def differences(expected: Expectations, outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Return what is not as expected, one sentence for each test that was run."""
    found = {}
    for outcome in outcomes:
        was = expected.get(outcome.test, "")
        if not was:
            found[outcome.test] = f"{outcome.line()}; the list does not know this test: {UPDATE}"
        elif verdict_in(was) == verdict_of(outcome):
            continue
        elif outcome.verdict == "passed":
            found[outcome.test] = f"{outcome.line()}; the list says {was!r}. Good news: {UPDATE}"
        else:
            found[outcome.test] = f"{outcome.line()}; it should have {verdict_in(was)}"
    return found


def gone(expected: Expectations, all_tests: Iterable[str]) -> list[str]:
    """Return one sentence for each test that the list knows and the suite does not."""
    return [
        f"{test}: the suite has no such test any more: {UPDATE}" for test in sorted({*expected} - {*all_tests})
    ]


def broken_rules() -> list[str]:
    """Check the lists themselves: what Gloo passes braid passes, and every failure has its reason."""
    reasons = known_failures()
    problems = []
    failing = set()
    for world_size in WORLD_SIZES:
        gloo = read(GLOO, world_size)
        for contestant in BRAID:
            braid = read(contestant, world_size)
            where = path_of(contestant, world_size).name
            if not braid or not gloo:
                problems.append(f"{where}, or Gloo's list, is missing: {UPDATE}")
                continue
            failed = {test for test, line in braid.items() if verdict_in(line) == "failed"}
            failing |= failed
            problems += [
                f"{where}: {test} is said to fail {braid[test].split(': ', 1)[1]!r}, which is not the reason "
                f"in {KNOWN_FAILURES.name}: {UPDATE}"
                for test in sorted(failed)
                if braid[test] != f"failed: {reasons.get(test)}"
            ]
            problems += [
                f"{where}: Gloo passes {test} and braid does not: {braid.get(test, 'not in the list')}"
                for test, line in gloo.items()
                if line == "passed" and contestant.backend == GLOO.backend
                and braid.get(test) != "passed" and test not in reasons
            ]  # fmt: skip
    problems += [
        f"{KNOWN_FAILURES.name}: {test} fails nowhere; remove it" for test in sorted({*reasons} - failing)
    ]
    return problems


def counts(expected: Expectations) -> dict[str, int]:
    """Return how many tests passed, failed and were skipped."""
    verdicts = [verdict_in(line) for line in expected.values()]
    return {verdict: verdicts.count(verdict) for verdict in ("passed", "failed", "skipped")}
