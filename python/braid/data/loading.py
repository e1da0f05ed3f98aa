# SPDX-License-Identifier: Apache-2.0
"""Tells a sampler which batch a DataLoader has handed out: with worker processes it is ahead of that."""

import functools
import time
from typing import Any

_MARK = "_braid_tells"


def watch_loaders() -> None:
    """Let all iterators of DataLoaders tell batches that come from here. A second call does nothing."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    original = _BaseDataLoaderIter.__next__
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def tell_and_return(self: Any) -> Any:
        _refuse_batches_as_samples(self._index_sampler)
        entered = time.perf_counter()
        try:
            data = original(self)
        except StopIteration:
            if (finished := getattr(self._sampler_iter, "handed_out_all", None)) is not None:
                finished()
            raise
        if (told := getattr(self._sampler_iter, "handed_out", None)) is not None:
            told(self._num_yielded, entered)
        return data

    setattr(tell_and_return, _MARK, True)
    _BaseDataLoaderIter.__next__ = tell_and_return


def _refuse_batches_as_samples(indices: Any) -> None:
    """Raise ValueError if a DataLoader makes batches of what are batches already: samples would be nonsense."""
    inner = getattr(indices, "sampler", None)
    if inner is not indices and hasattr(inner, "_hands_out"):
        raise ValueError(
            "a BalancedSampler draws whole batches: give DataLoader(data, batch_sampler=sampler), without "
            "batch_size= and sampler="
        )
