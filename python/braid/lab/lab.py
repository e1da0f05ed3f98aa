# SPDX-License-Identifier: Apache-2.0
"""A cluster of emulated hosts on this machine."""

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from braid.lab.namespaces import Namespaces, send_signal, tbf, unavailable
from braid.lab.spec import HostSpec, LabError, parse_hosts

_NETWORK = "10.77.0"
CARD = "eth0"
_CONTINUE = """
import os, signal
try: os.kill(-1, signal.SIGCONT)
except ProcessLookupError: pass  # nobody is here
"""
_THROTTLE = """
import os, signal, sys, time
share, period = float(sys.argv[1]), 0.02
def tell(number):
    try: os.kill(-1, number)
    except ProcessLookupError: pass  # nobody is here
while True:
    time.sleep(period * share)
    tell(signal.SIGSTOP)
    time.sleep(period * (1 - share))
    tell(signal.SIGCONT)
"""


class Host:
    """An emulated host with its own network, processes, IPC and name. Files and processors are the machine's."""

    def __init__(self, name: str, spec: HostSpec, address: str, port: str, space: Namespaces) -> None:
        """Only a Lab makes hosts. `port` is the host's port at the switch."""
        self.name, self.spec, self.address = name, spec, address
        self._port = port
        self._space = space
        self._throttle: subprocess.Popen[Any] | None = None

    @property
    def alive(self) -> bool:
        """Whether the host still runs: it was not killed."""
        return self._space.alive

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on this host.

        Args:
            command: the program and its arguments.
            options: those of subprocess.Popen.

        Raises:
            LabError: the host was killed.
        """
        if not self.alive:
            raise LabError(f"{self.name} was killed")
        return self._space.start(command, **options)

    def signal(self, process: "subprocess.Popen[Any]", number: signal.Signals) -> None:
        """Send a signal to a command that start() has started here."""
        send_signal(process, number)

    def call(self, command: list[str]) -> str:
        """Run a command on this host, and return its output. LabError if it fails."""
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        printed, says = process.communicate()
        if process.returncode != 0:
            last = (says.strip() or f"exit code {process.returncode}").splitlines()[-1]
            raise LabError(f"{command[0]} on {self.name}: {last}")
        return str(printed)

    def _limit_cpu(self, share: float) -> None:
        if self._throttle:
            send_signal(self._throttle, signal.SIGKILL)
            self._throttle.wait()
            self._throttle = None
            # The throttle may have ended while the other processes were stopped.
            self.call([sys.executable, "-ISc", _CONTINUE])
        if share < 1:
            self._throttle = self.start([sys.executable, "-ISc", _THROTTLE, str(share)], start_new_session=True)


class Lab:
    """Hosts joined by a switch, each with a shaped network card.

    Every host is a set of Linux namespaces without names. They exist until this process ends, or until close().
    Labs at the same time do not see each other. Rates are those of the wire: TCP carries about 4 % less.

    Use it as a context manager::

        with Lab("3x1gbit,1x200mbit") as lab:
            ranks = [host.start(["python", "train.py"]) for host in lab.hosts]
    """

    def __init__(self, hosts: str | Iterable[HostSpec], queue_bytes: int | None = None) -> None:
        """Make the hosts.

        Args:
            hosts: such as "3x1gbit,1x200mbit", see parse_hosts(); or their specifications.
            queue_bytes: the most bytes that wait at a card, each way. None: 10 ms of its rate, at least 256 KiB.

        Raises:
            LabError: the hosts make no sense, or this machine does not allow a lab (no root, no namespaces).
        """
        specs = parse_hosts(hosts) if isinstance(hosts, str) else list(hosts)
        if reason := unavailable():
            raise LabError(reason)
        self.hosts: list[Host] = []
        self._queue_bytes = queue_bytes
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        try:
            self._switch = self._stack.enter_context(Namespaces("switch"))
            self._switch.network(["ip", "link", "add", "name", "sw", "type", "bridge"])
            self._switch.network(["ip", "link", "set", "dev", "sw", "up"])
            for number, spec in enumerate(specs):
                self.hosts.append(self._add_host(number, spec))
            self._tell_names()
        except BaseException:
            self.close()
            raise

    def _add_host(self, number: int, spec: HostSpec) -> Host:
        space = self._stack.enter_context(Namespaces(f"h{number}"))
        port = f"p{number}"
        host = Host(space.name, spec, f"{_NETWORK}.{number + 1}", port, space)
        self._switch.network(
            ["ip", "-batch", "-"],
            f"link add name {port} type veth peer name {CARD} netns {space.pid}\n"
            f"link set dev {port} master sw up\n",
        )
        space.use_ordinary_tcp()
        space.network(["ip", "addr", "add", f"{host.address}/24", "dev", CARD])
        space.network(["ip", "link", "set", "dev", CARD, "up"])
        self._shape(host, spec)
        host._limit_cpu(spec.cpu_share)
        return host

    def _tell_names(self) -> None:
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self.hosts)]
        with tempfile.NamedTemporaryFile("w", prefix="braid-lab-") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            for host in self.hosts:
                host._space.call(["mount", "--bind", file.name, "/etc/hosts"])

    def _shape(self, host: Host, spec: HostSpec) -> None:
        up, down = (tbf(rate, self._queue_bytes) for rate in (spec.up_bits_per_s, spec.down_bits_per_s))
        host._space.network(["tc", "qdisc", "replace", "dev", CARD, "root", *up])
        self._switch.network(["tc", "qdisc", "replace", "dev", host._port, "root", *down])

    def set_rate(self, host: Host, up_bits_per_s: float, down_bits_per_s: float | None = None) -> None:
        """Change a host's rates while everything goes on. By default the down rate equals the up rate."""
        spec = HostSpec(up_bits_per_s, down_bits_per_s or up_bits_per_s, host.spec.cpu_share)
        with self._lock:
            self._shape(host, spec)
            host.spec = spec

    def set_cpu(self, host: Host, share: float) -> None:
        """Let a host's processes run for this share of every 20 ms. 1 removes the limit."""
        if not 0 < share <= 1:
            raise LabError(f"a share of {share} of the processors: expected more than 0, at most 1")
        with self._lock:
            host._limit_cpu(share)
            host.spec = HostSpec(host.spec.up_bits_per_s, host.spec.down_bits_per_s, share)

    def cut(self, host: Host) -> None:
        """Pull a host's network cable: nothing arrives any more, and no process is told."""
        self._switch.network(["ip", "link", "set", "dev", host._port, "down"])

    def mend(self, host: Host) -> None:
        """Plug a host's network cable in again."""
        self._switch.network(["ip", "link", "set", "dev", host._port, "up"])

    def kill(self, host: Host) -> None:
        """Switch a host off: all its processes and its card are gone."""
        host._space.close()

    def sent_bytes(self, host: Host) -> int:
        """Return the bytes that the host's card has sent so far, with headers."""
        return self._counter(host, "tx_bytes")

    def received_bytes(self, host: Host) -> int:
        """Return the bytes that the host's card has received so far, with headers."""
        return self._counter(host, "rx_bytes")

    def _counter(self, host: Host, name: str) -> int:
        # /sys shows the network namespace of the process that mounted it, so ip asks the kernel instead.
        words = host._space.network(["ip", "-s", "-o", "link", "show", "dev", CARD]).split("\\")
        table = {"rx_bytes": 3, "tx_bytes": 5}
        return int(words[table[name]].split()[0])

    def close(self) -> None:
        """End all hosts and every process on them. Idempotent."""
        self._stack.close()

    def __enter__(self) -> Self:
        """Return the lab, which ends with the block."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
