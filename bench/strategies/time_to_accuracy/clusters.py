# SPDX-License-Identifier: Apache-2.0
"""The three emulated clusters: equal hosts, one slow link, one slow worker. Each host has one worker."""

from dataclasses import dataclass

SAMPLE_MS = 0.15  # computing of one sample on the fastest worker, most of it asleep


@dataclass(frozen=True)
class Cluster:
    """Hosts in the words of `braid lab`, and how fast each worker computes."""

    name: str
    hosts: str
    speeds: tuple[float, ...]

    @property
    def sample_ms(self) -> list[float]:
        """Milliseconds per sample, one number for each worker."""
        return [SAMPLE_MS / speed for speed in self.speeds]


CLUSTERS = (
    Cluster("equal hosts", "4x1gbit", (1, 1, 1, 1)),
    Cluster("one slow link", "3x200mbit,1x20mbit", (1, 1, 1, 1)),
    Cluster("one slow worker", "4x1gbit", (1, 1, 1, 0.2)),
)
