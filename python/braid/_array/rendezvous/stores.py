# SPDX-License-Identifier: Apache-2.0
"""Key-value stores, through which ranks leave each other a few hundred bytes before they know each other."""

import contextlib
import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from braid._array.rendezvous.protocol import MOST_VALUE_BYTES
from braid._errors import CommunicatorError
from braid._trust import why_not

_SHORTEST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02
_SLICE_S = 0.2
_SHORT_S = 1.0
_LONGEST_NAME = 200


class Store(Protocol):
    """What ``braid.Communicator`` takes for a store: the part of torch's c10d stores that it needs.

    All ranks must reach the same keys. Communicators that exist at the same time need two names, or two stores.
    """

    def set(self, key: str, value: bytes, /) -> Any:
        """Keep the value; it may replace another one."""

    def wait(self, keys: list[str], timeout: timedelta, /) -> Any:
        """Return when all keys exist; raise anything when they do not within the timeout."""

    def get(self, key: str, /) -> bytes:
        """Return the value of a key that exists."""


class KeyValueStore:
    """A store as the core sees it; each communicator has its own, and uses it from one thread."""

    def set(self, key: str, value: bytes) -> None:
        """Keep the value; it may replace another one."""
        raise NotImplementedError

    def get(self, key: str, timeout_s: float) -> bytes:
        """Return the value as soon as the key exists; a plain TimeoutError when it does not in time."""
        raise NotImplementedError

    def again(self) -> "KeyValueStore":
        """Return the same store for another communicator."""
        return self

    def apart(self) -> "KeyValueStore":
        """Return the same store for another thread: whoever waits there keeps nobody waiting here."""
        return self.again()

    def rest(self) -> None:
        """Let go of what is only needed while ranks meet. The next call takes it up again."""

    def close(self) -> None:
        """Let go of everything."""


class UserStore(KeyValueStore):
    """A store that the user made."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def apart(self) -> "KeyValueStore":
        try:
            return UserStore(self._store.clone())  # type: ignore[attr-defined]
        except Exception:  # not all have it, and some have it and raise
            return self

    def get(self, key: str, timeout_s: float) -> bytes:
        # Stores have no error of their own for a timeout, the clock tells. In slices, so that Ctrl-C gets through.
        deadline = time.monotonic() + timeout_s
        if timeout_s <= _SHORT_S and callable(check := getattr(self._store, "check", None)):
            return self._look(check, key, deadline)
        while True:
            begun = time.monotonic()
            slice_s = max(0.001, min(_SLICE_S, deadline - begun))
            try:
                self._store.wait([key], timedelta(seconds=slice_s))
                return bytes(self._store.get(key))
            except Exception as error:
                now = time.monotonic()
                if now >= deadline:
                    raise TimeoutError(f"the store has no {key!r}") from error
                if now - begun < slice_s * 0.9:
                    raise

    def _look(self, check: Callable[[list[str]], bool], key: str, deadline: float) -> bytes:
        # torch's stores write a line about each wait that was in vain.
        pause_s = _SHORTEST_PAUSE_S
        while not check([key]):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the store has no {key!r}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return bytes(self._store.get(key))


class FolderStore(KeyValueStore):
    """One file per key, in a folder that all ranks see. The files stay: they are small, and not believed later.

    The folder and its files must be this user's or root's, and neither group nor others may write there. For the
    folders on the way this does not matter: whoever swaps the folder puts one there that is not believed.
    """

    def __init__(self, path: str) -> None:
        self._folder = Path(path)
        try:
            # The cards hold the secret of the group: they are for this user alone.
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened():
                pass
        except OSError as error:
            raise CommunicatorError(f"ranks cannot meet in the folder {path}: {error.strerror}") from error

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Give the folder, found good: what is then done in it is done there, whatever its name means later."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if why := why_not(self._folder, os.fstat(folder)):
                raise CommunicatorError(
                    f"ranks cannot meet in the folder {self._folder}: {why}. Who may write there could join the "
                    "group; give a folder that only you may write to, or one that does not exist yet"
                )
            yield folder
        finally:
            os.close(folder)

    def _file(self, key: str) -> str:
        name = quote(key, safe="")
        return name if len(name) < _LONGEST_NAME else hashlib.sha256(key.encode()).hexdigest()

    def set(self, key: str, value: bytes) -> None:
        fresh = f".{os.getpid()}.{threading.get_ident()}.{time.monotonic_ns()}"
        try:
            with self._opened() as folder:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.open(fresh, flags, 0o600, dir_fd=folder)
                try:
                    with open(file, "wb") as out:  # noqa: PTH123 - a descriptor
                        out.write(value)
                    os.rename(fresh, self._file(key), src_dir_fd=folder, dst_dir_fd=folder)  # whole, or not there
                except OSError:
                    with contextlib.suppress(OSError):
                        os.unlink(fresh, dir_fd=folder)
                    raise
        except OSError as error:
            raise CommunicatorError(f"cannot write in the folder {self._folder}: {error.strerror}") from error

    def get(self, key: str, timeout_s: float) -> bytes:
        deadline, pause_s = time.monotonic() + timeout_s, _SHORTEST_PAUSE_S
        file = self._folder / self._file(key)
        while True:
            try:
                with self._opened() as folder:
                    return self._read(folder, file)
            except FileNotFoundError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"there is no {file}") from None
            except OSError as error:
                # On NFS a file that another host has just replaced; the next try finds the new one.
                if error.errno != errno.ESTALE or time.monotonic() >= deadline:
                    raise CommunicatorError(f"cannot read {file}: {error.strerror}") from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _read(self, folder: int, file: Path) -> bytes:
        # Neither through a link, nor waiting for whoever holds the other end of a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(file.name, flags, dir_fd=folder), "rb") as found:  # noqa: PTH123 - a descriptor
            info = os.fstat(found.fileno())
            if why := why_not(file, info):
                raise CommunicatorError(f"cannot read {file}: {why}")
            value = found.read(MOST_VALUE_BYTES + 1)
        if len(value) > MOST_VALUE_BYTES:
            raise CommunicatorError(
                f"cannot read {file}: it has more than the {MOST_VALUE_BYTES} bytes of a value"
            )
        return value
