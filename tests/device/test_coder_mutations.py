# SPDX-License-Identifier: Apache-2.0
"""Faults that are put into the code for codecs on a device are caught, and without a fault nothing is.

A fault is a change of the text of braid/_torch/on_device.py, which ranks load instead.
"""

import os
import sys
from pathlib import Path

import pytest
from faults import each_seed_shows_it
from ranks import Rank, run_ranks

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
SEEDS = 20

FAULTS: dict[str, tuple[tuple[str, str], ...]] = {
    "none": (),
    "the caller's stream is not awaited": (
        ("    stream.wait_stream(torch.accelerator.current_stream(device))\n", ""),
    ),
    "wait() lets the caller's stream go on": (
        ("torch.accelerator.current_stream(self._results[0].device).wait_event(self._done)", "pass"),
    ),
    "the future is completed on the caller's stream": (
        ("        future.set_result([like])\n", "    future.set_result([like])\n"),
    ),
    "inputs are not kept": (("    _launched.append((done, kept))\n", "    kept.clear()\n"),),
    "parts are not awaited": (("    exchange.wait()\n", ""),),
    "sums are not awaited": (("    gather.wait()\n", ""),),
    "the error of a sum is not kept": (("codec, total, left[rank], 1.0,", "codec, total, None, 1.0,"),),
    "the own part is not scaled": (
        ("torch.mul(values[rank].to(torch.float32), scale)", "values[rank].to(torch.float32).clone()"),
    ),
}


def put_in(fault: str) -> None:
    """Load the module with a fault. Nothing has called it yet."""
    from braid._torch import on_device

    assert on_device.__file__ is not None
    text = Path(on_device.__file__).read_text()
    for old, new in FAULTS[fault]:
        assert old in text, f"the text for {fault!r} is not there any more"
        text = text.replace(old, new)
    exec(compile(text, on_device.__file__, "exec"), vars(on_device))


def caught(rank: Rank, fault: str, seeds: int, schedules: int | None) -> list[str]:
    """Return, for each seed, the schedule and the race that caught the fault on this rank; "" if none did."""
    sys.path.insert(0, str(HERE))
    os.environ["BRAID_HOST"] = f"host-{rank.rank}"
    import coder
    import simulated

    sim = simulated.load()
    coder.register()
    put_in(fault)
    from coder_races import RACES
    from faults import found_by

    return found_by(rank, sim, RACES, seeds, schedules=schedules)


def run(fault: str, seeds: int, schedules: int | None = None) -> list[str]:
    """Run two ranks; return, for each seed, what caught the fault on some rank."""
    environment = {
        "BRAID_ALGORITHM": "all_reduce=direct,reduce_scatter=direct", "BRAID_CHUNK_BYTES": str(1 << 26),
        "BRAID_LINKS": "assume",
    }  # fmt: skip
    by_rank = run_ranks(
        *(caught, 2, fault, seeds, schedules),
        **{"wire": "tcp", "join": False, "environment": environment, "timeout_s": 500},
    )
    reasons = [next(filter(None, each), "") for each in zip(*by_rank, strict=True)]
    print(*reasons, sep="\n")
    return reasons


@pytest.mark.slow
def test_no_fault_is_found_where_there_is_none() -> None:
    """The first schedule raises no false alarm; that no other does is tried with the seeds below."""
    assert run("none", 1, schedules=1) == [""]


@pytest.mark.parametrize("fault", list(FAULTS)[1:])
def test_a_fault_is_caught(fault: str) -> None:
    """Some schedule shows it."""
    assert each_seed_shows_it(lambda: run(fault, 1), 1)


@pytest.mark.long
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_is_caught_with_every_seed(fault: str) -> None:
    """Twenty of twenty seeds show it. Without a fault three must do: each tries all races of all schedules."""
    if fault == "none":
        assert run(fault, 3) == ["", "", ""]
    else:
        assert each_seed_shows_it(lambda: run(fault, SEEDS), SEEDS)
