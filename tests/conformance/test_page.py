# SPDX-License-Identifier: Apache-2.0
"""docs/conformance.md says what is: the lists' numbers, and cells that a fresh measurement finds again."""

import pytest
import torch
from contestants import TORCH
from measure import Key, all_keys, measure, verdicts_of
from page import PATH, read, render

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(torch.__version__.split("+")[0] != TORCH, reason=f"the page is about torch {TORCH}"),
]


def fixed_part() -> list[Key]:
    """Return every special case, and every third of the other cells."""
    keys = all_keys()
    return [key for index, key in enumerate(keys) if key.startswith("special/") or index % 3 == 0]


def test_page_is_generated() -> None:
    page = PATH.read_text()
    verdicts = read(page)
    assert all(set(cells) == set(all_keys()) for cells in verdicts.values()), "make conformance-update"
    assert render(verdicts) == page, "make conformance-update"


@pytest.mark.timeout(300)
def test_braid_is_as_the_page_says() -> None:
    said = read(PATH.read_text())["braid"]
    found = measure("braid", fixed_part())
    wrong = [key for key, verdict in verdicts_of(found).items() if verdict != said[key]]
    if wrong:  # a busy machine may miss a deadline, but hardly twice
        found.update(measure("braid", wrong))
    lines = [
        f"{key}: {': '.join(filter(None, outcome))}; the page says {said[key]!r}"
        for key, outcome in found.items()
        if outcome[0] != said[key]
    ]
    assert not lines, "\n".join(lines)
