# SPDX-License-Identifier: Apache-2.0
"""Runs tests that came too late once more: after all others, alone, in a new process.

With `--flaky-most N` at most N tests may pass only the second time. Each is printed with its first error and
counted as flaky in the last line. tests/late.py says which failures get a second try; tests that the change itself
edits get none. Tests that quarantine.toml names run like all others, but do not fail the run.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path

import pytest
from changed import ROOT, tests_to_repeat
from late import may_try_again
from slowness import VARIABLE

_RAISED = re.compile(r"[\w.]*(Error|Exception|Expired)\b")
# More failures than this are no matter of time.
MOST_RERUNS = 8
QUARANTINE = Path(__file__).parent / "quarantine.toml"
LONGEST_QUARANTINE = timedelta(days=14)


class QuarantineError(pytest.UsageError):
    """quarantine.toml names a test in a wrong way, or for too long."""


def quarantined(text: str, today: date) -> dict[str, str]:
    """Return the reasons by test, of the names in quarantine whose time is not over.

    Args:
        text: a table [[test]] for each, with name, reason and since (a date).
        today: the day of the run.

    Raises:
        QuarantineError: a name without a reason, or a day that is still to come.
    """
    reasons = {}
    for entry in tomllib.loads(text).get("test", []):
        if set(entry) != {"name", "reason", "since"} or not entry["reason"]:
            raise QuarantineError(f"quarantine.toml: a test needs name, reason and since: {entry}")
        if entry["since"] > today:
            raise QuarantineError(f"quarantine.toml: {entry['name']} is there since a day to come")
        if today - entry["since"] <= LONGEST_QUARANTINE:
            reasons[entry["name"]] = entry["reason"]
    return reasons


class Reruns:
    """The plugin of the process that hears of all results."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._most_flaky = config.getoption("flaky_most")
        self._quarantined = quarantined(QUARANTINE.read_text(), date.today())
        self._changed = set(tests_to_repeat(ROOT))
        self._failed: dict[str, list[pytest.TestReport]] = defaultdict(list)
        self._flaky: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what failed."""
        if report.failed:
            self._failed[report.nodeid].append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Run again what may, and count the results anew."""
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
            return
        for name in [name for name in self._failed if name in self._quarantined]:
            self._move(name, "quarantined")
        late = [name for name, reports in self._failed.items() if self._may_try_again(name, reports)]
        if len(late) <= MOST_RERUNS:
            for name in late:
                if self._passes_alone(name):
                    self._flaky[name] = _first_error(self._failed[name][0])
                    self._move(name, "flaky")
        if not self._failed and len(self._flaky) <= self._most_flaky:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what passed only the second time, what is in quarantine, and how to repeat what failed."""
        for name in list(self._failed)[:MOST_RERUNS]:
            terminalreporter.write_line(f"to repeat it: .venv/bin/python -m pytest '{name}'")
        for name, error in self._flaky.items():
            terminalreporter.write_line(f"flaky: {name}, {error}")
        if len(self._flaky) > self._most_flaky:
            terminalreporter.write_line(
                f"FAILED: {len(self._flaky)} flaky tests, of {self._most_flaky} that may be"
            )
        for name, reason in self._quarantined.items():
            terminalreporter.write_line(f"in quarantine: {name}: {reason}")

    def _may_try_again(self, name: str, reports: list[pytest.TestReport]) -> bool:
        return name.partition("[")[0] not in self._changed and all(
            may_try_again(_text(report), measures_time="alone" in report.keywords) for report in reports
        )

    def _passes_alone(self, name: str) -> bool:
        # Without slowness.VARIABLE the limits follow the machine as it is by then.
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", VARIABLE))
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
        print(f"\nagain, alone: {name}", flush=True)
        done = subprocess.run(
            command, cwd=self._config.rootpath, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stdout[-3000:], flush=True)
        return done.returncode == 0

    def _move(self, name: str, kind: str) -> None:
        stats = self._config.pluginmanager.get_plugin("terminalreporter").stats
        reports = self._failed.pop(name)
        for category in ("failed", "error"):
            stats[category] = [report for report in stats.get(category, []) if report not in reports]
        stats.setdefault(kind, []).append(reports[0])


def _text(report: pytest.TestReport) -> str:
    """Return the lines that failed, and what they raised, without the source around them."""
    lines = report.longreprtext.splitlines()
    told = [line for line in lines if line.startswith(("E ", ">"))]
    return "\n".join(told or lines)


def _first_error(report: pytest.TestReport) -> str:
    """Return the first line of the error; of a rank's traceback the line that says what it raised, too."""
    lines = [line.removeprefix("E").strip() for line in _text(report).splitlines() if not line.startswith(">")]
    told = [line for line in lines if line] or ["no message"]
    raised = [line for line in told[1:] if _RAISED.match(line)]
    return ": ".join(line[:200] for line in [told[0], *raised[:1]])
