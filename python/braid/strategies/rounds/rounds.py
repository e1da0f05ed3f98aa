# SPDX-License-Identifier: Apache-2.0
"""Rounds of all workers: collectives on a thread and a process group of their own.

Rounds are agreed, never counted by each worker alone. In every round a worker says whether it takes part, and
whether it has failed. A worker that has finished answers the rounds of the others without taking part, until
nobody takes part any more. So workers need not make the same number of steps.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from braid import _own_groups
from braid._errors import CommunicatorError
from braid.strategies.rounds.background import Background, Job
from braid.strategies.store import Meeting

_LAST_WORDS_S = 0.5  # for a round to begin; who has failed need not see its end


@dataclass
class Said:
    """What all workers together have said in a round: how many take part, and how many have failed."""

    workers: float = 0.0
    failures: float = 0.0


class Round:
    """A round under way, or over."""

    def __init__(self, rounds: "Rounds", work: Callable[[], Said]) -> None:
        """Only Rounds makes them."""
        self._rounds, self._work, self._said = rounds, work, Said()
        self._job: Job = rounds.thread.start(self._run)

    def wait(self) -> int:
        """Return how many workers took part.

        Raises:
            CommunicatorError: a worker failed or died, or did not come in time.
        """
        return self._rounds.wait(self._job, self)

    @property
    def said(self) -> Said:
        """What the workers have said; once the round is over."""
        return self._said

    def _run(self) -> None:
        self._said = self._work()


class Rounds:
    """The thread, the process group, and the end of the rounds of one strategy.

    Attributes:
        group: the process group. Only the thread may use it once rounds have begun.
        thread: does the rounds in their order.
        exposed_us: how long the training thread has waited for rounds.
    """

    def __init__(
        self, group: Any, name: str, meeting: Meeting, timeout_s: float, ranks: Sequence[int] | None = None
    ) -> None:
        """Make a group with the backend of a given one and its ranks, or some of them; `name` is for errors."""
        self.group = own_group(group, name, meeting, timeout_s, ranks)
        self.thread = Background(f"braid {name}")
        self.exposed_us = 0.0
        self._name = name
        self._is_broken = False

    def start(self, work: Callable[[], Said]) -> Round:
        """Begin a round, after those before. `work` runs on the thread."""
        return Round(self, work)

    def wait(self, job: Job, round_: Round) -> int:
        """Wait for a round, as Round.wait()."""
        begun = time.perf_counter()
        self._is_broken = True
        try:
            job.wait()
        except (RuntimeError, ValueError) as error:  # of torch.distributed
            why = str(error).splitlines()[0]
            raise CommunicatorError(f"a round of {self._name} failed, which needs all workers: {why}") from error
        finally:
            self.exposed_us += 1e6 * (time.perf_counter() - begun)
        if round_.said.failures:
            raise CommunicatorError(f"another worker has left {self._name} after an error: its output says why")
        self._is_broken = False
        return round(round_.said.workers)

    def answer(self, once: Callable[[], int]) -> None:
        """Answer the others' rounds until all workers are here.

        Args:
            once: makes one round without taking part, and returns how many did. Its time does not count as
                exposed.
        """
        exposed_us = self.exposed_us
        while once():
            pass
        self.exposed_us = exposed_us

    def close(self, tell_of_failure: Callable[[], object] | None) -> None:
        """End the thread after what it has to do.

        Args:
            tell_of_failure: makes the next round of the others, and says there that this worker has failed. None:
                all have settled.
        """
        if tell_of_failure is not None and not self._is_broken:

            def tell() -> None:
                tell_of_failure()

            self.thread.start(tell)
        self.thread.stop()
        if tell_of_failure is not None:  # Python may end next, and the thread with it
            self.thread.join(_LAST_WORDS_S)


def own_group(
    group: Any, name: str, meeting: Meeting, timeout_s: float, ranks: Sequence[int] | None = None
) -> Any:
    """Make a process group with the ranks and the backend of a given one.

    It stays until torch destroys all groups, because a thread may still be in it.

    Args:
        group: the given one; None for the default group.
        name: what it is for.
        meeting: of the strategy that it is for.
        timeout_s: of its collectives.
        ranks: only these, as the given group numbers them. Only they call this.
    """
    purpose = f"{name} of {meeting.name}"
    return _own_groups.new_group(group, purpose, ranks=ranks, timeout=timedelta(seconds=timeout_s))
