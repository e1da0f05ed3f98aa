# SPDX-License-Identifier: Apache-2.0
"""Lossy reductions of tensors on an accelerator, which encodes them: only encoded bytes are copied to the host.

The algorithm is that of csrc/planner/direct.cc in one segment. Chunk c of the vector belongs to rank c:

    every rank     encodes its part of each chunk, with its residual.
    all_to_all     of the messages.
    the owner      adds up its own part and the decoded ones, by rank, and encodes the sum.
    all_gather     of the sums' messages.
    every rank     decodes them.

So the bits are those of ``lossy_all_reduce`` of CPU tensors, where that takes this algorithm.

The calling thread queues everything on a stream of its own. It blocks while ``wait()`` of the two operations does.

A local leg does the same with the shards that it sends between hosts: LegCoder.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from braid._codec import Codec
from braid._torch.coders import Coder, coder_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

_RANDOM = ("qsgd", "random_k")  # their seeds are the core's
_streams: dict[Any, Any] = {}  # by device
_launched: deque[tuple[Any, list[Any]]] = deque()  # an event, and what must live until it has come


def coder_for(tensor: "Tensor", codec: str, residual: "Tensor | None", op: Any, backend: Any) -> Coder | None:
    """Return the coder if a device shall encode this tensor; None if the host shall. All ranks answer alike.

    The device encodes where each rank is on a host of its own: ranks of one host are added up on the host first.
    """
    from torch.distributed import ReduceOp

    floats = ("torch.float32", "torch.float16", "torch.bfloat16")
    name = codec.partition(":")[0]
    # Only == compares both of torch's kinds of operators.
    is_sum = op == ReduceOp.SUM or op == ReduceOp.AVG
    if tensor.device.type == "cpu" or tensor.numel() == 0 or name in _RANDOM or not is_sum:
        return None
    fits = str(tensor.dtype) in floats and tensor.is_contiguous()
    if not fits or (residual is not None and not _fits(residual, tensor)):
        return None  # the core says what is wrong
    if 4 * Codec(codec).ratio >= tensor.element_size() or not _is_one_rank_per_host(backend):
        return None
    return coder_of(tensor.device)


def _fits(residual: "Tensor", tensor: "Tensor") -> bool:
    import torch

    alike = residual.dtype == torch.float32 and residual.device == tensor.device
    return bool(alike and residual.is_contiguous() and residual.numel() == tensor.numel())


def is_part(output: "Tensor", given: "Tensor", group: "ProcessGroup | None") -> bool:
    """Return whether an output is one rank's part of an input, for a reduce_scatter on a device."""
    import torch.distributed as dist

    ranks = dist.get_world_size(group)
    alike = output.device == given.device and output.dtype == given.dtype
    return bool(alike and output.is_contiguous() and output.numel() * ranks == given.numel())


def _is_one_rank_per_host(backend: Any) -> bool:
    hosts = backend.topology().splitlines()[0].partition("hosts=")[2].split(" ")[0].split(",")
    return len(hosts) > 1 and len(set(hosts)) == len(hosts)


def all_reduce(
    coder: Coder, tensor: "Tensor", codec: str, residual: "Tensor | None", op: Any, backend: Any
) -> Any:
    """Start a lossy all_reduce; arguments and result are those of ``braid.lossy_all_reduce``.

    Args:
        coder: of the tensor's device.
        tensor: contiguous; see coder_for().
        codec: its text.
        residual: of as many elements; or None.
        op: ReduceOp.AVG or SUM.
        backend: braid's, of the group.

    Returns:
        A Work whose ``wait()`` lets the current stream wait for the result.
    """
    steps = _all_reduce(coder, tensor.detach(), codec, residual, op, backend)
    return _launch(tensor, [tensor, residual], steps)


