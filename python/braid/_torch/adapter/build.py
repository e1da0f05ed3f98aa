# SPDX-License-Identifier: Apache-2.0
"""Finds the adapter, or compiles it: one compiler process per core, then one link, then one rename."""

import errno
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from braid._cpu_quota import cores_to_use
from braid._notices import tell
from braid._torch.adapter.cache import ADAPTER_NAME, REMEDY, CacheEntry, cache_dir
from braid._torch.adapter.errors import AdapterError
from braid._torch.adapter.toolchain import Compiler, PackageFiles, TorchInstall, prebuilt_key, python_include_dirs

_TORCH_LIBRARIES = ("torch_python", "torch_cpu", "c10")
_BYTES_PER_COMPILER = 3 << 29  # the most that one compiler process needs for torch's headers
_ERROR_LINES = 6


def find_adapter(torch: TorchInstall, package: PackageFiles, compiler: Compiler | None) -> Path | None:
    """Return the adapter for this torch from the wheel or the cache; None if there is none."""
    return _find_prebuilt(torch, package) or CacheEntry(cache_dir(), torch, package, compiler).find()


def adapter_place(torch: TorchInstall, package: PackageFiles, compiler: Compiler | None) -> Path:
    """Return the file that build_adapter() would write; nothing is built."""
    return CacheEntry(cache_dir(), torch, package, compiler).path


def _find_prebuilt(torch: TorchInstall, package: PackageFiles) -> Path | None:
    path = package.prebuilt / prebuilt_key(torch) / ADAPTER_NAME
    return path if path.exists() else None


def ensure_adapter() -> Path:
    """Return the adapter for the installed torch. Build it if there is none yet.

    Any number of processes may call this at once: one builds, the others wait for it.

    Raises:
        AdapterError: torch is missing or too old, there is no compiler, or compiling failed.
    """
    torch = TorchInstall.current()
    package = PackageFiles.installed()
    if ready := _find_prebuilt(torch, package):
        return ready
    compiler = Compiler.find()
    return find_adapter(torch, package, compiler) or build_adapter(torch, package, compiler)


def build_adapter(
    torch: TorchInstall, package: PackageFiles, compiler: Compiler | None, *, force: bool = False
) -> Path:
    """Compile the adapter into the cache, unless another process did so in the meantime.

    Args:
        torch: the torch to compile for.
        package: braid's own sources, headers and library.
        compiler: the compiler, or None if there is none.
        force: compile even if a finished adapter is in the cache.

    Raises:
        AdapterError: there is no compiler, compiling failed, or the cache cannot be written. The message says
            where the compiler's full output is, or what to do.
    """
    folder = cache_dir()
    entry = CacheEntry(folder, torch, package, compiler)
    if compiler is None:
        entry.find()  # sets `doubt`: why a cached adapter is not used
        raise AdapterError(_no_compiler(torch, package, folder, entry.doubt))
    try:
        with entry.locked():
            ready = entry.find()
            if ready is not None and not force:
                return ready
            tell(f"building the torch {torch.version.partition('+')[0]} adapter (about 40 s, once) ...")
            with entry.work_dir() as work:
                return entry.publish(_compile(torch, package, compiler, work, entry.log_path()))
    except OSError as error:
        reason = error.strerror or str(error)
        raise AdapterError(f"the torch adapter cannot be built in {folder} ({reason}): {REMEDY}") from error


def _no_compiler(torch: TorchInstall, package: PackageFiles, folder: Path, doubt: str) -> str:
    chosen = os.environ.get("CXX", "").strip()
    missing = f"CXX={chosen} cannot be run" if chosen else "there is no C++ compiler"
    unused = f" ({doubt})" if doubt else ""
    return (
        f"braid has no adapter for torch {torch.version} yet{unused}, and {missing} to make one: install g++ 11 "
        "or newer, or run `braid build` as this user on a machine that has a compiler and shares the folder "
        f"{folder}, where only you may write, or have the owner of this installation run "
        f"`braid build --into {package.prebuilt}` on such a machine"
    )


