# SPDX-License-Identifier: Apache-2.0
"""``braid.strategies.DiLoCo``: local steps, and an outer optimizer that moves a common centre."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from braid._array.parameters import OFF
from braid.strategies.local.local_sgd import DEFAULT_TIMEOUT_S
from braid.strategies.local.local_steps import LocalSteps
from braid.strategies.local.options import LocalOptions, periods
from braid.strategies.local.outer import DEFAULT_RATE, OuterFactory, nesterov, usual_momentum


class DiLoCo(LocalSteps):
    """DiLoCo, attached to your optimizer; see `__init__` for all options.

    Each worker takes its own steps with its own (inner) optimizer. Every `sync_every` steps the workers compute
    how far they have moved from the centre, in the mean. An outer optimizer takes that for a gradient and moves
    the centre, and the workers go on from there. The centre is what you evaluate and export.

    From Douillard et al. 2023 (DiLoCo) and 2025 (streaming: fragments, delay, mixing, messages of 4 bits), Liu et
    al. 2024 (asynchronous: delayed Nesterov, steps in proportion to speed). Names of options are those of torchft.

    With ``asynchronous=True`` and two periods it is HALoS of Kim et al. 2025: momentum in each group and at the
    servers. The paper gives each region a server that takes the changes of each worker as they come. Here workers
    of a group wait for each other, and the group's mean is the change. A group that exchanges in the background
    (`fragment_sync_delay`) adds what it has done meanwhile, where the paper mixes that with the servers' values.

    Schedulers, GradScaler, accumulation, clipping and the optimizer's state_dict() stay as they are. Closures are
    refused, and so is LBFGS.

    Example:
        >>> import torch, torch.distributed as dist, braid.strategies as bs
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.Linear(2, 1)
        >>> opt = torch.optim.AdamW(model.parameters(), lr=0.01)
        >>> with bs.DiLoCo(model, opt, sync_every=4, num_fragments=2, fragment_sync_delay=1) as strategy:
        ...     for _ in range(9):
        ...         opt.zero_grad()
        ...         model(torch.ones(4, 2)).square().mean().backward()
        ...         opt.step()
        ...     with strategy.centre():
        ...         error = model(torch.ones(4, 2))
        ...     strategy.stats()["rounds"]
        4
        >>> dist.destroy_process_group()
    """

    _KIND = "diloco"

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        sync_every: int | Sequence[int] = 50,
        outer_optimizer: OuterFactory | None = None,
        outer_lr: float | None = None,
        outer_momentum: float | None = None,
        warmup_steps: int = 0,
        groups: str | Sequence[Sequence[int]] | None = None,
        num_fragments: int = 1,
        fragment_sync_delay: int = 0,
        fragment_update_alpha: float = 0.0,
        compression: str = OFF,
        quorum: int | None = None,
        grace_s: float | None = None,
        asynchronous: bool = False,
        momentum_every: int | None = None,
        follow_speed: bool = False,
        group_lr: float | None = None,
        group_momentum: float | None = None,
        buffers: str = "average",
        init_sync: bool = True,
        backup_device: Any = None,
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
            optimizer: the inner one: any of torch, with all trained parameters of the model.
            sync_every: H, the steps between two rounds. Or two numbers: ``(2, 16)`` takes the mean in each group
                every 2 steps, and moves the centre every 16. With `asynchronous` each group then goes to the
                servers every 16 steps, and waits for no other group (HALoS).
            outer_optimizer: what makes the outer optimizer of a list of parameters, as ``lambda parameters:
                torch.optim.SGD(parameters, lr=0.5)``. By default SGD with Nesterov momentum, `outer_lr` and
                `outer_momentum`. It steps on every worker, alike. A tensor that is cut at the border of two
                fragments is two flat parameters.
            outer_lr: of the default; 0.7.
            outer_momentum: of the default; 0.9 as in the paper. 0.5 if the inner optimizer has momentum in its
                parameter groups, as SGD may: with 0.9 on 0.9 trainings diverge.
            warmup_steps: for so many rounds at the beginning the period is one step, and all take the mean. Not
                with `asynchronous`: there are no rounds, so nobody has a mean.
            groups: for two periods: "host", one group per host (the default), or lists of ranks.
            num_fragments: the vector of parameters is cut into so many equal fragments. Every
                ``sync_every / num_fragments`` steps a round has the next one. With two periods that is a round of
                all workers, right after one of each group, which has all fragments. Not with `quorum` or
                `asynchronous` and two periods.
            fragment_sync_delay: a round's result is taken so many steps after the round began. It travels
                meanwhile.
            fragment_update_alpha: which part of its own values a worker keeps when it takes the centre's, from 0
                to 1.
            compression: how far workers have moved travels through this codec (docs/codecs.md), as "int8" or
                "int4". What a message lacks goes with the next one. "off": float32. Rounds of warm-up and of
                groups are always float32; at servers, messages of a warm-up are coded, too.
            quorum: how many workers a round needs. The centre lies at parameter servers, and a worker that is
                dead or slow stops nobody. What a slow one brings counts in the next round. The outer optimizer is
                then SGD, Adam or AdamW. With `warmup_steps` servers count the rounds, so all agree about the end.
                With `num_fragments` each fragment's round has its own quorum. A worker that was slow goes on with
                the fragment that is due. With two periods it is a number of groups, which all count alike. Not
                with `asynchronous`, which has no rounds.
            grace_s: how long a quorum waits for the others, in seconds; 0 by default.
            asynchronous: there are no rounds. The servers apply each worker's difference as it comes, and step the
                momentum (delayed Nesterov) every `momentum_every` of them; by default as often as there are
                workers.
            momentum_every: see `asynchronous`.
            follow_speed: with `asynchronous`: the fastest worker takes `sync_every` steps from one push to the
                next, and a slower one fewer, in proportion to its speed.
            group_lr: with two periods, and `asynchronous` or `quorum`: the rate of a group's own Nesterov
                momentum, which moves the group's model in each of its rounds; 1 by default.
            group_momentum: its momentum; 0 by default. Without it, and with a rate of 1, a round of a group takes
                the mean.
            buffers: "average": float buffers (BatchNorm) are averaged, too. "local": buffers stay
                alone.
            init_sync: all other state, such as frozen parameters and integer buffers, becomes worker 0's at the
                beginning. False: it stays alone.
            backup_device: where the centre is kept: "cpu", as the model.
            servers: with `quorum` or `asynchronous`: where shards of the centre lie; see ParameterServer.
            process_group: the workers. By default the default group. Any backend.
            join: with `quorum` or `asynchronous`: join a job that has begun: its MASTER_ADDR:MASTER_PORT, or
                torch's store.
            name: tells strategies apart that a late worker may join.
            timeout: limit in seconds of the meeting, and of each round.

        Raises:
            RuntimeError: there is no process group.
            TypeError, ValueError: the model, the optimizer or an option does not fit, or workers differ. All
                workers get an error at once.
            CommunicatorError: a worker did not come, or died.
        """
        options = LocalOptions(
            sync_every=periods(sync_every),
            warmup_steps=warmup_steps,
            groups=groups,
            buffers=buffers,
            init_sync=bool(init_sync),
            compression=compression,
            backup_device=backup_device,
            quorum=quorum,
            grace_s=grace_s,
            num_fragments=num_fragments,
            fragment_sync_delay=fragment_sync_delay,
            fragment_update_alpha=fragment_update_alpha,
            asynchronous=asynchronous,
            momentum_every=momentum_every,
            follow_speed=follow_speed,
            group_lr=group_lr,
            group_momentum=group_momentum,
        )
        outer = outer_optimizer
        self._problem = ""
        if outer is not None and (outer_lr is not None or outer_momentum is not None):
            self._problem = "outer_lr= and outer_momentum= are those of the default: give outer_optimizer= its own"
        if outer is not None and asynchronous:
            self._problem = "outer_optimizer= is not for asynchronous=True, whose rule is delayed Nesterov: give "
            self._problem += "outer_lr= and outer_momentum="
        if outer is None:
            rate = DEFAULT_RATE if outer_lr is None else outer_lr
            outer = nesterov(rate, usual_momentum(optimizer) if outer_momentum is None else outer_momentum)
        timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        self._start(
            *(model, optimizer, options, outer),
            servers=servers,
            process_group=process_group,
            join=join,
            name=name,
            timeout_s=timeout_s,
        )
