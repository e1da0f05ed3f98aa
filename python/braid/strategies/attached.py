# SPDX-License-Identifier: Apache-2.0
"""What strategies have in common that attach to the user's optimizer: its steps, and a look at the centre."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from braid.strategies.attachable import Attachable
from braid.strategies.attachment import Attachment
from braid.strategies.closing import Closing
from braid.strategies.rules import refuse_thawed
from braid.strategies.watch import CentreWatch


class Attached(Closing):
    """A strategy whose steps are those of the user's optimizer."""

    _KIND: str  # its name in text

    def _attach(self, optimizer: torch.optim.Optimizer, prepared: Attachable) -> None:
        """Follow the optimizer's steps from now on."""
        self._optimizer, self._attachable = optimizer, prepared
        self._parameters_of_optimizer = _count(optimizer)
        self._shows_centre = False
        self._own_steps = 0
        self._watch = CentreWatch(self._KIND, prepared.packing.tensors)
        self._attachment = Attachment(optimizer, self._before_step, self._after_step)

    def _detach(self) -> None:
        """Leave the optimizer to the user."""
        self._attachment.detach()
        self._attachable.release()

    @contextmanager
    def centre(self) -> Iterator[None]:
        """Evaluate or save the centre: the model has its values in this context, and its own again afterwards.

        It waits for no other worker. What you save must be written, or copied, inside the context:
        ``model.state_dict()`` has the memory of the model.

        Raises:
            RuntimeError: the strategy is closed, or a context of this kind is open already.
            CommunicatorError: servers are lost, or did not answer in time.
        """
        self._must_be_open()
        if self._shows_centre:
            raise RuntimeError("the model has the centre's values already: leave the other centre() first")
        with torch.no_grad():
            values = self._centre_values()
            own = [tensor.clone() for tensor in self._attachable.tensors]
            torch._foreach_copy_(self._attachable.tensors, values)
        parameters = self._attachable.packing.tensors
        self._watch.shown(parameters, own[: len(parameters)], self._own_steps)
        self._shows_centre = True
        try:
            yield
        finally:
            self._shows_centre = False
            with torch.no_grad():
                torch._foreach_copy_(self._attachable.tensors, own)

    def _must_be_open(self) -> None:
        """Raise RuntimeError if the strategy is closed."""
        raise NotImplementedError

    def _centre_values(self) -> list[Tensor]:
        """Return the centre's parameters and then its buffers, in the order of the packings."""
        raise NotImplementedError

    def _begin_step(self) -> None:
        """Called before each step of the optimizer, without gradients of torch."""

    def _end_step(self) -> None:
        """Called after each step of the optimizer, without gradients of torch."""

    def _before_step(self) -> None:
        self._must_be_open()
        if self._shows_centre:
            raise RuntimeError("the model has the centre's values: take no step inside centre()")
        refuse_thawed(self._attachable.state.frozen)
        if _count(self._optimizer) != self._parameters_of_optimizer:
            raise RuntimeError("a strategy's parameters are fixed when it begins: add groups before")
        with torch.no_grad():
            self._begin_step()

    def _after_step(self) -> None:
        self._own_steps += 1
        with torch.no_grad():
            self._end_step()


def _count(optimizer: torch.optim.Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)
