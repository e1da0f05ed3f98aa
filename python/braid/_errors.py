# SPDX-License-Identifier: Apache-2.0
"""What a communicator can raise besides ValueError, TypeError and NotImplementedError; and a hint about torch."""

NO_TORCH = "install torch 2.11 or newer, with pip install torch or as braid's extra [torch]"


def needs_torch(what: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error to raise in place of one that an import raised; another one if torch is what is missing."""
    if (error.name or "").partition(".")[0] != "torch":
        return error
    return ModuleNotFoundError(f"{what} needs torch: {NO_TORCH}", name="torch")


class CommunicatorError(RuntimeError):
    """Something outside the caller's arguments went wrong; the message says in which operation.

    Attributes:
        rank: the rank at fault, or None where no single rank is.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class CommunicatorTimeoutError(CommunicatorError, TimeoutError):
    """An operation, or the meeting of the ranks, took longer than its timeout; `rank` has not come."""


class PeerLostError(CommunicatorError):
    """The process of `rank` died, or the connection to it broke."""


for _error in (CommunicatorError, CommunicatorTimeoutError, PeerLostError):
    _error.__module__ = "braid"

_KINDS: dict[str, type[CommunicatorError]] = {"timeout": CommunicatorTimeoutError, "peer lost": PeerLostError}


def error_of(code: str, message: str, rank: int) -> Exception:
    """Return the exception for a Status of the core: its code by name, and -1 for no rank."""
    if code == "invalid argument":
        return ValueError(message)
    if code == "unsupported":
        return NotImplementedError(message)
    return _KINDS.get(code, CommunicatorError)(message, rank if rank >= 0 else None)
