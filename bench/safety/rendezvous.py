# SPDX-License-Identifier: Apache-2.0
"""Can a rank still reach the store of rank 0 while 5,000 silent strangers hold connections to it?

    python bench/safety/rendezvous.py [--other /path/to/another/python]

The strangers come from one address, and come back when they are hung up on. One line of JSON says
how long a client takes to leave and read a value, what the server has grown by, and whether it serves once the
strangers have gone: for this package and for that of the other interpreter, and for two limits of descriptors.
"""

import argparse
import contextlib
import json
import os
import resource
import selectors
import socket
import subprocess
import threading
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

STRANGERS = 5000
MEETINGS = 10
MEETING_LIMIT_S = 10.0
SETTLE_S = 3.0
_FREE = 500  # descriptors that the flood itself keeps


def usage() -> dict[str, float]:
    """Return what this process uses now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "mib": pages * resource.getpagesize() / 2**20,
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": threading.active_count(),
        "cpu_s": time.process_time(),
    }


def serve(pipe: Connection, descriptors: int) -> None:
    """Be rank 0: answer each message with what is used by now."""
    from braid._array.rendezvous.server import Server

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(descriptors, hard), hard))
    with open(os.devnull) as spare, contextlib.suppress(EOFError):  # noqa: PTH123
        server = Server("127.0.0.1", 0)
        pipe.send((server.port, usage()))
        while True:
            pipe.recv()
            spare.close()  # a descriptor for counting descriptors
            pipe.send(usage())


def flood(port: int, count: int, stop: Any, connected: Any) -> None:
    """Hold so many silent connections, each made again when it ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + _FREE, hard), hard))
    selector = selectors.DefaultSelector()
    held = 0
    while not stop.is_set():
        while held < count:
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", port))
            selector.register(stranger, selectors.EVENT_READ)
            held += 1
        connected.set()
        for key, _ in selector.select(0.05):
            selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
            held -= 1


def meet(port: int) -> float | None:
    """Return the seconds that a client takes to leave and read a value; None when it fails."""
    from braid._array.rendezvous.tcp import TcpStore

    begun = time.monotonic()
    store = TcpStore(["127.0.0.1"], port, timeout_s=MEETING_LIMIT_S)
    try:
        store.set("key", b"value")
        assert store.get("key", 1) == b"value"
    except Exception:
        return None
    finally:
        store.close()
    return time.monotonic() - begun


def measure(descriptors: int) -> dict[str, Any]:
    """Return the numbers of one case."""
    context = get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there, descriptors), daemon=True)
    server.start()
    port, before = here.recv()
    stop, connected = context.Event(), context.Event()
    strangers = context.Process(target=flood, args=(port, STRANGERS, stop, connected), daemon=True)
    strangers.start()
    connected.wait(30)
    time.sleep(SETTLE_S)

    def ask() -> dict[str, float] | None:
        with contextlib.suppress(OSError, EOFError):
            here.send("")
            if here.poll(10):
                found: dict[str, float] = here.recv()
                return found
        return None

    begun, first = time.monotonic(), ask()
    meetings = []
    for _ in range(MEETINGS):
        meetings.append(meet(port))
        if meetings[-1] is None:
            break
    wall_s, during = time.monotonic() - begun, ask()
    stop.set()
    strangers.join(10)
    time.sleep(1)
    after = meet(port)
    server.terminate()
    server.join()
    good = sorted(one for one in meetings if one is not None)
    return {
        "descriptors_allowed": descriptors,
        "met": f"{len(good)}/{MEETINGS}",
        "median_s": round(good[len(good) // 2], 4) if good else None,
        "worst_s": round(good[-1], 4) if good else None,
        "grown_mib": round(during["mib"] - before["mib"], 1) if during else None,
        "descriptors": during["descriptors"] if during else None,
        "threads": during["threads"] if during else None,
        "cpu_share": round((during["cpu_s"] - first["cpu_s"]) / wall_s, 2) if first and during else None,
        "serves_afterwards": after is not None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="an interpreter with another braid, to compare with")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "strangers": STRANGERS,
        "this": [measure(descriptors) for descriptors in (1024, 16384)],
    }
    if options.other:
        done = subprocess.run([options.other, __file__], stdout=subprocess.PIPE, check=True, text=True)
        result["other"] = json.loads(done.stdout)["this"]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
