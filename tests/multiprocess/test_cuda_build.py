# SPDX-License-Identifier: Apache-2.0
"""Without a GPU a group carries CPU tensors, and refuses CUDA tensors with one sentence, on any build of torch."""

from typing import Any

import pytest
import torch
from ranks import Rank, run_ranks

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, so CUDA tensors are carried"),
]


def refused(rank: Rank) -> list[str]:
    import torch.distributed as dist

    class Claims(torch.Tensor):
        """A tensor that says it is on a GPU. It has no memory."""

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    make: Any = torch.Tensor._make_wrapper_subclass  # type: ignore[attr-defined]
    tensor = make(Claims, (4,), device="cuda", dtype=torch.float32)
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    messages = []
    for call in (
        lambda: backend.allreduce([tensor]),
        lambda: backend.broadcast([tensor]),
        lambda: backend.send([tensor], 1 - rank.rank, 0),
    ):
        with pytest.raises(TypeError) as refusal:
            call()
        messages.append(str(refusal.value))
    ones = torch.ones(1000)
    dist.all_reduce(ones)
    assert ones.tolist() == [2.0] * 1000
    dist.barrier(device_ids=[0])
    return messages


def test_a_tensor_on_a_gpu_is_refused_in_one_sentence() -> None:
    """The sentence says why there is no way. CPU tensors and barriers still work."""
    for messages in run_ranks(refused, 2):
        for message in messages:
            assert "is on device cuda" in message
            assert "which this backend has no path for (" in message
            assert "pass tensor.cpu()" in message
            assert "\n" not in message
