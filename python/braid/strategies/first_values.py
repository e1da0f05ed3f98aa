# SPDX-License-Identifier: Apache-2.0
"""Gives all workers worker 0's tensors once, by the store of their meeting. Only tensors that differ travel."""

import hashlib
import io
import json
import time
import zlib
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from braid._errors import CommunicatorTimeoutError
from braid.strategies.packing import Entry
from braid.strategies.store import Meeting, hearing

_PIECE_BYTES = 1 << 22  # a store of torch takes 8 MiB at most
_SMALL_BYTES = 1 << 16  # such tensors are always there, for those that come late


def take_first_values(entries: Sequence[Entry], meeting: Meeting, timeout_s: float) -> None:
    """Give the tensors worker 0's values. All workers call it, with tensors of the same names, shapes and dtypes.

    Args:
        entries: the tensors.
        meeting: where the workers meet.
        timeout_s: how long each waits for another one.

    Raises:
        CommunicatorTimeoutError: a worker did not come in time.
        ValueError: this worker is late, and worker 0 has not kept a large tensor that differs.
    """
    if not entries:
        return
    tensors = [entry.tensor.detach() for entry in entries]
    digests = [_digest(tensor) for tensor in tensors]
    if meeting.member == 0:
        _give(tensors, digests, meeting, timeout_s)
        return
    first = json.loads(_hear(meeting, "state/digests", timeout_s, 0))
    lacks = [place for place, (mine, theirs) in enumerate(zip(digests, first, strict=True)) if mine != theirs]
    if not meeting.is_late:
        meeting.store.set(f"state/lacks/{meeting.member}", json.dumps(lacks).encode())
    if not lacks:
        return
    given = json.loads(_hear(meeting, "state/given", timeout_s, 0))
    for place in lacks:
        if place not in given["places"]:
            raise ValueError(
                f"{entries[place].name} differs from worker 0's, and is too large to be kept for those that come "
                "late: begin with worker 0's values, for example from the same checkpoint"
            )
    pieces = [_hear(meeting, f"state/given/{number}", timeout_s, 0) for number in range(given["pieces"])]
    found = _unpacked(b"".join(zlib.decompress(piece) for piece in pieces))
    for place in lacks:
        tensors[place].copy_(found[str(place)])


def _give(tensors: Sequence[Tensor], digests: Sequence[str], meeting: Meeting, timeout_s: float) -> None:
    meeting.store.set("state/digests", json.dumps(digests).encode())
    places = {place for place, tensor in enumerate(tensors) if tensor.nbytes <= _SMALL_BYTES}
    until = time.monotonic() + timeout_s
    for member in range(1, meeting.workers):
        said = _hear(meeting, f"state/lacks/{member}", max(0.0, until - time.monotonic()), member)
        places.update(json.loads(said))
    data = memoryview(_packed(tensors, places))
    starts = range(0, len(data), _PIECE_BYTES)
    for number, start in enumerate(starts):
        meeting.store.set(f"state/given/{number}", zlib.compress(data[start : start + _PIECE_BYTES], 1))
    about = {"places": sorted(places), "pieces": len(starts)}
    meeting.store.set("state/given", json.dumps(about).encode())


def _packed(tensors: Sequence[Tensor], places: Collection[int]) -> bytes:
    file = io.BytesIO()
    torch.save({str(place): tensors[place].clone() for place in sorted(places)}, file)
    return file.getvalue()


def _unpacked(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return found


def _digest(tensor: Tensor) -> str:
    """Return a short text that differs if the bytes differ."""
    if tensor.layout is torch.strided and not tensor.is_quantized:
        data: Any = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    else:
        data = _packed([tensor], [0])
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _hear(meeting: Meeting, key: str, timeout_s: float, member: int) -> bytes:
    try:
        with hearing(meeting.name):
            return meeting.store.get(key, timeout_s)
    except TimeoutError:
        why = f"strategy {meeting.name!r}: worker {member} did not share its model's state in time"
        raise CommunicatorTimeoutError(why, member) from None
