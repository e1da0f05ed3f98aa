# SPDX-License-Identifier: Apache-2.0
"""Reads the settings of a policy from one line of text."""

import re
from typing import Any

from braid.compression import codecs
from braid.compression.rule import Rule

_SIZE = re.compile(r"(\d+)([KMG]?)B?", re.IGNORECASE)
_OFF = ("", "off", "none")


def settings_from_text(text: str) -> dict[str, Any]:
    """Return the arguments of the CompressionPolicy that a line asks for: see CompressionPolicy.from_text.

    Raises:
        ValueError: says which part is wrong.
    """
    settings: dict[str, Any] = {}
    if text.strip().lower() in _OFF:
        return settings
    rules: list[Rule] = []
    for part in text.split(","):
        part = part.strip()
        if not part:
            raise ValueError("nothing between two commas")
        if "=" in part:
            rules.append(_rule(part))
        else:
            _settle(settings, part)
    return {"rules": tuple(rules), **settings}


def _settle(settings: dict[str, Any], part: str) -> None:
    name, _, argument = part.partition(":")
    name = name.strip().lower()
    if name == "warmup":
        if not argument.isdecimal() or int(argument) < 1:
            raise ValueError(f"{part!r}: say a number of steps, at least 1, as in warmup:100")
        new: dict[str, Any] = {"warmup_steps": int(argument)}
    elif name == "trial":
        if not argument.isdecimal():
            raise ValueError(f"{part!r}: say a number of steps, as in trial:24, or 0 for none")
        new = {"trial_steps": int(argument)}
    elif name == codecs.AUTO and argument:
        new = {"default": codecs.AUTO, "budget": argument}
    else:
        new = {"default": codecs.checked(part)}
    if twice := settings.keys() & new.keys():
        what = {"warmup_steps": "warmup", "trial_steps": "trial"}.get(min(twice), "the default")
        raise ValueError(f"{part!r}: {what} was given before; a rule is written PATTERN=CODEC")
    settings.update(new)


def _rule(part: str) -> Rule:
    left, _, codec = part.rpartition("=")
    if left.endswith((">", "<")):  # "a>=1M" without a codec
        raise ValueError(f"{part!r}: the codec is missing, as in {part}=int8")
    for mark in (">=", "<"):
        pattern, found, size = left.partition(mark)
        if found:
            limit = _bytes(size, part)
            return Rule(pattern.strip(), codec, limit) if mark == ">=" else Rule(pattern.strip(), codec, 0, limit)
    return Rule(left.strip(), codec)


def _bytes(text: str, part: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{part!r}: {text!r} is no size; a size is written 4096, 64K, 1M or 2G")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]
