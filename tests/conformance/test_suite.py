# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests, on braid: a fixed part of what `make conformance` runs."""

import os

import lists
import pytest
import torch
from contestants import CONTESTANTS, TORCH
from pool import Outcome
from run_suite import compare

WORLD_SIZE = 3

pytestmark = pytest.mark.conformance
of_that_torch = pytest.mark.skipif(
    torch.__version__.split("+")[0] != TORCH, reason=f"the lists are of torch {TORCH}'s suite"
)


@pytest.mark.long
@of_that_torch
@pytest.mark.timeout(900)
def test_suite_on_three_ranks() -> None:
    outcomes, problems = compare(CONTESTANTS["braid-as-gloo"], WORLD_SIZE, jobs=os.cpu_count() or 1)
    assert sum(outcome.verdict == "passed" for outcome in outcomes) > 80
    assert not problems, "\n".join(problems)


@pytest.mark.long
@of_that_torch
@pytest.mark.timeout(900)
def test_what_the_suite_has_for_mpi_alone() -> None:
    as_gloo = lists.read(CONTESTANTS["braid-as-gloo"], WORLD_SIZE)
    outcomes, problems = compare(
        CONTESTANTS["braid-as-mpi"],
        WORLD_SIZE,
        jobs=os.cpu_count() or 1,
        wanted=lambda test: as_gloo.get(test, "").startswith("skipped"),
    )
    assert sum(outcome.verdict == "passed" for outcome in outcomes) >= 8
    assert not problems, "\n".join(problems)


def test_lists_keep_the_rules() -> None:
    problems = lists.broken_rules()
    assert not problems, "\n".join(problems)


def test_a_regression_is_named() -> None:
    listed = {"test_a": "passed", "test_b": "passed", "test_c": "failed: known", "test_d": "skipped: no GPU"}
    outcomes = [
        Outcome("test_a", "failed", "ValueError: no", 0.1),
        Outcome("test_b", "timed out", "", 0.1),
        Outcome("test_c", "failed", "whatever", 0.1),
        Outcome("test_d", "passed", "", 0.1),
        Outcome("test_e", "passed", "", 0.1),
    ]
    assert lists.differences(listed, outcomes) == {
        "test_a": "test_a: failed: ValueError: no; it should have passed",
        "test_b": "test_b: timed out; it should have passed",
        "test_d": "test_d: passed; the list says 'skipped: no GPU'. Good news: make conformance-update",
        "test_e": "test_e: passed; the list does not know this test: make conformance-update",
    }
    assert lists.gone(listed, ["test_a", "test_c", "test_d"]) == [
        "test_b: the suite has no such test any more: make conformance-update"
    ]