def _compile(torch: TorchInstall, package: PackageFiles, compiler: Compiler, work: Path, log: Path) -> Path:
    command = [*compiler.command, *_compile_flags(torch, package), "-c"]
    sources = package.source_files()
    jobs = _parallel_jobs(len(sources))

    def compile_all(files: list[Path]) -> list[subprocess.CompletedProcess[str]]:
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(lambda file: _run([*command, str(file), "-o", f"{work / file.stem}.o"]), files))

    units = _write_units(sources, jobs, work)
    if any(result.returncode != 0 for result in compile_all(units)):
        # Names of two files may clash in one unit. And a real error is easier to read for a single file.
        units = sources
        _raise_on_failure(compile_all(units), log)

    target = work / ADAPTER_NAME
    objects = [f"{work / unit.stem}.o" for unit in units]
    _raise_on_failure(
        [_run([*compiler.command, "-shared", "-o", str(target), *objects, *_link_flags(torch, package)])], log
    )
    log.unlink(missing_ok=True)
    return target


def _write_units(sources: list[Path], count: int, work: Path) -> list[Path]:
    # torch's headers take nearly all of the time, so each compiler process reads them once for all of its files.
    units = [work / f"unit{number}.cc" for number in range(count)]
    for number, unit in enumerate(units):
        unit.write_text("".join(f'#include "{source}"\n' for source in sources[number::count]))
    return units


def _compile_flags(torch: TorchInstall, package: PackageFiles) -> list[str]:
    # torch's headers come first. They contain the pybind11 that registered torch's own types. With another
    # pybind11 the module would not know c10d::Backend.
    include_dirs = [*torch.include_dirs, package.include, *python_include_dirs()]
    return [
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        "-pthread",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
        "-DTORCH_EXTENSION_NAME=_c10d",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(f"-I{folder}" for folder in include_dirs),
    ]


def _link_flags(torch: TorchInstall, package: PackageFiles) -> list[str]:
    return [
        "-pthread",
        str(package.library),
        f"-L{torch.library_dir}",
        *(f"-l{name}" for name in _TORCH_LIBRARIES),
        "-Wl,-rpath,$ORIGIN/../../lib",  # from braid/prebuilt/<key>
        f"-Wl,-rpath,{package.library.parent}",
        f"-Wl,-rpath,{torch.library_dir}",
        "-Wl,-z,now",  # a missing symbol shows when the adapter is loaded, not in the middle of training
    ]


def _parallel_jobs(sources: int) -> int:
    return max(1, min(sources, int(cores_to_use()), _available_memory() // _BYTES_PER_COMPILER))


def _available_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def _raise_on_failure(results: list[subprocess.CompletedProcess[str]], log: Path) -> None:
    failed = [result for result in results if result.returncode != 0]
    if not failed:
        return
    try:
        log.write_text("".join(f"$ {' '.join(result.args)}\n{result.stdout}\n" for result in failed))
        everything = f"everything is in {log}"
    except OSError as error:
        everything = f"its output cannot be kept in {log}: {error.strerror}"
    lines = [line for result in failed for line in result.stdout.splitlines() if "error" in line.lower()]
    if not lines:
        lines = failed[0].stdout.splitlines() or [f"the compiler ended with status {failed[0].returncode}"]
    first = "\n  ".join(lines[:_ERROR_LINES])
    if any(os.strerror(errno.ENOSPC) in result.stdout for result in failed):
        first += f"\n  {REMEDY}, or TMPDIR, where the compiler writes, too"
    raise AdapterError(f"compiling braid's torch adapter failed ({everything}):\n  {first}")


def export_adapter(adapter: Path, torch: TorchInstall, folder: Path) -> Path:
    """Copy a finished adapter to ``<folder>/<key>/_c10d.so``. Wheels have it in ``braid/prebuilt``."""
    target = folder / prebuilt_key(torch) / ADAPTER_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(adapter, target)
    return target
