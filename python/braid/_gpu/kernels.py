# SPDX-License-Identifier: Apache-2.0
"""The kernels' machine code for a GPU: nvcc's from the package, or NVRTC's, made here from their source."""

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

# As in cmake/BraidCuda.cmake. With these options the GPU computes the same bytes as the host.
EXACT = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")
_OPTIONS = (*EXACT, "--std=c++20", "--device-as-default-execution-space")

LEAST_CAPABILITY = (8, 0)


@dataclass
class Loaded:
    """A GPU with the kernels loaded, and the file that has them."""

    gpu: _core.Gpu
    image: Path


_loaded: dict[int, Loaded] = {}
_lock = threading.Lock()


def loaded(device: int) -> Loaded:
    """Return a device with the kernels. The first call loads them.

    Raises:
        RuntimeError: there is no driver or no such device, the device is too old, or there is no machine code for
            it. The message says what to do.
    """
    found = _loaded.get(device)
    if found is None:
        with _lock:
            found = _loaded.get(device) or _load(device)
            _loaded[device] = found
    return found


def fat_binary() -> Path | None:
    """Return the file that nvcc made when braid was built; None if braid was built without nvcc."""
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
    """Return a sealed file of machine code for a compute capability, from the cache or made by NVRTC.

    Raises:
        NvrtcError: there is no NVRTC, it fails, or the file cannot be written.
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
