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
            AdapterError: there is none, it is older than 2.11, or it came without its C++ headers.
        """
        try:
            import torch
        except ImportError as error:
            raise AdapterError(f"braid's torch backend needs torch, which cannot be imported: {error}") from error
        return cls(
            version=str(torch.__version__),
            root=Path(torch.__file__).parent,
            cxx11_abi=bool(torch.compiled_with_cxx11_abi()),
        ).checked()

    def checked(self) -> "TorchInstall":
        """Return self.

        Raises:
            AdapterError: this torch is too old, or came without its C++ headers.
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
        """Major and minor version number; (0, 0) when the version makes no sense."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Where its headers are; the first also holds the pybind11 that torch itself was built with."""
        return (self.root / "include", self.root / "include" / "torch" / "csrc" / "api" / "include")

    @property
    def library_dir(self) -> Path:
        """Where libtorch_python.so and the others are."""
        return self.root / "lib"

    def identity(self) -> str:
        """Differ whenever the installed files differ: version, place, and stamp of the main library."""
        try:
            stat = (self.library_dir / "libtorch_python.so").stat()
            stamp = f"{stat.st_size}:{stat.st_mtime_ns}"
        except OSError:
            stamp = "none"
        return f"{self.version}|{self.root}|{stamp}|{int(self.cxx11_abi)}"


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command, and what it says of itself."""

    command: tuple[str, ...]
    version: str

    @classmethod
    def find(cls) -> "Compiler | None":
        """Take $CXX when set, else the first of g++, c++, clang++ on PATH; None when that cannot be run."""
        wanted = os.environ.get("CXX", "").strip()
        for name in [wanted] if wanted else _COMPILERS:
            command = shlex.split(name)
            version = _version_of(command)
            if version is not None:
                return cls((shutil.which(command[0]) or command[0], *command[1:]), version)
        return None

    def identity(self) -> str:
        """Differ whenever another compiler, or another release of it, is used."""
        return f"{shlex.join(self.command[1:])}|{self.version}"

    def __str__(self) -> str:
        """Its command and the first line of its version."""
        return f"{shlex.join(self.command)} ({self.version.partition(chr(10))[0] or 'unknown version'})"


def _version_of(command: list[str]) -> str | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@dataclass(frozen=True)
class PackageFiles:
    """What the wheel installed: adapter sources, headers and library of the core, ready-made adapters."""

    sources: Path
    include: Path
    library: Path
    prebuilt: Path

    @classmethod
    def installed(cls) -> "PackageFiles":
        """Find them beside the compiled module _core, which is where they are in editable installs, too.

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
        """List the adapter's .cc files, sorted.

        Raises:
            AdapterError: there are none.
        """
        files = sorted(self.sources.glob("*.cc"))
        if not files:
            raise AdapterError(
                f"the torch adapter's sources are missing from {self.sources}: reinstall torch-braid"
            )
        return files

    def digest(self) -> str:
        """Hash everything of ours that the adapter is made of, names and contents.

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
    """Interpreter, version and platform, as extension modules are named: cpython-311-x86_64-linux-gnu."""
    return str(sysconfig.get_config_var("SOABI") or "unknown")


def prebuilt_key(torch: TorchInstall) -> str:
    """Name the folder below braid/prebuilt that holds the adapter for this torch minor and interpreter."""
    return f"torch{torch.minor[0]}.{torch.minor[1]}-{python_tag()}"


def python_include_dirs() -> list[Path]:
    """Return where Python.h is.

    Raises:
        AdapterError: this Python came without it.
    """
    dirs = list(dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("include", "platinclude")))
    if not any((folder / "Python.h").exists() for folder in dirs):
        raise AdapterError(
            f"Python.h is missing from {dirs[0]}, so the torch adapter cannot be compiled: install the "
            "development package of this Python (python3-dev on Debian and Ubuntu, python3-devel on Fedora)"
        )
    return dirs
