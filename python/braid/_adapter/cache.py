# SPDX-License-Identifier: Apache-2.0
"""Where compiled adapters are kept, and how processes that start together build one only once."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from braid._adapter.toolchain import Compiler, PackageFiles, TorchInstall, python_tag

ADAPTER_NAME = "_c10d.so"


def cache_dir() -> Path:
    """Return a folder that can be written: $BRAID_CACHE_DIR, $XDG_CACHE_HOME/braid or ~/.cache/braid.

    Where that cannot be written, a folder of the user's own in the temporary directory.
    """
    wanted = _wanted_cache_dir()
    if wanted is not None and _writable(wanted):
        return wanted
    fallback = Path(tempfile.gettempdir()) / f"braid-{os.getuid()}"
    with contextlib.suppress(OSError):
        fallback.mkdir(mode=0o700, exist_ok=True)
    if _is_private(fallback) and _writable(fallback):
        return fallback
    # Somebody else owns that name. Code is loaded from here, so it must be ours alone.
    return Path(tempfile.mkdtemp(prefix="braid-"))


def _wanted_cache_dir() -> Path | None:
    if chosen := os.environ.get("BRAID_CACHE_DIR"):
        return Path(chosen).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "braid"
    try:
        return Path.home() / ".cache" / "braid"
    except RuntimeError:
        return None  # no home directory


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_private(folder: Path) -> bool:
    try:
        info = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o022


class CacheEntry:
    """One adapter's place in the cache.

    The name has two parts: what the adapter is for (torch, Python, our sources) and which compiler made it. A
    machine without a compiler takes any entry whose first part fits, so that a cluster's login node can build
    for its compute nodes.
    """

    def __init__(self, root: Path, torch: TorchInstall, package: PackageFiles, compiler: Compiler | None) -> None:
        """Compute the names; nothing is written."""
        fit = _hash(torch.identity(), python_tag(), package.digest())
        self._root = root
        self._fit = f"torch{torch.minor[0]}.{torch.minor[1]}-{fit}"
        self.name = f"{self._fit}-{_hash(compiler.identity()) if compiler else 'any'}"
        self._any_compiler = compiler is None
        self._alone = False  # true while the lock is really held

    @property
    def path(self) -> Path:
        """Where the adapter is, or will be."""
        return self._root / self.name / ADAPTER_NAME

    def find(self) -> Path | None:
        """Return the adapter's file when it is there."""
        if self._any_compiler:
            return next(iter(sorted(self._root.glob(f"{self._fit}-*/{ADAPTER_NAME}"))), None)
        return self.path if self.path.exists() else None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while the adapter is built.

        The kernel releases the lock when its holder dies. Where a file system has no locks, several processes
        may build at once, each in a folder of its own; the last to finish wins, and all of them are right.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / f"{self.name}.lock").open("a") as file:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
                self._alone = True
            try:
                yield
            finally:
                self._alone = False

    @contextlib.contextmanager
    def work_dir(self) -> Iterator[Path]:
        """Give a folder to build in, on the cache's own file system. REQUIRES: locked()."""
        prefix = f".building-{self.name}-"
        for left_by_killed_builder in self._root.glob(f"{prefix}*") if self._alone else ():
            shutil.rmtree(left_by_killed_builder, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=self._root, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def publish(self, built: Path) -> Path:
        """Put a finished adapter in its place, in one step."""
        self.path.parent.mkdir(exist_ok=True)
        built.replace(self.path)
        return self.path

    def log_path(self) -> Path:
        """Where the compiler's output of a failed build is kept."""
        return self._root / f"{self.name}.log"


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
