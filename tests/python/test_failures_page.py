# SPDX-License-Identifier: Apache-2.0
"""Every failure in docs/failures.md has tests, which tests/failures.toml names."""

import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "failures.md"
NAMED = tomllib.loads((TESTS / "failures.toml").read_text())


def rows_of(page: str) -> dict[str, list[str]]:
    """Return, by heading, the first cell of each row."""
    found: dict[str, list[str]] = {}
    for part in page.split("\n## ")[1:]:
        heading, *lines = part.splitlines()
        rows = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")]
        found[heading] = rows[1:]  # without the table's head
    return found


def test_every_failure_has_tests() -> None:
    assert {heading: list(rows) for heading, rows in NAMED.items()} == rows_of(PAGE.read_text())
    assert all(tests for rows in NAMED.values() for tests in rows.values())


@pytest.mark.parametrize(
    "named", sorted({test for rows in NAMED.values() for tests in rows.values() for test in tests})
)
def test_the_test_exists(named: str) -> None:
    file, name = named.split("::")
    texts = [path.read_text() for path in TESTS.rglob(file)]
    assert any(re.search(rf"(def {name}\(|, {name}\))", text) for text in texts)
