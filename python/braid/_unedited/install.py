# SPDX-License-Identifier: Apache-2.0
"""Wraps what scripts call: DistributedDataParallel, steps of optimizers, the end of the process group.

DistributedDataParallel stays as under no_sync(): it averages nothing and broadcasts no buffers. A hook that does
nothing in place of the average would stall with find_unused_parameters and with buffers.
"""

import atexit
import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from braid import _settings
from braid._notices import tell
from braid._torch import same_strategy, takeover
from braid._unedited.guests import VARIABLE, Guest, guests
from braid.strategies.model_state import lacking_of, trained_of
from braid.strategies.text import read

_MARK = "_braid_strategy"
_inside: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()
_has_finished = False


def install(text: str) -> None:
    """Train every module in DistributedDataParallel with the strategy of this text. A second call does nothing.

    The text is read when the process group is made: this runs while torch is imported, and must not raise.
    """
    if hasattr(DistributedDataParallel, _MARK):
        return
    setattr(DistributedDataParallel, _MARK, True)
    compared = same_strategy.wrap_init(c10d.init_process_group)
    takeover.replace_everywhere(c10d.init_process_group, _wrap_init(compared, text))
    takeover.replace_everywhere(c10d.destroy_process_group, _wrap_destroy(c10d.destroy_process_group))
    made, joined = DistributedDataParallel.__init__, DistributedDataParallel.join
    begun = torch.optim.Optimizer.__init__

    @functools.wraps(made)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        _hide_from_compilers()
        _be_silent(self, None)
        self._static_graph_delay_allreduce_enqueued = True  # else it averages once in spite of all
        self.register_forward_pre_hook(_be_silent)
        former = guests.get(self.module)
        if former is not None and not former.is_closed:  # wrapped a second time
            return
        guests[self.module] = Guest(text, self.module, self.process_group)
        if former is not None:  # of an earlier job; the module has the hooks
            return
        self.module.register_forward_pre_hook(_look, prepend=True)
        self.module.register_state_dict_post_hook(_save)
        self.module.register_load_state_dict_pre_hook(_load)

    @functools.wraps(joined)
    def join(self: Any, *args: Any, **kwargs: Any) -> Any:
        return contextlib.nullcontext()  # workers need not take the same number of steps

    @functools.wraps(begun)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        begun(self, *args, **kwargs)
        _wrap_step(type(self))

    DistributedDataParallel.__init__, DistributedDataParallel.join = make, join
    torch.optim.Optimizer.__init__ = begin


def _wrap_init(original: Callable[..., Any], text: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        global _has_finished
        # The text is the same on all ranks, so all get the same error. Groups on braid have checked all settings.
        _settings.refuse_wrong_values()
        read(text)
        _has_finished = False  # a process may have one job after another
        # Python runs what was registered last first. The backend has just registered that it leaves its groups,
        # and a strategy needs them to settle.
        atexit.unregister(_finish)
        atexit.register(_finish)
        return result

    return init_process_group


def _wrap_step(kind: type[torch.optim.Optimizer]) -> None:
    original: Callable[..., Any] = kind.step
    if hasattr(original, _MARK) or kind.__module__.startswith("braid."):
        return

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self in _inside or (guest := _guest_of(self)) is None:
            return original(self, *args, **kwargs)
        with _outermost(self):
            return guest.step(original, args[0] if args else kwargs.get("closure"))

    setattr(step, _MARK, True)
    kind.step = step


@contextlib.contextmanager
def _outermost(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    # A class may call super().step(), and a strategy may let the optimizer step.
    _inside.add(optimizer)
    try:
        yield
    finally:
        _inside.discard(optimizer)


def _guest_of(optimizer: torch.optim.Optimizer) -> Guest | None:
    """Return the guest of an optimizer; begin its strategy if this is the first step.

    Raises:
        RuntimeError: the strategy cannot know which optimizer trains the module.
    """
    for guest in guests.values():
        if guest.optimizer is optimizer:
            return guest
    own = {id(each) for group in optimizer.param_groups for each in group["params"]}
    found = [guest for guest in guests.values() if any(id(each) in own for _, each in trained_of(guest.module))]
    if not found:
        if not guests and dist.is_initialized() and dist.get_world_size() > 1:
            raise RuntimeError(
                f"{VARIABLE} needs a module in DistributedDataParallel, and there is none: wrap the model; or "
                f"unset {VARIABLE}, for example if the script has a strategy of its own"
            )
        return None
    if len(found) > 1:
        raise RuntimeError(f"{VARIABLE}: one optimizer trains two modules, and a strategy takes one of each")
    lacking = lacking_of(found[0].module, own)
    if lacking or found[0].optimizer is not None:
        why = f"{lacking[0]} is not in the one that steps first" if lacking else "a second one steps now"
        raise RuntimeError(
            f"{VARIABLE}: a strategy needs one optimizer for the whole module in DistributedDataParallel, and "
            f"there are two: {why}"
        )
    with _outermost(optimizer):
        found[0].attach(optimizer)
    return found[0]


def _be_silent(model: Any, inputs: Any) -> None:
    model.require_backward_grad_sync = model.require_forward_param_sync = False


def _look(module: nn.Module, inputs: Any) -> None:
    if (guest := guests.get(module)) is not None:  # a copy of the module is no guest
        guest.look()


def _save(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    if (guest := guests.get(module)) is not None:
        guest.save(state, prefix)


def _load(module: nn.Module, *about: Any) -> None:
    if (guest := guests.get(module)) is not None:
        guest.load()


def _hide_from_compilers() -> None:
    # torch.compile(ddp) would trace the hooks. install() runs too early for the compiler's modules.
    global _look, _be_silent
    if not hasattr(_look, _MARK):
        _look, _be_silent = torch.compiler.disable(_look), torch.compiler.disable(_be_silent)
        setattr(_look, _MARK, True)


def _wrap_destroy(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def destroy_process_group(group: Any = None) -> Any:
        if group is None or group is dist.group.WORLD:
            _finish()
        return original(group)

    return destroy_process_group


def _finish() -> None:
    """Close all strategies; after an error at once."""
    global _has_finished
    if not dist.is_initialized() or _has_finished:
        return
    failed = sys.exc_info()[0] is not None or getattr(sys, "last_type", None) is not None
    of_this_job = [guest for guest in guests.values() if not guest.is_closed]
    is_found = any(guest.optimizer is not None for guest in of_this_job)
    try:
        # While this worker waits in one strategy, others may wait for it in the next one.
        for guest in of_this_job if len(of_this_job) > 1 and not failed else ():
            guest.settle()
        for guest in of_this_job:
            guest.close(wait=not failed)
    finally:
        _has_finished = True
        for guest in of_this_job:  # after an error
            guest.close(wait=False)
    if not is_found and not failed and dist.get_rank() == 0:
        kind = "step of an optimizer" if of_this_job else "module in DistributedDataParallel"
        tell(f"{VARIABLE}: there was no {kind} in this script, so no strategy trained it")


def _forget_in_child() -> None:
    """Leave the strategies to the parent: a forked child that settled would use the parent's connections."""
    global _has_finished
    _has_finished = True


os.register_at_fork(after_in_child=_forget_in_child)
