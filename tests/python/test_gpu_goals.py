# SPDX-License-Identifier: Apache-2.0
"""bench/gpu/goals.py: its verdicts, on made-up reports."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.unit

_PATH = Path(__file__).parents[2] / "bench" / "gpu" / "goals.py"


@pytest.fixture
def goals(monkeypatch) -> Any:
    spec = importlib.util.spec_from_file_location("braid_gpu_goals", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "braid_gpu_goals", module)
    spec.loader.exec_module(module)
    return module


def report(**times_us: dict[int, float]) -> dict[str, Any]:
    sizes = {nbytes for found in times_us.values() for nbytes in found}
    return {
        "cases": [
            {
                "bytes": nbytes,
                "measurements": {who: {"p50_us": of[nbytes]} for who, of in times_us.items() if nbytes in of},
            }
            for nbytes in sizes
        ]
    }


def verdicts(goals: Any, device: dict[str, Any], host: dict[str, Any], copies: dict[str, float]) -> list[Any]:
    return [(goal.met, goal.found) for goal in goals.judge(device, host, copies)]


def test_what_is_met_and_what_is_missed(goals) -> None:
    """The slower part counts, whichever it is."""
    large, small = goals.LARGE, goals.SMALL
    host = report(braid={large: 10_000, small: 5})
    fast = report(braid={large: 11_000, small: 60}, gloo={large: 20_000, small: 90})
    met = verdicts(goals, fast, host, {"down": 6_000, "up": 5_000})
    assert [one for one, _ in met] == [True, True, True]
    assert met[0][1] == pytest.approx(10 / 11)
    assert met[1][1] == pytest.approx(55)
    slow = report(braid={large: 21_000, small: 70}, gloo={large: 22_000})
    assert [one for one, _ in verdicts(goals, slow, host, {"down": 6_000, "up": 5_000})] == [False, False, False]
    # A slow bus excuses a slow all_reduce.
    assert verdicts(goals, slow, host, {"down": 20_000, "up": 5_000})[0][0] is True


def test_what_was_not_measured_is_said(goals) -> None:
    """Without Gloo, or without a size, there is no verdict."""
    host = report(braid={goals.LARGE: 10_000})
    device = report(braid={goals.LARGE: 11_000})
    assert verdicts(goals, device, host, {"down": 1, "up": 1})[1:] == [(None, None), (None, None)]
    lines = [goal.line() for goal in goals.judge(device, host, {"down": 1, "up": 1})]
    assert "met" in lines[0]
    assert lines[2].endswith("not measured")
