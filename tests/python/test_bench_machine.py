# SPDX-License-Identifier: Apache-2.0
"""What braid bench says of the machine: facts, rates of memory, and the limit that follows from them."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from braid._bench.machine import facts as machine
from braid._bench.machine.bandwidth import Rates, Samples, combine, measure_rates, sizes_up_to
from braid._bench.machine.limit import limit_us

pytestmark = pytest.mark.unit

MIB = 1 << 20
A, C = 12e9, 8e9  # bytes added and copied per second
FLAT = Rates([4096], copy=[C], add=[A])
COLLECTIVES = (
    *("all_reduce", "reduce_scatter", "reduce", "broadcast", "all_gather", "all_to_all", "gather", "scatter"),
    *("send_recv", "ping_pong"),
)


def test_facts_are_plain_data() -> None:
    facts = machine.facts()
    assert json.loads(json.dumps(facts)) == facts
    for name, kind in {
        "cpu": str,
        "features": list,
        "cores": int,
        "usable_cores": int,
        "hypervisor": bool,
        "caches": dict,
        "memory_total_bytes": int,
        "kernel": str,
        "load_before": float,
        "versions": dict,
        "build": dict,
    }.items():
        assert isinstance(facts[name], kind), name
    for name, kind in {"cpu_quota": float, "governor": str, "commit": str}.items():
        assert facts[name] is None or isinstance(facts[name], kind), name
    assert 1 <= facts["usable_cores"] <= facts["cores"]
    assert {"braid", "python", "numpy"} <= facts["versions"].keys()
    assert {"type", "compiler", "instruction_set"} == facts["build"].keys()


def test_caches_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(1, "Data", "32K"), (1, "Instruction", "32K"), (2, "Unified", "512K"), (3, "Unified", "96M")]
    for index, (level, kind, size) in enumerate(rows):
        folder = tmp_path / f"cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine, "_CPU", tmp_path)
    assert machine.facts()["caches"] == {"L1d": 32 << 10, "L2": 512 << 10, "L3": 96 * MIB}
    monkeypatch.setattr(machine, "_CPU", tmp_path / "cache")
    assert machine.facts()["caches"] == {}


def test_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([[100, 0, 50, 800, 0, 0, 0, 50], [150, 0, 60, 815, 0, 0, 0, 75]])
    monkeypatch.setattr(machine, "_ticks", lambda: next(looks))
    assert machine.Disturbance().so_far()["steal_share"] == 25 / 100
    monkeypatch.setattr(machine, "_ticks", list)  # no /proc
    found = machine.Disturbance().so_far()
    assert found["steal_share"] is None
    assert found.keys() == {"steal_share", "load_before", "load_after"}
    monkeypatch.undo()
    share = machine.Disturbance().so_far()["steal_share"]
    assert share is None or 0 <= share <= 1


def test_sizes() -> None:
    assert sizes_up_to(8) == [4096]
    assert sizes_up_to(MIB) == [4096, 16384, 65536, 262144, MIB]
    assert sizes_up_to(MIB + 4)[-1] == 4 * MIB
    assert sizes_up_to(1 << 40)[-1] == 64 * MIB


def test_measured_rates() -> None:
    begun = time.perf_counter()
    samples = measure_rates([4096, 65536, 3 * MIB], seconds=2.4, start=begun + 0.2)
    assert 2.6 <= time.perf_counter() - begun < 30
    rates = combine([samples])
    assert rates.sizes == [4096, 65536, 3 * MIB]
    for row in (rates.copy, rates.add):
        assert len(row) == 3
        assert 1e7 < row[2] <= row[1] <= row[0] < 1e13
    assert rates.copy_gb_s == rates.copy[-1] / 1e9
    assert rates.add_gb_s == rates.add[-1] / 1e9


def test_who_comes_late_measured_nothing() -> None:
    samples = measure_rates([4096], seconds=0.04, start=time.perf_counter() - 1)
    assert samples == Samples([4096], copy=[[0.0], [0.0]], add=[[0.0], [0.0]])


def test_rates_of_a_team_add_up_by_round() -> None:
    sizes = [1000, 4000, 16000]
    one = Samples(sizes, copy=[[5, 9, 2], [5, 6, 4]], add=[[3, 2, 1], [0, 0, 0]])
    other = Samples(sizes, copy=[[1, 1, 1], [2, 8, 1]], add=[[1, 1, 1], [9, 1, 0]])
    rates = combine([one, other])
    # Copies: the better of 6 and 7, of 10 and 14, of 3 and 5. Small buffers are no slower than larger ones.
    assert rates == Rates(sizes, copy=[14, 14, 5], add=[9, 3, 2])
    assert combine([one]) == Rates(sizes, copy=[9, 9, 4], add=[3, 2, 1])
    with pytest.raises(ValueError, match="same sizes"):
        combine([one, Samples([1000], [[1]], [[1]])])
    with pytest.raises(ValueError, match="same sizes"):
        combine([])


def test_rates_between_sizes() -> None:
    rates = Rates([1000, 4000, 16000], copy=[8, 4, 2], add=[8, 8, 2])
    assert [rates.copy_at(size) for size in (0, 1, 1000, 4000, 16000, 10**9)] == [8, 8, 8, 4, 2, 2]
    assert rates.copy_at(2000) == pytest.approx(6)
    assert rates.add_at(8000) == pytest.approx(5)


@pytest.mark.parametrize(
    ("collective", "ranks", "in_place", "seconds_of_a_byte"),
    [
        ("all_reduce", 2, True, 1 / A + 1 / C),
        ("all_reduce", 4, True, 5 / 3 / A + 3 / C),
        ("all_reduce", 4, False, 5 / 3 / A + 3 / C),
        ("reduce_scatter", 4, False, 5 / 3 / A),
        ("reduce", 2, True, 1 / A),
        ("broadcast", 4, True, 3 / C),
        ("all_gather", 4, True, 3 / C),
        ("all_gather", 4, False, 4 / C),
        ("all_to_all", 2, False, 2 / C),
        ("all_to_all", 2, True, 1 / C),
        ("gather", 4, False, 1 / C),
        ("gather", 4, True, 0.75 / C),
        ("scatter", 4, True, 0.75 / C),
        ("send_recv", 4, False, 4 / C),
    ],
)
def test_limits_by_hand(collective: str, ranks: int, in_place: bool, seconds_of_a_byte: float) -> None:
    expected = seconds_of_a_byte * 64 * MIB * 1e6
    assert limit_us(collective, 64 * MIB, ranks, in_place, FLAT) == pytest.approx(expected)


def test_one_process_alone_carries_a_message() -> None:
    alone = Rates([4096], copy=[5e9], add=[5e9])
    assert limit_us("ping_pong", 5_000_000, 2, False, FLAT, alone) == pytest.approx(1000)
    assert limit_us("ping_pong", 5_000_000, 2, False, FLAT) is None


def test_rates_are_those_of_the_memory_in_use() -> None:
    # Two ranks' vectors of 8 MiB in place are as much as two pairs of buffers of 4 MiB, out of place of 8 MiB.
    rates = Rates([4 * MIB, 8 * MIB], copy=[2 * C, C], add=[2 * A, A])
    assert limit_us("all_reduce", 8 * MIB, 2, True, rates) == pytest.approx((1 / A + 1 / C) / 2 * 8 * MIB * 1e6)
    assert limit_us("all_reduce", 8 * MIB, 2, False, rates) == pytest.approx((1 / A + 1 / C) * 8 * MIB * 1e6)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_limits_grow_with_size(collective: str) -> None:
    sizes = sizes_up_to(64 * MIB)
    falling = [float(rate) for rate in np.geomspace(9e10, 7e9, len(sizes))]
    rates = Rates(sizes, copy=falling, add=falling)
    for ranks in (2, 3, 8):
        limits = [limit_us(collective, 1 << power, ranks, True, rates, rates) or 0.0 for power in range(32)]
        assert limits == sorted(limits)
        assert limits[0] == 0  # where memory is not what takes time
        assert limits[31] > 0


def test_no_limit_and_no_such_collective() -> None:
    assert limit_us("barrier", 0, 4, True, FLAT) is None
    assert limit_us("all_reduce", MIB, 1, True, FLAT) is None
    assert limit_us("all_reduce", 4096, 2, True, FLAT) is None
    assert limit_us("all_reduce", MIB, 2, True, Rates([4096], copy=[0.0], add=[0.0])) is None
    with pytest.raises(ValueError, match="'allreduce'"):
        limit_us("allreduce", MIB, 1, True, FLAT)
