# SPDX-License-Identifier: Apache-2.0
"""Runs all ways of ``braid compare`` in turns, so that the machine's moods hit each of them."""

from collections.abc import Callable
from dataclasses import dataclass

from braid._compare.messages import Order
from braid._compare.places import Places
from braid._compare.results import Block, Result
from braid._compare.training import Training, TrainingError
from braid._compare.ways import Way

# BRAID_COMPRESSION=auto is exact for ten steps; links are measured, and buckets made, in the first ones.
WARM_UP = 12
Said = Callable[[str], None]


@dataclass
class _Contestant:
    training: Training
    result: Result

    def block(self, order: Order, places: Places, said: Callable[[], None]) -> Block:
        """Let it train; return the block. Raises TrainingError."""
        before, sent = self._progress(), places.sent_bytes()
        self.training.train(order, said)
        after = self._progress()
        steps = sum(now[0] - then[0] for then, now in zip(before, after, strict=True))
        seconds = max(now[1] - then[1] for then, now in zip(before, after, strict=True))
        return Block(steps, seconds, places.sent_bytes() - sent)

    @property
    def first_step_s(self) -> float:
        """Seconds of a first step, without the very first ones: these begin with the script."""
        return max((steps[-1].seconds - steps[1].seconds) / (len(steps) - 2) for steps in self.training.steps)

    def _progress(self) -> list[tuple[int, float]]:
        return [(len(steps), steps[-1].seconds if steps else 0.0) for steps in self.training.steps]


class Contest:
    """All ways to train that are compared.

    Attributes:
        results: one for each way that was started, in this order.
    """

    def __init__(self, places: Places, command: list[str], environment: dict[str, str], said: Said) -> None:
        """Compare nothing yet.

        Args:
            places: where ranks run.
            command: the script and its arguments.
            environment: of all ranks.
            said: is told what goes on, often.
        """
        self._places, self._command, self._environment, self._said = places, command, environment, said
        self._contestants: list[_Contestant] = []
        self.results: list[Result] = []

    def start(self, way: Way) -> Training | None:
        """Start a way, and let it take the first steps, which no time is taken of. None if it fails."""
        training = Training(way, self._places, self._command, self._environment)
        result = Result(way.name, way.why, self._places.ranks)
        self.results.append(result)
        self._contestants.append(_Contestant(training, result))
        try:
            training.train(Order(steps=WARM_UP), lambda: self._said(f"starting {way.name}"))
        except TrainingError as error:
            result.failure = str(error)
            training.end()
            return None
        result.begun_s = [steps[-1].seconds if steps else 0.0 for steps in training.steps]
        return training

    def expected_s(self, steps: int) -> float:
        """Return how long `steps` steps of each way will take, by its first ones."""
        return sum(
            one.first_step_s * one.training.way.period * -(-steps // one.training.way.period)
            for one in self._contestants
            if not one.result.failure and all(len(of_rank) > 2 for of_rank in one.training.steps)
        )

    def rounds(self, rounds: int, steps: int) -> None:
        """Train in turns: `rounds` blocks of each way, with `steps` steps of each rank, or whole periods.

        A way whose workers do not wait for each other trains as long as its first steps took, for so many.
        """
        for number in range(rounds):
            if all(one.training.has_ended for one in self._contestants):
                return
            # There and back, so that none is always the one behind the slowest.
            for one in self._contestants[:: -1 if number % 2 else 1]:
                if not one.result.failure and not one.training.has_ended:
                    self._one_block(one, steps, f"round {number + 1} of {rounds}, {one.result.name}")

    def _one_block(self, one: _Contestant, steps: int, what: str) -> None:
        way = one.training.way
        steps = way.period * -(-steps // way.period)
        order = Order(steps=steps)
        if way.is_free and not one.training.is_in_step:
            order = Order(seconds=steps * (one.result.step_s if one.result.blocks else one.first_step_s))
        try:
            block = one.block(order, self._places, lambda: self._said(what))
        except TrainingError as error:
            one.result.failure = str(error)
            one.training.end()
            return
        # In a block that has stalled most of the time was a pause.
        has_stalled = bool(order.seconds) and one.training.is_in_step
        if block.steps and not one.training.has_ended and not has_stalled:
            one.result.blocks.append(block)
        one.result.algorithm, one.result.steps = one.training.algorithm, one.training.steps

    @property
    def has_ended(self) -> bool:
        """Whether the script of a rank has returned, before all rounds were over."""
        return any(one.training.has_ended for one in self._contestants)

    def close(self) -> None:
        """End all jobs. Idempotent."""
        for one in self._contestants:
            one.training.end()
