# SPDX-License-Identifier: Apache-2.0
"""Prints the table of docs/codecs.md, and messages taken apart. --write changes the page and the golden file.

Takes messages apart by what the page says of them, not by the core's own words.
"""

import re
import struct
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import braid
import numpy as np

CODECS = (
    *("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign"),
    *("top_k:0.25", "random_k:0.25"),
)
# One of each layout. bf16 has fp16's; float8 and qsgd have int8's.
DUMPED = ("fp16", "int8", "int4", "sign", "top_k:0.25", "random_k:0.25")
VALUES = np.array([1, -0.5, 0.003, 0, -2, 0.7, 0.1, -0.03], np.float32)
SEED = 11
_ROOT = Path(__file__).parent.parent
PAGE = _ROOT / "docs" / "codecs.md"
MESSAGES = _ROOT / "tests" / "golden" / "codecs" / "messages.txt"

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
    if name == "int8":
        return f"codes {_numbers(np.frombuffer(message, np.int8, n, 32))}"
    if name == "int4":
        low = np.frombuffer(message, np.uint8, n, 32).astype(int) & 15
        return f"low halves: codes {_numbers(low - 8)}, plus 8; high halves: elements 128 on, code 0"
    return f"bits, the first element's lowest: {message[32]:08b}"


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


def _hex(at: int, data: bytes) -> str:
    if at == 0:  # the header, by its fields
        return " ".join(data[start:end].hex() for start, end in pairwise((0, 2, 3, 4, 8, 12, 16)))
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
            lines.append(f"{at:04x}  {_hex(at, data):<47}  {what}")
    return "\n".join(lines)


def dumps() -> str:
    """Return the golden file: a message of each layout."""
    return "\n".join(dump(text) + "\n" for text in DUMPED)


def table() -> str:
    """Return the traits of all codecs: a table, and the few that are unbiased or linear."""
    lines = ["| Codec | Kind | Bytes per element | Block | Largest error |", "|---|---|---|---|---|"]
    for text in CODECS:
        codec = braid.Codec(text)
        kind, block = codec.encode(VALUES)[3], codec.block_elements
        bound = "-" if codec.is_sparse else f"{codec.error_bound:.5f}" + ("" if block > 1 else " (element)")
        said = [f"`{text}`", kind, f"{4 * codec.ratio:.4f}", block if block > 1 else ""]
        lines.append("| " + " | ".join(map(str, [*said, bound])) + " |")
    for trait, meaning in (("unbiased", "Unbiased"), ("linear", "Linear (messages of one seed may be summed)")):
        names = [f"`{text}`" for text in CODECS if getattr(braid.Codec(text), f"is_{trait}")]
        lines += ["", f"{meaning}: {', '.join(names)}."]
    return "\n".join(lines)


def page_with(page: str) -> str:
    """Return the page with its generated table as it should be."""
    pattern = r"(<!-- table: [^\n]*\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda match: f"{match[1]}{table()}\n{match[2]}", page, flags=re.DOTALL)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page_with(PAGE.read_text()))
        MESSAGES.write_text(dumps())
    else:
        print(table(), dumps(), sep="\n\n")
