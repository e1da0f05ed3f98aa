# SPDX-License-Identifier: Apache-2.0
"""Prints what docs/codecs.md shows of every codec: traits, and a message taken apart. --write changes the page.

Takes messages apart by what the page says of them, not by the core's own words.
"""

import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import braid
import numpy as np

CODECS = (
    *("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign"),
    *("top_k:0.25", "random_k:0.25"),
)
VALUES = np.array([1, -0.5, 0.003, 0, -2, 0.7, 0.1, -0.03], np.float32)
SEED = 11
PAGE = Path(__file__).parent.parent / "docs" / "codecs.md"

Row = tuple[int, bytes, str]


def _numbers(values: object) -> str:
    return " ".join(f"{value:.6g}" for value in np.asarray(values).tolist())


def _header(message: bytes) -> Row:
    magic, version, kind, elements, entries, seed = struct.unpack_from("<2sBBIII", message)
    text = (
        f'"{magic.decode()}", version {version}, kind {kind}; {elements} elements; {entries} entries; seed {seed}'
    )
    return 0, message[:16], text


def _data(codec: braid.Codec, message: bytes) -> str:
    name, n = codec.name, VALUES.size
    if name == "fp16":
        return _numbers(np.frombuffer(message, np.float16, n, 16))
    if name == "bf16":
        return _numbers((np.frombuffer(message, np.uint16, n, 16).astype(np.uint32) << 16).view(np.float32))
    if name in ("int8", "qsgd"):
        return f"codes {_numbers(np.frombuffer(message, np.int8, n, 32))}"
    if name == "int4":
        low = np.frombuffer(message, np.uint8, n, 32).astype(int) & 15
        return f"low halves: codes {_numbers(low - 8)}, plus 8; high halves: elements 128 on, code 0"
    if name == "sign":
        return f"bits, the first element's lowest: {message[32]:08b}"
    return "sign, exponent and fraction of each"


def _rows(codec: braid.Codec, message: bytes) -> Iterator[Row]:
    yield _header(message)
    if not codec.is_sparse:
        end = 16 + 2 * VALUES.size
        if codec.block_elements > 1:
            yield 16, message[16:20], f"scale of block 0: {_numbers(np.frombuffer(message, np.float32, 1, 16))}"
            yield 20, message[20:32], "padding"
            end = 32 + (1 if codec.name == "sign" else VALUES.size)
        start = 32 if codec.block_elements > 1 else 16
        yield start, message[start:end], _data(codec, message)
        yield end, message[end:], "the rest of the block"
        return
    (entries,) = struct.unpack_from("<I", message, 8)
    if codec.name == "top_k":
        yield 16, message[16:24], f"positions {_numbers(np.frombuffer(message, np.uint32, entries, 16))}"
        yield 24, message[24:32], "padding"
    start = len(message) - 16
    yield (
        start,
        message[start : start + 8],
        f"values {_numbers(np.frombuffer(message, np.float32, entries, start))}",
    )
    yield start + 8, message[start + 8 :], "padding"


def _hex(data: bytes) -> str:
    alike = len(data) > 4 and len(set(data)) == 1
    return f"{data[0]:02x}, {len(data)} times" if alike else data.hex(" ")


def dump(text: str) -> str:
    """Return one codec's message, a part per line: offset, bytes, what they are."""
    codec = braid.Codec(text)
    message = codec.encode(VALUES, seed=SEED)
    decoded = codec.decode(message, np.empty_like(VALUES))
    lines = [f"{text}: {message.nbytes} bytes, decoded to {_numbers(decoded)}"]
    for at, data, what in _rows(codec, message.tobytes()):
        if data:
            lines.append(f"{at:04x}  {_hex(data):<47}  {what}")
    return "\n".join(lines)


def dumps() -> str:
    """Return the dumps of all codecs as a block of code."""
    return "\n".join(["```", *("\n".join(dump(text) + "\n" for text in CODECS)).rstrip().split("\n"), "```"])


def table() -> str:
    """Return the traits of all codecs as a table."""
    lines = [
        "| Codec | Kind | Bytes per element | Block | Largest error | Unbiased | Linear |",
        "|---|---|---|---|---|---|---|",
    ]
    for text in CODECS:
        codec = braid.Codec(text)
        kind, block = codec.encode(VALUES)[3], codec.block_elements
        where = "the element" if block == 1 else "the block's largest"
        bound = "what it leaves out" if codec.is_sparse else f"{codec.error_bound:.5f} of {where}"
        said = [f"`{text}`", kind, f"{4 * codec.ratio:.4f}", block if block > 1 else ""]
        yes = ["yes" if trait else "" for trait in (codec.is_unbiased, codec.is_linear)]
        lines.append("| " + " | ".join(map(str, [*said, bound, *yes])) + " |")
    return "\n".join(lines)


def page_with(page: str) -> str:
    """Return the page with its generated parts as they should be."""
    for name, part in (("table", table()), ("dumps", dumps())):
        pattern = rf"(<!-- {name}: [^\n]*\n).*?(<!-- end -->)"
        page = re.sub(pattern, lambda match, part=part: f"{match[1]}{part}\n{match[2]}", page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page_with(PAGE.read_text()))
    else:
        print(table(), dumps(), sep="\n\n")
