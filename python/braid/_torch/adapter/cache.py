# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled adapters, and the lock that lets processes which start together build only once."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from braid._notices import tell
from braid._torch.adapter.errors import AdapterError
from braid._torch.adapter.sealed import seal_file, why_not_believed
from braid._torch.adapter.toolchain import Compiler, PackageFiles, TorchInstall, python_tag
from braid._trust import why_not_folder

ADAPTER_NAME = "_c10d.so"
REMEDY = "set BRAID_CACHE_DIR to a folder that has room and that only you can write to"


_told: set[str] = set()
_last_resort: list[Path] = []  # made once for this process


def cache_dir() -> Path:
    """Return a folder that can be written: $BRAID_CACHE_DIR, $XDG_CACHE_HOME/braid or ~/.cache/braid.

    Code is loaded from it. So the folder is not used if others may write there, or may swap a folder on its path.
    Then, or if the folder cannot be written, a folder of this user in the temporary directory is used. One line
    says so.

    Raises:
        AdapterError: the temporary directory cannot be used, either.
    """
    wanted = _wanted_cache_dir()
    why_not_wanted = why_not_cache(wanted) if wanted is not None else "there is no home directory"
    if wanted is not None and not why_not_wanted:
        return wanted
    fallback = _fallback(why_not_wanted)
    if wanted is not None:
        _tell_once(f"code is not kept in {wanted}, but in {fallback}: {why_not_wanted}")
    return fallback


def why_not_cache(folder: Path) -> str:
    """Make a folder if it is missing. Return why code is not kept there, or "" if it may be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        why = why_not_folder(folder)
        if not why:
            with tempfile.TemporaryFile(dir=folder):
                pass
        return why
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror})"


def _fallback(why_not_wanted: str) -> Path:
    own = Path(tempfile.gettempdir()) / f"braid-{os.getuid()}"
    if not why_not_cache(own):
        return own
    # Somebody else owns a folder of that name.
    if not _last_resort:
        try:
            _last_resort.append(Path(tempfile.mkdtemp(prefix="braid-")))
        except OSError as error:
            raise AdapterError(_nowhere(why_not_wanted, f"{own.parent} cannot be written")) from error
    if why := why_not_cache(_last_resort[0]):
        raise AdapterError(_nowhere(why_not_wanted, why))
    return _last_resort[0]


def _nowhere(*whys: str) -> str:
    return f"there is no folder to keep code in ({'; '.join(whys)}): {REMEDY}"


def _tell_once(line: str) -> None:
    if line not in _told:
        _told.add(line)
        tell(line)


def _wanted_cache_dir() -> Path | None:
    if chosen := os.environ.get("BRAID_CACHE_DIR"):
        return Path(chosen).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "braid"
    try:
        return Path.home() / ".cache" / "braid"
    except RuntimeError:
        return None  # no home directory


class CacheEntry:
    """One adapter's place in the cache.

    The name has two parts. The first is for torch, Python and our sources, the second for the compiler. A machine
    without a compiler takes any entry whose first part fits. So a cluster's login node can build for its compute
    nodes.
    """

    def __init__(self, root: Path, torch: TorchInstall, package: PackageFiles, compiler: Compiler | None) -> None:
        """Compute the names; nothing is written."""
        fit = _hash(torch.identity(), python_tag(), package.digest())
        self._root = root
        self._fit = f"torch{torch.minor[0]}.{torch.minor[1]}-{fit}"
        self.name = f"{self._fit}-{_hash(compiler.identity()) if compiler else 'any'}"
        self.doubt = ""
        self._any_compiler = compiler is None
        self._alone = False  # true while this process holds the lock; false if the file system has no locks

    @property
    def path(self) -> Path:
        """The adapter's file, which may not exist yet."""
        return self._root / self.name / ADAPTER_NAME

    def find(self) -> Path | None:
        """Return the adapter's file if it is there, whole, and safe from others. Else `doubt` may say why not."""
        found = sorted(self._root.glob(f"{self._fit}-*/{ADAPTER_NAME}")) if self._any_compiler else [self.path]
        for path in found:
            if why := why_not_believed(path):
                self.doubt = why
                _tell_once(f"a compiled adapter is not used: {why}")
            elif path.exists():
                return path
        return None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while the adapter is built.

        The kernel releases the lock when its holder dies. If the file system has no locks, several processes may
        build at once, each in its own folder. The last one to finish replaces the file. All files are right.
        """
        with (self._root / f"{self.name}.lock").open("a") as file:
            with contextlib.suppress(OSError):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    _tell_once("another process builds the adapter; waiting")
                    fcntl.flock(file, fcntl.LOCK_EX)
                self._alone = True
            try:
                yield
            finally:
                self._alone = False

    @contextlib.contextmanager
    def work_dir(self) -> Iterator[Path]:
        """Make a temporary folder to build in, on the cache's file system. REQUIRES: locked()."""
        prefix = f".building-{self.name}-"
        for left_by_killed_builder in self._root.glob(f"{prefix}*") if self._alone else ():
            shutil.rmtree(left_by_killed_builder, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=self._root, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def publish(self, built: Path) -> Path:
        """Seal a finished adapter, and move it to its place in one step."""
        seal_file(built)
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        built.replace(self.path)
        return self.path

    def log_path(self) -> Path:
        """Return the file that keeps the compiler's output of a failed build."""
        return self._root / f"{self.name}.log"


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
