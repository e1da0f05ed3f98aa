# SPDX-License-Identifier: Apache-2.0
"""What rank 0 says when a job ends."""

from typing import Any

import pytest
from braid import _core
from braid._torch.end_lines import lines

pytestmark = pytest.mark.unit

GIGABIT, SLOW = 8e-9, 4e-8  # seconds per byte


def topology(*rates: float) -> str:
    return _core.stated_topology(list(range(len(rates))), 5e-5, rates[0], [(rate, rate) for rate in rates])


UNEQUAL = topology(GIGABIT, GIGABIT, GIGABIT, SLOW)


def row(calls: int, size: int, seconds: float, algorithm: str = "direct", **more: Any) -> dict[str, Any]:
    return {
        "collective": "all_reduce",
        "algorithm": algorithm,
        "calls": calls,
        "bytes": calls * size,
        "seconds": seconds,
        **more,
    }


def test_what_was_carried_and_what_a_ring_would_have_taken() -> None:
    rows = [row(300, 4 << 20, 12.0), row(100, 8, 0.4, "doubling", collective="barrier")]
    first, second = lines(rows, 31.04, UNEQUAL)
    assert first == (
        "400 operations carried 1.17 GiB, in 12.4 s added up; the job took 31.0 s. Most, 1.17 GiB, by direct: "
        "300 times all_reduce, 40 ms each"
    )
    used, ring = (
        _core.Tuner(UNEQUAL, name).explain("all_reduce", "float32", "sum", 0, 4 << 20)["predicted_s"]
        for name in ("direct", "ring")
    )
    assert ring > 1.2 * used
    assert second.startswith(f"a ring in equal parts, as Gloo's, would take {ring / used:.2f} times as long")


def test_a_codec_says_how_many_bytes_it_spares() -> None:
    rows = [row(100, 4 << 20, 9.0, "direct int8"), row(20, 4 << 20, 8.0)]
    told = lines(rows, 20.0, UNEQUAL)
    assert told[1] == "400 MiB of it went by int8, in 3.94 times fewer bytes between hosts"
    assert float(told[2].split("take ")[1].split(" ")[0]) > 3


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [([row(300, 4 << 20, 5.0)], 9.9), ([row(99, 4 << 20, 5.0)], 60.0), ([], 60.0)],
)
def test_a_short_job_says_nothing(rows: list[dict[str, Any]], seconds: float) -> None:
    assert lines(rows, seconds, UNEQUAL) == []


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        (topology(GIGABIT, SLOW), "direct"),  # two hosts
        (topology(*[GIGABIT] * 4), "ring"),
        (UNEQUAL, "aggregated"),  # by aggregators: the tuner alone has no price for it
    ],
)
def test_no_gain_is_claimed_where_none_is_known(text: str, algorithm: str) -> None:
    assert len(lines([row(300, 4 << 20, 12.0, algorithm)], 31.0, text)) == 1
