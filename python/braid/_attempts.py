# SPDX-License-Identifier: Apache-2.0
"""A word that the ranks of one attempt of a job share, and that no earlier attempt had.

torchrun starts the ranks anew after a failure. Its store outlives them, and keeps all keys of the earlier attempt.
"""

import os
import secrets
import time

from braid._array.rendezvous.stores import KeyValueStore

_ATTEMPT = "TORCHELASTIC_RESTART_COUNT"  # of this rank's agent
_PAUSE_S = 0.02
# Agents that came later have counted fewer attempts than rank 0's: after so long its word counts all the same.
_UNEQUAL_COUNTS_S = 60.0


def word_of_attempt(store: KeyValueStore, key: str, *, is_first: bool, timeout_s: float) -> str:
    """Return the word of this attempt, which the first of some ranks draws.

    Args:
        store: one that all of them see.
        key: where in it; each use has its own.
        is_first: whether this rank draws the word. Exactly one of them does.
        timeout_s: how long the others wait for the word, in seconds.

    Raises:
        TimeoutError: the first rank did not come.

    Example:
        >>> from braid._array.rendezvous.stores import UserStore
        >>> from torch.distributed import HashStore
        >>> len(word_of_attempt(UserStore(HashStore()), "speeds", is_first=True, timeout_s=1.0))
        16
    """
    attempt = int(os.environ.get(_ATTEMPT) or 0)
    if is_first:
        word = secrets.token_hex(8)
        store.set(key, f"{attempt} {word}".encode())
        return word
    begun = time.monotonic()
    found = seen = store.get(key, timeout_s)
    # A word of an earlier attempt, until it changes.
    while int(found.split()[0]) < attempt and found == seen:
        if time.monotonic() - begun > min(_UNEQUAL_COUNTS_S, timeout_s / 2):
            break
        time.sleep(_PAUSE_S)
        found = store.get(key, timeout_s)
    return found.split()[1].decode()
