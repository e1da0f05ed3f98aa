# SPDX-License-Identifier: Apache-2.0
"""The words a policy may use for what is done to a gradient: the core's codecs, and three more."""

import math

EXACT = "exact"
AUTO = "auto"  # let predicted times decide
_LOW_RANK = "power_sgd"
_MOST_RANK = 64

# Bits of an element, the scales of its block included.
_BITS = {
    **{"fp16": 16.0, "bf16": 16.0},
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2", "int8", "qsgd"), 8 + 32 / 256),
    **{"int4": 4 + 32 / 256, "sign": 1 + 32 / 1024},
}
_DENSE = tuple(_BITS)
_SPARSE = ("top_k", "random_k")
_LEAST_PART, _MOST_PART = 2.0**-20, 0.25
_KNOWN = ", ".join((EXACT, AUTO, *_DENSE, *(f"{name}:PART" for name in _SPARSE), f"{_LOW_RANK}:RANK"))


def checked(text: str) -> str:
    """Return a word as it is written everywhere else, without spaces and in small letters.

    Raises:
        ValueError: it is none; the message lists what there is.
    """
    word = text.strip().lower()
    name, colon, argument = word.partition(":")
    if word in (EXACT, AUTO, *_DENSE):
        return word
    if name in _SPARSE:
        part = _number(argument)
        if part is None or not _LEAST_PART <= part <= _MOST_PART:
            raise ValueError(f"codec {text!r}: say which part is sent, up to {_MOST_PART}, as in {name}:0.01")
        return word
    if name == _LOW_RANK:
        if not argument.isdecimal() or not 1 <= int(argument) <= _MOST_RANK:
            raise ValueError(f"codec {text!r}: say the rank, 1 to {_MOST_RANK}, as in {_LOW_RANK}:4")
        return word
    if colon and name in (EXACT, AUTO, *_DENSE):
        raise ValueError(f"codec {text!r}: {name} takes nothing after a colon")
    raise ValueError(f"codec {text!r}: there is none of that name; there are {_KNOWN}")


def low_rank(codec: str) -> int:
    """Return the rank of a codec that sends two thin factors for a matrix, 0 for every other."""
    name, _, argument = codec.partition(":")
    return int(argument) if name == _LOW_RANK else 0


def encoded_bytes(codec: str, elements: int) -> int:
    """Return about the bytes of one message: its header and padding, some tens of bytes, are not counted."""
    name, _, part = codec.partition(":")
    if name in _SPARSE:
        return math.ceil(elements * float(part)) * (8 if name == "top_k" else 4)
    return math.ceil(elements * _BITS[name] / 8)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
