# SPDX-License-Identifier: Apache-2.0
"""``braid.strategies.LocalSGD``: workers train alone for some steps, then take the mean of their parameters."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from braid._array.parameters import OFF
from braid.strategies.local.local_steps import LocalSteps
from braid.strategies.local.options import LocalOptions, periods

DEFAULT_TIMEOUT_S = 600.0


class LocalSGD(LocalSteps):
    """Local SGD, attached to your optimizer; see `__init__` for all options.

    Each worker takes its own steps with its own optimizer. Every `sync_every` steps all workers take the mean of
    their parameters. So they send as many bytes as DistributedDataParallel does in one step, once in `sync_every`
    steps.

    From Stich 2019 and Lin et al. 2020, who begin with periods of one step (post-local SGD, here `warmup_steps`)
    and have two periods (hierarchical local SGD). Any optimizer works, not only SGD. With a period of one step
    and plain SGD it computes what DistributedDataParallel computes.

    Schedulers, GradScaler, accumulation, clipping and the optimizer's state_dict() stay as they are. Closures are
    refused, and so is LBFGS.

    Example:
        >>> import torch, torch.distributed as dist, braid.strategies as bs
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.Linear(2, 1)
        >>> opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> with bs.LocalSGD(model, opt, sync_every=4, warmup_steps=2) as strategy:
        ...     for _ in range(10):
        ...         opt.zero_grad()
        ...         model(torch.ones(4, 2)).square().mean().backward()
        ...         opt.step()
        ...     strategy.stats()["rounds"]
        4
        >>> dist.destroy_process_group()
    """

    _KIND = "local_sgd"

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        sync_every: int | Sequence[int] = 10,
        warmup_steps: int = 0,
        groups: str | Sequence[Sequence[int]] | None = None,
        compression: str = OFF,
        quorum: int | None = None,
        grace_s: float | None = None,
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
            model: the bare model, on the CPU, with parameters of float32, float16 or bfloat16. The mean is
                float32. Tied parameters travel once. Frozen ones stay out, and must stay frozen.
            optimizer: any optimizer of torch, with all trained parameters of the model.
            sync_every: H, the steps between two means. Or two numbers: ``(2, 16)`` takes the mean in each group
                every 2 steps, and that of all workers every 16.
            warmup_steps: for so many rounds at the beginning the period is one step.
            groups: for two periods: "host", one group per host (the default), or lists of ranks.
            compression: how far workers have moved travels through this codec (docs/codecs.md), as "int8" or
                "int4". What a message lacks goes with the next one. "off": float32. Rounds of warm-up and of
                groups are always float32; at servers, messages of a warm-up are coded, too.
            quorum: how many workers a round needs; see DiLoCo.
            grace_s: how long a quorum waits for the others, in seconds; 0 by default.
            buffers: "average": float buffers (BatchNorm) are averaged, too. "local": buffers stay
                alone.
            init_sync: all other state, such as frozen parameters and integer buffers, becomes worker 0's at the
                beginning. False: it stays alone.
            backup_device: where the last mean is kept: "cpu", as the model.
            servers: with `quorum`: where shards of the centre lie; see ParameterServer.
            process_group: the workers. By default the default group. Any backend.
            join: with `quorum`: join a job that has begun: its MASTER_ADDR:MASTER_PORT, or torch's store.
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
        )
        timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        self._start(
            *(model, optimizer, options, None),
            servers=servers,
            process_group=process_group,
            join=join,
            name=name,
            timeout_s=timeout_s,
        )
