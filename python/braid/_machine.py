# SPDX-License-Identifier: Apache-2.0
"""What this machine offers a communication backend, tried out rather than assumed."""

import ctypes
import errno
import importlib.util
import mmap
import os
import platform
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SHARED_MEMORY = Path("/proc/self/ns/ipc")
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)
_VECTOR_FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "f16c",
    "fma",
    "avx512f",
    "avx512bw",
    "avx512_bf16",
    "avx512_fp16",
)
_ARM_FEATURES = ("asimd", "asimdhp", "sve", "sve2", "bf16")

# Runs in a process of its own and reads its parent's memory: that is harder to be allowed than the other way
# round, and as hard as between the ranks of one job.
_READ_PARENT = """
import ctypes, os, sys
class Vec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
target = ctypes.create_string_buffer(8)
read = ctypes.CDLL(None, use_errno=True).process_vm_readv
n = read(os.getppid(), ctypes.byref(Vec(ctypes.addressof(target), 8)), ctypes.c_ulong(1),
         ctypes.byref(Vec(int(sys.argv[1]), 8)), ctypes.c_ulong(1), ctypes.c_ulong(0))
sys.exit(ctypes.get_errno() if n != 8 else 0 if target.raw == b"braided!" else 255)
"""


@dataclass(frozen=True)
class Capability:
    """Something a transport may use: whether it is here, and the detail or the reason."""

    name: str
    available: bool
    detail: str


def cpu_model() -> str:
    """Return the processor's name, as the kernel has it."""
    return _cpuinfo().get("model name") or platform.machine()


def cpu_features() -> list[str]:
    """List the vector instruction sets of the processor that matter here."""
    flags = _cpu_flags()
    return [name for name in (*_VECTOR_FEATURES, *_ARM_FEATURES) if name in flags]


def is_virtual() -> bool:
    """Does the processor tell of a hypervisor? Those of other makes than x86 do not, even in a virtual machine."""
    return "hypervisor" in _cpu_flags()


def _cpu_flags() -> set[str]:
    info = _cpuinfo()
    return set(info.get("flags", info.get("Features", "")).split())


def _cpuinfo() -> dict[str, str]:
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def memory_bytes() -> dict[str, int]:
    """Return the memory in bytes: ``total``, and ``available`` without swapping."""
    known = {"total": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return known
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if len(line.split()) > 1}
    if "MemAvailable" in kib:
        known["available"] = kib["MemAvailable"] * 1024
    return known


def capabilities() -> list[Capability]:
    """Try out everything that a transport may use."""
    return [single_copy(), memfd(), shared_memory_space(), cuda(), mpi()]


def single_copy() -> Capability:
    """Can one process read another's memory directly (process_vm_readv)?"""
    name = "process_vm_readv"
    code = _read_from_child()
    if code == 0:
        return Capability(name, True, "a rank may read another's memory in one copy")
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0) == 0 and _read_from_child() == 0:
        libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(0), 0, 0, 0)
        return Capability(name, True, "one copy between ranks that opt in (kernel.yama.ptrace_scope=1)")
    reason = errno.errorcode.get(code, f"status {code}")
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
        reason += f", kernel.yama.ptrace_scope={scope}"
    except OSError:
        pass
    return Capability(name, False, f"refused: {reason} (a container needs the capability SYS_PTRACE for it)")


def _read_from_child() -> int:
    secret = ctypes.create_string_buffer(b"braided!")
    command = [sys.executable, "-I", "-S", "-c", _READ_PARENT, str(ctypes.addressof(secret))]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode


def memfd() -> Capability:
    """Can memory be shared through an anonymous file?"""
    name = "memfd"
    try:
        descriptor = os.memfd_create("braid")
    except (OSError, AttributeError) as error:
        return Capability(name, False, str(error))
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        with (
            mmap.mmap(descriptor, mmap.PAGESIZE) as ours,
            Path(f"/proc/self/fd/{descriptor}").open("rb") as file,
        ):
            ours[:2] = b"ok"
            if file.read(2) != b"ok":
                return Capability(name, False, "a second mapping does not see what the first wrote")
    except OSError as error:
        return Capability(name, False, str(error))
    finally:
        os.close(descriptor)
    return Capability(name, True, "ranks can share anonymous memory")


def shared_memory_space() -> Capability:
    """Is there room in /dev/shm?"""
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError as error:
        return Capability("/dev/shm", False, str(error))
    return Capability("/dev/shm", free > 0, f"{free / 2**20:.0f} MiB free")


def cuda() -> Capability:
    """Is there an NVIDIA driver with a device?"""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Capability("CUDA", False, "no NVIDIA driver (libcuda.so.1 is not there)")
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        return Capability("CUDA", False, f"the driver refused (error {status})")
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    level = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return Capability("CUDA", count.value > 0, f"{count.value} device(s), the driver is for {level}")


def mpi() -> Capability:
    """Is there an MPI that Python can use?"""
    launcher = shutil.which("mpirun") or shutil.which("mpiexec")
    bindings = importlib.util.find_spec("mpi4py") is not None
    if launcher and bindings:
        return Capability("MPI", True, f"mpi4py, and {launcher}")
    missing = [
        *([] if launcher else ["mpirun is not on PATH"]),
        *([] if bindings else ["mpi4py is not installed (pip install '.[mpi]' in a clone of braid)"]),
    ]
    return Capability("MPI", False, ", ".join(missing))


def host_identity() -> str:
    """Return a text that is equal where braid takes two processes to be on one host: they can share memory.

    csrc/rendezvous/endpoint.cc decides alike: BRAID_HOST, or what this boot of the kernel is called, and the name
    space of shared memory, which containers may have of their own.
    """
    if host := os.environ.get("BRAID_HOST", "").strip():
        return f"set:{host}"
    try:
        return f"{_BOOT_ID.read_text().strip()} {_SHARED_MEMORY.readlink()}"
    except OSError:
        return socket.gethostname()
