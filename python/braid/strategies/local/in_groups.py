# SPDX-License-Identifier: Apache-2.0
"""Groups that meet in rounds, and go to servers: each at its own pace (HALoS, Kim et al. 2025), or in rounds of
a quorum of groups.

A group is a region: good links inside, slow ones between. Its members keep a model of the group. An optimizer of
the group moves it in each round, as LocalInRounds has it. After every k-th round the first member, the speaker,
pushes how far that model has moved. Servers apply the push as it comes, with a momentum of their own. The group
then moves towards the values that come back. No group waits for another one, unless it is one of a quorum.

In the paper a server of the region takes the changes of each worker as they come. Here the members of a group wait
for each other, and the group's mean is the change. So a region needs no server, and its members keep equal bits.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from braid._array.parameters import OFF
from braid._errors import CommunicatorError
from braid.strategies.agreement import Agreement
from braid.strategies.averages import RULE, merged, towards
from braid.strategies.hybrid.grouping import Grouping
from braid.strategies.local.in_rounds import LocalInRounds
from braid.strategies.local.options import LocalOptions
from braid.strategies.local.outer import nesterov
from braid.strategies.local.pieces import rule_of
from braid.strategies.local.preparation import LocalPrepared
from braid.strategies.local.terms import Terms
from braid.strategies.options import Options
from braid.strategies.rounds.collectives import finish
from braid.strategies.rounds.rounds import Said
from braid.strategies.rules import Numbers
from braid.strategies.service import SharedVector

_TOLD = 2  # what the speaker says beside the values


class _Link:
    """A range of the group's vector, and the vector at the servers that it follows.

    Attributes:
        shared: the vector at the servers.
        base: the group's values that servers know of.
    """

    def __init__(self, shared: SharedVector, numbers: Numbers, scale: float, keep: float) -> None:
        """Note how servers apply a push.

        Args:
            shared: the vector at the servers.
            numbers: of the servers' rule.
            scale: a push is base - values, times this.
            keep: which part of its distance from the servers the group keeps when it takes their values.
        """
        self.shared, self._numbers, self._scale, self._keep = shared, numbers, scale, keep
        self.base = torch.zeros_like(shared.out)

    def push(self, values: Tensor) -> None:
        """Start to push how far the group is from the base, and to pull."""
        torch.sub(self.base, values, out=self.shared.update)
        self.shared.begin_step()
        self.shared.push_pull(self._numbers, self._scale)

    def merge(self, values: Tensor, of_servers: Tensor, *, keeps: bool) -> None:
        """Move the group towards the servers. What it has done since the push stays, and is pushed next."""
        since = values - self.base
        self.base.lerp_(of_servers, 1 - self._keep if keeps else 1.0)
        torch.add(self.base, since, out=values)


class _AveragesLink(_Link):
    """The link of float buffers. They move towards others' values, not by differences: see averages.py.

    `base` is what the servers had when the group took their values, plus what it has pushed since.
    """

    def push(self, values: Tensor) -> None:
        """Start to push the group's buffers, and to pull."""
        self.shared.pull()
        self.shared.update.copy_(merged(values, self.base, self.shared.out))
        self.shared.begin_step()
        self.shared.push_pull(self._numbers, self._scale)

    def merge(self, values: Tensor, of_servers: Tensor, *, keeps: bool) -> None:
        """Take the servers' buffers, and keep what the group has changed of its own since the push."""
        values.copy_(merged(values, self.base, of_servers))
        self.base.copy_(of_servers)


