# SPDX-License-Identifier: Apache-2.0
"""Workers tell each other a few words through the store of their process group. No collective is needed."""

import contextlib
import json
from functools import cached_property
from typing import Any

from braid import _own_groups
from braid._array.rendezvous.stores import UserStore
from braid._attempts import word_of_attempt
from braid._errors import CommunicatorTimeoutError


class Board:
    """What each worker has posted, by subject.

    Attributes:
        workers: how many workers read and write here.
        rank: the place of this one among them.
    """

    def __init__(self, group: Any, timeout_s: float | None = None) -> None:
        """Take the process group's workers. A reader waits as long as the group's store does, if not told."""
        import torch.distributed as dist
        from torch.distributed import distributed_c10d as c10d

        group = group or dist.group.WORLD
        number = _own_groups.count(group, "boards")
        self._default = c10d._get_default_store()
        self._folder = f"braid/data/{_own_groups.label(group)}/{number}"
        self._timeout_s = timeout_s or self._default.timeout.total_seconds()
        self.workers, self.rank = dist.get_world_size(group), dist.get_rank(group)

    @cached_property
    def _store(self) -> Any:
        """The keys of this board, which no earlier attempt of the job had. The first use waits for worker 0's."""
        import torch.distributed as dist

        try:
            store = UserStore(self._default)
            word = word_of_attempt(store, self._folder, is_first=self.rank == 0, timeout_s=self._timeout_s)
        except TimeoutError:
            raise self._absent(0) from None
        return dist.PrefixStore(f"{self._folder}/{word}", self._default)

    def post(self, subject: str, words: dict[str, Any]) -> None:
        """Let the others read `words`. Only the first call waits, for worker 0's first."""
        self._store.set(f"{subject}/{self.rank}", json.dumps(words))

    def read(self, subject: str) -> list[dict[str, Any]]:
        """Return what all workers have posted, by rank, and wait for it.

        Raises:
            CommunicatorTimeoutError: a worker did not post in time; the message names it.
        """
        from datetime import timedelta

        keys = [f"{subject}/{worker}" for worker in range(self.workers)]
        try:
            self._store.wait(keys, timedelta(seconds=self._timeout_s))
        except Exception as error:
            missing = next((worker for worker, key in enumerate(keys) if not self._store.check([key])), None)
            if missing is None:
                raise
            raise self._absent(missing) from error
        return [json.loads(words) for words in self._store.multi_get(keys)]

    def forget(self, subject: str) -> None:
        """Remove this worker's words, which all have read."""
        with contextlib.suppress(Exception):  # not every store can
            self._store.delete_key(f"{subject}/{self.rank}")

    def _absent(self, worker: int) -> CommunicatorTimeoutError:
        why = f"worker {worker} did not come to the same batch within {self._timeout_s:g} s"
        return CommunicatorTimeoutError(f"balanced batches: {why}: all workers must read their batches", worker)
