# SPDX-License-Identifier: Apache-2.0
"""``braid.strategies.ParameterServer``: workers push gradients and pull parameters, each at its own pace."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from braid._array.parameters import OFF
from braid.strategies import checkpoints
from braid.strategies.agreement import Agreement, Vectors, agree
from braid.strategies.closing import Closing
from braid.strategies.everyone import Everyone
from braid.strategies.exchange import Exchange, Steps
from braid.strategies.first_values import take_first_values
from braid.strategies.options import Options
from braid.strategies.outside_steps import OutsideSteps
from braid.strategies.preparation import Prepared, prepare
from braid.strategies.rules import refuse_thawed
from braid.strategies.store import Meeting, meet
from braid.strategies.store import join as join_meeting

DEFAULT_TIMEOUT_S = 600.0


class ParameterServer(Closing, torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer whose step runs at parameter servers; see `__init__` for all options.

    Workers push gradients and pull parameters. Servers hold the parameters, each a shard, inside the ranks or in
    processes of their own (``braid serve``). Workers wait for nobody (``async``), for workers that are too far
    behind (``ssp``), or for all (``sync``). From Campos et al. 2017 (async and sync), Ho et al. 2013 (SSP), Zhang
    et al. 2015 (staleness_rate) and Zheng et al. 2017 (compensate).

    It is a torch.optim.Optimizer. Learning rates and other numbers are read anew in each step, so schedulers work.
    So do parameter groups, GradScaler, accumulation, clipping and closures. Differences to torch:

    * A parameter whose ``grad`` is None counts as a gradient of zeros. Its momentum decays, and weight decay acts.
    * Servers keep float32 values of parameters of 16 bits.
    * Where a GradScaler skips a step, nothing is pushed. In mode "sync" this worker's part is zeros, so that no
      other worker waits.
    * Sparse gradients become dense.

    Example:
        >>> import torch, torch.distributed as dist, braid.strategies as bs
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.Linear(2, 1)
        >>> with bs.ParameterServer(model, torch.optim.SGD, lr=0.1, momentum=0.9) as opt:
        ...     for _ in range(3):
        ...         opt.zero_grad()
        ...         model(torch.ones(4, 2)).square().mean().backward()
        ...         opt.step()
        ...     with opt.centre():
        ...         error = model(torch.ones(4, 2))
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        model: nn.Module,
        inner: Any = torch.optim.SGD,
        *,
        params: Iterable[Any] | None = None,
        mode: str = "async",
        staleness: int | None = None,
        delay: int = 0,
        staleness_rate: bool = False,
        compensate: float = 0.0,
        implicit_momentum: bool = False,
        buffers: str = "average",
        init_sync: bool = True,
        local: bool = False,
        compression: str = OFF,
        pull_compression: str = OFF,
        consistency: str = "atomic",
        replicas: int = 0,
        servers: Iterable[int | str] | str | None = None,
        process_group: Any = None,
        join: Any = None,
        name: str | None = None,
        timeout: float | timedelta = DEFAULT_TIMEOUT_S,
        **numbers: Any,
    ) -> None:
        """Meet the other workers. All parameters become worker 0's. Blocks until all workers are there.

        Args:
            model: the bare model, on the CPU, with parameters of float32, float16 or bfloat16. Tied parameters
                travel once. Frozen ones stay out, and must stay frozen.
            inner: SGD, Adam or AdamW of torch.optim run at the servers. Any other class steps locally, and pushes
                the difference (as BytePS does). Or such an optimizer that has not stepped.
            params: parameters or groups, as torch's optimizers take them. By default all of the model.
            mode: "async": a worker waits for nobody. "ssp": it waits while it is more than `staleness` steps ahead
                of the slowest living worker. "sync": it waits for all; the update is the mean of their gradients.
            staleness: the bound of mode "ssp"; 3 if it is not given.
            delay: 0: a step waits for its own pull. 1: it returns at once, and the next one waits for the pull.
            staleness_rate: divide the learning rate by the gradient's staleness, where that is above 1.
            compensate: lambda of DC-ASGD, 0.04 in the paper: correct stale gradients. SGD only.
            implicit_momentum: A asynchronous workers act like a momentum of ``1 - 1/A`` (Mitliagkas et al. 2016).
                True takes that from the given momentum, or from Adam's beta1. The result is at least 0.
            buffers: "average": each push moves the servers' float buffers (BatchNorm) towards the worker's, with n
                workers by 1/n of the way. "broadcast": they are worker 0's, as in DistributedDataParallel; if it
                dies, the others keep its last ones. "local": buffers stay alone.
            init_sync: all other state, such as frozen parameters and integer buffers, becomes worker 0's at the
                beginning. False: it stays alone.
            local: step locally with SGD, Adam and AdamW, too.
            compression: a codec for gradients (or differences) on their way to another process, as "int8"; "off"
                sends float32. What a message lacks goes with the next one.
            pull_compression: the same for the values that come back. Buffers travel as they are.
            consistency: "relaxed" (Hogwild): workers of a server's host add to its shard in mapped memory, without
                lock or message. Updates that meet may be lost in part. For mode "async", and SGD without momentum
                or local steps. "atomic": values have whole updates.
            replicas: 1: a second copy of each shard, with momentum and moments, lies at another server. That one
                takes over if the first one dies. Without a copy momentum begins anew then.
            servers: where shards lie: ranks such as ``[0, 2]``, ``"serve:2"`` for two processes of
                ``braid serve``, or ``"ranks+serve:2"`` for both. By default all ranks, or as many processes as
                the environment variable BRAID_PARAMETER_SERVERS says.
            process_group: the workers; its store introduces them. By default the default group. Any backend.
            join: join a strategy that has begun elsewhere: MASTER_ADDR:MASTER_PORT of that job, or torch's store.
            name: tells strategies apart that a late worker may join.
            timeout: limit in seconds of the meeting and of each request.
            numbers: the arguments of the optimizer's class: lr, momentum, and so on.

        Raises:
            RuntimeError: there is no process group.
            TypeError, ValueError: the model, the optimizer or an option does not fit, or workers differ. All
                workers get an error at once.
            CommunicatorError: a worker did not come, or died.
        """
        self._is_started = False
        options = Options(
            *(mode, staleness, delay, bool(staleness_rate), float(compensate), bool(implicit_momentum)),
            *(buffers, bool(local), compression, pull_compression, consistency, replicas),
            init_sync=bool(init_sync),
        )
        timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        meeting = meet(process_group, name, timeout_s) if join is None else join_meeting(join, name, timeout_s)

        made: list[Prepared] = []

        def prepared_lines() -> tuple[list[str], Prepared]:
            made.append(prepare(model, inner, params, numbers, options))
            return self._describe(made[0], meeting), made[0]

        self._options, self._timeout_s = options, timeout_s
        self._restored = 0
        try:
            agreed = agree(meeting, servers, prepared_lines, timeout_s, self._vectors())
            self._prepared = agreed.prepared
            with torch.no_grad():
                take_first_values(self._prepared.state.given, agreed.meeting, timeout_s)
            super().__init__(self._prepared.inner.param_groups, self._prepared.inner.defaults)
            self.state = self._prepared.inner.state
            self._exchange: Steps | None = self._begin(agreed)
            self._everyone = Everyone(agreed.meeting, timeout_s, self._present)
            self.outside_steps = OutsideSteps(self, self._prepared.packing)
            self._prepared.inner._opt_called = True  # a scheduler of it would warn that it never steps
        except BaseException:
            for prepared in made:
                prepared.release()
            raise
        # GradScaler then calls step() for skipped steps, too, and step() undoes the scale.
        self._step_supports_amp_scaling = True
        self._is_started = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Push this step's update, and pull.

        Args:
            closure: computes the loss and the gradients; called once.

        Returns:
            What the closure returned.

        Raises:
            RuntimeError: the strategy is closed, or a frozen parameter has a gradient.
            CommunicatorError: servers are lost, or did not answer in time.
        """
        exchange, loss = self._opened(), None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        refuse_thawed(self._prepared.state.frozen)
        found_inf, grad_scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        skips = found_inf is not None and float(found_inf) > 0
        scale = 1.0 if grad_scale is None else 1.0 / float(grad_scale)
        with torch.no_grad(), self.outside_steps.own_step():
            if not skips:
                self._prepared.scale_ignored(scale)
            exchange.advance(self.param_groups, skips=skips, scale=scale)
            if not skips:
                self._prepared.step_ignored()
        return loss

    def settle(self, *, everyone: bool = False) -> None:
        """Finish the exchange under way, and return when no other worker waits for this one.

        Say it at the end of an epoch, before a barrier, where workers take other numbers of steps: members of a
        group of Hybrid step together, and would wait for those at the barrier.

        Args:
            everyone: also wait until all workers that began have come, and take the servers' values. Then the
                models of all have the same ones, with all that was pushed. Who has died or left is not waited
                for. All workers call it alike.

        Raises:
            CommunicatorError: servers or members of the group are lost, or another one did not come in time.
        """
        exchange = self._opened()
        with torch.no_grad():
            exchange.settle()
            if everyone:
                self._everyone.take(exchange.pull)

    @contextmanager
    def centre(self) -> Iterator[None]:
        """Evaluate or save the servers' newest values: the model has them in this context, and goes on with them.

        Raises:
            CommunicatorError: servers are lost, or did not answer in time.
        """
        with torch.no_grad():
            self._opened().pull()
        yield

    def stats(self) -> dict[str, Any]:
        """Return counters of this worker.

        Returns:
            A dict. ``steps``: pushed updates; ``last_staleness``: of the last one; ``skipped``: steps that a
            GradScaler skipped; ``exposed_us``: how long step() has waited for servers; ``strategy``, ``mode``,
            ``rule``; and the service's counters.
        """
        own = {"strategy": checkpoints.KIND, "mode": self._options.mode, "rule": self._prepared.rule.text}
        return {**self._opened().stats(), **own}

    def state_dict(self) -> dict[str, Any]:
        """Return groups and numbers, and what an optimizer that steps locally keeps. Servers keep the rest.

        See service_state() for that.
        """
        return {**super().state_dict(), "braid": checkpoints.about(self._prepared)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what state_dict() returned; ValueError says why it does not fit."""
        checkpoints.must_fit(state_dict.get("braid"), self._prepared, "state_dict()")
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "braid"})
        inner = self._prepared.inner
        inner.param_groups, inner.state = self.param_groups, self.state

    def service_state(self) -> dict[str, Any]:
        """Return the servers' values and the rule's state: what one worker saves, for all.

        It is made of tensors, numbers and text, so ``torch.load(weights_only=True)`` takes it.
        """
        return {**checkpoints.about(self._prepared), "servers": self._opened().snapshot()}

    def load_service_state(self, saved: dict[str, Any] | None) -> None:
        """Give the servers what service_state() returned. All workers call it; their number may be another one.

        Args:
            saved: worker 0's counts. The others may give None.

        Raises:
            ValueError: the state does not fit. All workers get that error.
            CommunicatorError: a worker did not call this in time.
        """
        exchange, key = self._opened(), f"restored/{self._restored}"
        self._restored += 1
        checkpoints.restore_from_first(exchange, key, saved, self._prepared, self._timeout_s)
        with torch.no_grad():
            exchange.pull()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse, after the beginning: servers have the packed vector of the beginning."""
        if self._is_started:
            raise RuntimeError("a strategy's parameters are fixed when it begins: give all groups with params=")
        super().add_param_group(param_group)

    def close(self, *, wait: bool = True) -> None:
        """Finish the exchange under way, and leave. A rank that holds a shard stays until the others have left.

        Args:
            wait: False leaves at once, whoever may need this rank's shard.
        """
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        self._prepared.release()
        self.outside_steps.stop()
        try:
            if wait:
                with torch.no_grad():
                    exchange.finish()
        finally:
            if not wait:
                self._everyone.leave()
            exchange.close(wait=wait)

    def _describe(self, prepared: Prepared, meeting: Meeting) -> list[str]:
        return prepared.describe(self._options)

    def _vectors(self) -> Vectors[Prepared] | None:
        return lambda prepared: prepared.vectors(self._options)

    def _begin(self, agreed: Agreement[Prepared]) -> Steps:
        return Exchange(agreed, self._options, self._timeout_s)

    def _present(self) -> Collection[int]:
        """Return the workers that have not died, as far as this one knows."""
        return self._opened().present()

    def _opened(self) -> Steps:
        if self._exchange is None:
            raise RuntimeError("the strategy is closed: it takes no steps any more")
        return self._exchange
