# SPDX-License-Identifier: Apache-2.0
"""README.md stays short, its figures are those of the bench pages, and its code runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port
from slowness import limit

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
MOST_WORDS = 900
# Where each figure of the README stands: the page, and the row without what lies between the columns in use.
FIGURES = {
    ("759 us", "69 us"): ("intra_host", r"\| 1 MiB \| 69 \| 759 \|"),
    ("23.5 ms", "2.9 ms"): ("ddp", r"\| resnet50 \| 102 MB \| 100 \| 23.5 \| 2.9 \|"),
    ("1060 ms", "707 ms"): ("hybrid", r"\| 3x1gbit,1x200mbit \| 16 MiB \| 707 \| direct \| 1060 \|"),
    ("211 ms", "212 ms"): ("hybrid", r"\| 4x1gbit \| 16 MiB \| 212 \| ring \| 211 \|"),
    ("15.0 s", "6.2 s"): ("compression", r"(?s)\| gloo \| .* \| 15.0 s \|.*\| braid int8 \| [^|]* \| 6.2 s \|"),
}


@pytest.mark.unit
def test_it_is_short_and_says_for_whom() -> None:
    assert len(README.split()) <= MOST_WORDS
    first_screen = README[:700]
    for words in ("CPU tensors on Linux", "Gloo, not NCCL", "**For you if**", "**Not for you if**"):
        assert words in first_screen


@pytest.mark.unit
def test_its_figures_are_those_of_the_bench_pages() -> None:
    shown = set(re.findall(r"^\| .+ \| (.+?) \| (.+?) \| .+ \|$", README, re.MULTILINE)) - {("Gloo", "braid")}
    assert {pair for pair in shown if pair[0][0].isdigit()} == FIGURES.keys()
    for page, row in FIGURES.values():
        assert re.search(row, (ROOT / "bench" / page / "README.md").read_text()), (page, row)


@pytest.mark.multiprocess
@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/two-machines.md", marks=pytest.mark.long)])
def test_its_code_runs(page: str) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **place},
        capture_output=True,
        text=True,
        timeout=limit(200),
    )
    assert done.returncode == 0, done.stderr
