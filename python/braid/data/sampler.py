# SPDX-License-Identifier: Apache-2.0
"""``braid.data.BalancedSampler``: each worker gets a share of the global batch that fits its speed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DistributedSampler

from braid.data import shares as sharing
from braid.data.attachment import Attachment
from braid.data.batches import Batches, batch_ends
from braid.data.board import Board
from braid.data.loading import watch_loaders
from braid.data.speeds import UNIT, Speed

_BEGIN = "begin"


@dataclass(frozen=True)
class Settings:
    """What all workers must have in common."""

    samples: int
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    revise_every: int
    max_batch_size: int | None
    speeds: list[int] | None

    def difference(self, rank: int, first: dict[str, Any]) -> str:
        """Return how rank 0's settings differ from these, which are another rank's; "" if they do not."""
        for name, value in vars(self).items():
            if first[name] != value:
                return (
                    f"balanced batches: worker {rank} has {name}={value}, worker 0 has {name}={first[name]}: "
                    "give all workers the same"
                )
        return ""


class BalancedSampler(DistributedSampler[list[int]]):  # type: ignore[misc]
    """A DistributedSampler that yields batches, for ``DataLoader(batch_sampler=...)``. See `__init__` for options.

    All workers together have `batch_size` times their number of samples in each step. Each gets a share in
    proportion to its measured speed, at least 1. So all are ready at the same time (LB-BSP, Chen et al. 2020).
    Gradients are weighted: worker i's mean gradient counts as B_i / sum(B), so their average is the gradient of
    all samples of the step. attach() sees to that, or you do: ``(loss * sampler.weight).backward()``.

    The samples of step j are those of step j with DistributedSampler and the same seed, and equal shares give each
    worker the same ones. But no sample comes twice in an epoch.

    Example:
        >>> import torch, torch.distributed as dist, braid.data
        >>> from torch.nn.parallel import DistributedDataParallel
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> data = torch.utils.data.TensorDataset(torch.randn(10, 2))
        >>> sampler = braid.data.BalancedSampler(data, batch_size=4)
        >>> loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
        >>> model = DistributedDataParallel(torch.nn.Linear(2, 1))
        >>> attached = sampler.attach(model)
        >>> for epoch in range(2):
        ...     sampler.set_epoch(epoch)
        ...     sizes = [len(x) for x, in loader if model(x).square().mean().backward() is None]
        >>> sizes
        [4, 4, 2]
        >>> attached.remove()
        >>> del model
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        revise_every: int = 10,
        max_batch_size: int | None = None,
        speeds: Sequence[float] | None = None,
        process_group: Any = None,
    ) -> None:
        """Make a sampler. Workers meet when they read the first batch.

        Args:
            dataset: anything that has a length; the same one on all workers.
            batch_size: samples per step of one worker on average; at least 2. It is the `batch_size` of the
                DataLoader in a script with DistributedSampler.
            num_replicas: number of workers. By default that of the process group.
            rank: this worker. By default its rank in the process group.
            shuffle: draw another order in each epoch; see set_epoch().
            seed: as DistributedSampler has it; the same on all workers.
            drop_last: leave out the last batch of an epoch if it is smaller than the others.
            revise_every: look for better shares once in so many steps; 0 is never. Measured speeds need that many
                steps, and so many again until all workers know them, because nobody waits for them. Shares change
                when the slowest worker's step becomes shorter by 5 % at least.
            max_batch_size: the most samples that a worker can hold.
            speeds: samples per second of each worker, as far as you know them; only their ratios matter until all
                have measured.
            process_group: the workers; by default the default group. Its store carries the speeds.

        Raises:
            RuntimeError: there is no process group, and it is needed.
            TypeError, ValueError: an argument does not fit. The other workers get the same error when they read.
        """
        self._board: Board | None = None
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._board = Board(process_group)
        try:
            self._settings = self._checked(
                *(dataset, batch_size, num_replicas, rank, bool(shuffle), seed, bool(drop_last)),
                *(revise_every, max_batch_size, speeds),
            )
        except Exception as error:
            if self._board is not None:
                why = f"balanced batches: worker {self._board.rank} cannot begin: {error}"
                self._board.post(f"{_BEGIN}/0", {"why": why})
            raise
        workers = num_replicas if self._board is None else self._board.workers
        place = rank if self._board is None else self._board.rank
        super().__init__(dataset, workers, place, bool(shuffle), seed, bool(drop_last))
        self.batch_size = batch_size
        self._shares = sharing.equal(batch_size * self.num_replicas, self.num_replicas)
        self._speeds = self._settings.speeds
        if self._speeds is not None:
            self._shares = sharing.proportional(sum(self._shares), self._speeds, max_batch_size)
        self._speed = Speed()
        self._start = self._begun = 0
        self._batches: Batches | None = None
        watch_loaders()

    @property
    def shares(self) -> list[int]:
        """Samples of each worker in a full batch that is drawn now, by rank. Their sum never changes."""
        return list(self._shares)

    @property
    def weight(self) -> float:
        """What the gradient of this worker's batch is multiplied by: ``n * B_i / sum(B)`` for n workers.

        It belongs to the batch that the DataLoader has handed out last; 1.0 before the first. The plain mean of
        weighted gradients over workers is the gradient of the mean over all samples. It fits a loss that is a mean
        over samples. A loss that is a sum needs no weight.
        """
        return 1.0 if self._batches is None else self._batches.weight

    @property
    def sampler(self) -> "BalancedSampler":
        """This object: frameworks look for the DistributedSampler inside a batch sampler, to set its epoch."""
        return self

    def attach(self, model: nn.Module, *, weigh: bool = True) -> Attachment:
        """Weigh the gradients of a model, and measure how long this worker computes.

        Hooks of the parameters multiply each gradient by `weight` before it is added or averaged. Time counts from
        the call that reads a batch until all gradients are there, without waiting for other workers.

        Args:
            model: DistributedDataParallel, or a bare module whose gradients a strategy or you average.
            weigh: False only measures: for workers whose gradients nobody averages, or a loss that is a sum.

        Returns:
            A handle with remove().
        """
        return Attachment(model, (lambda: self.weight) if weigh else (lambda: 1.0), lambda: self._speed)

    def report(self, seconds: float) -> None:
        """Say how long this worker has computed on the batch of now, without waiting: where attach() cannot."""
        self._speed.add(seconds)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, on all workers, as with DistributedSampler.

        After load_state_dict() the epoch of the state goes on where it was; any other begins at its beginning.
        """
        if epoch != self.epoch:
            self._start = 0
        super().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return what a new run needs to go on after the batch that was handed out last; the same on all workers.

        Returns:
            A dict of numbers: ``epoch``, ``samples`` (how many of it all workers together have seen), and
            ``shares`` and ``speeds`` of the workers.
        """
        samples = self._start if self._batches is None else self._batches.position
        return {"epoch": self.epoch, "samples": samples, "shares": self.shares, "speeds": self._speeds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where state_dict() was made, on any number of workers. All call it, before they read a batch.

        Raises:
            ValueError: the state is from something else, or from another data set.
        """
        if not isinstance(state_dict, dict) or not {"epoch", "samples", "shares", "speeds"} <= set(state_dict):
            raise ValueError("this is no state of a BalancedSampler: load what state_dict() returned")
        if not 0 <= state_dict["samples"] <= self._samples():
            raise ValueError(
                f"this state is of another data set: it has seen {state_dict['samples']} samples of an epoch, "
                f"and here an epoch has {self._samples()}"
            )
        self._batches, self._start = None, state_dict["samples"]
        super().set_epoch(state_dict["epoch"])
        shares = state_dict["shares"]
        if len(shares) == self.num_replicas and sum(shares) == sum(self._shares):
            self._shares = sharing.proportional(sum(shares), shares, self._settings.max_batch_size)
            self._speeds = state_dict["speeds"]
            if self._speeds is not None:
                self._speed.value = self._speeds[self.rank] / UNIT

    def __len__(self) -> int:
        """Return the number of batches of the epoch, from where it begins."""
        return len(self._ends())

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this worker's batches: lists of indices. All workers must iterate, over the same epoch.

        Raises:
            ValueError: settings, epochs or places in the epoch differ among workers. All get this error.
            CommunicatorTimeoutError: a worker does not read its batches.
        """
        return Batches(self)

    def _samples(self) -> int:
        """Return how many samples an epoch has: all, or with drop_last those of full batches."""
        whole = sum(self._shares)
        return self._settings.samples // whole * whole if self.drop_last else self._settings.samples

    def _ends(self) -> list[int]:
        return batch_ends(self._start, self._samples(), sum(self._shares), self.num_replicas)

    def _order(self) -> list[int]:
        """Return all indices in this epoch's order."""
        if not self.shuffle:
            return list(range(self._settings.samples))
        chance = torch.Generator()
        chance.manual_seed(self.seed + self.epoch)
        return torch.randperm(self._settings.samples, generator=chance).tolist()  # type: ignore[no-any-return]

    def _begin(self, batches: Batches) -> None:
        """Meet the other workers at the beginning of an epoch."""
        if self._board is None:
            return
        subject = f"{_BEGIN}/{self._begun}"
        self._begun += 1
        now = {"epoch": self.epoch, "samples": self._start}
        self._board.post(subject, {"settings": vars(self._settings), "speed": self._speed.as_integer(), **now})
        posts = self._board.read(subject)
        for words in posts:
            if "why" in words:
                raise ValueError(words["why"])
        for worker, words in enumerate(posts):
            if why := Settings(**words["settings"]).difference(worker, posts[0]["settings"]):
                raise ValueError(why)
            for name in now:
                if words[name] != posts[0][name]:
                    raise ValueError(
                        f"balanced batches: worker {worker} begins at {name} {words[name]}, worker 0 at "
                        f"{posts[0][name]}: call set_epoch() and load_state_dict() alike on all workers"
                    )
        if self._begun > 2:
            self._board.forget(f"{_BEGIN}/{self._begun - 3}")
        self._take_in(posts)

    def _revise(self, window: int) -> None:
        """Revise the shares before the first batch of a window of steps, with the speeds of the window before."""
        if self._board is None or not self._settings.revise_every:
            return
        # A worker may draw batches far ahead of others. So it reads what they posted a window ago: nobody waits.
        epoch = self._begun - 1
        self._board.post(f"{epoch}/{window}", {"speed": self._speed.as_integer()})
        if window > 1:
            self._take_in(self._board.read(f"{epoch}/{window - 1}"))
        if window > 3:
            self._board.forget(f"{epoch}/{window - 3}")

    def _take_in(self, posts: list[dict[str, Any]]) -> None:
        speeds = [words["speed"] for words in posts]
        if self._settings.revise_every and all(speeds):
            self._speeds = speeds
            self._shares = sharing.revised(self._shares, speeds, self._settings.max_batch_size)

    def _hands_out(self, batches: Batches) -> None:
        self._batches = batches

    def _finished(self, batches: Batches) -> None:
        if self._batches is batches:
            self._batches, self._start = None, 0

    def _checked(
        self,
        dataset: Any,
        batch_size: int,
        num_replicas: int | None,
        rank: int | None,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        revise_every: int,
        most: int | None,
        speeds: Sequence[float] | None,
    ) -> Settings:
        """Return the settings; TypeError, ValueError or RuntimeError says what does not fit."""
        if self._board is None:
            if num_replicas is None or rank is None or revise_every:
                raise RuntimeError(
                    "balanced batches need a process group, which carries the speeds: call "
                    "torch.distributed.init_process_group() first; or give num_replicas, rank and revise_every=0"
                )
            workers = num_replicas
        else:
            workers = self._board.workers
            if num_replicas not in (None, workers) or rank not in (None, self._board.rank):
                raise ValueError(
                    f"num_replicas={num_replicas}, rank={rank}: this is worker {self._board.rank} of a process "
                    f"group of {workers}; leave both out"
                )
        if not hasattr(dataset, "__len__"):
            raise TypeError(f"balanced batches need a data set with a length, not {type(dataset).__name__}")
        if batch_size < 2:
            raise ValueError(f"batch_size={batch_size}: 2 is the least, else there is nothing to share out")
        if len(dataset) < workers:
            raise ValueError(f"{len(dataset)} samples for {workers} workers: each needs one at least")
        if revise_every < 0:
            raise ValueError(f"revise_every={revise_every}: a number of steps, or 0 for never")
        if most is not None and most < batch_size:
            raise ValueError(f"max_batch_size={most}: at least batch_size, {batch_size}, or the batch has no room")
        if speeds is not None and (len(speeds) != workers or min(speeds) <= 0):
            raise ValueError(f"speeds={list(speeds)}: one positive number for each of the {workers} workers")
        known = None if speeds is None else [max(1, round(UNIT * speed)) for speed in speeds]
        return Settings(len(dataset), batch_size, shuffle, seed, drop_last, revise_every, most, known)