def _all_reduce(
    coder: Coder, tensor: "Tensor", codec: str, residual: "Tensor | None", op: Any, backend: Any
) -> Iterator[None]:
    """Do so on the current stream. Yields after the start of each operation, so that others may start."""
    import torch

    rank, ranks = backend.rank(), backend.size()
    ends = [chunk * tensor.numel() // ranks for chunk in range(ranks + 1)]
    sizes = [end - begin for begin, end in itertools.pairwise(ends)]
    kind = Codec(codec)
    bytes_of = [kind.encoded_bytes(size) if size else 0 for size in sizes]
    scale = _scale(op, ranks)
    values = tensor.view(-1).split(sizes)
    left = residual.view(-1).split(sizes) if residual is not None else [None] * ranks
    sent_bytes = [0 if other == rank else bytes_of[other] for other in range(ranks)]
    got_bytes = [0 if other == rank else bytes_of[rank] for other in range(ranks)]
    sent, got = (_message(sum(each), tensor) for each in (sent_bytes, got_bytes))
    for chunk, message in enumerate(sent.split(sent_bytes)):
        if message.numel():
            coder.encode(codec, values[chunk], left[chunk], scale, message)
    exchange = backend.alltoall_base(got, sent, got_bytes, sent_bytes)
    yield
    exchange.wait()
    # Chunks differ by an element at most, and an all_gather takes blocks of one size.
    block = max(bytes_of)
    mine = _message(block, tensor)
    if sizes[rank]:
        total = torch.mul(values[rank].to(torch.float32), scale)
        for message in got.split(got_bytes):
            if message.numel():
                coder.decode(codec, message, total, add=True)
        coder.encode(codec, total, left[rank], 1.0, mine[: bytes_of[rank]])
    sums = _message(ranks * block, tensor)
    gather = backend._allgather_base(sums, mine)
    yield
    gather.wait()
    for chunk, message in enumerate(sums.split(block)):
        if sizes[chunk]:
            kept = left[chunk] if chunk == rank else None
            _decode(coder, codec, message[: bytes_of[chunk]], values[chunk], kept)


def reduce_scatter(
    coder: Coder,
    output: "Tensor",
    given: "Tensor",
    codec: str,
    residual: "Tensor | None",
    op: Any,
    backend: Any,
) -> Any:
    """Start a lossy reduce_scatter; arguments and result are those of ``braid.lossy_reduce_scatter``."""
    steps = _reduce_scatter(coder, output.detach(), given.detach(), codec, residual, op, backend)
    return _launch(output, [output, given, residual], steps)


def _reduce_scatter(
    coder: Coder,
    output: "Tensor",
    given: "Tensor",
    codec: str,
    residual: "Tensor | None",
    op: Any,
    backend: Any,
) -> Iterator[None]:
    import torch

    rank, ranks = backend.rank(), backend.size()
    size = output.numel()
    nbytes = Codec(codec).encoded_bytes(size)
    scale = _scale(op, ranks)
    values = given.view(-1).split(size)
    left = residual.view(-1).split(size) if residual is not None else [None] * ranks
    splits = [0 if other == rank else nbytes for other in range(ranks)]
    sent, got = (_message(sum(splits), output) for _ in range(2))
    for block, message in enumerate(sent.split(splits)):
        if block != rank:
            coder.encode(codec, values[block], left[block], scale, message)
    exchange = backend.alltoall_base(got, sent, splits, splits)
    yield
    exchange.wait()
    total = torch.mul(values[rank].to(torch.float32), scale)
    for other, message in enumerate(got.split(splits)):
        if other != rank:
            coder.decode(codec, message, total, add=True)
    kept = left[rank]
    if kept is not None and output.dtype != torch.float32:
        total.add_(kept)
        kept.zero_()
    _round(total, output.view(-1), kept)


class LegCoder:
    """Encodes shards that a local leg sends between hosts, where they lie. csrc/c10d/leg_coder.h calls it.

    Each function returns None if the host must encode the shard, the same on all ranks. Otherwise it returns an
    iterator. Whoever goes on with it three times has the result on the current stream.
    """

    def __init__(self, across: Any) -> None:
        """Keep the backend of the ranks with this rank's place on each host."""
        self._across = across

    def all_reduce(
        self, tensor: "Tensor", codec: str, residual: "Tensor | None", averages: bool
    ) -> Iterator[None] | None:
        """Sum or average a shard over the hosts."""
        coder, op = self._coder(tensor, codec, residual, averages)
        return _all_reduce(coder, tensor, codec, residual, op, self._across) if coder else None

    def reduce_scatter(
        self, output: "Tensor", given: "Tensor", codec: str, residual: "Tensor | None", averages: bool
    ) -> Iterator[None] | None:
        """Sum or average blocks of shards over the hosts; this host's goes to the output."""
        coder, op = self._coder(given, codec, residual, averages)
        return _reduce_scatter(coder, output, given, codec, residual, op, self._across) if coder else None

    def _coder(
        self, tensor: "Tensor", codec: str, residual: "Tensor | None", averages: bool
    ) -> tuple[Coder | None, Any]:
        from torch.distributed import ReduceOp

        op = ReduceOp.AVG if averages else ReduceOp.SUM
        return coder_for(tensor, codec, residual, op, self._across), op


def _scale(op: Any, ranks: int) -> float:
    import numpy as np
    from torch.distributed import ReduceOp

    return float(np.float32(1) / np.float32(ranks)) if op == ReduceOp.AVG else 1.0


def _message(nbytes: int, like: "Tensor") -> "Tensor":
    import torch

    return torch.empty(nbytes, dtype=torch.uint8, device=like.device)


def _decode(coder: Coder, codec: str, message: "Tensor", target: "Tensor", kept: "Tensor | None") -> None:
    import torch

    if target.dtype == torch.float32:
        coder.decode(codec, message, target, add=False)
        return
    floats = torch.empty(target.numel(), dtype=torch.float32, device=target.device)
    coder.decode(codec, message, floats, add=False)
    _round(floats, target, kept)


def _round(floats: "Tensor", target: "Tensor", kept: "Tensor | None") -> None:
    """Round to the target's dtype, and keep what that loses. Both are the core's arithmetic."""
    import torch

    target.copy_(floats)
    if kept is not None and target.dtype != torch.float32:
        lost = floats.sub_(target)
        kept.add_(lost.masked_fill_(~lost.isfinite(), 0.0))


def _launch(like: "Tensor", kept: list[Any], steps: Iterator[None]) -> Any:
    import torch

    work_class = _work_class()
    device = like.device
    if device not in _streams:
        _streams[device] = torch.Stream(device=device)
    stream = _streams[device]
    while _launched and _launched[0][0].query():
        _launched.popleft()
    stream.wait_stream(torch.accelerator.current_stream(device))
    future: torch.futures.Future[list[Tensor]] = torch.futures.Future(devices=[device])
    with torch.no_grad(), stream:
        for _ in steps:
            pass
        done = stream.record_event()
        future.set_result([like])
    _launched.append((done, kept))
    return work_class(done, future, [like], kept)


def _work_class() -> Any:
    """Return the class of the works, made once torch is there."""
    global _made
    if _made is None:
        import torch
        import torch.distributed as dist

        class DeviceWork(dist.Work):  # type: ignore[misc]
            """A reduction that is queued on a stream of the device."""

            def __init__(self, done: Any, future: Any, results: list[Any], kept: list[Any]) -> None:
                super().__init__()
                self._done, self._future, self._results, self._kept = done, future, results, kept

            def wait(self, timeout: Any = None) -> bool:
                torch.accelerator.current_stream(self._results[0].device).wait_event(self._done)
                self._kept.clear()
                return True

            def is_completed(self) -> bool:
                return bool(self._done.query())

            def result(self) -> list[Any]:
                return self._results

            def get_future(self) -> Any:
                return self._future

        _made = DeviceWork
    return _made


_made: Any = None
