# SPDX-License-Identifier: Apache-2.0
"""The gate: which failures get a second try, how limits grow, how long tests are split, what the sum says."""

import itertools
import os
import re
import runpy
import subprocess
import sys
import time
from datetime import date, timedelta
from pathlib import Path

import changed
import parts
import pytest
import slowness
from late import may_try_again
from reruns import LONGEST_QUARANTINE, QUARANTINE, QuarantineError, quarantined

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.unit

TOO_LATE = [
    "E   subprocess.TimeoutExpired: Command '['python']' timed out after 200 seconds",
    "E   Failed: Timeout (>300.0s) from pytest-timeout.",
    ">   assert time.monotonic() - begun < SOON_S\nE   assert 13.1 < 12.0",
    "E   ranks.RanksFailedError: rank 0 ended with status -9: no result",
    "E   ranks.RanksFailedError: rank 0 ended with status -12: no result",
    "E   TimeoutError: rank 1 did not come to 'stop'",
    "E   OSError: [Errno 98] Address already in use",
    "torch.distributed.DistNetworkError: the server socket has failed to bind: address already in use",
    "E   braid.CommunicatorTimeoutError: 2 ranks are missing",
    "E   DistBackendError: braid: rank 1 has not come to form the group (waited for its card)",
    "E   DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//braid",
    "*** STOOD STILL, and was ended: Death.IsNoticed",
]
NEVER = [
    "E   assert [1.0, 2.0] == [3.0, 3.0]",
    "E   AssertionError: Tensor-likes are not close!",
    "E   ranks.RanksFailedError: rank 1 ended with status -11: no result",
    "E   ranks.RanksFailedError: rank 1 ended with status -6: no result\nE   rank 0: TimeoutError",
    "worker 'gw1' crashed while running 'tests/multiprocess/test_death.py::test_it'",
    "WARNING: ThreadSanitizer: data race (pid=7)\nSTOOD STILL",
    "==7==ERROR: AddressSanitizer: heap-use-after-free\n***Timeout",
    "E   ranks.RanksFailedError: rank 0 ended with status 1: Traceback\nE   AssertionError: 5 instead of 3\n"
    "E   rank 1 ended with status 1: Traceback\nE   DistBackendError: rank 0 has not answered rank 1 for 20 s",
    "x_test.cc:12: Failure\nExpected equality of these values: 1, 2",
]


@pytest.mark.parametrize("text", TOO_LATE)
def test_what_came_too_late_may_try_again(text: str) -> None:
    assert may_try_again(text)


@pytest.mark.parametrize("text", NEVER)
def test_wrong_values_crashes_and_reports_may_not(text: str) -> None:
    assert not may_try_again(text)


def test_a_measured_time_may_be_wrong_once() -> None:
    assert may_try_again("E   assert 1.9 < 1.8", measures_time=True)
    assert not may_try_again("E   rank 0 ended with status -11: no result", measures_time=True)


CASES = """
import os, pathlib, pytest
STATE = pathlib.Path(os.environ["STATE"])

def second_time(name):
    seen = (STATE / name).exists()
    (STATE / name).touch()
    return seen

@pytest.mark.parametrize("name", ["one", "two"])
def test_late(name):
    if not second_time(name):
        raise TimeoutError("it did not come")

def test_always_late():
    if os.environ.get("ALWAYS"):
        raise TimeoutError("it did not come")

@pytest.mark.alone
def test_rate():
    assert second_time("rate")

def test_wrong():
    assert not os.environ.get("WRONG") or second_time("wrong")

def test_crash():
    if os.environ.get("CRASH") and not second_time("crash"):
        os.abort()

def test_good():
    pass
"""


