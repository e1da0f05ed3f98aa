# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from typing_extensions import Buffer

version: str
build_type: str
compiler: str

def dtypes() -> list[str]: ...
def reduce_instruction_set() -> str: ...
def families(collective: str) -> list[str]: ...
def plan(collective: str, family: str, ranks: int, root: int = 0, shares: Sequence[int] = ()) -> str: ...
def verify(text: str) -> int: ...
def rehearse(
    text: str,
    inputs: Sequence[Sequence[Buffer]],
    outputs: Sequence[Sequence[Buffer]],
    dtype: str,
    op: str = "sum",
    chunk_bytes: int = 262144,
    window: int = 4,
    single_copy: bool = False,
) -> None: ...
