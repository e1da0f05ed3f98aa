# SPDX-License-Identifier: Apache-2.0
"""All environment variables of braid in one table; unknown names and wrong values are told when a group is made.

docs/settings.md shows this table, and a test compares the two. The core checks the values that it reads itself
(csrc/options/options.cc); here are the checks of all others.
"""

import difflib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from braid._notices import tell

MOST_ALONE = 64  # processes of `braid serve`
# What BRAID_TAKEOVER may name beside the backends that torch knows; "none" is for calls without a name.
KNOWN_BACKENDS = ("braid", "gloo", "mpi", "nccl", "none", "ucc", "xccl")
USUAL_TAKEOVER = "gloo,nccl,mpi,none"  # where a user does not say which


@dataclass(frozen=True)
class Setting:
    """One environment variable.

    Attributes:
        name: the variable.
        values: what it may be, in words.
        default: the value in use where the variable is unset, or "off", or "braid chooses".
        equal: whether all ranks must have the same value. Making a group checks this.
        why_not: returns what is wrong with a text, "" if nothing is. None where the core checks, or another
            parser that runs when the group is made.
    """

    name: str
    values: str
    default: str
    equal: bool = False
    why_not: Callable[[str], str] | None = None


def _switch(text: str) -> str:
    return "" if text in ("0", "1") else "expected 0 or 1"


def _count(text: str) -> str:
    is_one = text.isascii() and text.isdecimal() and int(text) <= MOST_ALONE
    return "" if is_one else f"expected a whole number from 0 to {MOST_ALONE}"


def _compression(text: str) -> str:
    from braid.compression.policy import CompressionPolicy

    try:
        CompressionPolicy.from_text(text)
    except ValueError as error:
        return str(error).removeprefix(f"compression {text!r}: ")
    return ""


def _backends(text: str) -> str:
    torch = sys.modules.get("torch.distributed")
    known = {*KNOWN_BACKENDS, *(torch.Backend.backend_list if torch and hasattr(torch, "Backend") else ())}
    for name in text.split(","):
        word = name.strip().lower()
        if word and word not in known:
            return unknown_backend(word)
    return ""


def unknown_backend(name: str) -> str:
    """Return the sentence about a backend to take over that torch does not know.

    Example:
        >>> unknown_backend("glo")
        "there is no backend 'glo'; did you mean gloo?"
    """
    others = [each for each in KNOWN_BACKENDS if each != "braid"]
    near = difflib.get_close_matches(name, others, 1)
    hint = f"did you mean {near[0]}?" if near else f"give some of {', '.join(others)}"
    return f"there is no backend {name!r}; {hint}"


