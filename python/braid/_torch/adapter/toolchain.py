# SPDX-License-Identifier: Apache-2.0
"""The three inputs of the adapter's build: the installed torch, a C++ compiler, and our own files."""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from braid._errors import NO_TORCH
from braid._torch.adapter.errors import AdapterError

OLDEST_TORCH = (2, 11)
_COMPILERS = ("g++", "c++", "clang++")


@dataclass(frozen=True)
class TorchInstall:
    """The torch that this interpreter imports."""

    version: str
    root: Path
    cxx11_abi: bool

    @classmethod
    def current(cls) -> "TorchInstall":
        """Describe the torch that this interpreter imports.

        Raises:
            AdapterError: there is no torch, it is older than 2.11, or its C++ headers are missing.
        """
        try:
            import torch
        except ImportError as error:
            raise AdapterError(f"braid's torch backend needs torch ({error}): {NO_TORCH}") from error
        return cls(
            version=str(torch.__version__),
            root=Path(torch.__file__).parent,
            cxx11_abi=bool(torch.compiled_with_cxx11_abi()),
        ).checked()

    def checked(self) -> "TorchInstall":
        """Return self.

        Raises:
            AdapterError: this torch is too old, or its C++ headers are missing.
        """
        if self.minor < OLDEST_TORCH:
            raise AdapterError(
                f"braid needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer, and this is torch "
                f"{self.version}: upgrade torch"
            )
        if not self.include_dirs[0].is_dir():
            raise AdapterError(
                f"this torch came without its C++ headers ({self.include_dirs[0]}): reinstall torch"
            )
        return self

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor version number; (0, 0) if the version cannot be read."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """The folders of torch's headers. The first also has the pybind11 that torch itself was built with."""
        return (self.root / "include", self.root / "include" / "torch" / "csrc" / "api" / "include")

    @property
    def library_dir(self) -> Path:
        """The folder of libtorch_python.so and torch's other libraries."""
        return self.root / "lib"

    def identity(self) -> str:
        """Return a text that differs if the files differ: version, folder, size and time of the main library."""
        try:
            stat = (self.library_dir / "libtorch_python.so").stat()
            stamp = f"{stat.st_size}:{stat.st_mtime_ns}"
        except OSError:
            stamp = "none"
        return f"{self.version}|{self.root}|{stamp}|{int(self.cxx11_abi)}"


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, and the text that ``--version`` prints."""

    command: tuple[str, ...]
    version: str

    @classmethod
    def find(cls) -> "Compiler | None":
        """Return $CXX if set, else the first of g++, c++ and clang++ that runs; None if that cannot be run."""
        wanted = os.environ.get("CXX", "").strip()
        for name in [wanted] if wanted else _COMPILERS:
            command = shlex.split(name)
            version = _version_of(command)
            if version is not None:
                return cls((shutil.which(command[0]) or command[0], *command[1:]), version)
        return None

    def identity(self) -> str:
        """Return a text that differs if the compiler, its release or its options differ."""
        return f"{shlex.join(self.command[1:])}|{self.version}"

    def __str__(self) -> str:
        """Return the command and the first line of the version."""
        return f"{shlex.join(self.command)} ({self.version.partition(chr(10))[0] or 'unknown version'})"


def _version_of(command: list[str]) -> str | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@dataclass(frozen=True)
class PackageFiles:
    """The wheel's installed files: adapter sources, headers and library of the core, ready-made adapters."""

    sources: Path
    include: Path
    library: Path
    prebuilt: Path

    @classmethod
    def installed(cls) -> "PackageFiles":
        """Find the files beside the compiled module _core. In editable installs they are there, too.

        Raises:
            AdapterError: braid runs from a source tree that was never installed.
        """
        spec = importlib.util.find_spec("braid._core")
        if spec is None or spec.origin is None:
            raise AdapterError(
                "braid is not installed, only its source is here: run `pip install .` in its folder"
            )
        root = Path(spec.origin).parent
        return cls(root / "c10d_src", root / "include", root / "lib" / "libbraid.so", root / "prebuilt")

    def source_files(self) -> list[Path]:
        """Return the adapter's .cc files, sorted.

        Raises:
            AdapterError: there are no .cc files.
        """
        files = sorted(self.sources.glob("*.cc"))
        if not files:
            raise AdapterError(
                f"the torch adapter's sources are missing from {self.sources}: reinstall torch-braid"
            )
        return files

    def digest(self) -> str:
        """Return a hash of all files of braid that the adapter is made of, with names and contents.

        Raises:
            AdapterError: a file is missing.
        """
        state = hashlib.blake2b(digest_size=16)
        try:
            for path in [*self.source_files(), *sorted(self.include.rglob("*.h")), self.library]:
                content = path.read_bytes()
                state.update(f"{path.name}:{len(content)}:".encode())
                state.update(content)
        except OSError as error:
            raise AdapterError(f"a file of torch-braid cannot be read ({error}): reinstall torch-braid") from error
        return state.hexdigest()


def python_tag() -> str:
    """Return interpreter, version and platform as in names of extension modules: cpython-311-x86_64-linux-gnu."""
    return str(sysconfig.get_config_var("SOABI") or "unknown")


def prebuilt_key(torch: TorchInstall) -> str:
    """Return the name of the folder in braid/prebuilt for this minor version of torch and this interpreter."""
    return f"torch{torch.minor[0]}.{torch.minor[1]}-{python_tag()}"


def python_include_dirs() -> list[Path]:
    """Return the folders of Python.h.

    Raises:
        AdapterError: this Python has no Python.h.
    """
    dirs = list(dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("include", "platinclude")))
    if not any((folder / "Python.h").exists() for folder in dirs):
        raise AdapterError(
            f"Python.h is missing from {dirs[0]}, so the torch adapter cannot be compiled: install the "
            "development package of this Python (python3-dev on Debian and Ubuntu, python3-devel on Fedora)"
        )
    return dirs
