# SPDX-License-Identifier: Apache-2.0
"""Which runs of another backend count."""

import subprocess
import sys
from pathlib import Path

import pytest
from braid._rivals import has_finished

pytestmark = pytest.mark.unit

ABORTS = "import os, sys; open(sys.argv[1], 'w').write(sys.argv[2]); os.abort()"


def test_a_run_that_ends_well_needs_no_results(tmp_path: Path) -> None:
    assert has_finished(0, [])
    assert has_finished([0, 0], [tmp_path / "none"])


@pytest.mark.parametrize(("written", "counts"), [("accuracy 0.9", True), ("", False)])
def test_a_run_that_aborts_counts_once_it_has_written_results(tmp_path: Path, written: str, counts: bool) -> None:
    results = tmp_path / "results"
    done = subprocess.run([sys.executable, "-c", ABORTS, results, written], stderr=subprocess.DEVNULL, check=False)
    assert done.returncode == -6
    assert has_finished(done.returncode, [results]) == counts
    assert has_finished([0, done.returncode], [results]) == counts
    assert not has_finished(done.returncode, [results, tmp_path / "another"])


def test_no_results_are_named_or_a_process_was_stopped(tmp_path: Path) -> None:
    assert not has_finished(1, [])
    assert not has_finished([0, None], [])
    assert not has_finished([None], [tmp_path / "none"])
