# SPDX-License-Identifier: Apache-2.0
"""Key-value stores. Ranks exchange a few hundred bytes through them before they are connected."""

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
    """The methods that ``braid.Communicator`` needs of a store. torch's c10d stores have them.

    All ranks must reach the same keys. Communicators that exist at the same time need different names or stores.
    """

    def set(self, key: str, value: bytes, /) -> Any:
        """Keep the value; it may replace another one."""

    def wait(self, keys: list[str], timeout: timedelta, /) -> Any:
        """Return when all keys exist. Raise any exception if they do not exist within the timeout."""

    def get(self, key: str, /) -> bytes:
        """Return the value of a key that exists."""


class KeyValueStore:
    """A store for the core. Each communicator has its own, and uses it from one thread."""

    def set(self, key: str, value: bytes) -> None:
        """Keep the value; it may replace another one."""
        raise NotImplementedError

    def get(self, key: str, timeout_s: float) -> bytes:
        """Return the value as soon as the key exists. Raise a plain TimeoutError after `timeout_s`."""
        raise NotImplementedError

    def again(self) -> "KeyValueStore":
        """Return the same store for another communicator."""
        return self

    def apart(self) -> "KeyValueStore":
        """Return the same store for another thread. A wait in one does not delay the other."""
        return self.again()

    def give_up_when(self, condition: Callable[[], bool]) -> None:
        """Stop trying to reach a store that is away as soon as `condition()` is true, if this store ever tries."""

    def rest(self) -> None:
        """Free the resources that are only needed while ranks meet. The next call opens them again."""

    def close(self) -> None:
        """Free all resources."""


class UserStore(KeyValueStore):
    """A store that the user made."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def apart(self) -> "KeyValueStore":
        try:
            return UserStore(self._store.clone())  # type: ignore[attr-defined]
        except Exception:  # some stores have no clone(), and some raise in clone()
            return self

    def get(self, key: str, timeout_s: float) -> bytes:
        # Stores have no special error for a timeout, so the clock decides. Waits are short, so that Ctrl-C works.
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
        # torch's stores write a line about each wait that times out. So this asks again and again.
        pause_s = _SHORTEST_PAUSE_S
        while not check([key]):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the store has no {key!r}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return bytes(self._store.get(key))


class FolderStore(KeyValueStore):
    """One file per key, in a folder that all ranks see. The files stay: they are small, and not trusted later.

    The folder and its files must belong to this user or root, and neither group nor others may write there. The
    folders on its path need not: if somebody swaps the folder, the new one is not trusted.
    """

    def __init__(self, path: str) -> None:
        self._folder = Path(path)
        try:
            # The endpoints hold the secret of the group: they are for this user alone.
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened():
                pass
        except OSError as error:
            raise CommunicatorError(f"ranks cannot meet in the folder {path}: {error.strerror}") from error

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder and check it. The descriptor stays valid if somebody swaps the folder later."""
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
                    os.rename(fresh, self._file(key), src_dir_fd=folder, dst_dir_fd=folder)  # never half of it
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
                # ESTALE: on NFS another host has just replaced the file. The next try finds the new one.
                if error.errno != errno.ESTALE or time.monotonic() >= deadline:
                    raise CommunicatorError(f"cannot read {file}: {error.strerror}") from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _read(self, folder: int, file: Path) -> bytes:
        # These flags do not follow a link, and do not wait for the other end of a pipe.
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


class Below(KeyValueStore):
    """The keys of a store below a prefix."""

    def __init__(self, store: KeyValueStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def set(self, key: str, value: bytes) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def get(self, key: str, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        while True:
            # torch's stores write a line about each longer wait that times out.
            try:
                return self._store.get(
                    f"{self._prefix}/{key}", min(_SHORT_S, max(0.0, deadline - time.monotonic()))
                )
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise

    def apart(self) -> KeyValueStore:
        return Below(self._store.apart(), self._prefix)

    def rest(self) -> None:
        self._store.rest()

    def close(self) -> None:
        self._store.close()