def write_cases(tmp_path: Path) -> None:
    """Write CASES beside this project's conftest."""
    for name in (
        "changed.py",
        "conftest.py",
        "late.py",
        "parts.py",
        "reruns.py",
        "slowness.py",
        "quarantine.toml",
    ):
        (tmp_path / name).write_text((ROOT / "tests" / name).read_text())
    (tmp_path / "test_cases.py").write_text(CASES)
    ini = "[pytest]\npythonpath = .\ntimeout = 100\nmarkers =\n  alone\n  slow\n  long\n"
    (tmp_path / "pytest.ini").write_text(ini)


def be_in_time(tmp_path: Path, *names: str) -> None:
    """Let these of CASES pass the first time: a second run takes seconds."""
    for name in names:
        (tmp_path / name).touch()


def run_cases(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", *arguments],
        cwd=tmp_path,
        env={**environment, "STATE": str(tmp_path), **variables},
        capture_output=True,
        text=True,
        timeout=slowness.limit(100),
        check=False,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_late_test_runs_again_alone_and_is_counted(tmp_path: Path) -> None:
    write_cases(tmp_path)
    done = run_cases(tmp_path, "--flaky-most", "3")
    assert done.returncode == 0, done.stdout
    assert "4 passed, 3 flaky in" in last_line(done)
    told = [line for line in done.stdout.splitlines() if line.startswith("flaky: ")]
    assert sorted(told) == [
        *(f"flaky: test_cases.py::test_late[{name}], TimeoutError: it did not come" for name in ("one", "two")),
        "flaky: test_cases.py::test_rate, AssertionError: assert False",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "variables", "counted"),
    [
        pytest.param("0", {}, "6 passed, 1 flaky", marks=pytest.mark.long),
        pytest.param("3", {"ALWAYS": "1"}, "1 failed, 6 passed", marks=pytest.mark.long),
        pytest.param("3", {"WRONG": "1"}, "1 failed, 5 passed, 1 flaky", marks=pytest.mark.long),
        ("3", {"CRASH": "1"}, "1 failed, 6 passed"),
    ],
    ids=["too many", "late again", "wrong", "crash"],
)
def test_what_stays_red(tmp_path: Path, most: str, variables: dict[str, str], counted: str) -> None:
    write_cases(tmp_path)
    be_in_time(tmp_path, "one", "two", *(["rate"] if {"ALWAYS", "CRASH"} & set(variables) else []))
    done = run_cases(tmp_path, "--flaky-most", most, **variables)
    assert done.returncode == 1, done.stdout
    assert counted in last_line(done)


@pytest.mark.long
def test_quarantine_does_not_gate_but_is_named(tmp_path: Path) -> None:
    entry = f'[[test]]\nname = "test_cases.py::test_wrong"\nreason = "a reason"\nsince = {date.today()}\n'
    write_cases(tmp_path)
    be_in_time(tmp_path, "one", "two", "rate")
    reruns = (tmp_path / "reruns.py").read_text()
    (tmp_path / "reruns.py").write_text(reruns.replace("QUARANTINE.read_text()", repr(entry)))
    done = run_cases(tmp_path, "--flaky-most", "3", WRONG="1")
    assert done.returncode == 0, done.stdout
    assert "in quarantine: test_cases.py::test_wrong: a reason" in done.stdout
    assert "6 passed, 1 quarantined in" in last_line(done)


def test_nobody_stays_in_quarantine() -> None:
    today = date(2026, 3, 20)
    entry = '[[test]]\nname = "a"\nreason = "{}"\nsince = {}\n'
    assert quarantined(entry.format("why", today - LONGEST_QUARANTINE), today) == {"a": "why"}
    assert quarantined(entry.format("why", today - LONGEST_QUARANTINE - timedelta(1)), today) == {}
    with pytest.raises(QuarantineError, match="needs name, reason and since"):
        quarantined(entry.format("", today), today)
    with pytest.raises(QuarantineError, match="a day to come"):
        quarantined(entry.format("why", today + timedelta(1)), today)
    quarantined(QUARANTINE.read_text(), date.today())


