# SPDX-License-Identifier: Apache-2.0
"""The listening socket for new clients, and a spare descriptor for when the process has no other."""

import contextlib
import errno
import os
import socket

from braid._array.rendezvous.crowds import source_of

_BACKLOG = 1024  # a longer queue would let strangers delay clients for longer

# Errors of accept() that concern one connection, which was lost before accept() returned it.
_OF_ONE_CONNECTION = {
    errno.ECONNABORTED,
    errno.EPROTO,
    errno.EPERM,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENONET,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
    errno.ETIMEDOUT,
}
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC}


class Door:
    """A listener that does not block."""

    def __init__(self, host: str | None, port: int) -> None:
        """Listen at an address of this machine. None stands for all addresses, port 0 for any free port.

        Raises OSError.
        """
        if host is None and socket.has_dualstack_ipv6():
            self.listener = socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
            )
        else:
            family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
            self.listener = socket.create_server((host or "", port), family=family, backlog=_BACKLOG)
        self.listener.setblocking(False)
        self._spare = -1
        self.keep_spare()

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self.listener.getsockname()[1])

    def accept(self) -> tuple[socket.socket, str] | None:
        """Return the next client's connection and source; None if no client is waiting.

        Raises OSError: one of SHORTAGES, or an error of the listener itself.
        """
        while True:
            try:
                connection, address = self.listener.accept()
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno in _OF_ONE_CONNECTION:
                    continue
                raise
            return connection, source_of(str(address[0]))

    def turn_one_away(self) -> None:
        """Accept the first client in the queue with the spare descriptor, and close its connection.

        Otherwise the client would wait for an answer, and the listener would stay ready for ever.
        """
        self._drop_spare()
        with contextlib.suppress(OSError):
            self.listener.accept()[0].close()
        self.keep_spare()

    def keep_spare(self) -> None:
        """Open the spare descriptor, if there is a free one."""
        if self._spare < 0:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def shut(self) -> None:
        """Free the port. For any thread. accept() fails from now on."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close both descriptors."""
        self.listener.close()
        self._drop_spare()

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, -1
        if spare >= 0:
            os.close(spare)
