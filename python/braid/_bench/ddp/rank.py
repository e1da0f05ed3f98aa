# SPDX-License-Identifier: Apache-2.0
"""One rank of ``braid bench ddp``: a training step under DistributedDataParallel, and its parts."""

import time
from contextlib import nullcontext
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from braid._bench.ddp import models
from braid._bench.ddp.models import Model
from braid._bench.ddp.step_compute import Compute, NoCompute, ProductCompute, SleptCompute
from braid._bench.ddp.training_step import TrainingStep
from braid._bench.ranks.torch_group import join

Kind = Literal["full", "compute", "communication", "bare"]
_SETTLING_STEPS = 3  # the first rebuilds the buckets in the order of the gradients, the next ones use them


class DdpRank:
    """A process group of one backend, and a model's training step on it.

    Args:
        rank: of this process.
        size: number of ranks.
        folder: private to the group, seen by all ranks.
        backend: as in init_process_group(); the tensors are in the memory of the processor.
        model: a name, or a model.
        compute_ms: the length of a step's computing, spent asleep; None for real matrix products.
        batch: samples of a step on this rank; the model's own number unless given.
        bucket_cap_mb: MiB at which a bucket is closed; None for torch's own choice: 1 for the first, then 25.
        threads: of torch, for the matrix products.

    Attributes:
        rank: of this process.

    Raises:
        ValueError: there is no such model, or the backend needs GPUs.
        RuntimeError: torch has no such backend, or it could not connect the ranks.
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        folder: str,
        backend: str,
        model: str | Model,
        compute_ms: float | None = None,
        batch: int | None = None,
        bucket_cap_mb: float | None = None,
        threads: int = 1,
    ) -> None:
        self.rank = rank
        if backend == "nccl":
            raise ValueError("the gradients are in host memory, and nccl carries those on GPUs")
        self._model = models.model(model) if isinstance(model, str) else model
        self._batch = batch or self._model.batch
        self._size = size
        torch.set_num_threads(threads)
        join(backend, rank, size, folder)
        self._step = TrainingStep(self._model, rank, self._batch)
        self._compute: Compute
        if compute_ms is None:
            self._compute = ProductCompute(self._model.layers, self._step.weights(), self._batch)
        else:
            self._compute = SleptCompute(self._model.layers, compute_ms / 1e3)
        self._ddp = DistributedDataParallel(
            self._step,
            bucket_cap_mb=bucket_cap_mb,
            gradient_as_bucket_view=True,
            init_sync=False,  # the parameters hold gradients, which differ by rank
        )

    def facts(self) -> dict[str, Any]:
        """Return what the step sends: parameters, tensors, gradient_bytes, batch, bucket_bytes (of each bucket).

        The buckets are those in use after check(). A table with sparse gradients is a bucket of its own and
        counts with all its bytes, although only some of its rows are sent.
        """
        logged = self._ddp._get_ddp_logging_data()
        sizes = logged.get("rebuilt_bucket_sizes") or logged["bucket_sizes"]
        return {
            "parameters": self._model.elements,
            "tensors": len(self._model.parameters),
            "gradient_bytes": self._model.gradient_bytes(self._batch),
            "batch": self._batch,
            "bucket_bytes": [int(size) for size in sizes.split(",")],
        }

    def check(self) -> int:
        """Do a few steps, and count the elements of the last one's gradients that are not the average."""
        for _ in range(_SETTLING_STEPS):
            self.step("communication")
        self._run("full")
        wrong = self._step.count_wrong(self._size)
        self._ddp.zero_grad(set_to_none=True)
        return wrong

    def step(self, kind: Kind) -> float:
        """Do one step and return its seconds on this rank, from the moment when all ranks were ready.

        Args:
            kind: "full" computes and averages; "compute" only computes; "communication" averages gradients that
                are all ready at once; "bare" does neither, which leaves the cost of torch itself.
        """
        dist.barrier()
        begin = time.perf_counter()
        self._run(kind)
        taken = time.perf_counter() - begin
        self._ddp.zero_grad(set_to_none=True)
        return taken

    def close(self) -> None:
        """Leave the group."""
        del self._ddp
        dist.destroy_process_group()

    def _run(self, kind: Kind) -> None:
        self._step.compute = self._compute if kind in ("full", "compute") else NoCompute()
        with nullcontext() if kind in ("full", "communication") else self._ddp.no_sync():
            self._ddp().backward()
