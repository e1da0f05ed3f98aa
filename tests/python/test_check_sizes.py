# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import check_sizes
import pytest

pytestmark = pytest.mark.unit


def test_counts_source_files_only(tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "a.cc").write_text("1\n2\n3\n")
    (tmp_path / "csrc" / "table.txt").write_text("1\n" * 900)
    assert check_sizes.line_counts(tmp_path) == {"csrc/a.cc": 3}


def test_limits() -> None:
    failures, notes = check_sizes.check({"small": 300, "middle": 301, "edge": 500, "large": 501}, {})
    assert [line.partition(":")[0] for line in failures] == ["large"]
    assert [line.partition(":")[0] for line in notes] == ["middle", "edge"]


def test_an_exception_is_noted_with_its_reason_and_must_be_needed() -> None:
    failures, notes = check_sizes.check({"large": 700, "shrunk": 10}, {"large": "a table", "shrunk": "was one"})
    assert [line.partition(":")[0] for line in failures] == ["shrunk"]
    assert "large: 700 lines, because a table" in notes