def _local_leg(text: str) -> str:
    device, _, name = text.lower().rpartition(":")
    if name in ("off", "auto"):
        return f"{name} takes no device" if device else ""
    return (
        _backends(name) if name and "," not in name else "expected off, auto, or one backend as nccl or cpu:gloo"
    )


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "BRAID_ALGORITHM",
            "a name as `ring`, or pairs as `all_reduce=ring,broadcast=direct`",
            "braid chooses",
            equal=True,
        ),
        Setting("BRAID_BALANCE", "0 or 1", "0", True, _switch),
        Setting("BRAID_CACHE_DIR", "a folder", "`$XDG_CACHE_HOME/braid` or `~/.cache/braid`"),
        Setting("BRAID_CHUNK_BYTES", "a whole number from 1024 to 1073741824", "braid chooses", equal=True),
        Setting(
            "BRAID_COMPRESSION", "`auto` or a codec, with rules as `int8,head.*=exact`", "off", True, _compression
        ),
        Setting("BRAID_CREDIT_BYTES", "a whole number from 0 to 1099511627776", "0"),
        Setting("BRAID_DEBUG", "0 or 1", "0", False, _switch),
        Setting("BRAID_HOST", "any text", "braid chooses"),
        Setting("BRAID_INTERFACE", "a network interface, or a local address", "braid chooses"),
        Setting("BRAID_LINKS", "`measure`, `assume` or a file named `*.toml`", "braid chooses", equal=True),
        Setting(
            "BRAID_LOCAL_LEG", "`off`, `auto`, or a backend as `nccl` or `cpu:gloo`", "`off`", True, _local_leg
        ),
        Setting("BRAID_PACING", "0 or 1", "1"),
        Setting("BRAID_PARAMETER_SERVERS", f"a whole number from 0 to {MOST_ALONE}", "0", True, _count),
        Setting("BRAID_PEER_TIMEOUT", "seconds from 2, or `never`", "20"),
        Setting("BRAID_PIECE_BYTES", "a whole number from 64 to 1099511627776", "4194304"),
        Setting("BRAID_PINNED_BYTES", "a whole number from 0 to 1099511627776", "67108864"),
        Setting("BRAID_PORTS", "two ports as `30000-30100`", "braid chooses"),
        Setting("BRAID_QUIET", "0 or 1", "0", False, _switch),
        Setting("BRAID_SERVERS", "a whole number from 0 to 64", "off", equal=True),
        Setting("BRAID_SINGLE_COPY", "0 or 1", "1"),
        Setting("BRAID_STALL_NOTICE", "seconds from 0.1, or 0 for never", "30"),
        Setting("BRAID_STATS", "the beginning of a file's path", "off"),
        Setting("BRAID_STRATEGY", "a strategy as `elastic:sync_every=10`", "off", equal=True),
        Setting("BRAID_STREAM_WAITS", "0 or 1", "0", False, _switch),
        Setting("BRAID_TAKEOVER", "backends as `gloo,nccl,mpi,none`", "off", False, _backends),
        Setting("BRAID_TCP_CONNECTIONS", "a whole number from 1 to 16", "3", True),
        Setting("BRAID_TRANSPORTS", "some of `shm`, `tcp`, with commas between", "shm,tcp"),
        Setting("BRAID_WAIT", "`auto`, `spin`, `yield` or `sleep`", "auto"),
        Setting("BRAID_WINDOW", "a whole number from 1 to 64", "4", True),
    )
}

# Variables that commands set for the processes that they start.
# How this job's takeover was switched on: "braid run", "braid lab" or "braid.take_over".
STARTED_BY = "BRAID_STARTED_BY"
_INTERNAL = frozenset({STARTED_BY})
_HOW_TO_STOP = {
    ("braid run", "BRAID_COMPRESSION"): "leave out --compression, or unset BRAID_COMPRESSION, to stop",
    ("braid run", "BRAID_STRATEGY"): "leave out --strategy, or unset BRAID_STRATEGY, to stop",
    ("braid run", "BRAID_TAKEOVER"): "start the script with torchrun, or give --takeover '', to stop",
    ("braid lab", "BRAID_TAKEOVER"): "leave out --takeover to stop",
    ("braid.take_over", "BRAID_COMPRESSION"): "leave out compression= in braid.take_over() to stop",
    ("braid.take_over", "BRAID_STRATEGY"): "leave out strategy= in braid.take_over() to stop",
    ("braid.take_over", "BRAID_TAKEOVER"): "leave out braid.take_over() to stop",
}
# Variables of braid's own tests and tools begin like this.
_OF_TESTS = ("BRAID_TEST_", "BRAID_FUZZ", "BRAID_UPDATE_GOLDEN", "BRAID_GOLDEN_DIR", "BRAID_CORPUS_DIR",
             "BRAID_FAKE_CUDA", "BRAID_CONFORMANCE_")  # fmt: skip
# These are compared by the core as text. Those that the core reads itself it compares without being told. In
# groups on another backend, same_strategy.py compares BRAID_STRATEGY.
_COMPARED = ("BRAID_BALANCE", "BRAID_COMPRESSION", "BRAID_LOCAL_LEG", "BRAID_PARAMETER_SERVERS", "BRAID_STRATEGY")

