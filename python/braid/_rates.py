# SPDX-License-Identifier: Apache-2.0
"""Rates of network cards as people write them, "200mbit", and numbers of bytes as they read them, "1.33 MiB"."""

import re

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)bit(?:/s)?", re.IGNORECASE)
_LEAST, _MOST = 1e4, 1e15
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def parse_rate(text: str) -> float:
    """Return the bits per second that "200mbit" or "1.5gbit/s" says.

    Raises:
        ValueError: it is no rate, or not from 10 kbit/s to 1 000 000 Gbit/s.
    """
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) * _UNITS[match[2].lower()] if match else 0.0
    if not _LEAST <= rate <= _MOST:
        raise ValueError(f"{text!r} is no rate: expected 10kbit to 1000000gbit, as in 200mbit or 1gbit")
    return rate


def rate_text(bits_per_s: float) -> str:
    """Return a rate as parse_rate() reads it: "200mbit"."""
    for unit in ("g", "m", "k"):
        if bits_per_s >= _UNITS[unit]:
            return f"{bits_per_s / _UNITS[unit]:.6g}{unit}bit"
    return f"{bits_per_s:.6g}bit"


def size_text(count: int) -> str:
    """Return a number of bytes in short: ``8 B``, ``4 KiB``, ``1.33 MiB``."""
    power = min(max(count.bit_length() - 1, 0) // 10, len(_BINARY) - 1)
    value = count / 1024**power
    digits = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits} {_BINARY[power]}"
