# SPDX-License-Identifier: Apache-2.0
"""torchft's process group on braid: a replica dies and comes back, the others train on."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from slowness import limit

ROOT = Path(__file__).resolve().parent.parent.parent
HAS_TORCHFT = importlib.util.find_spec("torchft") is not None


@pytest.mark.skipif(HAS_TORCHFT, reason="torchft is installed")
def test_without_torchft_it_says_what_to_install() -> None:
    with pytest.raises(ModuleNotFoundError, match="needs torchft: pip install torchft-nightly"):
        importlib.import_module("braid.torchft")


@pytest.mark.multiprocess
@pytest.mark.long
@pytest.mark.skipif(not HAS_TORCHFT, reason="torchft is not installed: make integrations")
def test_a_replica_dies_and_comes_back() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "torchft_replicas.py"), "--steps", "150"],
        env={**os.environ, "BRAID_QUIET": "1"},
        capture_output=True,
        text=True,
        timeout=limit(200),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout
    died = re.search(r"replica 1, step (\d+): dies", said)
    assert died, said
    last = int(died[1])  # 10, or later where it came late
    for replica in (0, 2):  # they went on without the third
        found = [int(step) for step in re.findall(rf"replica {replica}, step (\d+): 2 replicas train", said)]
        assert any(step > last for step in found), said
    again = [int(step) for step in re.findall(r"replica 1, step (\d+): 3 replicas train", said)]
    assert again, said
    assert again[-1] > last, said
    ends = re.findall(r"replica (\d) ends at step 150, parameters add up to (\S+)\n", said)
    assert sorted(replica for replica, _ in ends) == ["0", "1", "2"], said
    assert len({total for _, total in ends}) == 1, said
