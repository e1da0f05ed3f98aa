# SPDX-License-Identifier: Apache-2.0
"""Schedules of delays for the simulated device. Each is unkind in its own way."""

SHORT_US = 1_500

SCHEDULES = ("none", "slow pool", "slow default", "reversed", "uneven", "random")


def delays(schedule: str, rank: int, us: int = SHORT_US, seed: int = 0) -> dict[str, int]:
    """Return the arguments of ``set_delays()`` for a rank: microseconds before each job on a kind of stream."""
    found: dict[str, dict[str, int]] = {
        "none": {},
        "slow pool": {"on_pool": us},
        "slow default": {"on_default": us},
        # Where one rank's copies are late, the other's inputs are.
        "reversed": {"on_default": us} if rank % 2 == 0 else {"on_pool": us},
        # Only odd ranks are late.
        "uneven": {"on_default": us, "on_pool": us} if rank % 2 == 1 else {},
        "random": {"random": 2 * us, "seed": 1 + seed * 97 + rank},
    }
    return found[schedule]
