# SPDX-License-Identifier: Apache-2.0
"""Linux namespaces without names. They last as long as one process, so nothing is ever left behind.

The process is a ``cat`` that reads a pipe. Our process has the other end. When our process ends, in whatever way,
``cat`` reads the end of the pipe and ends, too. It is the first process of its PID namespace, so the kernel kills
all other processes there with it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from braid.lab.spec import LabError

TOOLS = ("unshare", "nsenter", "ip", "tc", "hostname", "mount")
_KINDS = ("net", "pid", "ipc", "uts", "mount")
_START_TIMEOUT_S = 10.0
_CUT_UP_TO_BITS_PER_S = 1.5e8
_CONGESTION_CONTROL = "/proc/sys/net/ipv4/tcp_congestion_control"
# Does what nsenter does, but stays in the same folder. If the command is stopped for a while, it goes on waiting.
_ENTER = """
import ctypes, os, signal, sys
folder, libc = os.getcwd(), ctypes.CDLL(None, use_errno=True)
spaces = [os.open(f"/proc/{sys.argv[1]}/ns/{kind}", os.O_RDONLY) for kind in ("net", "ipc", "uts", "pid", "mnt")]
for space in spaces:
    if libc.setns(space, 0):
        sys.exit(f"cannot enter a host of the lab: {os.strerror(ctypes.get_errno())}")
os.chdir(folder)
child = os.fork()
if child == 0:
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)
status = os.waitpid(child, 0)[1]
if os.WIFSIGNALED(status):
    signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.WEXITSTATUS(status))
"""
# On some systems the tools are in folders that are not on a user's PATH.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def unavailable() -> str:
    """Return why no lab can be made on this machine, or "" if one can be made."""
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)} not found: install util-linux, iproute2 and hostname"
    if os.geteuid() != 0:
        return "a lab makes network namespaces, which takes root"
    try:
        with Namespaces("probe") as probe:
            probe.network(["ip", "link", "add", "name", "probe", "type", "bridge"])
            probe.network(["tc", "qdisc", "add", "dev", "probe", "root", *tbf(1e6)])
    except LabError as error:
        return f"this machine does not allow it: {error}"
    return ""


def tbf(bits_per_s: float, queue_bytes: int | None = None) -> list[str]:
    """Return the arguments of tc for a card of this rate.

    The bucket holds the bytes of a millisecond, and at least two packets. It is small, because an idle card
    saves up to a bucket and sends it at once later. No real card does that. On cards above 150 Mbit/s the bucket
    holds at least 128 KiB, two full-sized segments of TCP: to cut these into packets would keep the processors
    busy.

    The queue behind the bucket holds `queue_bytes`. By default it holds 10 ms, like a port of an ordinary switch,
    and at least 256 KiB.
    """
    least_bytes = 2 * 1514 if bits_per_s <= _CUT_UP_TO_BITS_PER_S else 128 * 1024
    bucket_bytes = max(least_bytes, int(bits_per_s / 8 / 1000))
    if queue_bytes is None:
        queue_bytes = max(256 * 1024, int(bits_per_s / 8 / 100))
    return [
        "tbf",
        "rate",
        f"{bits_per_s:.0f}bit",
        "burst",
        str(bucket_bytes),
        "limit",
        str(bucket_bytes + queue_bytes),
    ]


class Namespaces:
    """One set of network, process, IPC and host name namespaces."""

    def __init__(self, name: str) -> None:
        """Make the namespaces. LabError if this machine does not allow it."""
        self.name = name
        self._holder = subprocess.Popen(
            ["unshare", *(f"--{kind}" for kind in _KINDS), "--fork", "--kill-child", "--mount-proc", "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that Ctrl-C does not reach it
            env=_environment(),
        )
        try:
            self.pid = self._await_first()
            self.call(["hostname", name])
            self.network(["ip", "link", "set", "dev", "lo", "up"])
        except BaseException:
            self.close()
            raise

    def _await_first(self) -> int:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._holder.poll() is not None:
                assert self._holder.stderr is not None
                raise LabError(self._holder.stderr.read().decode(errors="replace").strip() or "unshare failed")
            with contextlib.suppress(OSError):  # the process may end between the two reads
                children = children_of(self._holder.pid)
                # When the process has become cat, it has mounted its /proc.
                if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "cat":
                    return children[0]
            time.sleep(0.005)
        raise LabError(f"no namespaces in {_START_TIMEOUT_S:.0f} s")

    @property
    def alive(self) -> bool:
        """Whether the namespaces still exist."""
        return self._holder.poll() is None

    def call(self, command: list[str], stdin: str = "", kinds: tuple[str, ...] = _KINDS) -> str:
        """Run a short command in the namespaces of these kinds, and return its output.

        Raises:
            LabError: the command failed.
        """
        result = subprocess.run(
            ["nsenter", "-t", str(self.pid), *(f"--{kind}" for kind in kinds), "--", *command],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
        )
        if result.returncode != 0:
            says = (result.stderr.strip() or f"exit code {result.returncode}").splitlines()[0]
            raise LabError(f"{' '.join(command)} on {self.name}: {says}")
        return result.stdout

    def network(self, command: list[str], stdin: str = "") -> str:
        """Run ip or tc in the network namespace alone. Process numbers are those of our own namespace."""
        return self.call(command, stdin, ("net",))

    def use_ordinary_tcp(self) -> None:
        """Set the congestion control of TCP to Linux's default, whatever this machine uses.

        The default is cubic. It is reno if the kernel keeps cubic for the machine itself. If neither may be set,
        nothing changes. A machine may use bbr, which slows down now and then to probe the latency. That would
        slow down everything that is measured.
        """
        write = f"for way in cubic reno; do (echo $way > {_CONGESTION_CONTROL}) 2>&- && exit; done; true"
        self.call(["sh", "-c", write], kinds=("net",))

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command in the namespaces. The options are those of subprocess.Popen.

        The started process waits for the command, and ends with the same status. Use send_signal() to send the
        command a signal.
        """
        return subprocess.Popen([sys.executable, "-ISc", _ENTER, str(self.pid), *command], **options)

    def close(self) -> None:
        """End the namespaces, and every process in them. Idempotent."""
        if self._holder.poll() is None:
            self._holder.kill()  # unshare takes cat with it
        self._holder.wait()
        for pipe in (self._holder.stdin, self._holder.stderr):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()

    def __enter__(self) -> Self:
        """Return the namespaces, which end with the block."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()


def send_signal(process: "subprocess.Popen[Any]", number: signal.Signals) -> None:
    """Send a signal to the command that Namespaces.start() started."""
    while not (children := children_of(process.pid)) and process.poll() is None:
        time.sleep(0.005)  # the process is about to start the command
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)


def children_of(pid: int) -> list[int]:
    """Return the live children of a process."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": _PATH, "LC_ALL": "C"}
