# SPDX-License-Identifier: Apache-2.0
"""Faults that are put into the code for accelerators are caught, and without a fault nothing is."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from faults import each_seed_shows_it
from ranks import Rank, run_ranks

# The limit is for whoever is first, and builds an adapter. That takes half a minute; so do all faults.
pytestmark = [pytest.mark.long, pytest.mark.multiprocess, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "csrc" / "c10d" / "mutations.h"
MUTATIONS = re.findall(r"^  k(\w+),", SOURCE.read_text(), re.MULTILINE)
SEEDS = 20


def caught(rank: Rank, mutation: int, seeds: int, by_leg: bool, compiler: str) -> list[str]:
    """Return, for each seed, the schedule and the race that caught the mutation on this rank; "" if none did."""
    sys.path.insert(0, str(HERE))
    if by_leg:
        os.environ["BRAID_HOST"] = f"host-{rank.rank // 2}"
    import simulated

    sim = simulated.load()
    os.environ["CXX"] = compiler  # only now: the simulated device would be compiled with it once more
    import leg_races
    import races
    from braid._torch.adapter import load_adapter
    from faults import found_by

    load_adapter().mutate(mutation)
    simulated.offer_flags()
    if by_leg:
        return found_by(rank, sim, leg_races.RACES, seeds, forming_s=30)
    return found_by(rank, sim, races.RACES, seeds)


def run(mutation: str, seeds: int, way: str = "") -> list[str]:
    """Run ranks with an adapter that has faults; return, for each seed, what caught this one on some rank.

    Args:
        mutation: its name.
        seeds: how many.
        way: "wait", "stream waits" or "leg"; "" for the way that the fault is in.
    """
    number = MUTATIONS.index(mutation)
    way = way or next((way for way in ("Gate", "Leg") if mutation.startswith(way)), "wait")
    # Pieces and segments are smaller than the races' tensors. Over TCP a segment is as large as the setting says.
    environment = {
        "BRAID_PIECE_BYTES": "512", "BRAID_CHUNK_BYTES": "1024",
        "BRAID_STREAM_WAITS": str(int(way in ("stream waits", "Gate"))),
    }  # fmt: skip
    by_leg = way.lower() == "leg"
    if by_leg:
        environment = {"BRAID_LOCAL_LEG": "sim:braid", "BRAID_LINKS": "assume"}
    by_rank = run_ranks(
        caught, 4 if by_leg else 2, number, seeds, by_leg, compiler_with_faults(),
        wire="tcp", join=False, environment=environment, timeout_s=590 if by_leg else 290,
    )  # fmt: skip
    reasons = [next(filter(None, each), "") for each in zip(*by_rank, strict=True)]
    print(*reasons, sep="\n")
    return reasons


def compiler_with_faults() -> str:
    """Return the compiler's command for an adapter with faults. It has a place of its own in the cache."""
    return shlex.join([*shlex.split(os.environ.get("CXX") or "g++"), "-DBRAID_TEST_MUTATIONS"])


@pytest.fixture(scope="module", autouse=True)
def adapter_with_faults() -> None:
    """Build the adapter, so that no rank waits for it."""
    braid = str(Path(sys.executable).parent / "braid")
    subprocess.run([braid, "build"], env={**os.environ, "CXX": compiler_with_faults()}, check=True)


@pytest.mark.parametrize("way", ["wait", "stream waits", "leg"])
def test_no_fault_is_found_where_there_is_none(way: str) -> None:
    """No schedule raises a false alarm."""
    assert run("None", 1, way) == [""]


@pytest.mark.parametrize("mutation", MUTATIONS[1:])
def test_a_fault_is_caught(mutation: str) -> None:
    """Some schedule shows it."""
    assert each_seed_shows_it(lambda: run(mutation, 1), 1)


@pytest.mark.parametrize("mutation", MUTATIONS[1:])
def test_a_fault_is_caught_with_every_seed(mutation: str) -> None:
    """Twenty of twenty seeds show it."""
    assert each_seed_shows_it(lambda: run(mutation, SEEDS), SEEDS)


@pytest.mark.parametrize("way", ["wait", "leg"])
def test_no_seed_raises_a_false_alarm(way: str) -> None:
    """Without a fault."""
    assert run("None", SEEDS, way) == [""] * SEEDS
