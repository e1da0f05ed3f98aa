# SPDX-License-Identifier: Apache-2.0
"""A network card that becomes slower, and fast again, while the job runs: the ranks notice, and plan anew."""

import re
from pathlib import Path

import pytest
from braid.lab import Lab, unavailable
from slowness import asserts_speed
from steps import Steps

pytestmark = [
    pytest.mark.alone,
    pytest.mark.multiprocess,
    pytest.mark.skipif(bool(unavailable()), reason=f"no lab here: {unavailable()}"),
]
SLOW = 1
STEPS = 60  # within so many


def share(steps: Steps) -> float:
    """Return what the host that changes owns, in parts of what it would own among equals."""
    last = steps.told()[-1]
    return 4 * last["shares"][SLOW] if last["shares"] else 1.0


@pytest.mark.long
@pytest.mark.timing
def test_a_changed_card_is_noticed_and_planned_for(tmp_path: Path) -> None:
    with Lab("4x100mbit") as lab, Steps(lab, [1] * 4, tmp_path, 2 << 20) as steps:
        host = lab.hosts[SLOW]
        steps.more(9)  # two reviews: what is usual
        assert share(steps) > 0.8
        for rate, is_noticed in [(33e6, lambda: share(steps) < 0.5), (100e6, lambda: share(steps) > 0.8)]:
            steps.hold()
            lab.set_rate(host, rate)
            begun = len(steps.told())
            steps.release()
            steps.until(is_noticed)
            assert len(steps.told()) - begun <= STEPS
            line = [line for line in steps.errors() if "host 1:" in line][-1]
            measured = re.search(r"host 1: ([\d.]+)/([\d.]+) instead of", line)
            assert measured, line
            for direction in measured.groups():
                assert (0.6 if asserts_speed() else 0.0) < float(direction) * 1e6 / rate < 1.05, line
            assert line.endswith("Mbit/s up/down; planned anew")
            steps.more(8)  # the new usual
        assert sum("host 1:" in line for line in steps.errors()) >= 2
