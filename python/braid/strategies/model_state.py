# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a model a strategy shares. Nothing else walks over a model.

The contract is that of DistributedDataParallel, where it has one:

* Trained parameters of the optimizer follow the strategy's rule.
* Float buffers that the model saves move as averages, or are worker 0's, as the option ``buffers`` says.
* All other state is worker 0's at the beginning, and then each worker's own. It is frozen parameters, integer
  buffers, buffers that the model does not save, and those with an infinity or NaN: these have no mean.
* With ``buffers="local"`` all buffers, and with ``init_sync=False`` all other state, are each worker's own.
* What DistributedDataParallel was told to ignore is each worker's own, always. Its optimizer trains it there.
* A parameter is the tensor of the beginning, as in the optimizer. A buffer is the tensor that the model has now.
* Names lack what wrappers add to them. So a compiled model and a plain one have the same names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from braid.strategies.packing import Entry, Packing

_PREFIXES = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


@dataclass
class ModelState:
    """The tensors of a model, by what a strategy does with them.

    Attributes:
        parameters: trained ones, in the order of the optimizer's groups.
        averages: float buffers that move.
        given: all other state that worker 0 gives at the beginning.
        frozen: parameters of the optimizer that are not trained.
        ignored: trained parameters of the optimizer that stay each worker's own.
    """

    parameters: Packing
    averages: Packing
    given: list[Entry]
    frozen: list[Entry]
    ignored: list[Entry]

    def describe(self) -> list[str]:
        """Return which tensors all workers must have in common, one line each."""
        return self.describe_shared() + [f"state {entry.describe()}" for entry in self.given]

    def describe_shared(self) -> list[str]:
        """Return the same for those that follow the strategy, as checkpoints have it."""
        lines = [f"parameter {line}" for line in self.parameters.describe()]
        return lines + [f"buffer {line}" for line in self.averages.describe()]


def read_model(
    model: nn.Module, groups: Sequence[dict[str, Any]], *, buffers: str, init_sync: bool = True
) -> ModelState:
    """Return the state of a model.

    Args:
        model: gives tensors their names. A tied tensor has its first name.
        groups: param_groups of an optimizer.
        buffers: "local" leaves all buffers to each worker.
        init_sync: False leaves all state to each worker that does not follow the strategy.

    Raises:
        ValueError: a tensor cannot be shared, or none is trained.
    """
    names = dict(_named_parameters(model))
    of_name = {id(parameter): name for name, parameter in names.items()}
    ignored_names = _ignored_names(model)

    def is_ignored(name: str, tensor: Tensor) -> bool:
        return name in ignored_names or getattr(tensor, "_ddp_ignored", False)

    trained: list[Entry] = []
    frozen: list[Entry] = []
    ignored: list[Entry] = []
    for index, group in enumerate(groups):
        for place, parameter in enumerate(group["params"]):
            name = of_name.get(id(parameter))
            if name is None:
                raise ValueError(f"parameter {place} of group {index} is not a parameter of the model")
            if is_ignored(name, parameter):
                kind = ignored if parameter.requires_grad else None
            else:
                kind = trained if parameter.requires_grad else frozen
            if kind is not None:
                kind.append(Entry(name, parameter, index))
    if not trained:
        raise ValueError("the model has no parameter that requires a gradient: there is nothing to train")
    has = {id(entry.tensor) for entry in trained}
    given = [
        Entry(name, each) for name, each in names.items() if id(each) not in has and not is_ignored(name, each)
    ]
    averages: list[Entry] = []
    for entry, is_saved in _buffers(model) if buffers != "local" else ():
        if not is_ignored(entry.name, entry.tensor):
            (averages if is_saved and _can_average(entry.tensor) else given).append(entry)
    return ModelState(Packing(trained), Packing(averages), given if init_sync else [], frozen, ignored)


def refuse_others(model: nn.Module, groups: Sequence[dict[str, Any]]) -> None:
    """Raise ValueError if the optimizer lacks a trained parameter: then another one has it."""
    if lacking := lacking_of(model, {id(each) for group in groups for each in group["params"]}):
        raise ValueError(
            f"{lacking[0]} is trained, but is not in the optimizer: a strategy needs one optimizer for the whole "
            "module; give the part that it trains"
        )


def lacking_of(model: nn.Module, own: set[int]) -> list[str]:
    """Return the names of the parameters that a strategy trains, but that are not in `own`, by id()."""
    return [name for name, each in trained_of(model) if id(each) not in own]


def trained_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the parameters that a strategy trains, with their names."""
    ignored = _ignored_names(model)
    return [
        (name, each)
        for name, each in _named_parameters(model)
        if each.requires_grad and name not in ignored and not getattr(each, "_ddp_ignored", False)
    ]


def plain_name(name: str) -> str:
    """Return a name, or a line that has one, without what wrappers have added.

    Example:
        >>> plain_name("_orig_mod.layers.0._checkpoint_wrapped_module.weight")
        'layers.0.weight'
    """
    for prefix in _PREFIXES:
        name = name.replace(prefix, "")
    return name


def difference_of(saved: Sequence[str] | None, own: Sequence[str], what: str) -> str:
    """Return why lines of a saved state are not those of a model; "" if they are. `what`: what they list.

    States of earlier versions may have names of wrappers.
    """
    theirs = [plain_name(line) for line in saved or []]
    if theirs == list(own):
        return ""
    pairs = zip(theirs, own, strict=False)
    first, ours = next(((a, b) for a, b in pairs if a != b), (f"another number of {what}", "its own"))
    return f"this state is of another model: it has {first!r} where the model has {ours!r}"


def _named_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError(f"{name} has no shape yet: call the model once, before the strategy begins")
        yield plain_name(name), parameter


def _buffers(model: nn.Module) -> Iterator[tuple[Entry, bool]]:
    """Yield each buffer once, and whether the model saves it."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, tensor in module.named_buffers(recurse=False):
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            whole = plain_name(f"{prefix}.{name}" if prefix else name)
            if is_lazy(tensor):
                raise ValueError(f"{whole} has no shape yet: call the model once, before the strategy begins")
            yield Entry(whole, tensor, owner=module), name not in module._non_persistent_buffers_set


def _can_average(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.itemsize == 1 or tensor.layout is not torch.strided:
        return False
    return bool(torch.isfinite(tensor).all())


def _ignored_names(model: nn.Module) -> set[str]:
    # torch's own recipe gives tensors of the outermost module a name that begins with a point.
    named = getattr(model, "_ddp_params_and_buffers_to_ignore", ())
    return {plain_name(name).lstrip(".") for name in named}
