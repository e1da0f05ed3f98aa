# SPDX-License-Identifier: Apache-2.0
"""``braid.strategies.ElasticAverage``: workers train alone, and a centre pulls at them every few steps."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn

from braid.strategies.agreement import Agreement, agree
from braid.strategies.attached import Attached
from braid.strategies.elastic import state as elastic_state
from braid.strategies.elastic.at_servers import CentreAtServers
from braid.strategies.elastic.in_rounds import CentreInRounds
from braid.strategies.elastic.options import ElasticOptions
from braid.strategies.elastic.preparation import KIND, ElasticPrepared, prepare_elastic
from braid.strategies.everyone import Everyone
from braid.strategies.first_values import take_first_values
from braid.strategies.store import Meeting, meet
from braid.strategies.store import join as join_meeting

DEFAULT_TIMEOUT_S = 600.0


class ElasticAverage(Attached):
    """Elastic averaging (EASGD), attached to your optimizer; see `__init__` for all options.

    Each worker takes its own steps with its own optimizer. Every `sync_every` steps, worker x and centre c move
    towards each other: ``e = alpha (x - c); c += e; x -= e``. The centre is what you evaluate and export.

    From Zhang, Choromanska and LeCun 2015, with the schedules of You, Buluc and Demmel 2017. As in the authors'
    code gradient and e are those of the same x, from before the step. The forms with momentum need no option,
    because the optimizer is yours: SGD gives EASGD, ``momentum=0.9`` gives MEASGD, ``momentum=0.99,
    nesterov=True`` gives EAMSGD. Adam and all others work, too.

    Schedulers, GradScaler, accumulation, clipping and the optimizer's state_dict() stay as they are. Closures are
    refused, and so is LBFGS.

    Example:
        >>> import torch, torch.distributed as dist, braid.strategies as bs
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.Linear(2, 1)
        >>> opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        >>> with bs.ElasticAverage(model, opt, sync_every=2, beta=0.9) as strategy:
        ...     for _ in range(4):
        ...         opt.zero_grad()
        ...         model(torch.ones(4, 2)).square().mean().backward()
        ...         opt.step()
        ...     with strategy.centre():
        ...         error = model(torch.ones(4, 2))
        ...     strategy.stats()["rounds"]
        2
        >>> dist.destroy_process_group()
    """

    _KIND = KIND

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        sync_every: int = 10,
        alpha: float | None = None,
        beta: float | None = None,
        schedule: str = "first_come",
        overlap: int | None = None,
        buffers: str = "average",
        init_sync: bool = True,
        root: int | None = None,
        servers: Iterable[int | str] | str | None = None,
        process_group: Any = None,
        join: Any = None,
        name: str | None = None,
        timeout: float | timedelta = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Meet the other workers. All parameters become worker 0's. Blocks until all workers are there.

        Args:
            model: the bare model, on the CPU, with parameters of float32, float16 or bfloat16. The centre is
                float32. Tied parameters travel once. Frozen ones stay out, and must stay frozen.
            optimizer: any optimizer of torch, with all trained parameters of the model.
            sync_every: tau, the steps between two exchanges. The paper has 1 to 64, and 10 for ImageNet.
            alpha: the strength of the pull, from 0 to 1.
            beta: the same for all workers together: alpha is beta divided by the number of workers at the
                beginning. 0.9 if neither is given, as in the paper.
            schedule: where the centre is, and in which order workers come to it.
                "first_come": at servers, as workers are ready; nobody waits (You's Async EASGD).
                "hogwild": the same, and servers work without a lock.
                "round_robin": at servers, in turns by rank (Original EASGD). Stable while alpha is at most
                ``(4 - 2 eta) / (4 - eta)``, for a rate eta times the loss's curvature.
                "sync1": all workers meet, the sum of ``x - c`` is reduced to rank 0, which broadcasts the centre.
                "sync2": the same at the rank with the best links.
                "sync3": the same while the next step computes; the result is that of "sync2" to the bit.
            overlap: how many steps before its use an exchange begins. With 1 it travels while gradients are
                computed, and e is still that of the x that they are computed with. With more, e is that of older
                x. 1 for "sync3", else 0.
            buffers: "average": float buffers (BatchNorm) are averaged, too. "broadcast": they are worker 0's.
                "local": buffers stay alone.
            init_sync: all other state, such as frozen parameters and integer buffers, becomes worker 0's at the
                beginning. False: it stays alone.
            root: the rank that has the centre, for "sync2" and "sync3". None: the one from which braid predicts
                the least time; on other backends it is measured at the beginning.
            servers: where shards of the centre lie, for schedules with servers; see ParameterServer.
            process_group: the workers. By default the default group. Any backend.
            join: join a strategy that has begun elsewhere: MASTER_ADDR:MASTER_PORT of that job, or torch's store.
                For schedules with servers.
            name: tells strategies apart that a late worker may join.
            timeout: limit in seconds of the meeting, and of each exchange.

        Raises:
            RuntimeError: there is no process group.
            TypeError, ValueError: the model, the optimizer or an option does not fit, or workers differ. All
                workers get an error at once.
            CommunicatorError: a worker did not come, or died.
        """
        options = ElasticOptions(schedule, sync_every, alpha, beta, overlap, buffers, root, bool(init_sync))
        timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        meeting = meet(process_group, name, timeout_s) if join is None else join_meeting(join, name, timeout_s)
        made: list[ElasticPrepared] = []

        def prepared_lines() -> tuple[list[str], ElasticPrepared]:
            options.check(has_servers=servers is not None, is_late=join is not None)
            options.check_workers(meeting.workers)
            made.append(prepare_elastic(model, optimizer, options))
            return made[0].describe(options), made[0]

        try:
            agreed = agree(
                *(meeting, servers, prepared_lines, timeout_s),
                (lambda mine: mine.vectors(options)) if not options.is_collective else None,
            )
            self._prepared, self._options, self._timeout_s = agreed.prepared, options, timeout_s
            self.alpha = options.strength(agreed.meeting.workers)
            with torch.no_grad():
                take_first_values(self._prepared.state.given, agreed.meeting, timeout_s)
                self._exchange: CentreInRounds | CentreAtServers | None = self._connect(agreed, process_group)
        except BaseException:
            for prepared in made:
                prepared.release()
            raise
        self._everyone = Everyone(agreed.meeting, timeout_s, lambda: self._opened().present())
        self._steps = self._clock = self._loads = 0
        self._attach(optimizer, self._prepared)
        self._begin_if_due()

    def settle(self, *, everyone: bool = False) -> None:
        """Wait until all workers have come here, and answer the rounds of those that still train. Then go on.

        Call it where workers with different numbers of steps would else meet in a barrier, such as at the end of
        an epoch. Afterwards all count steps from the same place. Only the schedules sync1, sync2 and sync3 wait:
        with servers it finishes this worker's exchange.

        Args:
            everyone: with servers, too, wait until all workers that began have come. Then the models of all have
                the centre's values, in all schedules. With servers it does not wait for who has died or left. All
                workers call it alike.

        Raises:
            CommunicatorError: a worker failed or died, or did not come in time.
        """
        exchange = self._opened()
        with torch.no_grad():
            exchange.settle()
            if everyone and self._options.is_collective:
                self._take_centre()
            elif everyone:
                self._everyone.take(self._take_centre)
        self._clock = 0
        self._begin_if_due()

    def stats(self) -> dict[str, Any]:
        """Return counters of this worker.

        Returns:
            A dict. ``steps``: steps of the optimizer; ``rounds``: finished exchanges; ``exposed_us``: how long
            steps have waited for exchanges; ``strategy``, ``schedule``, ``sync_every``, ``alpha``.
            ``vector_bytes``: memory of vectors beside the model: two copies of the parameters with servers, and a
            third one after centre() during an exchange; three in rounds. With servers also the counters of the
            service. In rounds also ``root``, the rank with the centre, and ``last_workers``, how many took part in
            the last round.
        """
        exchange = self._opened()
        own = {"strategy": KIND, "schedule": self._options.schedule, "alpha": self.alpha}
        counted = {"sync_every": self._options.sync_every, "steps": self._steps, "rounds": exchange.rounds}
        return {**exchange.stats(), **own, **counted}

    def state_dict(self) -> dict[str, Any]:
        """Return the centre and the clock. Model and optimizer keep their own states, which differ among workers.

        It is made of tensors, numbers and text, so ``torch.load(weights_only=True)`` takes it.
        """
        with torch.no_grad():
            parameters, buffers = self._opened().centre()
            return elastic_state.saved(self._prepared, self._clock, self._steps, parameters, buffers)

    def load_state_dict(self, state_dict: dict[str, Any] | None) -> None:
        """Load what state_dict() returned. All workers call this, on any number of them; worker 0's argument
        counts.

        The parameters of the model stay as they are: load the model's and the optimizer's own states before. A
        worker that has none gives None, and then begins at the centre.

        Raises:
            ValueError: the state is from something else. All workers get that error.
            CommunicatorError: a worker did not call this in time.
        """
        exchange, key = self._opened(), f"loaded/{self._loads}"
        self._loads += 1
        tensors = self._prepared.tensors
        own: list[Tensor] = [tensor.clone() for tensor in tensors]  # what is under way must not change them
        with torch.no_grad():
            steps = elastic_state.load(exchange, key, state_dict, self._prepared, self._timeout_s)
            parameters, buffers = exchange.centre()
            torch._foreach_copy_(tensors, own)
            if state_dict is None:
                torch._foreach_copy_(tensors, [*parameters, *(buffers or self._prepared.buffer_packing.tensors)])
        self._clock, self._steps = steps
        self._begin_if_due()

    def close(self, *, wait: bool = True) -> None:
        """Finish the exchange under way, leave, and detach from the optimizer. The model keeps its own values.

        A worker in a round-based schedule answers the others' rounds until all have come here. A rank that holds a
        shard stays until the others have left. Idempotent.

        Args:
            wait: False leaves at once. In sync1, sync2 and sync3 the others then get an error in their next round.
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

    def _connect(self, agreed: Agreement[ElasticPrepared], group: Any) -> CentreInRounds | CentreAtServers:
        if self._options.is_collective:
            return CentreInRounds(agreed, group, self._options, self.alpha, self._timeout_s)
        return CentreAtServers(agreed, self._options, self.alpha, self._timeout_s)

    def _begin_step(self) -> None:
        exchange = self._opened()
        is_due = not self._options.lead and (self._clock + 1) % self._options.sync_every == 0
        if is_due and not exchange.is_under_way:
            exchange.begin()

    def _end_step(self) -> None:
        self._steps += 1
        self._clock += 1
        if self._clock % self._options.sync_every == 0:
            self._opened().finish()
        self._begin_if_due()

    def _begin_if_due(self) -> None:
        lead = self._options.lead
        if lead and (self._clock + lead) % self._options.sync_every == 0:
            with torch.no_grad():
                self._opened().begin()

    def _take_centre(self) -> None:
        torch._foreach_copy_(self._prepared.tensors, self._centre_values())

    def _must_be_open(self) -> None:
        self._opened()

    def _centre_values(self) -> list[Tensor]:
        parameters, buffers = self._opened().centre()
        return parameters + buffers

    def _opened(self) -> CentreInRounds | CentreAtServers:
        if self._exchange is None:
            raise RuntimeError("the strategy is closed")
        return self._exchange


def _check_workers(options: ElasticOptions, meeting: Meeting) -> None:
    if not meeting.workers:
        return  # this worker is late, and does not know
    options.strength(meeting.workers)
    if options.root is not None and not 0 <= options.root < meeting.workers:
        raise ValueError(f"root={options.root}: a rank from 0 to {meeting.workers - 1}")