def test_limits_grow_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slowness.VARIABLE, "2.5")
    assert slowness.limit(4) == 10
    monkeypatch.setattr(os, "getloadavg", lambda: (20.0 * slowness.OWN_LOAD, 0, 0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert slowness.limit(4) == 10
    assert slowness.limit_now(4) == 20
    monkeypatch.setenv(slowness.VARIABLE, "1000")
    assert slowness.limit(1) == slowness.MOST
    monkeypatch.setenv(slowness.VARIABLE, "0.1")
    assert slowness.limit(1) == 1
    assert 1 <= slowness.measure() <= slowness.MOST


def test_parts_cover_everything_once() -> None:
    names = [f"test_{number}" for number in range(300)]
    each = [[name for name in names if parts.is_in_part(name, f"{part}/3")] for part in (1, 2, 3)]
    assert sorted(itertools.chain(*each)) == sorted(names)
    assert min(map(len, each)) > 70
    assert {parts.part_of(f"{number:040x}", 3) for number in range(9)} == {"1/3", "2/3", "3/3"}
    assert parts.dealt("abcdefgh", "1/3") == ["a", "f", "g"]
    assert parts.dealt("abcdefgh", "2/3") == ["b", "e", "h"]
    assert parts.dealt("abcdefgh", "3/3") == ["c", "d"]
    for wrong in ("0/3", "4/3", "1", "a/b", ""):
        with pytest.raises(ValueError, match="K/N"):
            parts.is_in_part("x", wrong)
        with pytest.raises(ValueError, match="K/N"):
            parts.dealt("x", wrong)


def test_the_programs_of_a_part_and_of_a_change() -> None:
    run = runpy.run_path(str(ROOT / "tests" / "cpp" / "run.py"))
    names = ["group.0", "group.1", "communicator/process", "base"]
    assert run["wanted"](names, "1/3", set()) == ["group.0", "group.1"]
    assert run["wanted"](names, "2/3", set()) == ["base"]
    assert run["wanted"](names, "3/3", set()) == ["communicator/process"]
    assert run["wanted"](names, "2/3", {"group"}) == ["group.0", "group.1", "base"]
    log = "1/2 Test #1: base ...***Failed 1 s\nsaid by base\n2/2 Test #2: group.0 ... Passed 1 s\n50% tests passed"
    assert run["part_of_log"](log, "base").splitlines()[1:] == ["said by base"]
    assert "Passed" in run["part_of_log"](log, "group.0")


PROGRAMS = """
cmake_minimum_required(VERSION 3.22)
project(programs NONE)
enable_testing()
add_custom_target(braid_tests)
add_test(NAME good COMMAND true)
add_test(NAME late COMMAND sh -c "test -e seen || { touch seen; echo STOOD STILL; exit 1; }")
add_test(NAME other COMMAND sh -c "${OTHER}")
set_tests_properties(other PROPERTIES LABELS unit)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "status"),
    [
        ("true", 0),
        ("echo 'WARNING: ThreadSanitizer: data race'; exit 66", 8),
        ("echo 'x_test.cc:1: Failure'; exit 1", 8),
        ("echo STOOD STILL; exit 1", 8),
    ],
    ids=["only late", "report", "wrong value", "late again"],
)
def test_programs_in_cpp(tmp_path: Path, other: str, status: int) -> None:
    (tmp_path / "CMakeLists.txt").write_text(PROGRAMS)
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", tmp_path, "-B", build, f"-DOTHER={other}"], capture_output=True, check=True)
    command = [sys.executable, ROOT / "tests" / "cpp" / "run.py", build, "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout
    assert ("flaky: late, " in done.stdout) == (status == 0)
    assert ("again, alone: " in done.stdout) == (other in ("true", "echo STOOD STILL; exit 1"))


DIFF = """\
--- a/tests/python/test_a.py
+++ b/tests/python/test_a.py
@@ -3,0 +4,2 @@ def test_one() -> None:
+    assert True
+    assert True
@@ -9 +11 @@
-@pytest.mark.slow
+@pytest.mark.long
--- a/tests/helper.py
+++ b/tests/helper.py
@@ -1 +1 @@
-a
+b
--- a/tests/python/test_b.py
+++ /dev/null
@@ -1,3 +0,0 @@
-a
"""
SOURCE = """\
import pytest

def test_one():
    assert True
    assert True

def test_two():
    pass

def helper(): ...
@pytest.mark.long
def test_three():
    pass
"""
USED = """\
import helpers

LIMIT = 3

def inner(): ...

@helpers.known
def run_by_ranks():
    inner()

def prepared(): ...

@pytest.mark.parametrize("function", [run_by_ranks])
def test_helper(function):
    function()

def test_fixture(prepared): ...

class Ranks:
    call = inner

@slow
def test_limit():
    assert Ranks(LIMIT)

def test_alone(): ...
"""


def test_tests_that_a_change_edits_are_named() -> None:
    found = changed.changed_lines(DIFF)
    assert found == {"tests/python/test_a.py": {4, 5, 11}}
    edited = [("test_one", False), ("test_three", False)]
    assert list(changed.tests_at(SOURCE, found["tests/python/test_a.py"])) == edited
    assert list(changed.tests_at(SOURCE, {3, 4, 5})) == [("test_one", True)]
    for name in changed.changed_tests(ROOT):
        assert (ROOT / name.partition("::")[0]).exists()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (1, []),
        (3, ["test_limit"]),
        (5, ["test_helper", "test_limit"]),
        (8, ["test_helper"]),
        (11, ["test_fixture"]),
        (24, ["test_limit"]),
    ],
)
def test_a_change_of_what_tests_use_names_these_tests(line: int, named: list[str]) -> None:
    """The functions that ranks run are handed over by name: an edit of one must repeat its test."""
    assert list(changed.tests_at(USED, {line})) == [(name, False) for name in named]


def test_new_tests_are_told_from_edited_ones_also_beside_bytes_that_are_no_text(tmp_path: Path) -> None:
    def git(*words: str, date: str) -> None:
        who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **who, "GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date}
        subprocess.run(["git", *words], cwd=tmp_path, env=environment, capture_output=True, check=True)

    now = f"{int(time.time())} +0000"
    tests = tmp_path / "tests" / "python"
    tests.mkdir(parents=True)
    (tests / "test_a.py").write_text("def test_old():\n    pass\n")
    git("init", date=now)
    git("add", ".", date=now)
    git("commit", "-m", "long ago", date="2000-01-01T00:00:00")
    (tests / "test_a.py").write_text("def test_old():\n    assert True\n")
    (tmp_path / "tests" / "input").write_bytes(b"\xaa no text\n")
    (tests / "test_b.py").write_text("def test_new():\n    pass\n")
    git("add", ".", date=now)
    git("commit", "-m", "now", date=now)
    new, old = "tests/python/test_b.py::test_new", "tests/python/test_a.py::test_old"
    assert changed.changed_tests(tmp_path) == {new: True, old: False}
    assert changed.tests_to_repeat(tmp_path) == [new, old]
    assert changed.added_tests(tmp_path) == [new]


LOG = """
flaky: tests/a.py::test_b, it was late
===== 1 failed, 5 passed, 1 flaky, 2 warnings in 7.50s (0:00:07) =====
"""


def test_the_sum_counts_flakes_of_all_kinds_once(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text(LOG)
    second.write_text("flaky: group.0, Timeout\n====== 3 passed, 1 skipped in 1.25s ======\n")
    command = [sys.executable, str(ROOT / ".ci" / "sum_up.py"), str(first), str(second)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert re.fullmatch(r"=+ 1 failed, 8 passed, 1 skipped, 2 warnings, 2 flaky in 8\.75s =+\n", done.stdout)
    second.write_text("flaky: group.0, Timeout\n" * 3)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "4 tests passed only the second time" in done.stdout
    assert "1 error" in last_line(done)
