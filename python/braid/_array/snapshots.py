# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a parameter service whose shards may be other ones when they are restored.

The core keeps shard after shard: its values, then its vectors of the rule's state. A snapshot has whole vectors.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def whole_vectors(saved: Mapping[str, Any], ends: Sequence[int]) -> dict[str, Any]:
    """Return whole vectors of a snapshot that the core has taken.

    Args:
        saved: of the core: ``numbers``, ``vectors``, and by shard ``steps`` and ``versions``.
        ends: of the shards' parts of the vector.

    Returns:
        A dict. ``vectors``: a list of the values and then the vectors of the rule's state, each of shape
        (elements,), float32. ``ends``, ``steps`` and ``versions``: of each shard.
    """
    count = saved["vectors"]
    vectors = np.empty((count, ends[-1]), np.float32)
    for begin, end in _extents(ends):
        vectors[:, begin:end] = saved["numbers"][count * begin : count * end].reshape(count, -1)
    counts = {name: list(saved[name]) for name in ("steps", "versions")}
    return {"vectors": list(vectors), "ends": list(ends), **counts}


def by_shard(saved: Mapping[str, Any], ends: Sequence[int]) -> tuple[Floats, list[int], list[int]]:
    """Return numbers, steps and versions of a snapshot as the core's restore() takes them.

    Args:
        saved: from whole_vectors(). A shard gets the counts of the saved shard that has its last element.
        ends: of the shards that are to take the numbers.

    Raises:
        ValueError: the snapshot lacks a key, or is of another number of elements.
    """
    try:
        vectors, former = [np.asarray(vector) for vector in saved["vectors"]], list(saved["ends"])
    except (KeyError, TypeError) as error:
        raise ValueError("this is no snapshot of a parameter service: it lacks vectors or ends") from error
    count, elements = len(vectors), ends[-1]
    found = {vector.shape for vector in vectors} | {(former[-1] if former else 0,)}
    if found != {(elements,)}:
        sizes = ", ".join(str(size) for size in sorted(found - {(elements,)}))
        raise ValueError(f"this service has vectors of shape ({elements},); the snapshot has {sizes}")
    numbers = np.empty(count * elements, np.float32)
    for begin, end in _extents(ends):
        shard = numbers[count * begin : count * end].reshape(count, -1)
        for row, vector in zip(shard, vectors, strict=True):
            row[:] = vector[begin:end]
    counts = {name: [_count(end, former, saved.get(name, [])) for end in ends] for name in ("steps", "versions")}
    return numbers, counts["steps"], counts["versions"]


def _extents(ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    return itertools.pairwise([0, *ends])


def _count(end: int, ends: Sequence[int], counts: Sequence[int]) -> int:
    """Return the count of the saved shard that has the element before `end`; 0 if it was not saved."""
    return next((int(count) for other, count in zip(ends, counts, strict=False) if other >= end), 0)
