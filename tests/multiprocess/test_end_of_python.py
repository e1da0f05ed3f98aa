# SPDX-License-Identifier: Apache-2.0
"""A daemon thread that comes out of a wait in C++ while Python ends must not abort the process."""

from pathlib import Path

import pytest
from slowness import limit
from stopped import start_script

pytestmark = pytest.mark.multiprocess

# Python destroys the last object after it has begun to end. The object wakes the thread, which needs the GIL.
SCRIPT = """
import os, threading, time
from braid._torch.adapter.load import load_adapter

heard, told = os.pipe()
threading.Thread(target=load_adapter().next_signals, args=(heard,), daemon=True).start()
time.sleep(0.3)

class Last:
    def __del__(self, write=os.write, sleep=time.sleep, told=told):
        write(told, b"wake up")
        sleep(0.3)
        write(1, b"the thread is awake")

last = Last()
"""


def test_a_daemon_thread_at_the_end(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = start_script(script)
    try:
        said = process.communicate(timeout=limit(200))[0]
    finally:
        process.kill()
    assert (process.returncode, said) == (0, "the thread is awake")
