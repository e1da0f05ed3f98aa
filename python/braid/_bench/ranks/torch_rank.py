# SPDX-License-Identifier: Apache-2.0
"""A rank that calls torch.distributed, with any of its backends."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from braid._bench.ranks.choice import describe_choice
from braid._bench.ranks.contestant_rank import Buffers, ContestantRank, unsigned
from braid._bench.ranks.pattern import Bits, Values
from braid._bench.ranks.torch_device import CPU, device_for, module_of
from braid._bench.ranks.torch_group import join
from braid._bench.workload import Workload


class TorchRank(ContestantRank):
    """A rank of the default group of torch.distributed, with tensors in host memory or on a device."""

    def __init__(
        self, rank: int, size: int, folder: str, backend: str, listen_at: str = "", device: str = CPU
    ) -> None:
        """Join the group; RuntimeError where this torch, or this machine, cannot."""
        self.rank, self.size, self._backend = rank, size, backend
        self._device = device_for(device, backend, rank, size)
        torch.set_num_threads(1)
        join(backend, rank, size, folder, listen_at)

    def empty(self, count: int, dtype: str) -> Any:
        """Return an uninitialised tensor."""
        return torch.empty(count, dtype=getattr(torch, dtype), device=self._device)

    def bits(self, buffer: Any) -> Bits:
        """Return the tensor's memory; of a device, a copy."""
        dtype = str(buffer.dtype).removeprefix("torch.")
        array: Bits = buffer.view(torch.uint8).cpu().numpy().view(unsigned(dtype))
        return array

    def put(self, buffer: Any, bits: Bits) -> None:
        """Copy to the device."""
        if self._device.type != "cpu":
            buffer.view(torch.uint8).copy_(torch.from_numpy(bits.view("u1")))

    def encode(self, values: Values, dtype: str) -> Bits:
        """Convert by way of torch."""
        return self.bits(torch.from_numpy(values).to(getattr(torch, dtype)))

    def call_for(self, work: Workload, buffers: Buffers) -> Callable[[], object]:
        """Return a blocking call of torch.distributed."""
        if not work.in_place and work.kind.in_place:
            raise ValueError(f"torch.distributed has no {work.collective} out of place")
        call = self._host_call(work, buffers)
        if self._device.type == "cpu":
            return call

        synchronize = module_of(self._device.type).synchronize

        def on_device() -> None:
            call()
            synchronize()

        return on_device

    def _host_call(self, work: Workload, buffers: Buffers) -> Callable[[], object]:
        x, out, size = buffers.input, buffers.output, self.size
        op = _op(work.op) if work.op else None
        match work.collective:
            case "all_reduce":
                return lambda: dist.all_reduce(x, op)
            case "reduce":
                return lambda: dist.reduce(x, 0, op)
            case "broadcast":
                return lambda: dist.broadcast(x, 0)
            case "all_gather":
                return lambda: dist.all_gather_into_tensor(out, x)
            case "reduce_scatter":
                return lambda: dist.reduce_scatter_tensor(out, x, op)
            case "all_to_all":
                return lambda: dist.all_to_all_single(out, x)
            case "gather":
                parts = list(out.chunk(size)) if self.rank == 0 else None
                return lambda: dist.gather(x, parts)
            case "scatter":
                parts = list(x.chunk(size)) if self.rank == 0 else None
                return lambda: dist.scatter(out, parts)
            case "barrier":
                return lambda: dist.barrier()
            case "send_recv":
                return lambda: self._exchange(x, out)
            case "ping_pong":
                return self.ping_pong(dist.send, dist.recv, x, out)
        raise ValueError(f"unknown collective {work.collective}")

    def _exchange(self, x: Any, out: Any) -> None:
        following, preceding = self.neighbours
        requests = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, following), dist.P2POp(dist.irecv, out, preceding)]
        )
        for request in requests:
            request.wait()

    def barrier(self) -> None:
        """Wait in the group's own barrier."""
        dist.barrier()
        if self._device.type != "cpu":
            module_of(self._device.type).synchronize()

    def describe(self) -> dict[str, Any]:
        """Ask braid what it chose; no other backend tells."""
        if self._backend != "braid" or dist.group.WORLD is None:
            return {}
        device = "" if self._device.type == "cpu" else str(self._device)
        return describe_choice(dist.group.WORLD._get_backend(self._device), self._work, device)

    def about(self) -> str:
        """Return torch's version and where the tensors are."""
        return f"torch {torch.__version__}, {self._backend}, {self._device.type}"

    def close(self) -> None:
        """Destroy the group."""
        dist.destroy_process_group()


def _op(name: str) -> Any:
    return getattr(dist.ReduceOp, name.upper())
