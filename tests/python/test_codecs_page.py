# SPDX-License-Identifier: Apache-2.0
"""docs/codecs.md shows what the codecs really do."""

import braid
import codec_dump
import numpy as np
import pytest

pytestmark = pytest.mark.unit


def test_the_page_is_up_to_date() -> None:
    page = codec_dump.PAGE.read_text()
    assert codec_dump.page_with(page) == page, "run python tools/codec_dump.py --write"
    assert codec_dump.dumps() == codec_dump.MESSAGES.read_text()
    assert codec_dump.table() in page


def test_it_shows_every_codec() -> None:
    with pytest.raises(ValueError, match="there are") as error:
        braid.Codec("?")
    names = str(error.value).partition("there are ")[2].replace(":PART", "").split(", ")
    assert [text.partition(":")[0] for text in codec_dump.CODECS] == names


@pytest.mark.parametrize("elements", [0, 1, 3, 4, 5, 256, 1000, 1024, 1025, 5000])
@pytest.mark.parametrize("text", codec_dump.CODECS)
def test_sizes_follow_from_the_layout(text: str, elements: int) -> None:
    codec = braid.Codec(text)

    def padded(nbytes: int) -> int:
        return -(-nbytes // 16) * 16

    blocks, entries = -(-elements // codec.block_elements), -(-elements // 4)
    planes = {
        "top_k": [4 * entries, 4 * entries],
        "random_k": [4 * entries],
        "sign": [4 * blocks, blocks * 1024 // 8],
        "int4": [4 * blocks, blocks * 256 // 2],
        "fp16": [2 * elements],
        "bf16": [2 * elements],
    }.get(codec.name, [4 * blocks, blocks * 256])
    assert codec.encoded_bytes(elements) == 16 + sum(map(padded, planes))


def test_the_numbers_in_the_text_hold() -> None:
    def sent(text: str, values: list[float]) -> list[float]:
        codec, given = braid.Codec(text), np.array(values, np.float32)
        return codec.decode(codec.encode(given), np.empty_like(given)).tolist()

    assert sent("fp16", [1e6, -1e6]) == [65504, -65504]
    assert sent("int8", [2.0**-101, 0]) == [0, 0]
    assert sent("int8", [2.0**-100, 0])[0] > 0
    assert sent("sign", [-0.0, 3.0]) == [-1.5, 1.5]
    assert sent("top_k:0.25", [2, 2, -2, 1, 9, np.inf, np.nan, 0])[:6] == [0, 0, 0, 0, 0, np.inf]
    assert sent("top_k:0.25", [1, 2, -2, 1]) == [0, 2, 0, 0]
