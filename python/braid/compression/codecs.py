# SPDX-License-Identifier: Apache-2.0
"""The words a policy may use for what is done to a gradient: the core's codecs, and three more."""

from typing import TYPE_CHECKING

from braid._codec import Codec

if TYPE_CHECKING:
    import torch

EXACT = "exact"
AUTO = "auto"  # let predicted times decide
_DTYPES = ("torch.float32", "torch.float16", "torch.bfloat16")  # what the core encodes
_LOW_RANK = "power_sgd"
_MOST_RANK = 64


def checked(text: str) -> str:
    """Return a word as it is written everywhere else, without spaces and in small letters.

    Raises:
        ValueError: it is none; the message lists what there is.
    """
    word = text.strip().lower()
    name, _, argument = word.partition(":")
    if word in (EXACT, AUTO):
        return word
    if name in (EXACT, AUTO):
        raise ValueError(f"codec {text!r}: {name} takes nothing after a colon")
    if name == _LOW_RANK:
        if not argument.isdecimal() or not 1 <= int(argument) <= _MOST_RANK:
            raise ValueError(f"codec {text!r}: say the rank, 1 to {_MOST_RANK}, as in {_LOW_RANK}:4")
        return f"{name}:{int(argument)}"
    try:
        return str(Codec(word))
    except ValueError as error:
        raise ValueError(f"{error}; and {EXACT}, {AUTO}, {_LOW_RANK}:RANK") from None


def low_rank(codec: str) -> int:
    """Return the rank of a codec that sends two thin factors for a matrix, 0 for every other."""
    name, _, argument = codec.partition(":")
    return int(argument) if name == _LOW_RANK else 0


def is_encodable(dtype: "torch.dtype") -> bool:
    """Tell whether there are codecs for gradients of a dtype."""
    return str(dtype) in _DTYPES


def shrinks(codec: str, dtype: "torch.dtype") -> bool:
    """Tell whether a codec makes gradients of a dtype smaller; with low rank that is up to the matrix."""
    if low_rank(codec) or dtype.itemsize == 4 or not is_encodable(dtype):
        return is_encodable(dtype)
    return bool(4 * Codec(codec).ratio < dtype.itemsize)


def sent_bytes(codec: str, elements: int) -> int:
    """Return about the bytes of what a codec of the core sends once of so many floats, in a long message."""
    return round(4 * elements * Codec(codec).ratio)
