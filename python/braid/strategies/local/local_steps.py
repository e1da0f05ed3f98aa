# SPDX-License-Identifier: Apache-2.0
"""What LocalSGD and DiLoCo have in common: both attach to an optimizer, and meet every few of its steps."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from braid.strategies.agreement import Agreement, agree
from braid.strategies.attached import Attached
from braid.strategies.everyone import Everyone
from braid.strategies.first_values import take_first_values
from braid.strategies.hybrid import grouping
from braid.strategies.hybrid.places import groups_by_host
from braid.strategies.local import state as local_state
from braid.strategies.local.at_servers import LocalAtServers
from braid.strategies.local.in_groups import InGroups
from braid.strategies.local.in_rounds import LocalInRounds
from braid.strategies.local.options import LocalOptions
from braid.strategies.local.outer import OuterFactory
from braid.strategies.local.pieces import rule_of
from braid.strategies.local.preparation import LocalPrepared, prepare_local
from braid.strategies.local.terms import Terms
from braid.strategies.local.two_levels import InTwoLevels
from braid.strategies.store import join as join_meeting
from braid.strategies.store import meet


class LocalSteps(Attached):
    """Local steps, and a centre that follows the workers."""

    _problem = ""  # with the arguments; said once all workers can hear it

    def _start(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        options: LocalOptions,
        outer: OuterFactory | None,
        *,
        servers: Iterable[int | str] | str | None,
        process_group: Any,
        join: Any,
        name: str | None,
        timeout_s: float,
    ) -> None:
        """Meet the other workers, and attach; errors as the classes say."""
        self._options, self._timeout_s = options, timeout_s
        meeting = meet(process_group, name, timeout_s) if join is None else join_meeting(join, name, timeout_s)
        made: list[LocalPrepared] = []

        def prepared_lines() -> tuple[list[str], LocalPrepared]:
            if self._problem:
                raise ValueError(self._problem)
            options.check(meeting.workers, has_servers=servers is not None, is_late=join is not None)
            if not isinstance(options.groups, str | None):
                named = grouping.checked(options.groups, meeting.workers)
                if options.quorum is not None:
                    options.check_quorum(len(named), "groups")
            made.append(prepare_local(model, optimizer, options, self._KIND, outer))
            if options.at_servers:
                rule_of(made[0], options, meeting.workers)
            return made[0].describe(options), made[0]

        try:
            agreed = agree(
                *(meeting, servers, prepared_lines, timeout_s),
                (lambda mine: mine.vectors(options, rule_of(mine, options, meeting.workers)[0]))
                if options.at_servers
                else None,
            )
            self._prepared = agreed.prepared
            with torch.no_grad():
                take_first_values(self._prepared.state.given, agreed.meeting, timeout_s)
                self._exchange: LocalInRounds | LocalAtServers | None = self._connect(agreed, process_group)
        except BaseException:
            for prepared in made:
                prepared.release()
            raise
        self._everyone = Everyone(agreed.meeting, timeout_s, lambda: self._opened().present())
        self._steps = self._loads = 0
        self._has_outer, self._is_first = outer is not None, agreed.meeting.member == 0
        self._attach(optimizer, self._prepared)

    def settle(self, *, everyone: bool = False) -> None:
        """Wait until all workers have come here, and answer the rounds of those that still train. Then all meet.

        So no step is lost, and all have the centre's values afterwards. Call it where workers with different
        numbers of steps would else meet in a barrier, such as at the end of an epoch. With `quorum` or
        `asynchronous` it waits for nobody: it pushes what this worker has not pushed, and takes the centre. Then
        no round waits for this worker before its next push. With groups as well it waits for its own group.

        Args:
            everyone: also with `quorum`, `asynchronous` and groups wait until all workers that began have come.
                Then the models of all have the same values: those of the centre with all that was pushed. At
                servers it does not wait for who has died or left. All workers call it alike.

        Raises:
            CommunicatorError: a worker failed or died, or did not come in time.
        """
        exchange = self._opened()
        with torch.no_grad():
            exchange.settle()
            if everyone and self._options.at_servers:
                self._everyone.take(exchange.take_centre)

    def stats(self) -> dict[str, Any]:
        """Return counters of this worker.

        Returns:
            A dict. ``steps``: steps of the optimizer; ``rounds``: exchanges that it took part in; ``exposed_us``:
            how long steps have waited for exchanges; ``strategy``, ``sync_every``. In rounds of all workers also
            ``sent_bytes``, what the rounds have sent, ``last_workers``, how many took part in the last one, and
            ``fragments``. At servers also ``fragments``, the counters of the service, and ``steps_per_round``.
            ``last_versions`` then are those of all fragments' shards, and ``last_staleness`` counts the rounds
            that were over before a push came. With groups that
            go to servers ``rounds`` are those of the group, ``pushes`` those to servers, and ``groups`` lists of
            ranks.
        """
        exchange = self._opened()
        own = {"strategy": self._KIND, "sync_every": self._options.sync_every, "steps": self._steps}
        return {**exchange.stats(), **own}

    def state_dict(self) -> dict[str, Any]:
        """Return the centre, the outer optimizer, the places in the periods, and what messages have lacked.

        Model and optimizer keep their own states, which differ among workers. It is made of tensors, numbers and
        text, so ``torch.load(weights_only=True)`` takes it.
        """
        with torch.no_grad():
            return local_state.saved(self._opened(), self._prepared, self._steps)

    def load_state_dict(self, state_dict: dict[str, Any] | None) -> None:
        """Load what state_dict() returned. All workers call this, on any number of them; worker 0's argument
        counts.

        What messages have lacked is each worker's own. The parameters of the model stay as they are: load the
        model's and the optimizer's own states before. A worker that has none gives None, and then begins at the
        centre.

        Raises:
            ValueError: the state is from something else. All workers get that error.
            CommunicatorError: a worker did not call this in time.
        """
        exchange, key = self._opened(), f"loaded/{self._loads}"
        self._loads += 1
        with torch.no_grad():
            self._steps = local_state.load(exchange, key, state_dict, self._prepared, self._timeout_s)

    def close(self, *, wait: bool = True) -> None:
        """Settle, leave, and detach from the optimizer. The model then has the centre's values. Idempotent.

        Args:
            wait: False leaves at once, and the model keeps its own values. In rounds of all workers the others
                then get an error in their next round.
        """
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        self._detach()
        is_done = False
        try:
            if wait:
                with torch.no_grad():
                    exchange.settle()
            is_done = wait
        finally:
            if not is_done:
                self._everyone.leave()
            exchange.close(wait=is_done)

    def _connect(self, agreed: Agreement[LocalPrepared], group: Any) -> LocalInRounds | LocalAtServers:
        terms = Terms(agreed, group, self._options, self._timeout_s)
        if not self._options.has_levels:
            return LocalAtServers(terms) if self._options.at_servers else LocalInRounds(terms)
        named = self._options.groups
        if named is None or isinstance(named, str):
            groups = groups_by_host(agreed.meeting, self._timeout_s)
        else:
            groups = grouping.checked(named, agreed.meeting.workers)
        if self._options.quorum is not None:
            self._options.check_quorum(len(groups), "groups")
        return InGroups(terms, groups) if self._options.has_groups else InTwoLevels(terms, groups)

    def _end_step(self) -> None:
        self._steps += 1
        exchange = self._opened()
        rounds = exchange.rounds
        exchange.step()
        if self._has_outer and self._is_first and exchange.rounds != rounds:
            self._watch.moved(self._prepared.packing.tensors, exchange.rounds)

    def _must_be_open(self) -> None:
        self._opened()

    def _centre_values(self) -> list[Tensor]:
        return self._opened().centre()

    def _opened(self) -> LocalInRounds | LocalAtServers:
        if self._exchange is None:
            raise RuntimeError("the strategy is closed")
        return self._exchange
