# SPDX-License-Identifier: Apache-2.0
"""Compresses for scripts that know nothing of it: `braid run --compression`, or BRAID_COMPRESSION.

Every DistributedDataParallel gets braid.hooks.auto when it is first called, unless it has a hook by then.
"""

import functools
import sys
import weakref
from typing import TYPE_CHECKING, Any

from braid.compression.policy import CompressionPolicy

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from braid.compression.state import AutoState

VARIABLE = "BRAID_COMPRESSION"
_MARK = "_braid_compression"
_states: "weakref.WeakKeyDictionary[Any, AutoState]" = weakref.WeakKeyDictionary()
_text = ""


def install(text: str) -> None:
    """Wrap DistributedDataParallel; again does nothing. The text is read when the first hook is registered.

    Not earlier: this is called while torch is imported, where nothing may be raised.
    """
    from torch.nn.parallel import DistributedDataParallel

    global _text
    _text = text
    if hasattr(DistributedDataParallel, _MARK):
        return
    setattr(DistributedDataParallel, _MARK, True)
    made, registered = DistributedDataParallel.__init__, DistributedDataParallel._register_builtin_comm_hook

    @functools.wraps(made)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.register_forward_pre_hook(_before_first_call)

    @functools.wraps(registered)
    def register(self: Any, *args: Any, **kwargs: Any) -> Any:
        _leave_alone(self)  # torch keeps no note of these
        return registered(self, *args, **kwargs)

    DistributedDataParallel.__init__ = make
    DistributedDataParallel._register_builtin_comm_hook = register


def state_of(model: "DistributedDataParallel") -> "AutoState | None":
    """Return the state of the hook that a model was given unasked; None if it was given none."""
    return _states.get(model)


def _before_first_call(model: Any, inputs: Any) -> None:
    del inputs
    _leave_alone(model)
    policy = _policy()
    if policy.is_exact or model._comm_hooks or model._use_python_reducer or not _can_carry(model.process_group):
        return
    from braid.compression.state import AutoState
    from braid.hooks import auto

    _states[model] = state = AutoState(model, policy)
    model.register_comm_hook(state, auto)
    # Its own list is for pickling, and a group cannot be pickled. The script did not ask for what would forbid it.
    model._comm_hooks.pop()
    _announce(model.process_group)


def _leave_alone(model: Any) -> None:
    for key, hook in list(model._forward_pre_hooks.items()):
        if hook is _before_first_call:
            del model._forward_pre_hooks[key]


def _policy() -> CompressionPolicy:
    try:
        return CompressionPolicy.from_text(_text)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None


def _can_carry(group: Any) -> bool:
    from braid.compression.operations import must_be_ours

    try:
        must_be_ours(group)
    except RuntimeError:
        return False
    return bool(group.size() > 1)


def _announce(group: Any) -> None:
    if group.rank() == 0:
        print(
            f"braid: gradients may be compressed: {_text} (unset {VARIABLE} to stop)", file=sys.stderr, flush=True
        )
