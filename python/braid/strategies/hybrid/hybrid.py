# SPDX-License-Identifier: Apache-2.0
"""``braid.strategies.Hybrid``: workers of a group step together, groups do not wait for each other."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from braid._notices import tell
from braid.strategies.agreement import Agreement
from braid.strategies.hybrid import grouping
from braid.strategies.hybrid.exchange import GroupExchange
from braid.strategies.hybrid.grouping import Grouping
from braid.strategies.hybrid.members import gathering
from braid.strategies.hybrid.options import GroupOptions
from braid.strategies.hybrid.places import Place, groups_by_host, place, seconds_between
from braid.strategies.hybrid.rates import Rates
from braid.strategies.hybrid.shards import Shards
from braid.strategies.parameter_server import ParameterServer
from braid.strategies.preparation import Prepared
from braid.strategies.store import Meeting

KIND = "hybrid"


class Hybrid(ParameterServer):
    """Groups of workers average their gradients in each step; parameter servers join the groups asynchronously.

    From Kim et al. 2020 (the hybrid of all-reduce inside a host and asynchronous parameter servers between hosts,
    with a copy of the parameters on each host) and Campos et al. 2017 ("mixed"). Groups are workers of like speed
    with good links, so that nobody waits long inside a group; a slow group does not stop a fast one.

    In each step the members of a group average their gradients. One of them, the speaker, pushes the mean to the
    servers, pulls, and gives all members the new values. Speakers hold the shards.

    It is a torch.optim.Optimizer, and does all that ParameterServer does, but `join`. Differences:

    * Members of a group have the same parameters, and buffers, after each step. They take the same steps. One that
      takes fewer takes part in the others' steps from close() on, without a gradient.
    * If a GradScaler skips a step on one member, its whole group skips it.
    * All members of a group call centre() together. Only speakers have a service_state(); rank 0 is always one.
    * A member that dies ends its group, with an error on each of its members. The other groups go on.

    Example:
        >>> import torch, torch.distributed as dist, braid.strategies as bs
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.Linear(2, 1)
        >>> with bs.Hybrid(model, torch.optim.SGD, lr=0.1, groups=[[0]]) as opt:
        ...     for _ in range(3):
        ...         opt.zero_grad()
        ...         model(torch.ones(4, 2)).square().mean().backward()
        ...         opt.step()
        ...     opt.groups
        [[0]]
        >>> dist.destroy_process_group()
    """

    CENTRE_NEEDS_OTHERS = True  # centre() is for all workers of a group together

    def __init__(
        self,
        model: nn.Module,
        inner: Any = torch.optim.SGD,
        *,
        groups: str | Sequence[Sequence[int]] = "auto",
        measure_steps: int = 10,
        rate_rule: str = "linear",
        base_workers: int = 1,
        warmup_steps: int = 0,
        servers: Iterable[int | str] | str | None = None,
        process_group: Any = None,
        join: Any = None,
        **others: Any,
    ) -> None:
        """Meet the other workers, and form groups. All parameters become worker 0's.

        Args:
            model: as ParameterServer takes it.
            inner: as ParameterServer takes it.
            groups: ``[[0, 1], [2, 3]]``: the ranks of each group. "host": one group per host. "auto": all workers
                train as one group for the first `measure_steps` steps and measure how long they compute. Then
                workers form a group that are slower than its fastest by 15 % at most, and that are on one host or
                have good links: the gradient crosses them in 15 % of the step time or less. Links are known if
                the process group is on braid. Otherwise groups stay inside hosts.
            measure_steps: steps of "auto" before groups are formed, at least 2.
            rate_rule: by what a group's learning rate is multiplied: "linear": the number of its workers, divided
                by `base_workers`. "sqrt": the root of that. "none": by nothing.
            base_workers: for how many workers the given rate is right.
            warmup_steps: in so many steps the rate goes from the given one to the rule's (Goyal et al. 2017).
            servers: where shards lie: ranks, of those that speak for a group (the lowest of each); "ranks" for all
                speakers; ``"serve:2"`` for two processes of ``braid serve``; ``"ranks+serve:2"`` for both. By
                default all speakers, or as many processes as BRAID_PARAMETER_SERVERS says. While "auto" measures,
                rank 0 holds all; then processes are asked.
            process_group: the workers. Groups have its backend, any that takes tensors on the CPU.
            join: refused: groups are fixed.
            others: all other arguments of ParameterServer, and the numbers of the optimizer. `delay` must be the
                same on all workers. `implicit_momentum` counts groups in the place of workers.

        Raises:
            RuntimeError, TypeError, ValueError, CommunicatorError: as ParameterServer; or groups make no sense.
        """
        self._group_options = GroupOptions(groups, measure_steps, rate_rule, base_workers, warmup_steps)
        self._is_joining = join is not None
        self._servers = servers if servers is None or isinstance(servers, str) else list(servers)
        self._is_measuring = False
        self._process_group = process_group
        self._grouping: Grouping = []
        if self._is_joining and not torch.distributed.is_initialized():
            self._refuse_joining()
        super().__init__(model, inner, servers="ranks", process_group=process_group, **others)

    @property
    def groups(self) -> Grouping:
        """The groups of now, as lists of ranks. With "auto" it is one group of all until they are formed."""
        return [list(group) for group in self._grouping]

    def settle(self, *, everyone: bool = False) -> None:
        """As ParameterServer.settle(). Members of a group that a death has ended keep their values."""
        exchange = self._opened()
        assert isinstance(exchange, GroupExchange)
        if everyone and exchange.members is None:
            self._everyone.leave()
        super().settle(everyone=everyone and exchange.members is not None)

    def stats(self) -> dict[str, Any]:
        """Return counters of this worker.

        Returns:
            As ParameterServer.stats(). ``groups``: lists of ranks; ``group_us``: how long step() has waited inside
            the group, for others' gradients; ``exposed_us``: how long it has waited for servers, or for the
            speaker that does. Staleness and the service's other counters are there on speakers.
        """
        return {**super().stats(), "strategy": KIND, "groups": self.groups}

    def state_dict(self) -> dict[str, Any]:
        """Return what ParameterServer.state_dict() does, and how far the warm-up of the rate is."""
        state = super().state_dict()
        return {**state, "braid": {**state["braid"], "updates": self._rates.updates}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what state_dict() returned; ValueError says why it does not fit."""
        super().load_state_dict(state_dict)
        self._rates.updates = int(state_dict["braid"].get("updates", 0))

    def _describe(self, prepared: Prepared, meeting: Meeting) -> list[str]:
        if self._is_joining:
            self._refuse_joining()
        self._shards = Shards.read(self._servers, meeting.workers)
        if self._shards.alone and meeting.job is None:
            raise ValueError(f"servers={self._servers!r}: processes of `braid serve` cannot come to this meeting")
        self._group_options.check(meeting.workers, self._shards.ranks or None)
        _, *lines = prepared.describe(self._options)
        groups = [*self._group_options.describe(meeting.workers), f"servers={self._shards}"]
        return [f"strategy {KIND}", *groups, f"delay={self._options.delay}", *lines]

    def _vectors(self) -> None:
        return None  # servers are asked when there are groups

    def _begin(self, agreed: Agreement[Prepared]) -> GroupExchange:
        meeting = agreed.meeting
        self._gather = gathering(self._process_group, self._timeout_s)
        self._rates = Rates(agreed.prepared.rule, self._options, self._group_options)
        exchange = GroupExchange(agreed, self._options, self._rates, self._timeout_s)
        groups = self._group_options.named(meeting.workers)
        why = "as groups= names them"
        if groups is None and self._group_options.groups == "host":
            groups, why = groups_by_host(meeting, self._timeout_s), "one for each host"
        if groups is None:
            groups, why = [list(range(meeting.workers))], "one worker"
            if meeting.workers > 1:
                why = f"for {self._group_options.measure_steps} steps, to measure step times"
                exchange.on_round = lambda: self._form_if_due(exchange)
                self._is_measuring = True
        try:
            self._enter(exchange, groups, why)
        except BaseException:  # the other members wait
            exchange.close(wait=False)
            raise
        return exchange

    def _enter(self, exchange: GroupExchange, groups: Grouping, why: str) -> None:
        member = exchange.meeting.member
        shards = self._shards if not self._is_measuring else Shards(None, 0)
        servers = shards.members(groups)
        vectors = exchange.prepared.vectors(self._options)
        shards.engage(exchange.meeting, exchange.folder, groups, vectors, self._timeout_s)
        index = next(number for number, group in enumerate(groups) if member in group)
        before = exchange.members
        members = self._gather(groups, index)
        self._grouping = groups
        self._rates.begin(groups)
        exchange.enter(members, index, groups, servers)
        if before is not None:
            before.leave(in_order=True)
        if member == 0:
            tell(f"hybrid: groups {grouping.in_words(groups)}, {why}")

    def _form_if_due(self, exchange: GroupExchange) -> None:
        """Form groups by what all workers have measured, once."""
        if exchange.rounds < self._group_options.measure_steps:
            return
        exchange.on_round = lambda: None
        self._is_measuring = False
        exchange.finish()
        assert exchange.members is not None
        elements = self._prepared.packing.elements
        places = exchange.members.gather(place(self._process_group, elements, exchange.times.median_s()))
        times = [each.step_s for each in places]
        formed = grouping.by_time(times, [each.host for each in places], seconds_between(places, elements))
        self._enter(exchange, exchange.members.hear(formed), _why(places))

    def _refuse_joining(self) -> None:
        raise ValueError(
            "join= is not for Hybrid: its groups are fixed when it begins; ParameterServer takes late workers"
        )


def _why(places: list[Place]) -> str:
    times = ", ".join(f"{1000 * each.step_s:.3g}" for each in places)
    links = "on one host, or with good links" if places[0].all_s is not None else "on one host"
    return f"by step times of {times} ms: alike within {100 * grouping.TOLERANCE:.0f} %, {links}"
