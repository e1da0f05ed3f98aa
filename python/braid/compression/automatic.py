# SPDX-License-Identifier: Apache-2.0
"""Automatic installation: `braid run --compression` and BRAID_COMPRESSION compress in an unchanged script.

Each DistributedDataParallel gets the hook braid.hooks.auto at its first call, unless it has a hook by then.
"""

import functools
import weakref
from typing import TYPE_CHECKING, Any

from braid._notices import tell
from braid._settings import how_to_stop
from braid.compression.policy import CompressionPolicy

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from braid.compression.state import AutoState

VARIABLE = "BRAID_COMPRESSION"
_MARK = "_braid_compression"
_states: "weakref.WeakKeyDictionary[Any, AutoState]" = weakref.WeakKeyDictionary()
_relays: "weakref.WeakKeyDictionary[Any, _Relay]" = weakref.WeakKeyDictionary()
_is_hidden: list[bool] = []
_told: set[str] = set()
_text = ""


def install(text: str) -> None:
    """Make every DistributedDataParallel install the hook at its first call.

    A second call only replaces the text. The text is parsed when the first hook is registered: this function
    runs while torch is imported, and nothing may be raised there.
    """
    from torch.nn.parallel import DistributedDataParallel

    global _text
    _text = text
    if hasattr(DistributedDataParallel, _MARK):
        return
    setattr(DistributedDataParallel, _MARK, True)
    made, registered = DistributedDataParallel.__init__, DistributedDataParallel._register_builtin_comm_hook
    hooked = DistributedDataParallel.register_comm_hook

    @functools.wraps(made)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        _hide_from_compilers()
        self.register_forward_pre_hook(_before_first_call)

    @functools.wraps(registered)
    def register(self: Any, comm_hook_type: Any) -> Any:
        _leave_alone(self)  # _comm_hooks does not list the built-in hooks
        relay = _taken_over(self)
        if relay is None:
            return registered(self, comm_hook_type)
        from torch.distributed import BuiltinCommHookType
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        is_half = comm_hook_type == BuiltinCommHookType.FP16_COMPRESS
        relay.hook = default_hooks.fp16_compress_hook if is_half else default_hooks.allreduce_hook
        relay.state = self.process_group
        return None

    @functools.wraps(hooked)
    def hook(self: Any, state: object, hook: Any) -> Any:
        relay = _taken_over(self)
        if relay is None:
            return hooked(self, state, hook)
        self._check_comm_hook(hook)
        self._comm_hooks.append((hook, state))
        relay.hook, relay.state = hook, state
        return None

    DistributedDataParallel.__init__ = make
    DistributedDataParallel._register_builtin_comm_hook = register
    DistributedDataParallel.register_comm_hook = hook


def state_of(model: "DistributedDataParallel") -> "AutoState | None":
    """Return the state of the automatically installed hook of a model; None if there is no such hook."""
    return _states.get(model)


class _Relay:
    """The state that DDP gets in place of ours.

    DDP accepts only one hook. That one calls the hook that is kept here, so that a later hook can replace ours.
    """

    def __init__(self, hook: Any, state: Any) -> None:
        self.hook, self.state = hook, state


# No annotations: torch accepts only its own classes as annotations, and they cannot be imported yet.
def _relayed(relay, bucket):  # type: ignore[no-untyped-def]
    return relay.hook(relay.state, bucket)


def _taken_over(model: Any) -> "_Relay | None":
    """Return the relay of a model whose script registers a hook; None if our hook is not installed.

    The model's state is forgotten: from now on the script's hook is called.
    """
    _states.pop(model, None)
    return _relays.pop(model, None)


def _before_first_call(model: Any, inputs: Any) -> None:
    del inputs
    _leave_alone(model)
    policy = _policy()
    if policy.is_exact or model._comm_hooks or model._use_python_reducer or model.process_group.size() == 1:
        return
    from braid.compression.hook import auto
    from braid.compression.operations import is_on_one_host
    from braid.compression.state import AutoState

    try:
        state = AutoState(model, policy)
    except (RuntimeError, ValueError) as error:
        _announce(model.process_group, f"gradients stay exact, in spite of {VARIABLE}: {error}")
        return
    relay = _Relay(auto, state)
    model.register_comm_hook(relay, _relayed)
    # DDP pickles the hooks in this list. Whoever loads the script's pickle may not have braid.
    model._comm_hooks.pop()
    _states[model], _relays[model] = state, relay
    if is_on_one_host(model.process_group):
        _announce(model.process_group, f"compression {_text!r}: nothing to compress on one host, all stays exact")
        return
    _announce(model.process_group, f"gradients may be compressed: {_text} ({how_to_stop(VARIABLE)})")


def _hide_from_compilers() -> None:
    # torch.compile(ddp) would trace the hook, which looks at groups. install() runs too early to import torch.
    global _before_first_call
    if not _is_hidden:
        _is_hidden.append(True)
        import torch

        _before_first_call = torch.compiler.disable(_before_first_call)


def _leave_alone(model: Any) -> None:
    for key, hook in list(model._forward_pre_hooks.items()):
        if hook is _before_first_call:
            del model._forward_pre_hooks[key]


def _policy() -> CompressionPolicy:
    try:
        return CompressionPolicy.from_text(_text)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None


def _announce(group: Any, line: str) -> None:
    if group.rank() == 0 and line not in _told:
        _told.add(line)
        tell(line)
