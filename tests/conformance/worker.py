# SPDX-License-Identifier: Apache-2.0
"""Runs tests of PyTorch's suite one after the other: names come on stdin, outcomes go to a file descriptor.

Usage: worker.py FD FOLDER, with the environment of a contestant. The first line out is the list of all tests.
FOLDER gets the log of the test that runs.
"""

import json
import logging
import os
import re
import sys
import time
import unittest
from pathlib import Path
from typing import IO

_ERROR_LINE = re.compile(r"^[\w.]*(?:Error|Exception|Exit|Interrupt)\b.*")
_SKIP_LINE = re.compile(r"skipping test \S+ for following reason: (.*)")


def _last_error(text: str) -> str:
    lines = [line for line in text.splitlines() if _ERROR_LINE.match(line)]
    return (lines or text.strip().splitlines() or ["no message"])[-1]


def _skip_reason(reason: str, log: str) -> str:
    # A rank that skips tells its parent only that it did.
    found = _SKIP_LINE.search(log) if "look at subprocess log" in reason else None
    return found[1] if found else reason


def _outcome(result: unittest.TestResult, log: str) -> tuple[str, str]:
    wrong = [text for _, text in result.errors + result.failures]
    if any("terminated or timed out after" in text for text in wrong):
        return "timed out", _last_error(log)
    if wrong:
        return "failed", _last_error(wrong[0])
    if result.skipped:
        return "skipped", _skip_reason(result.skipped[0][1], log)
    if result.expectedFailures or result.unexpectedSuccesses:
        return "failed", "the suite says that it should fail"
    return "passed", ""


def _run_all(names: IO[str], outcomes: IO[str], folder: Path) -> None:
    log_path, meeting_place = folder / "log", folder / "meeting_place"
    os.environ["INIT_METHOD"] = f"file://{meeting_place}"  # some tests run with a file alone
    from suite_case import SuiteCase

    print(json.dumps(unittest.TestLoader().getTestCaseNames(SuiteCase)), file=outcomes, flush=True)
    logging.getLogger("torch.testing._internal.common_distributed").addHandler(logging.StreamHandler(sys.stderr))
    for line in names:
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        meeting_place.unlink(missing_ok=True)
        result = unittest.TestResult()
        began = time.monotonic()
        SuiteCase(line.strip()).run(result)
        seconds = time.monotonic() - began
        for _, text in result.errors + result.failures:
            print(text, flush=True)
        verdict, why = _outcome(result, log_path.read_text(errors="replace"))
        print(json.dumps([line.strip(), verdict, why, seconds]), file=outcomes, flush=True)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)
    _run_all(sys.stdin, os.fdopen(int(sys.argv[1]), "w"), Path(sys.argv[2]))
