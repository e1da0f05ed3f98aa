# SPDX-License-Identifier: Apache-2.0
"""The options of LocalSGD and DiLoCo, checked, and as text that all workers compare."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from braid._array.parameters import OFF
from braid._codec import Codec

_BUFFERS = ("average", "local")
MOST_GRACE_S = 24 * 3600.0


@dataclass(frozen=True)
class LocalOptions:
    """How workers with local steps meet; LocalSGD and DiLoCo explain each option."""

    sync_every: int | tuple[int, int] = 10
    warmup_steps: int = 0
    groups: str | Sequence[Sequence[int]] | None = None
    buffers: str = "average"
    compression: str = OFF
    backup_device: Any = None
    num_fragments: int = 1
    fragment_sync_delay: int = 0
    fragment_update_alpha: float = 0.0
    quorum: int | None = None
    grace_s: float | None = None
    asynchronous: bool = False
    momentum_every: int | None = None
    follow_speed: bool = False
    group_lr: float | None = None
    group_momentum: float | None = None
    init_sync: bool = True

    # Workers may differ in these.
    OWN: ClassVar = ("backup_device",)

    def check(self, workers: int, *, has_servers: bool, is_late: bool) -> None:
        """Raise ValueError if an option has no such value, or does not fit another.

        Args:
            workers: how many begin; 0 if this worker is late, and does not know.
            has_servers: servers= was given.
            is_late: this worker joins others that have begun.
        """
        self._check_periods()
        if not _is_whole(self.warmup_steps, 0):
            raise ValueError(f"warmup_steps={self.warmup_steps}: a whole number of steps, at least 0")
        if self.buffers not in _BUFFERS:
            raise ValueError(f"buffers {self.buffers!r}: there are {' and '.join(_BUFFERS)}")
        if self.backup_device is not None and str(self.backup_device) != "cpu":
            raise ValueError(
                f"backup_device={self.backup_device}: the centre is on the CPU, as the model is; leave it out"
            )
        if self.compression != OFF:
            try:
                Codec(self.compression)
            except (TypeError, ValueError) as error:
                raise ValueError(f"compression: {error}; or {OFF}, which sends float32") from None
        self._check_fragments()
        self._check_groups(is_late=is_late)
        self._check_servers(workers, has_servers=has_servers, is_late=is_late)

    def _check_periods(self) -> None:
        if isinstance(self.sync_every, int):
            if not _is_whole(self.sync_every, 1):
                raise ValueError(f"sync_every={self.sync_every}: a whole number of steps, at least 1")
            if self.groups is not None:
                raise ValueError("groups= needs two periods: sync_every=(steps in a group, steps between groups)")
            return
        given = self.sync_every
        if not isinstance(given, tuple) or len(given) != 2 or not all(_is_whole(steps, 1) for steps in given):
            raise ValueError(
                f"sync_every={given!r}: a whole number of steps, or two, (in a group, between groups), at least 1"
            )
        if given[1] % given[0]:
            raise ValueError(f"sync_every={given}: the second must be a multiple of the first")
        if isinstance(self.groups, str) and self.groups != "host":
            raise ValueError(f"groups={self.groups!r}: 'host', or lists of ranks, such as [[0, 1], [2, 3]]")

    def _check_fragments(self) -> None:
        count, delay = self.num_fragments, self.fragment_sync_delay
        if not _is_whole(count, 1):
            raise ValueError(f"num_fragments={count}: a whole number, at least 1")
        if count > 1 and self.has_groups:
            raise ValueError(
                "num_fragments= with two periods needs rounds of all workers: leave out quorum= and "
                "asynchronous=True, or give one period, sync_every=H"
            )
        if self.has_levels and self.rounds_per_global % count:
            raise ValueError(
                f"num_fragments={count} does not divide the {self.rounds_per_global} rounds of a group in "
                f"sync_every={self.sync_every}: a fragment is exchanged after a round of the group"
            )
        if not self.has_levels and self._longest % count:
            raise ValueError(
                f"num_fragments={count} does not divide sync_every={self.sync_every}: every "
                f"sync_every / num_fragments steps one fragment is exchanged"
            )
        if self.has_levels and delay and not self.has_groups:
            raise ValueError("fragment_sync_delay= needs one period, sync_every=H: groups exchange at once")
        if self.has_groups:
            if not _is_whole(delay, 0) or delay % self.steps_per_round or delay >= self._longest:
                raise ValueError(
                    f"fragment_sync_delay={delay}: groups take the servers' values after one of their rounds, so "
                    f"give a multiple of {self.steps_per_round} that is less than {self._longest}"
                )
        elif not _is_whole(delay, 0) or delay >= self.steps_per_round:
            raise ValueError(
                f"fragment_sync_delay={delay}: a whole number of steps, less than the {self.steps_per_round} from "
                "one exchange to the next"
            )
        alpha = self.fragment_update_alpha
        if not isinstance(alpha, int | float) or not 0 <= alpha <= 1:
            raise ValueError(f"fragment_update_alpha={alpha}: from 0, the centre's values, to 1, the worker's own")

    def _check_groups(self, *, is_late: bool) -> None:
        for name, end in (("group_lr", math.inf), ("group_momentum", 1.0)):
            value = getattr(self, name)
            if value is None:
                continue
            if not self.has_groups:
                raise ValueError(
                    f"{name}= is for asynchronous=True or quorum= with two periods, sync_every=(H, H * K)"
                )
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < end:
                raise ValueError(f"{name}={value}: a number, at least 0" + (", less than 1" if end == 1 else ""))
        if self.has_groups and is_late:
            raise ValueError("join= needs one period, sync_every=H: groups are fixed when they begin")
        if self.has_groups and self.follow_speed:
            raise ValueError("follow_speed= needs one period, sync_every=H: workers of a group step together")

    def _check_servers(self, workers: int, *, has_servers: bool, is_late: bool) -> None:
        if not self.at_servers:
            for name, is_given in (
                ("servers", has_servers),
                ("join", is_late),
                ("grace_s", self.grace_s is not None),
            ):
                if is_given:
                    raise ValueError(
                        f"{name}= needs quorum= or asynchronous=True: else all workers meet in rounds"
                    )
        if self.momentum_every is not None and not _is_whole(self.momentum_every, 1):
            raise ValueError(f"momentum_every={self.momentum_every}: a whole number of updates, at least 1")
        if not self.asynchronous and (self.momentum_every is not None or self.follow_speed):
            name = "follow_speed" if self.follow_speed else "momentum_every"
            raise ValueError(f"{name}= is for asynchronous=True")
        if not self.at_servers:
            return
        if self.asynchronous and (self.quorum is not None or self.grace_s is not None):
            raise ValueError(
                "quorum= and grace_s= are for rounds: with asynchronous=True nobody waits, so leave them out"
            )
        if self.asynchronous:
            if self.warmup_steps:
                raise ValueError(
                    "warmup_steps= takes means of all workers, or of a quorum: asynchronous=True has none"
                )
            return
        # How many groups there are is known later.
        self.check_quorum(*((0, "groups") if self.has_levels else (workers, "workers")))
        if not 0 <= self.grace <= MOST_GRACE_S:
            raise ValueError(f"grace_s={self.grace_s}: seconds, from 0 to {MOST_GRACE_S:g}")

    def check_quorum(self, most: int, who: str) -> None:
        """Raise ValueError unless the quorum is at most so many; 0: this worker does not know. `who` they are."""
        if not _is_whole(self.quorum, 1) or (most and self.quorum > most):  # type: ignore[operator]
            raise ValueError(f"quorum={self.quorum}: a number of {who}, from 1 to {most or 'all'}")

    @property
    def at_servers(self) -> bool:
        """Whether the centre is at parameter servers, which outlive workers."""
        return self.asynchronous or self.quorum is not None

    @property
    def has_levels(self) -> bool:
        """Whether groups meet more often than all."""
        return not isinstance(self.sync_every, int)

    @property
    def has_groups(self) -> bool:
        """Whether groups meet in rounds, and go to servers each at its own pace."""
        return self.has_levels and self.at_servers

    @property
    def rate_of_group(self) -> float:
        """The rate of a group's optimizer; 1 takes the mean of the workers."""
        return 1.0 if self.group_lr is None else float(self.group_lr)

    @property
    def momentum_of_group(self) -> float:
        """The momentum of a group's optimizer."""
        return 0.0 if self.group_momentum is None else float(self.group_momentum)

    @property
    def _longest(self) -> int:
        return self.sync_every if isinstance(self.sync_every, int) else self.sync_every[1]

    @property
    def steps_per_round(self) -> int:
        """Steps from one round of this worker to the next."""
        if isinstance(self.sync_every, int):
            return self.sync_every // self.num_fragments
        return self.sync_every[0]

    @property
    def rounds_per_global(self) -> int:
        """Rounds of a group up to a round of all, which is one of them, or up to a push to servers."""
        return self._longest // self.steps_per_round

    @property
    def grace(self) -> float:
        """Seconds that a quorum waits for the others."""
        return 0.0 if self.grace_s is None else float(self.grace_s)

    @property
    def mode(self) -> str:
        """The mode of the servers."""
        if self.asynchronous:
            return "async"
        text = f"quorum:at_least={self.quorum},grace_ms={math.ceil(1000 * self.grace)}"
        text += f",mean_rounds={self.warmup_steps}" if self.warmup_steps else ""
        return text + (",late=goes_on" if self.num_fragments > 1 else "")

    @property
    def parts(self) -> list[str]:
        """The names of the vectors of parameters at servers: one for each fragment."""
        if self.num_fragments == 1:
            return ["parameters"]
        return [f"parameters{number}" for number in range(self.num_fragments)]

    def describe(self) -> list[str]:
        """Return one line for each option that must be the same on all workers."""
        return [f"{name}={value}" for name, value in vars(self).items() if name not in self.OWN]


def periods(sync_every: Any) -> Any:
    """Return one period as it is, and several as a tuple; check() says whether they make sense."""
    return tuple(sync_every) if isinstance(sync_every, list | tuple) else sync_every


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
