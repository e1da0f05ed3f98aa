# SPDX-License-Identifier: Apache-2.0
"""A rank of a job that ``braid compare`` watches: runs the user's script, and pauses it between two steps.

``python -m braid._compare.rank SOCKET SCRIPT [ARGUMENTS]``. Nothing of the script is changed. The steps of all
optimizers of torch, backward() and the calls of modules in DistributedDataParallel are wrapped.
"""

import functools
import inspect
import os
import re
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import braid
from braid._compare.messages import REPLACE_BRAID, Channel, Order, Report, Step

_MARK = "_braid_compare"
_UNSCALED = "_braid_unscaled"


class Pacer:
    """Notes what each step did, and waits between two steps for the next order."""

    def __init__(self, channel: Channel, rank: int) -> None:
        """Wait for the first order."""
        self._channel, self._rank = channel, rank
        self._steps: list[Step] = []
        self._losses: list[torch.Tensor] = []
        self._samples = 0
        self._parameters: dict[int, int] = {}
        self._depth = 0
        self._trained_s, self._resumed_at = 0.0, time.perf_counter()
        self._order = self._next_order()

    def step(self, original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Take a step of an optimizer; afterwards wait, if the order is done."""
        self._depth += 1  # a class may call the step() of another one
        try:
            result = original(optimizer, *args, **kwargs)
        finally:
            self._depth -= 1
        if self._depth == 0:
            self._after_step(optimizer)
        return result

    def backward(self, loss: torch.Tensor) -> None:
        """Note a loss, whose backward() is called."""
        if loss.numel() == 1:
            # A GradScaler's is scaled. A copy: the script may change it in place, for example by an all_reduce.
            self._losses.append(getattr(loss, _UNSCALED, loss).detach().clone())

    def forward(self, batch: Any) -> None:
        """Note the size of a batch: the first dimension of the first tensor in it."""
        if torch.is_grad_enabled() and (found := _first_tensor(batch)) is not None and found.dim():
            self._samples += found.shape[0]

    def end(self) -> None:
        """Say that the script has returned."""
        self._report(has_ended=True)

    def _after_step(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            self._parameters.update((id(each), 4 * each.numel()) for each in group["params"] if each.requires_grad)
        loss = float(sum(self._losses) / len(self._losses)) if self._losses else None
        seconds = self._trained_s + time.perf_counter() - self._resumed_at
        self._steps.append(Step(seconds, loss, self._samples))
        self._losses, self._samples = [], 0
        if self._is_done():
            self._pause()

    def _is_done(self) -> bool:
        if self._order.steps:
            return len(self._steps) >= self._order.steps
        return time.perf_counter() - self._resumed_at >= self._order.seconds

    def _pause(self) -> None:
        self._trained_s = self._steps[-1].seconds
        self._report()
        self._order = self._next_order()
        self._steps = []
        self._resumed_at = time.perf_counter()

    def _report(self, *, has_ended: bool = False) -> None:
        self._channel.send(
            Report(self._rank, self._steps, has_ended, sum(self._parameters.values()), _algorithm())
        )

    def _next_order(self) -> Order:
        try:
            order = self._channel.order()
        except EOFError:  # braid compare is gone
            os._exit(1)
        if order.is_end:
            sys.stdout.flush()
            os._exit(0)
        return order


def _first_tensor(batch: Any) -> torch.Tensor | None:
    if isinstance(batch, torch.Tensor):
        return batch
    inner = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ()
    return next((found for each in inner if (found := _first_tensor(each)) is not None), None)


def _algorithm() -> str:
    rows = [row for group in braid.stats() for row in group.get("operations", ())]
    if not rows:
        return ""
    most = max(rows, key=lambda row: int(row["bytes"]))
    name = str(most["algorithm"])
    return name if most["collective"] == "all_reduce" else f"{most['collective']}, {name}"


def watch(pacer: Pacer) -> None:
    """Wrap steps of optimizers, backward() and calls of modules in DistributedDataParallel."""
    begun, backward = torch.optim.Optimizer.__init__, torch.Tensor.backward
    made, scaled = DistributedDataParallel.__init__, torch.amp.GradScaler.scale

    @functools.wraps(begun)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        begun(self, *args, **kwargs)
        _wrap_step(type(self), pacer)

    @functools.wraps(backward)
    def note_loss(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        pacer.backward(self)
        backward(self, *args, **kwargs)

    @functools.wraps(scaled)
    def scale(self: Any, outputs: Any) -> Any:
        result = scaled(self, outputs)
        if isinstance(result, torch.Tensor):
            setattr(result, _UNSCALED, outputs.detach())
        return result

    @functools.wraps(made)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.register_forward_pre_hook(
            lambda _module, given, named: pacer.forward([given, named]), with_kwargs=True
        )

    torch.optim.Optimizer.__init__ = begin
    torch.Tensor.backward = note_loss
    DistributedDataParallel.__init__, torch.amp.GradScaler.scale = make, scale


def _wrap_step(kind: type[torch.optim.Optimizer], pacer: Pacer) -> None:
    # BRAID_STRATEGY has wrapped before: what is wrapped last sees the whole step, the strategy's part too.
    original: Callable[..., Any] = kind.step
    if kind.__module__.startswith("braid.") or getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return pacer.step(original, self, *args, **kwargs)

    setattr(step, _MARK, True)
    kind.step = step


def replace_braid() -> None:
    """Let a script that names braid make groups of Gloo."""
    for name in ("init_process_group", "new_group"):
        original = getattr(dist, name)
        setattr(dist, name, _on_gloo(original, inspect.signature(original)))


def _on_gloo(original: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    @functools.wraps(original)
    def make_group(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        if asked := call.arguments.get("backend"):
            call.arguments["backend"] = re.sub(r"\bbraid\b", "gloo", str(asked), flags=re.IGNORECASE)
        return original(*call.args, **call.kwargs)

    return make_group


def _main(path: str, script: str, *arguments: str) -> None:
    channel = Channel.to(path)
    channel.send(Report(int(os.environ["RANK"]), []))
    braid.take_over = lambda *_asked, **_also: None  # braid compare says what is taken over
    if os.environ.get(REPLACE_BRAID):
        replace_braid()
    pacer = Pacer(channel, int(os.environ["RANK"]))
    watch(pacer)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        if error.code:
            raise
    pacer.end()


if __name__ == "__main__":
    _main(*sys.argv[1:])
