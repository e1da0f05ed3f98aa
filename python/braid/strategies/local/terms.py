# SPDX-License-Identifier: Apache-2.0
"""With whom and how a worker exchanges in local steps: the same head for rounds, groups and servers."""

from dataclasses import dataclass
from typing import Any

from braid.strategies.agreement import Agreement
from braid.strategies.hybrid.grouping import Grouping
from braid.strategies.local.options import LocalOptions
from braid.strategies.local.preparation import LocalPrepared


@dataclass(frozen=True)
class Terms:
    """What all workers have agreed upon.

    Attributes:
        agreed: the meeting, the servers, and what this worker works on.
        process_group: of the workers; None for the default group.
        options: checked.
        timeout_s: of the beginning, and of each exchange.
    """

    agreed: Agreement[LocalPrepared]
    process_group: Any
    options: LocalOptions
    timeout_s: float

    def group_of_this_worker(self, groups: Grouping) -> list[int]:
        """Return the ranks of the one group that has this worker."""
        (ranks,) = (members for members in groups if self.agreed.meeting.member in members)
        return ranks
