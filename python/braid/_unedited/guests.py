# SPDX-License-Identifier: Apache-2.0
"""A module in DistributedDataParallel that trains with a strategy, though its script does not know."""

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from braid._notices import tell
from braid._settings import how_to_stop
from braid.strategies.everyone import AbsentError
from braid.strategies.model_state import trained_of
from braid.strategies.parameter_server import ParameterServer
from braid.strategies.text import from_text

VARIABLE = "BRAID_STRATEGY"

# Modules that a strategy trains live until it is closed, though the script may have left the function with them.
_held: set[nn.Module] = set()
guests: "weakref.WeakKeyDictionary[nn.Module, Guest]" = weakref.WeakKeyDictionary()


class Guest:
    """One module, its optimizer and its strategy, from the first step on.

    Attributes:
        optimizer: the script's, once it has stepped.
        has_trained: whether there were gradients so far.
        is_closed: whether the job that it belongs to has ended.
    """

    def __init__(self, text: str, module: nn.Module, group: Any) -> None:
        """Wait for the first step of an optimizer."""
        self._text, self._module, self._group = text, weakref.ref(module), group
        self.optimizer: torch.optim.Optimizer | None = None
        self.has_trained = False
        self._strategy: Any = None
        self.is_closed = self._has_gradients_of_centre = self._has_loaded = False
        self._loaded: list[Tensor] = []
        self._shown: contextlib.ExitStack | None = None
        # Where all is ignored there is nothing to watch.
        nothing = torch.zeros(1, dtype=torch.float32, requires_grad=True)
        trained = (each for _, each in trained_of(module) if each.numel())
        self._probe = min(trained, key=Tensor.numel, default=nothing)
        self._values = self._probe.detach().clone()
        self._watch = self._probe.register_hook(self._trains)

    @property
    def module(self) -> nn.Module:
        """The module inside DistributedDataParallel."""
        module = self._module()
        assert module is not None
        return module

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Begin the strategy; raises what the strategy raises, on all ranks."""
        self._watch.remove()
        self._strategy = from_text(self._text, self.module, optimizer, process_group=self._group)
        self.optimizer = optimizer
        _held.add(self.module)
        if self._is_optimizer:
            optimizer._step_supports_amp_scaling = True
            self._strategy.outside_steps.allow(optimizer)
        if torch.distributed.get_rank() == 0:
            count = sum(each.numel() for _, each in trained_of(self.module))
            tell(
                f"strategy {self._text!r}: found {type(self.module).__name__} with {count} parameters in "
                f"DistributedDataParallel, and its {type(optimizer).__name__} ({how_to_stop(VARIABLE)})"
            )

    def step(self, original: Callable[..., Any], closure: Callable[[], Any] | None) -> Any:
        """Take a step of the script's optimizer, by the strategy's rule; return what step() returns."""
        if self._has_gradients_of_centre:
            raise RuntimeError(
                f"this script trains a model in eval mode, where {VARIABLE} shows the centre: call model.train()"
            )
        self._show_own()
        if self.is_closed:
            raise RuntimeError(f"{VARIABLE}: the process group is destroyed, and the strategy is closed")
        if self._has_loaded and self._is_optimizer:
            raise RuntimeError(
                f"{VARIABLE}: this script loads a state_dict after the first step, and trains on, but the servers "
                "have other values: load before the first step"
            )
        self._has_loaded = False
        if self._is_optimizer:
            for name in ("found_inf", "grad_scale"):  # of a GradScaler
                setattr(self._strategy, name, getattr(self.optimizer, name, None))
            return self._strategy.step(closure)
        if closure is None:
            return original(self.optimizer)
        with torch.enable_grad():
            loss = closure()
        original(self.optimizer)
        return loss

    def look(self) -> None:
        """See to the values that a call of the module must have: its own in training, else the centre's."""
        is_training, has_gradients = self.module.training, torch.is_grad_enabled()
        if self._strategy is None:
            if is_training and has_gradients and not self.is_closed:
                self._refuse_unknown_optimizer()
            return
        if is_training:
            self._show_own()
        elif self._has_centre and self._shown is None:
            self._shown = contextlib.ExitStack()
            self._shown.enter_context(self._strategy.centre())
        if not is_training and has_gradients and self._shown is not None and not self._is_optimizer:
            self._has_gradients_of_centre = True

    def load(self) -> None:
        """The script loads a state_dict: until its next step the module has the loaded values, in any mode."""
        self._show_own()
        self._has_loaded = self._strategy is not None

    def save(self, state: dict[str, Any], prefix: str) -> None:
        """Put the centre's values into a state_dict of the module."""
        if self._strategy is None or self._shown is not None or not self._has_centre:
            return
        with self._strategy.centre():
            for name, value in state.items():
                if name.startswith(prefix) and isinstance(value, Tensor):
                    state[name] = value.detach().clone()

    def settle(self) -> None:
        """Let no other worker wait for this one. Before close(), where a process has several guests."""
        if self._strategy is not None:
            self._show_own()
            self._keep_loaded()
            self._strategy.settle()

    def close(self, *, wait: bool) -> None:
        """Settle and close the strategy, all workers together. Afterwards the module has the centre's values.

        Idempotent. `wait=False` leaves at once, and the module keeps its own values.
        """
        if self._strategy is None or self.is_closed:
            self.is_closed = True
            return
        self._show_own()
        module = self.module  # the script may have left it: it lives until the end of this call
        values: list[Tensor] = []
        has_settled = False
        try:
            self._keep_loaded()
            if wait:
                values = self._settled_values()
            has_settled = wait
        finally:
            self.is_closed = True
            strategy, self._strategy = self._strategy, None
            _held.discard(module)
            strategy.close(wait=has_settled)
        if self._loaded or values:
            with torch.no_grad():
                torch._foreach_copy_(self._tensors(), self._loaded or values)
        self._loaded = []

    def _settled_values(self) -> list[Tensor]:
        """Return the centre's values with the last updates of all; what this worker knows if one does not come."""
        try:
            self._strategy.settle(everyone=True)
        except AbsentError as error:
            tell(f"{VARIABLE}: this worker ends without the last updates of all: {error}")
            if self._has_centre:
                with self._strategy.centre():
                    return [each.clone() for each in self._tensors()]
        return [each.clone() for each in self._tensors()]

    def _keep_loaded(self) -> None:
        """Note the values that the script has loaded after its last step: they stay the module's."""
        if self._has_loaded and not self._loaded:
            self._loaded = [each.clone() for each in self._tensors()]

    @property
    def _is_optimizer(self) -> bool:
        return isinstance(self._strategy, ParameterServer)

    @property
    def _has_centre(self) -> bool:
        # Scripts evaluate and save on one rank only. Where all of a group must come, its own values have to do:
        # they are what the last step has brought.
        is_hidden = self.is_closed or self._has_loaded
        return not is_hidden and not getattr(self._strategy, "CENTRE_NEEDS_OTHERS", False)

    def _tensors(self) -> list[Tensor]:
        return [each.detach() for each in (*self.module.parameters(), *self.module.buffers())]

    def _show_own(self) -> None:
        shown, self._shown = self._shown, None
        self._has_gradients_of_centre = False
        if shown is not None:
            shown.close()

    def _trains(self, gradient: Tensor) -> None:
        self.has_trained = True

    def _refuse_unknown_optimizer(self) -> None:
        if self.has_trained and not torch.equal(self._probe, self._values):
            raise RuntimeError(
                f"{VARIABLE}: the parameters in DistributedDataParallel change, but no optimizer of torch.optim "
                "steps with them: a strategy cannot follow"
            )
        self._values.copy_(self._probe.detach())
