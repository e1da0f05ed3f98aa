# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import check_sleeps
import pytest
from slowness import VARIABLE
from waiting import eventually

pytestmark = pytest.mark.unit


def test_new_sleeps_are_found_and_old_ones_may_go(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tools").mkdir()
    old, new = tmp_path / "tests" / "test_old.py", tmp_path / "tests" / "test_new.py"
    (tmp_path / check_sleeps.BASELINE).write_text("# a comment\n1 tests/test_old.py\n")
    old.write_text("import time\ntime.sleep(1)\n")
    assert check_sleeps.check(tmp_path) == []
    old.write_text("import time\ntime.sleep(1)\ntime.sleep(2)\n")
    new.write_text("from time import sleep\nsleep(1)\n")
    assert [line.split(";")[0] for line in check_sleeps.check(tmp_path)] == [
        "tests/test_new.py: sleeps in lines 2",
        "tests/test_old.py: sleeps in lines 2, 3",
    ]


def test_eventually_waits_for_a_value_and_says_what_did_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    values, paused = iter([0, [], "it"]), []
    assert eventually(lambda: next(values), meanwhile=lambda: paused.append(1)) == "it"
    assert len(paused) == 2
    with pytest.raises(TimeoutError, match="the end of all did not come within 0 s"):
        eventually(lambda: False, lambda: "the end of all", 0.01)