class InGroups(LocalInRounds):
    """Rounds of this worker's group, with an exchange with servers after every k-th one.

    All workers are connected to the servers, so that each can see the centre alone. Only speakers push.
    """

    def __init__(self, terms: Terms, groups: Grouping) -> None:
        """Connect to the servers and make the process group of this worker's group. All begin as worker 0."""
        agreed, options, prepared = terms.agreed, terms.options, terms.agreed.prepared
        self.groups, ranks = groups, terms.group_of_this_worker(groups)
        self._is_speaker = agreed.meeting.member == ranks[0]
        self._rounds_per_push = options.rounds_per_global
        self._delay = options.fragment_sync_delay // options.steps_per_round
        self._age: int | None = None  # rounds since the push under way began
        self._has_moved = False  # since the last push
        self.pushes = 0
        self._links = self._connect(agreed, options, terms.timeout_s)
        # Of the servers. Then how many updates they have had, and whether the speaker has failed.
        elements = prepared.packing.elements + prepared.buffer_packing.elements
        self._heard = torch.zeros(elements + _TOLD, dtype=torch.float32)
        self._means, self._has_quorum = options.warmup_steps, options.quorum is not None
        inside = replace(
            *(options,),
            **{"sync_every": options.steps_per_round, "groups": None, "asynchronous": False, "compression": OFF},
            **{"quorum": None, "grace_s": None},
            **{"fragment_sync_delay": 0, "fragment_update_alpha": 0.0},
        )
        outer = nesterov(options.rate_of_group, options.momentum_of_group)
        of_group = Agreement(agreed.meeting, agreed.servers, replace(prepared, outer=outer))
        super().__init__(replace(terms, agreed=of_group, options=inside), ranks)
        for link, values in zip(self._links, self._ranges(self.vector), strict=True):
            link.shared.update.copy_(values)
            link.shared.start()
        if self._has_quorum and not self._is_speaker:
            self._links[0].shared.rest()  # it never pushes: no round waits for it
        self._take_all([link.shared.out for link in self._links])

    def finish(self) -> None:
        """As LocalInRounds.finish(). Then exchange with the servers if it is the turn of that round."""
        is_round, is_warm = self._under_way is not None, self.warm_left > 0
        super().finish()
        if not is_round or not self.workers:
            return
        self._has_moved = True
        if is_warm:
            self._push()
            self._land(keeps=False)
            return
        if self._age is not None:
            self._age += 1
            if self._age >= self._delay:
                self._land(keeps=True)
        if self.turn % self._rounds_per_push == 0:
            self._push()
            if not self._delay:
                self._land(keeps=True)

    def settle(self) -> None:
        """Wait for the group, not for others. Push what the group has not pushed, and take the centre."""
        super().settle()
        if self._age is not None:
            self._land(keeps=True)
        if self._has_moved:
            self._push()
        elif self._is_speaker:  # a push of zeros would still step the servers' momentum
            for link in self._links:
                link.shared.begin_pull()
        self._land(keeps=False)
        if self._has_quorum:
            if self._is_speaker:
                self._links[0].shared.rest()
                for link in self._links:
                    link.shared.begin_pull()
            self._land(keeps=False)

    def take_centre(self) -> None:
        """Take the newest centre, once all have settled: nothing is left to push."""
        self.settle()

    def centre(self) -> list[Tensor]:
        """Return the servers' newest parameters and float buffers, in the order of the packings.

        While a round of a quorum is under way they are those that the group took last.
        """
        if self._has_quorum and self._age is not None:
            return self._all.views(self._heard.clone())
        found = torch.empty_like(self.vector)
        for link, values in zip(self._links, self._ranges(found), strict=True):
            link.shared.pull(values)
        return self._all.views(found)

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the servers' values and state, of parameters and of buffers."""
        self._end_request()
        return [link.shared.snapshot() for link in self._links]

    def end_requests(self) -> None:
        """Wait for the group's round under way, and for the speaker's push."""
        self.finish()
        self._end_request()

    def present(self) -> Collection[int]:
        """Return the workers that can still push something."""
        return self._links[0].shared.present()

    def restore(self, saved: list[dict[str, Any]]) -> None:
        """Give the servers what snapshot() returned."""
        for link, one in zip(self._links, saved, strict=True):
            link.shared.restore(one)

    def begin_at_centre(self, outer: list[Any] | None) -> None:
        """Let the whole group take the servers' values, and its speaker's state of the group's optimizer.

        All members call this. `outer`: such a state, for each part; None: the speaker has none.
        """
        self._end_request()
        self._age, self._has_moved, self.turn = None, False, 0
        if self._is_speaker:
            torch.cat([view.reshape(-1) for view in self.centre()], out=self.vector)
        states, updates = self.hear((outer, self._updates_known()))
        for part, state in zip(self.parts, states or [], strict=False):
            if part.outer is not None and state is not None:
                part.outer.optimizer.load_state_dict(state)
        self._note_updates(updates)
        self.share_centre()
        self._take_all(self._ranges(self.vector.clone()))

    def stats(self) -> dict[str, Any]:
        """Return the counters of the group's rounds and those of the service."""
        (shared, *_) = (link.shared for link in self._links)
        exposed_us = self._rounds.exposed_us + sum(link.shared.exposed_us for link in self._links)
        last = {"last_versions": shared.versions, "last_staleness": shared.staleness}
        own = {"pushes": self.pushes, "groups": [list(ranks) for ranks in self.groups], "exposed_us": exposed_us}
        return {**shared.stats(), **last, **super().stats(), **own}

    def close(self, *, wait: bool) -> None:
        """Leave the group, then the service, as SharedVector.close()."""
        try:
            super().close(wait=wait)
        finally:
            for link in self._links:
                link.shared.close(wait=wait)

    def _connect(self, agreed: Agreement[LocalPrepared], options: LocalOptions, timeout_s: float) -> list[_Link]:
        """Return the link of the parameters, and that of the float buffers if there are any."""
        prepared, groups, codec = agreed.prepared, len(self.groups), options.compression
        settings = f"{prepared.kind} packing {prepared.packing.digest()} {' '.join(options.describe())}"

        def link(part: str, elements: int, rule: str, numbers: Numbers, scale: float, of: Options) -> _Link:
            shared = SharedVector(
                *(agreed.meeting, part, agreed.servers),
                elements=elements,
                rule=rule,
                settings=settings,
                options=of,
                timeout_s=timeout_s,
            )
            if part == "buffers":
                return _AveragesLink(shared, numbers, scale, 0.0)
            return _Link(shared, numbers, scale, options.fragment_update_alpha)

        coded = Options(mode=options.mode, compression=codec, pull_compression=codec)
        rule, numbers = rule_of(prepared, options, groups)
        links = [link("parameters", prepared.packing.elements, rule, numbers, 1.0, coded)]
        if elements := prepared.buffer_packing.elements:
            links.append(link("buffers", elements, RULE, [(elements, towards(1.0 / groups))], -1.0, Options()))
        return links

    def _push(self) -> None:
        for link, values in zip(self._links, self._ranges(self.vector), strict=True):
            if self._is_speaker:
                link.push(values)
            link.base.copy_(values)
        self._age, self._has_moved = 0, False
        self.pushes += 1

    def _land(self, *, keeps: bool) -> None:
        """Wait for the push under way, and let the whole group take the values that it brings."""
        self._age = None
        error: BaseException | None = None
        if self._is_speaker:
            try:
                self._end_request()
            except BaseException as failed:  # the others wait: they hear of it with the values
                error = failed
            for link, values in zip(self._links, self._ranges(self._heard), strict=True):
                values.copy_(link.shared.out)
            self._heard[-_TOLD] = self._updates_known()
            self._heard[-1] = float(error is not None)
        try:
            self._rounds.start(self._spread).wait()
        except CommunicatorError:
            if error is None:
                raise
        if error is not None:
            raise error
        self.parts[0].shift(self._merge(self._ranges(self._heard), keeps=keeps))
        self._note_updates(int(self._heard[-_TOLD]))

    def _updates_known(self) -> int:
        """Return how many updates are in the servers' values that came last."""
        return min(self._links[0].shared.newest_versions, default=0)

    def _note_updates(self, updates: int) -> None:
        """Servers count the rounds of the warm-up, so all groups agree about its end."""
        self.warm_left = max(0, self._means - updates)
        if not self.warm_left:
            self._warm = None

    def _merge(self, of_servers: list[Tensor], *, keeps: bool) -> Callable[[], None]:
        def merge() -> None:
            for link, values, theirs in zip(self._links, self._ranges(self.vector), of_servers, strict=True):
                link.merge(values, theirs, keeps=keeps)

        return merge

    def _spread(self) -> Said:
        """Give the speaker's values to the group; on the thread of the rounds."""
        finish(dist.broadcast(self._heard, group_src=0, group=self._rounds.group, async_op=True))
        return Said(workers=1.0, failures=float(self._heard[-1]))

    def _take_all(self, of_servers: list[Tensor]) -> None:
        """Let this worker have the servers' values, as the group's model, as its own, and as the base."""
        for link, values, theirs in zip(self._links, self._ranges(self.vector), of_servers, strict=True):
            values.copy_(theirs)
            link.base.copy_(theirs)
        self._heard[:-_TOLD].copy_(self.vector)
        self._all.write(self.vector)
        self._now_equal()

    def _end_request(self) -> None:
        for link in self._links:
            link.shared.finish()

    def _ranges(self, vector: Tensor) -> list[Tensor]:
        """Return the part of a vector for each link; what follows them does not count."""
        sizes = [link.shared.out.numel() for link in self._links]
        return list(vector[: sum(sizes)].split(sizes))
