# SPDX-License-Identifier: Apache-2.0
"""What braid says on standard error."""

import socket
import subprocess
import sys

import pytest
from slowness import limit

pytestmark = pytest.mark.unit
CODE = 'from braid._notices import tell; tell("a"); tell("b", "braid aggregator")'


def test_a_line_is_one_write_so_that_processes_do_not_part_each_others() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps writes apart
    with ours, theirs:
        subprocess.run([sys.executable, "-u", "-c", CODE], stderr=theirs, timeout=limit(200), check=True)
        theirs.close()  # so that nobody waits for a line that has not come
        assert [ours.recv(100), ours.recv(100)] == [b"braid: a\n", b"braid aggregator: b\n"]