_told: set[str] = set()


def value_of(name: str) -> str:
    """Return the value of a setting without surrounding space; "" if it is unset."""
    return os.environ.get(SETTINGS[name].name, "").strip()


def is_on(name: str) -> bool:
    """Return whether a setting of the values 0 and 1 is on."""
    return value_of(name) not in ("", "0")


def unknown_names(names: Iterable[str]) -> list[str]:
    """Return one line for every name that begins with ``BRAID_`` and is no setting, with the nearest known name.

    Example:
        >>> unknown_names(["BRAID_COMPRESION"])
        ['there is no setting BRAID_COMPRESION, so it is ignored; did you mean BRAID_COMPRESSION?']
    """
    lines = []
    for name in sorted(names):
        if not name.startswith("BRAID_") or name in SETTINGS or name in _INTERNAL or name.startswith(_OF_TESTS):
            continue
        # Without the beginning that all have, which would make all alike.
        own = {known.removeprefix("BRAID_"): known for known in SETTINGS}
        near = difflib.get_close_matches(name.removeprefix("BRAID_"), own, 1)
        hint = f"did you mean {own[near[0]]}?" if near else "docs/settings.md lists all"
        lines.append(f"there is no setting {name}, so it is ignored; {hint}")
    return lines


def wrong_values(environment: Mapping[str, str]) -> list[str]:
    """Return one line for every setting that its check in the table refuses, or that another setting excludes.

    Example:
        >>> wrong_values({"BRAID_QUIET": "2"})
        ['BRAID_QUIET=2: expected 0 or 1']
    """
    lines = []
    for setting in SETTINGS.values():
        value = environment.get(setting.name, "").strip()
        if value and setting.why_not is not None and (why := setting.why_not(value)):
            lines.append(f"{setting.name}={value}: {why}")
    balance, strategy = (environment.get(name, "").strip() for name in ("BRAID_BALANCE", "BRAID_STRATEGY"))
    if balance == "1" and strategy:
        lines.append(
            f"BRAID_BALANCE=1 and BRAID_STRATEGY={strategy}: workers of a strategy do not share batches out; "
            "unset one of the two"
        )
    return lines


def check(rank: int) -> None:
    """Tell of unknown names, and refuse wrong values. Whoever makes a group calls this first.

    Each line is told once: by rank 0, and by the first rank of each host where the launcher says which that is.

    Args:
        rank: the rank of this process in the job.

    Raises:
        ValueError: a value is wrong; the message names the setting and the values that are allowed.
    """
    if rank == 0 or os.environ.get("LOCAL_RANK") == "0":
        tell_unknown_names()
    refuse_wrong_values()


def how_to_stop(name: str) -> str:
    """Return how to switch a setting off, in the words of the way in which the job was started.

    Example:
        >>> how_to_stop("BRAID_STRATEGY")
        'unset BRAID_STRATEGY to stop'
    """
    return _HOW_TO_STOP.get((os.environ.get(STARTED_BY, ""), name), f"unset {name} to stop")


def tell_unknown_names() -> None:
    """Tell of the names in this process's environment that are no settings, each once."""
    for line in unknown_names(os.environ):
        if line not in _told:
            _told.add(line)
            tell(line)


def refuse_wrong_values(leave_out: Iterable[str] = ()) -> None:
    """Raise ValueError for the first setting with a wrong value, and say which values are allowed.

    Args:
        leave_out: names of settings that are not looked at.
    """
    left_out = set(leave_out)
    if wrong := wrong_values({name: value for name, value in os.environ.items() if name not in left_out}):
        raise ValueError(wrong[0])


def compared() -> str:
    """Return the settings that the core shall compare between ranks: "NAME=value", a tab after each."""
    return "".join(f"{name}={' '.join(value_of(name).split())}\t" for name in _COMPARED)
