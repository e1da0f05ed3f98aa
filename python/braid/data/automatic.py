# SPDX-License-Identifier: Apache-2.0
"""BRAID_BALANCE=1: balanced batches in a script that nobody edits.

A DataLoader with a DistributedSampler gets balanced batches while a DistributedDataParallel trains: from the first
`iter(loader)` with gradients enabled and the model in training mode. Evaluation stays as it is.

A DataLoader of accelerate, which Hugging Face's Trainer uses, is not balanced, and that is said before its first
batch. It reads batches ahead of the training, and the Trainer some more, so nobody knows whose gradient is
computed. For some models the Trainer also divides the loss by a count of all workers: a weight would be wrong.
"""

import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from braid._notices import tell
from braid._settings import how_to_stop
from braid.data.attachment import Attachment
from braid.data.batches import Batches
from braid.data.sampler import BalancedSampler
from braid.data.speeds import Speed

VARIABLE = "BRAID_BALANCE"
_MARK = "_braid_balance"
_STOP = f"({how_to_stop(VARIABLE)})"

_models: "weakref.WeakSet[Any]" = weakref.WeakSet()
_sources: "weakref.WeakKeyDictionary[Any, _Source]" = weakref.WeakKeyDictionary()
_now: "Follower | None" = None  # whose batch the training has
_told: set[str] = set()
_has_accelerate = False  # some DataLoader is of it


def install() -> None:
    """Balance the batches of all DataLoaders with a DistributedSampler. A second call does nothing."""
    if hasattr(DistributedDataParallel, _MARK):
        return
    setattr(DistributedDataParallel, _MARK, True)
    made, given = DistributedDataParallel.__init__, DataLoader._index_sampler

    @functools.wraps(made)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if self.process_group.size() == dist.get_world_size():
            _models.add(self)
            Attachment(self, _weight, _speed)
        else:
            _announce(f"gradients of a model that some ranks have alone are not weighted {_STOP}")

    def index_sampler(self: Any) -> Any:
        batches = given.fget(self)
        if type(batches).__module__.startswith("accelerate."):
            global _has_accelerate
            _has_accelerate = True
            if _is_training():
                _refuse_accelerate()
        if type(batches) is not BatchSampler or type(batches.sampler) is not DistributedSampler:
            return batches
        return _sources.setdefault(self, _Source(batches))

    DistributedDataParallel.__init__ = make
    DataLoader._index_sampler = property(index_sampler)


def _is_training() -> bool:
    return torch.is_grad_enabled() and any(model.module.training for model in _models)


def _refuse_accelerate() -> None:
    _announce(
        f"{VARIABLE} leaves the batches of accelerate and of Hugging Face's Trainer as they are, because they are "
        "read ahead of the training: unset it, or write a loop with a DistributedSampler"
    )


class _Source:
    """A DataLoader's batches: balanced ones while a model trains, else those of its DistributedSampler."""

    def __init__(self, plain: BatchSampler) -> None:
        self._plain = plain
        self._follower: Follower | None = None
        self._is_refused = False

    def __len__(self) -> int:
        return len(self._plain)

    def __iter__(self) -> Iterator[list[int]]:
        if not _is_training() or self._is_refused:
            return iter(self._plain)
        if self._follower is None:
            try:
                self._follower = Follower(self._plain)
            except (RuntimeError, TypeError, ValueError) as error:
                self._is_refused = True
                _announce(f"batches stay as they are, in spite of {VARIABLE}: {error}")
                return iter(self._plain)
        self._follower.set_epoch(self._plain.sampler.epoch)
        return iter(self._follower)


class Follower(BalancedSampler):
    """Balanced batches of the samples that a DistributedSampler has, as many as a BatchSampler makes of them."""

    def __init__(self, plain: BatchSampler) -> None:
        """Take the settings of a BatchSampler of a DistributedSampler."""
        self._plain = plain
        source = plain.sampler
        super().__init__(
            *(source.dataset, plain.batch_size),
            num_replicas=source.num_replicas,
            rank=source.rank,
            shuffle=source.shuffle,
            seed=source.seed,
        )
        self._handed_out: Batches | None = None
        self._has_told = False
        _announce(
            f"a DataLoader with a DistributedSampler, {len(source.dataset)} samples: its {self.num_replicas} "
            f"workers get {plain.batch_size} in each step on average, by their speeds, and gradients are weighted "
            f"{_STOP}"
        )

    def _samples(self) -> int:
        samples = min(len(self._plain.sampler.dataset), self._plain.sampler.total_size)
        if self._plain.drop_last:
            samples = min(samples, len(self._plain) * sum(self._shares))
        return int(samples)

    def _hands_out(self, batches: Batches) -> None:
        global _now
        other = _now if _now is not self else None
        if other is not None and other._batches is not None and self._handed_out is batches:
            raise RuntimeError(
                f"two DataLoaders are read by turns, so {VARIABLE} cannot weigh the gradients: unset it, or use "
                "braid.data.BalancedSampler"
            )
        _now = self
        self._handed_out = batches
        super()._hands_out(batches)

    def _take_in(self, posts: list[dict[str, Any]]) -> None:
        before = self.shares
        super()._take_in(posts)
        if self.shares != before and not self._has_told:
            self._has_told = True
            _announce(f"shares by speed are {self.shares} now; they may change again")


def _weight() -> float:
    if _now is None and _has_accelerate:
        _refuse_accelerate()
        return 1.0
    if _now is None:
        _announce(
            f"{VARIABLE} found no DataLoader with a DistributedSampler that this model trains on: batches stay as "
            "they are"
        )
        return 1.0
    return _now.weight


def _speed() -> Speed | None:
    return None if _now is None else _now._speed


def _announce(line: str) -> None:
    if dist.get_rank() == 0 and line not in _told:
        _told.add(line)
        tell(f"balanced batches: {line}")
