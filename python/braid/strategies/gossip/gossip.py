# SPDX-License-Identifier: Apache-2.0
"""``braid.strategies.Gossip``: workers train alone, and average their parameters in pairs, in the background."""

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn

from braid._array.rendezvous.stores import KeyValueStore
from braid.strategies.agreement import agree
from braid.strategies.attached import Attached
from braid.strategies.everyone import Everyone
from braid.strategies.first_values import take_first_values
from braid.strategies.gossip import state as gossip_state
from braid.strategies.gossip.company import Company
from braid.strategies.gossip.engine import Engine
from braid.strategies.gossip.local import Local
from braid.strategies.gossip.members import Members
from braid.strategies.gossip.options import SYMMETRIC, GossipOptions
from braid.strategies.gossip.preparation import KIND, GossipPrepared, prepare_gossip
from braid.strategies.gossip.together import hear, mean_of, say
from braid.strategies.gossip.vector import TAIL, WorkerVector, new_vector
from braid.strategies.store import Meeting, meet
from braid.strategies.store import join as join_meeting

DEFAULT_TIMEOUT_S = 600.0
_NEW = 0.1  # what the newest step counts in the time of a step


class Gossip(Attached):
    """Gossip, attached to your optimizer; see `__init__` for all options.

    Each worker takes its own steps with its own optimizer. A thread in the background averages its parameters with
    one other worker at a time. Nobody waits for the slowest, and a worker that dies is left out. What you evaluate
    and export is the mean of all workers: see centre().

    The modes are AD-PSGD (Lian et al. 2018), push-sum as in SGP (Assran et al. 2019) and GoSGD (Blot et al. 2016),
    GossipGraD (Daily et al. 2018) and gossiping SGD (Jin et al. 2016).

    Schedulers, GradScaler, accumulation, clipping and the optimizer's state_dict() stay as they are. Closures are
    refused, and so is LBFGS.

    Example:
        >>> import torch, torch.distributed as dist, braid.strategies as bs
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.Linear(2, 1)
        >>> opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> with bs.Gossip(model, opt, mode="push_sum", graph="exponential") as strategy:
        ...     for _ in range(4):
        ...         opt.zero_grad()
        ...         model(torch.ones(4, 2)).square().mean().backward()
        ...         opt.step()
        ...     with strategy.centre():
        ...         error = model(torch.ones(4, 2))
        ...     strategy.stats()["steps"]
        4
        >>> dist.destroy_process_group()
    """

    _KIND = KIND

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        mode: str = SYMMETRIC,
        graph: str | Sequence[tuple[int, int]] | None = None,
        sync_every: int = 1,
        probability: float | None = None,
        overlap: bool = True,
        buffers: str = "average",
        init_sync: bool = True,
        seed: int = 0,
        max_steps_alone: int = 100,
        process_group: Any = None,
        join: Any = None,
        name: str | None = None,
        timeout: float | timedelta = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Meet the other workers. All parameters become worker 0's. Blocks until all workers are there.

        Args:
            model: the bare model, on the CPU, with parameters of float32, float16 or bfloat16. What others average
                with is float32. Tied parameters travel once. Frozen ones stay out, and must stay frozen.
            optimizer: any optimizer of torch, with all trained parameters of the model.
            mode: what two workers i and j do, when it is the turn of i:
                "symmetric": both get the mean of both, at once (AD-PSGD). Every second worker is active, and
                begins exchanges; the others answer. The sum of all parameters stays the same.
                "push_sum": i gives half of its parameters and of its weight to j (SGP, GoSGD). The weighted mean
                of all stays the same, although messages are late.
                "dissemination": j takes the mean with what i sends (GossipGraD). Partners rotate. Half the bytes
                of "symmetric", but the mean of all moves a little.
                "pull": i takes the mean with what it reads of j (gossiping SGD).
            graph: who meets whom. "ring": the next and the one before. "exponential": the workers 1, 2, 4, ...
                places further, in turn; in mode "symmetric" 1, 3, 5, 9, ... places, both ways. "random": any.
                "bipartite": any of the other half. "auto": any, the more often, the faster exchanges with it and
                its steps are. Or a list of edges between ranks. None: "bipartite" for "symmetric", "random" for
                "pull", else "exponential".
            sync_every: steps between two exchanges.
            probability: the chance that an exchange is made when one is due; 1 if it is not given. The papers of
                GoSGD and gossiping SGD have an exchange in one of some steps, at random.
            overlap: False: step() waits for its exchange. By default it runs while the next step computes. If it
                is not finished when the next one is due, that one is left out.
            buffers: "average": float buffers (BatchNorm) are averaged with the parameters. "local": buffers stay
                alone.
            init_sync: all other state, such as frozen parameters and integer buffers, becomes worker 0's at the
                beginning. False: it stays alone.
            seed: of what is random: peers, and `probability`.
            max_steps_alone: so many steps after its last exchange, begun by this worker or by another one, a step
                waits: it begins an exchange, in any mode. It waits for no step of others, and not for those that
                `probability` leaves out. 0: no step waits. Workers may differ in it.
            process_group: the workers. By default the default group. Any backend.
            join: join a strategy that has begun elsewhere: MASTER_ADDR:MASTER_PORT of that job, or torch's store.
            name: tells strategies apart that a late worker may join.
            timeout: limit in seconds of the meeting, and of each exchange.

        Raises:
            RuntimeError: there is no process group.
            TypeError, ValueError: the model, the optimizer or an option does not fit, or workers differ. All
                workers get an error at once.
            CommunicatorError: a worker did not come, or died before all had begun.
        """
        given = tuple(graph) if isinstance(graph, Iterable) and not isinstance(graph, str) else graph
        options = GossipOptions(
            mode=mode,
            graph=given,
            sync_every=sync_every,
            probability=probability,
            overlap=overlap,
            buffers=buffers,
            seed=seed,
            init_sync=bool(init_sync),
            max_steps_alone=max_steps_alone,
        )
        timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        meeting = meet(process_group, name, timeout_s) if join is None else join_meeting(join, name, timeout_s)
        made: list[GossipPrepared] = []

        def prepared_lines() -> tuple[list[str], GossipPrepared]:
            options.check(meeting.workers)
            made.append(prepare_gossip(model, optimizer, options))
            return made[0].describe(options), made[0]

        try:
            agreed = agree(meeting, None, prepared_lines, timeout_s)
            self._meeting, self._prepared, self._options = agreed.meeting, agreed.prepared, options
            self._timeout_s = timeout_s
            with torch.no_grad():
                take_first_values(self._prepared.state.given, self._meeting, timeout_s)
                self._engine: Engine | None = self._begin()
        except BaseException:
            for prepared in made:
                prepared.release()
            raise
        self._company = Company(self._opened(), self._local, options.max_steps_alone)
        self._everyone = Everyone(self._meeting, timeout_s, lambda: self._opened().living())
        self._steps = self._told_steps = self._loads = 0
        self._step_s = self._told_step_s = self._exposed_s = 0.0
        self._last_step_at: float | None = None
        self._attach(optimizer, self._prepared)

    def settle(self, *, everyone: bool = False) -> None:
        """Finish this worker's exchange, and take what others have brought. It waits for no other worker.

        Args:
            everyone: also wait until all workers that began have come. Then the models of all have the mean of
                all, in which every step counts. Who has died or left is not waited for. All workers call it alike.

        Raises:
            CommunicatorError: this worker cannot go on, or another one did not come in time.
        """
        engine = self._opened()
        engine.wait()
        with torch.no_grad():
            self._sync()
            if everyone:
                means: list[Tensor] = []
                # Who leaves after an error is absent for all, though its vector may still answer some of them.
                self._everyone.take(lambda: means.append(engine.mean(self._everyone.absent)))
                self._local.install(means[0])
                self._everyone.wait()  # else who goes on could average with values of before

    def stats(self) -> dict[str, Any]:
        """Return counters of this worker.

        Returns:
            A dict. ``steps`` of the optimizer. ``exchanges`` that this worker began; ``skipped``: left out,
            because the last one was under way or, in mode "push_sum", the weight too little;
            ``lost_exchanges``: the peer died. ``peers``: workers that live; ``neighbours``: those of the graph;
            ``wires``: how each is reached; ``is_active``: whether this worker begins exchanges. ``sent_bytes``
            and ``received_bytes`` of exchanges with ``peers``. ``exchange_s``: by peer, how long one takes.
            ``consensus_distance``: |x_i - x_j| / |x_i|, the mean of the last 50 exchanges that have looked, or
            None. ``weight``: of this worker; ``lost_weight``: sent to workers that died. ``exposed_us``: how
            long steps have waited for averaging. ``waits`` and ``waited_s``: how often, and how long altogether,
            steps have waited because of ``max_steps_alone``. ``mode``, ``graph``, ``sync_every``, ``strategy``.
        """
        own = {"strategy": KIND, "mode": self._options.mode, "sync_every": self._options.sync_every}
        graph = self._options.checked_graph(0)
        counted = {"graph": graph, "steps": self._steps, "exposed_us": 1e6 * self._exposed_s}
        waited = {"waits": self._company.waits, "waited_s": self._company.waited_s}
        return {**self._opened().stats(), **own, **counted, **waited}

    def state_dict(self) -> dict[str, Any]:
        """Return this worker's parameters in float32, its weight and its steps. Each worker saves its own.

        It is made of tensors, numbers and text, so ``torch.load(weights_only=True)`` takes it.
        """
        self._opened()
        with torch.no_grad():
            self._sync()
            return gossip_state.saved(self._prepared, self._local, self._options.mode, self._steps)

    def load_state_dict(self, state_dict: dict[str, Any] | None) -> None:
        """Load what state_dict() returned. All workers that began together call this, on any number of them.

        The model gets the values of the state. A worker that has no state gives None, and gets the mean of those
        that have one. Load the optimizer's own state, too.

        Raises:
            ValueError: a state is from something else, or nobody has one. All workers get that error.
            CommunicatorError: a worker did not come.
        """
        engine, key = self._opened(), f"loaded/{self._loads}"
        self._loads += 1
        engine.wait()
        with torch.no_grad():
            self._steps = gossip_state.load(
                *(self._meeting, key, engine, self._local, state_dict, self._prepared, self._timeout_s)
            )
        self._told_steps, self._told_step_s = self._steps, 0.0
        self._company.begin(self._steps)

    def close(self, *, wait: bool = True) -> None:
        """Finish this worker's exchange, leave, and detach from the optimizer. The model keeps its own values.

        The others go on without this worker. Idempotent.

        Args:
            wait: False does not finish the exchange.
        """
        engine, self._engine = self._engine, None
        if engine is None:
            return
        self._detach()
        try:
            if wait:
                engine.wait()
                with torch.no_grad():
                    self._sync()
        finally:
            if not wait:
                self._everyone.leave()
            engine.close(self._timeout_s if wait else 0.0)

    def _begin(self) -> Engine:
        meeting, packing = self._meeting, self._prepared.together
        settings = f"gossip packing {packing.digest()} {' '.join(self._options.describe())}"

        def connect(store: KeyValueStore, owner: int) -> WorkerVector:
            return WorkerVector(
                store,
                meeting.name,
                owner=owner,
                me=meeting.member,
                workers=meeting.workers,
                elements=packing.elements + TAIL,
                parameters=self._prepared.packing.elements,
                settings=settings,
                timeout_s=self._timeout_s,
            )

        members = Members(meeting, connect)
        try:
            parameters = self._prepared.packing.elements
            self._local = Local(members.own, packing, parameters, is_weighted=self._options.is_weighted)
            self._local.install(self._first_values(meeting, members))
            if not meeting.is_late:
                # Who exchanges before all have begun would change what the others begin with.
                say(meeting, "begun")
                hear(meeting, "begun", "the beginning", self._timeout_s)
            members.open()
        except BaseException:
            members.close()
            raise
        return Engine(meeting.name, members, self._local, self._options)

    def _first_values(self, meeting: Meeting, members: Members) -> Tensor:
        """Return worker 0's values; for a late worker the mean of those that live."""
        packing = self._prepared.together
        if meeting.is_late:
            return mean_of(members, members.peers(), packing.elements)
        vector = new_vector(packing.elements)
        if meeting.member == 0:
            torch._foreach_copy_(packing.views(vector[:-TAIL]), packing.tensors)
        else:
            first = members.vector(0)
            assert first is not None
            first.pull(vector)
        return vector[:-TAIL].clone()

    def _must_be_open(self) -> None:
        self._opened()

    def _centre_values(self) -> list[Tensor]:
        """Return the mean of all workers that live, of their newest values. It waits for no worker."""
        self._sync()
        return self._prepared.together.views(self._opened().mean())

    def _end_step(self) -> None:
        engine = self._opened()
        self._steps += 1
        begun = time.perf_counter()
        if self._last_step_at is not None:
            taken = begun - self._last_step_at
            self._step_s += (_NEW if self._step_s else 1.0) * (taken - self._step_s)
        if self._steps % self._options.sync_every == 0:
            self._sync()
            engine.due()
            if not self._options.overlap:
                engine.wait()
                self._sync()
            if self._company.keep(self._steps):
                self._sync()
        self._last_step_at = time.perf_counter()
        self._exposed_s += self._last_step_at - begun

    def _sync(self) -> int:
        steps, step_s = self._steps - self._told_steps, self._step_s - self._told_step_s
        version = self._local.sync(steps, step_s)
        self._told_steps, self._told_step_s = self._steps, self._step_s
        return version

    def _opened(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the strategy is closed")
        return self._engine
