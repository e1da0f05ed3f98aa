# SPDX-License-Identifier: Apache-2.0
"""The rate of a group's update: more workers than one allow a larger step (Goyal et al. 2017, Kim et al. 2020)."""

from braid.strategies.hybrid.grouping import Grouping
from braid.strategies.hybrid.options import GroupOptions
from braid.strategies.options import Options
from braid.strategies.rules import Groups, LocalRule, Numbers, Rule


class Rates:
    """Multiplies a group's rate by the factor of its size.

    In mode "sync" servers use one rate for all. It has the mean factor of all groups then, and each group's update
    is scaled so that it counts as its own factor says.

    Attributes:
        groups: how many groups there are now; they decide the implicit momentum.
        updates: how many updates of this group there were; they decide how far the warm-up is.
    """

    def __init__(self, rule: Rule, options: Options, group_options: GroupOptions) -> None:
        """Begin with the warm-up's first step."""
        self._rule, self._is_sync, self._options = rule, options.mode == "sync", group_options
        self.groups = 1
        self._sizes: list[int] = []
        self.updates = 0

    def begin(self, grouping: Grouping) -> None:
        """Note which groups there are."""
        self.groups, self._sizes = len(grouping), [len(group) for group in grouping]

    def of(self, groups: Groups, workers: int) -> tuple[Numbers, float]:
        """Return the servers' numbers and the scale for the next update, of `workers` of a group."""
        numbers = self._rule.numbers(groups, self.groups)
        factor = self._options.factor(workers, self.updates)
        common = sum(self._options.factor(size, self.updates) for size in self._sizes) / self.groups
        if isinstance(self._rule, LocalRule):
            return numbers, factor
        at_servers = common if self._is_sync else factor
        scaled = [(end, {**row, "rate": row["rate"] * at_servers}) for end, row in numbers]
        return scaled, factor / common if self._is_sync else 1.0
