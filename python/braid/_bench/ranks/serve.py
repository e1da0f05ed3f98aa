# SPDX-License-Identifier: Apache-2.0
"""A rank of a contestant: a process that does what the coordinator asks, and sleeps while others have their turn.

It is told over a Unix socket what to be. While it waits it is blocked in a read, so it takes no processor time
from the contestant whose turn it is.
"""

import importlib
import os
import shutil
import signal
import sys
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any


def serve(address: str) -> None:
    """Join the coordinator, make the object it names, and call its methods until told to close.

    The first message is ("module:Class", keyword arguments, environment); its answer, the object's rank and the
    number of the process. After it come (method, arguments). Every answer is (True, value) or (False, what went
    wrong).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the coordinator decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with Client(address, family="AF_UNIX") as connection:
            _serve(connection)
    except (EOFError, ConnectionError, FileNotFoundError):
        # The coordinator was killed, so nobody else will tidy up. All ranks try, and one is the last.
        shutil.rmtree(Path(address).parent.parent, ignore_errors=True)
    # Whatever the contestant left behind must not hold up the end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _serve(connection: Connection) -> None:
    made = _answer(connection, lambda: _make(*connection.recv()), show=lambda made: (made.rank, os.getpid()))
    while made is not None:
        method, arguments = connection.recv()
        _answer(connection, lambda method=method, arguments=arguments: getattr(made, method)(*arguments))
        if method == "close":
            return


def _make(maker: str, settings: dict[str, Any], environment: dict[str, str]) -> Any:
    os.environ.update(environment)
    module, name = maker.split(":")
    return getattr(importlib.import_module(module), name)(**settings)


def _answer(connection: Connection, work: Any, show: Any = None) -> Any:
    try:
        value = work()
    except (EOFError, ConnectionError, KeyboardInterrupt):
        raise
    except BaseException as error:
        lines = str(error).strip().splitlines() or [""]
        connection.send((False, f"{type(error).__name__}: {lines[0]}" if lines[0] else type(error).__name__))
        return None
    connection.send((True, show(value) if show else value))
    return value


if __name__ == "__main__":
    serve(sys.argv[1])
