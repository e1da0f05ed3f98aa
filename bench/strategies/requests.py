# SPDX-License-Identifier: Apache-2.0
"""Measures requests to a parameter server, beside the memory copies or the socket traffic that they need.

Member 0 is a worker, member 1 holds the only shard. Prints a table; --json writes the numbers.
"""

import argparse
import json
import multiprocessing
import socket
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

SIZES = [64, 64 * 1024, 4 * 1024 * 1024, 64 * 1024 * 1024]


def serve(where: str, bytes_: int, rule: str) -> None:
    import braid

    with braid.Parameters(where, elements=bytes_ // 4, rule=rule, rank=1, size=2, servers=[1]) as parameters:
        parameters.start(np.zeros(bytes_ // 4, np.float32))


def seconds_per_round_trip(bytes_: int, rule: str, seconds: float, window: int, folder: str) -> float:
    """Return the median time of a push and pull of `bytes_`; with a window, the mean of many under way."""
    import braid

    server = multiprocessing.get_context("spawn").Process(target=serve, args=(f"file://{folder}", bytes_, rule))
    server.start()
    elements = bytes_ // 4
    times: list[float] = []
    with braid.Parameters(
        f"file://{folder}", elements=elements, rule=rule, rank=0, size=2, servers=[1]
    ) as parameters:
        values = parameters.start(np.zeros(elements, np.float32))
        update = np.ones(elements, np.float32)
        outs = [np.empty(elements, np.float32) for _ in range(window - 1)] + [values]
        deadline = time.perf_counter() + seconds
        rounds = 0
        while time.perf_counter() < deadline or rounds < 5:
            begun = time.perf_counter()
            for request in [parameters.push_pull(update, out, rate=1e-3) for out in outs]:
                request.wait()
            times.append((time.perf_counter() - begun) / window)
            rounds += 1
    server.join()
    return statistics.median(times[len(times) // 5 :])


def copy_seconds(bytes_: int) -> float:
    """Return the median time of two copies of `bytes_`: what a push and a pull cannot do without."""
    one, two = np.ones(bytes_, np.uint8), np.empty(bytes_, np.uint8)
    times = []
    for _ in range(max(5, min(2000, 256 * 1024 * 1024 // bytes_))):
        begun = time.perf_counter()
        two[:] = one
        one[:] = two
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _echo(port: int, bytes_: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = bytearray(bytes_)
        while True:
            view = memoryview(data)
            while view:
                if not (got := peer.recv_into(view)):
                    return
                view = view[got:]
            peer.sendall(data)


def socket_seconds(bytes_: int, seconds: float) -> float:
    """Return the median time of a plain TCP echo over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.get_context("spawn").Process(
            target=_echo, args=(listener.getsockname()[1], bytes_)
        )
        process.start()
        peer, _ = listener.accept()
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            data, times = bytearray(bytes_), []
            deadline = time.perf_counter() + seconds
            while time.perf_counter() < deadline:
                begun = time.perf_counter()
                peer.sendall(data)
                view = memoryview(data)
                while view:
                    view = view[peer.recv_into(view) :]
                times.append(time.perf_counter() - begun)
        process.join()
    return statistics.median(times)


def main() -> None:
    import os

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rule", default="sgd")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for wire in ("shm", "tcp"):
        os.environ["BRAID_TRANSPORTS"] = wire
        for bytes_ in SIZES:
            for window in (1, 16) if bytes_ == 64 else (1,):
                with tempfile.TemporaryDirectory() as folder:
                    braid_s = seconds_per_round_trip(bytes_, arguments.rule, arguments.seconds, window, folder)
                beside_s = copy_seconds(bytes_) if wire == "shm" else socket_seconds(bytes_, arguments.seconds)
                rows.append({"wire": wire, "bytes": bytes_, "window": window, "us": braid_s * 1e6,
                             "beside_us": beside_s * 1e6})  # fmt: skip
                print(
                    f"{wire} {bytes_:>9} B, window {window:>2}: {braid_s * 1e6:10.1f} us; "
                    f"{'two copies' if wire == 'shm' else 'plain echo'} {beside_s * 1e6:10.1f} us",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
