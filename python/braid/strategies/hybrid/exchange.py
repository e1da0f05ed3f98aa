# SPDX-License-Identifier: Apache-2.0
"""What a worker of a hybrid strategy exchanges with its group in every step, and its speaker with the servers.

A round is one sum over the group. Every member takes part in every round, with a step, without one because it has
finished, or to look at the servers' newest values. So members that take other numbers of steps do not wait for
each other for ever, and all know what happens next: nothing, or the speaker's values.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from braid._errors import CommunicatorError
from braid.strategies.agreement import Agreement
from braid.strategies.exchange import Exchange
from braid.strategies.hybrid.grouping import Grouping
from braid.strategies.hybrid.members import Members, group_name, speaker_name
from braid.strategies.hybrid.rates import Rates
from braid.strategies.hybrid.step_times import StepTimes
from braid.strategies.hybrid.vector import GroupVector, Signs, Taking
from braid.strategies.options import Options
from braid.strategies.preparation import Prepared
from braid.strategies.rules import Groups


class GroupExchange:
    """One worker's part. `enter` must be called before anything else, and again for other groups.

    Attributes:
        meeting: of all workers.
        members: the group of this worker; None after the end.
        on_round: called after each round that a member took a step in.
        times: how long this worker computes between its steps.
        rounds: how many such rounds there were.
        prepared: what is trained.
    """

    def __init__(self, agreed: Agreement[Prepared], options: Options, rates: Rates, timeout_s: float) -> None:
        """Allocate the group's vector; nobody is asked yet."""
        self.meeting, self.prepared, self._options = agreed.meeting, agreed.prepared, options
        self._rates, self._timeout_s = rates, timeout_s
        self.on_round: Callable[[], None] = lambda: None
        self.times = StepTimes()
        self.vector = GroupVector(agreed.prepared)
        self.members: Members | None = None
        self._exchange: Exchange | None = None  # the speaker's
        self._groups: Groups = agreed.prepared.inner.param_groups
        self._grouping: Grouping = []
        self._entered = 0
        self.steps = self.skipped = self.rounds = 0
        self._group_us = self._exposed_us = 0.0
        self._is_under_way = self._has_finished = False
        self._taking = Taking.REPLACE  # what follows the exchange under way
        self._begin_error: Exception | None = None

    def enter(self, members: Members, index: int, groups: Grouping, servers: list[int]) -> None:
        """Become one of `members`, which are group number `index` of `groups`. All workers call it.

        The servers begin with the parameters of worker 0 and, after an earlier enter(), with its servers' state.

        Args:
            members: this group.
            index: the number of this group; worker 0 is in group 0.
            groups: the ranks of each group.
            servers: numbers of the groups whose speakers hold shards, and processes of ``braid serve``.
        """
        before, self._exchange = self._exchange, None
        self.members, self._grouping = members, groups
        meeting = self.meeting.of_some(self.folder, index, len(groups), speaker_name(members.ranks))
        self._entered += 1

        def connect() -> None:
            saved = None
            if before is not None:
                saved = before.snapshot()
                self._exposed_us += before.stats()["exposed_us"]
                before.close()
            made = Agreement(meeting, servers, self.prepared)
            # While there is one server, as while "auto" measures, no other one can have a copy.
            options = self._options if len(servers) > 1 else replace(self._options, replicas=0)
            part = len(members.ranks) / self.meeting.workers
            self._exchange = Exchange(made, options, self._timeout_s, self.vector.update, part)
            if self._entered > 1:
                self._pass_state(self._exchange, saved)

        self._share(connect)

    @property
    def folder(self) -> str:
        """Where in the meeting of all workers the speakers meet at the next enter()."""
        return f"groups.{self._entered}"

    # ---- a step

    def advance(self, groups: Groups, *, skips: bool, scale: float) -> None:
        """Take a step together with the group. If one member skips it, all do."""
        self.times.end()
        self._groups = groups
        self.prepared.rule.numbers(groups, self._rates.groups)  # raises before anybody is asked
        with self._leaving_if_lost():
            self._finish_last(begins=True)
            if skips:
                self.vector.write_nothing(Signs(steps=1, skips=1))
            else:
                self.vector.write_step(groups, scale)
            self._round()
        self.times.begin()

    def pull(self) -> None:
        """Take the servers' newest values. All members of the group that have not finished call it."""
        with self._leaving_if_lost():
            self._finish_last()
            self.vector.write_nothing(Signs(looks=1))
            self._round()

    def finish(self) -> None:
        """Wait for the exchange under way, if there is one."""
        with self._leaving_if_lost():
            self._finish_last()

    def settle(self) -> None:
        """Take part in the group's rounds until all its members have come here, or have finished.

        Then no other group waits for this one.
        """
        self._has_finished = True
        try:
            with self._leaving_if_lost():
                while self.members is not None and self._answers():
                    pass
                if self._exchange is not None:
                    self._exchange.settle()
        finally:
            self._has_finished = False

    def close(self, *, wait: bool = True) -> None:
        """Take part in the group's rounds until all its members have finished, then leave. `wait=False`: leave."""
        self._has_finished = True
        is_in_order = False
        try:
            with torch.no_grad():
                while wait and self.members is not None and self._answers():
                    pass
            is_in_order = wait
        finally:
            self._leave(is_in_order)

    def _answers(self) -> bool:
        """Take part in a round without a step. Return whether a member goes on."""
        self._finish_last(begins=True)
        self.vector.write_nothing(Signs(done=1))
        return self._round()

    def _round(self) -> bool:
        """Add up what all members have written, and do what follows. Return whether a member goes on."""
        begun = time.perf_counter()
        self._joined.sum(self.vector.whole)
        self._group_us += 1e6 * (time.perf_counter() - begun)
        signs = self.vector.signs()
        if not signs.steps and not signs.looks:
            return False
        if signs.steps and signs.looks:
            if self._has_finished:
                return True
            raise RuntimeError(
                f"in {group_name(self._joined.ranks)} {signs.looks} of {signs.looks + signs.steps} workers want "
                "the servers' values (centre()) while the others take a step: all of a group must do the same"
            )
        if signs.looks:
            self._share(lambda: self._spoken().pull())
            return True
        self._push(signs)
        if not self._options.delay:
            self._finish_last()
        self.rounds += 1
        self.on_round()
        return True

    def _push(self, signs: Signs) -> None:
        if signs.skips:
            self.skipped += not self._has_finished
            if self._options.mode != "sync":
                return
            self.vector.update.zero_()  # the other groups wait for this one's part
        else:
            self.vector.take_mean(signs.steps, self._groups)
        self.steps += not self._has_finished
        self._is_under_way = True
        # A skipped step has no mean of the group's buffers: what members have changed counts in the next one.
        self._taking = Taking.KEEP if signs.skips else Taking.MERGE
        if self._exchange is not None:
            try:
                numbers, scale = self._rates.of(self._groups, signs.steps)
                self._exchange.begin_written(numbers, scale, with_buffers=not signs.skips)
            except Exception as error:  # the members wait: they hear of it with the values
                self._begin_error = error
        self._rates.updates += 1  # members count, too: one of them can speak for a later group

    def _finish_last(self, *, begins: bool = False) -> None:
        if begins and self._exchange is not None:
            self._exchange.begin_step()
        if self._is_under_way:
            self._is_under_way = False
            self._share(lambda: self._spoken().finish(), self._taking)

    def _share(self, call: Callable[[], None], taking: Taking = Taking.REPLACE) -> None:
        """Let the speaker do something, and all members take its values, or hear why it failed."""
        members, error = self._joined, self._begin_error
        if members.is_speaker:
            try:
                if error is not None:
                    raise error
                call()
            except Exception as failed:
                error = failed
            self.vector.write_values(taking, is_good=error is None)
        begun = time.perf_counter()
        members.take(self.vector.whole)
        waited_us = 1e6 * (time.perf_counter() - begun)
        if members.is_speaker:
            self._group_us += waited_us
        else:
            self._exposed_us += waited_us
        has_merged = members.is_speaker and taking is Taking.MERGE
        if self.vector.take_values(Taking.KEEP if has_merged else taking):
            return
        why = members.hear("" if error is None else str(error))
        if error is not None:
            raise error
        raise CommunicatorError(f"{group_name(members.ranks)} ends, its speaker failed: {why}", members.ranks[0])

    # ---- the speaker's

    def snapshot(self) -> dict[str, Any]:
        """Return the servers' values and state; RuntimeError on a worker that speaks for no group."""
        return self._spoken().snapshot(keeps_model=True)  # the members' models know nothing of it

    def present(self) -> Collection[int]:
        """Return the workers whose groups have not ended, as far as this one knows: speakers with a shard do."""
        if self._exchange is None:
            return range(self.meeting.workers)
        return [rank for group in self._exchange.present() for rank in self._grouping[group]]

    def restore(self, saved: dict[str, Any]) -> None:
        """Give the servers what snapshot() returned."""
        self._spoken().restore(saved)

    def stats(self) -> dict[str, Any]:
        """Return the counters of this worker; those of the servers only on speakers."""
        told = self._exchange.stats() if self._exchange is not None else {}
        own = {"steps": self.steps, "skipped": self.skipped, "group_us": self._group_us}
        return {**told, **own, "exposed_us": told.get("exposed_us", 0.0) + self._exposed_us}

    @property
    def _joined(self) -> Members:
        if self.members is None:
            raise RuntimeError("the group of this worker has ended")
        return self.members

    def _spoken(self) -> Exchange:
        if self._exchange is None:
            speaker = self._joined.ranks[0]
            raise RuntimeError(f"this worker does not speak for its group: rank {speaker} does, so call it there")
        return self._exchange

    def _pass_state(self, exchange: Exchange, saved: dict[str, Any] | None) -> None:
        if saved is not None:
            exchange.restore(saved)
            exchange.meeting.store.set("state", b"passed")
        else:
            exchange.meeting.store.get("state", self._timeout_s)
        exchange.pull()

    @contextmanager
    def _leaving_if_lost(self) -> Iterator[None]:
        try:
            yield
        except CommunicatorError as error:  # the other groups must not wait for this one, nor for its shard
            self._is_under_way = False
            self._leave(False, str(error))
            raise

    def _leave(self, is_in_order: bool, why: str = "") -> None:
        exchange, self._exchange = self._exchange, None
        members, self.members = self.members, None
        if members is not None:
            members.leave(in_order=is_in_order)
        if exchange is not None:
            exchange.close(wait=is_in_order, why=why)
