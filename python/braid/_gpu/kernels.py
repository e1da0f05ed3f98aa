# SPDX-License-Identifier: Apache-2.0
"""The kernels' machine code for a GPU: what nvcc put into the package, or what NVRTC makes of their source."""

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path

from braid import _core
from braid._gpu import nvrtc
from braid._torch.adapter.cache import REMEDY, cache_dir
from braid._torch.adapter.errors import AdapterError
from braid._torch.adapter.sealed import content_of, why_not_believed, write_sealed
from braid._torch.adapter.toolchain import PackageFiles

# As in cmake/BraidCuda.cmake: these make the bytes those of the host.
EXACT = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")
_OPTIONS = (*EXACT, "--std=c++20", "--device-as-default-execution-space")

LEAST_CAPABILITY = (8, 0)


@dataclass
class Loaded:
    """A GPU with the kernels in it, and the file that they came from."""

    gpu: _core.Gpu
    image: Path


_loaded: dict[int, Loaded] = {}
_lock = threading.Lock()


def loaded(device: int) -> Loaded:
    """Return a device with the kernels, which the first call loads.

    Raises:
        RuntimeError: there is no driver, no such device, an old one, or no machine code for it; says what to do.
    """
    found = _loaded.get(device)
    if found is None:
        with _lock:
            found = _loaded.get(device) or _load(device)
            _loaded[device] = found
    return found


def fat_binary() -> Path | None:
    """Return what nvcc made when braid was built, if there was one."""
    path = PackageFiles.installed().library.parent / "kernels.fatbin"
    return path if path.exists() else None


def _load(device: int) -> Loaded:
    count = _core.cuda_devices()
    if not 0 <= device < count:
        raise RuntimeError(f"there is no CUDA device {device}, there are {count}")
    capability = _core.cuda_capability(device)
    if capability < LEAST_CAPABILITY:
        raise RuntimeError(
            f"CUDA device {device} has compute capability {capability[0]}.{capability[1]}, braid needs 8.0 or more"
        )
    ready = fat_binary()
    why_not = "braid was built without nvcc"
    if ready is not None:
        try:
            return Loaded(_core.Gpu(device, ready.read_bytes()), ready)
        except RuntimeError as error:  # made for other devices, or for a newer driver
            why_not = str(error)
    try:
        image = compiled(capability)
        return Loaded(_core.Gpu(device, content_of(image)), image)
    except (RuntimeError, AdapterError, ValueError, OSError) as error:
        raise RuntimeError(f"{why_not}; and NVRTC could not help: {error}") from None


def compiled(capability: tuple[int, int], *, folder: Path | None = None) -> Path:
    """Return a sealed file of machine code for such devices, out of the cache or made by NVRTC.

    Raises:
        NvrtcError: there is no NVRTC, it fails, or what it made cannot be kept.
        AdapterError: there is no folder to keep code in.
    """
    compiler = nvrtc.library()
    include = PackageFiles.installed().include
    source = include / "cuda" / "kernels.cu"
    sources = [*sorted((include / "cuda").glob("*.cu*")), include / "cuda" / "job.h"]
    sources += [include / "codec" / "formulas.h", include / "base" / "half.h"]
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", f"--include-path={include}", *_OPTIONS]
    digest = hashlib.blake2b(repr((nvrtc.version(compiler), options[0], _OPTIONS)).encode(), digest_size=8)
    for path in sources:
        digest.update(path.read_bytes())
    folder = folder or cache_dir()
    path = folder / f"kernels-sm{capability[0]}{capability[1]}-{digest.hexdigest()}.cubin"
    if not path.exists() or why_not_believed(path):
        image = nvrtc.compile_text(compiler, source.read_text(), source.name, options)
        try:
            write_sealed(path, image)
        except OSError as error:
            raise nvrtc.NvrtcError(f"{path} cannot be written ({error.strerror}): {REMEDY}") from error
    return path
