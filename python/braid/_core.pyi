# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy.typing as npt
from typing_extensions import Buffer

_Method = TypeVar("_Method", bound=Callable[..., Any])

version: str
build_type: str
commit: str
compiler: str

def dtypes() -> list[str]: ...
def reduce_ops() -> list[str]: ...
def reduce_instruction_set() -> str: ...
def families(collective: str) -> list[str]: ...
def plan(
    collective: str,
    family: str,
    ranks: int,
    root: int = 0,
    shares: Sequence[int] = (),
    hosts: Sequence[int] = (),
    aggregators: int = 0,
) -> str: ...
def verify(text: str) -> int: ...
def optimal_split(
    up: Sequence[float],
    down: Sequence[float],
    contributes: Sequence[bool],
    push: float = 1.0,
    pull: float = 1.0,
) -> tuple[float, list[float]]: ...
def shares_on(topology: str, aggregators: int = 0, of_hosts: bool = False) -> list[int]: ...

assumed_between: tuple[float, float]

def stated_topology(
    hosts: Sequence[int], alpha_s: float, beta_s_per_byte: float, cards: Sequence[tuple[float, float]]
) -> str: ...
def rehearse(
    text: str,
    inputs: Sequence[Sequence[Buffer]],
    outputs: Sequence[Sequence[Buffer]],
    dtype: str,
    op: str = "sum",
    chunk_bytes: int = 262144,
    window: int = 4,
    single_copy: bool = False,
    delay_s: float = 0.0,
) -> None: ...

class _Store(Protocol):
    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str, timeout_s: float) -> bytes: ...

class Request:
    def done(self) -> bool: ...
    def source(self) -> int: ...
    def wait(self, timeout_s: float | None = None) -> None: ...

class Communicator:
    def __init__(
        self,
        store: _Store,
        rank: int,
        size: int,
        name: str,
        timeout_s: float | None,
        reach: str,
        links: tuple[str, str, float, float, float, float] | None = None,
        servers: _Store | None = None,
    ) -> None: ...
    def run(
        self,
        collective: str,
        dtype: str,
        op: str,
        root: int,
        input: npt.NDArray[Any] | None,
        input_counts: Sequence[int],
        output: npt.NDArray[Any] | None,
        output_counts: Sequence[int],
        /,
    ) -> None: ...
    def start(
        self,
        collective: str,
        dtype: str,
        op: str,
        root: int,
        input: npt.NDArray[Any] | None,
        input_counts: Sequence[int],
        output: npt.NDArray[Any] | None,
        output_counts: Sequence[int],
        /,
    ) -> Request: ...
    def send(self, array: npt.NDArray[Any], to: int, tag: int, /) -> Request: ...
    def recv(self, array: npt.NDArray[Any], source: int, tag: int, /) -> Request: ...
    def set_timeout(self, timeout_s: float | None, /) -> None: ...
    def abort(self, reason: str, /) -> None: ...
    def failure(self) -> str | None: ...
    def stats(self) -> list[dict[str, Any]]: ...
    def explain(
        self, collective: str, dtype: str, op: str, root: int, bytes: int, codec: str = ""
    ) -> dict[str, Any]: ...
    def lossy_all_reduce(
        self, array: npt.NDArray[Any], codec: str, op: str, residual: npt.NDArray[Any] | None, seed: int
    ) -> Request: ...
    def topology(self) -> str: ...
    def wires(self) -> list[str]: ...
    def close(self) -> None: ...

class Tuner:
    def __init__(self, topology: str, algorithm: str = "") -> None: ...
    def explain(
        self, collective: str, dtype: str, op: str, root: int, bytes: int, codec: str = ""
    ) -> dict[str, Any]: ...

class Codec:
    name: str
    is_sparse: bool
    is_unbiased: bool
    is_linear: bool
    block_elements: int
    error_bound: float
    ratio: float
    def __init__(self, text: str) -> None: ...
    def encoded_bytes(self, elements: int) -> int: ...
    def encode(
        self,
        values: npt.NDArray[Any],
        residual: npt.NDArray[Any] | None,
        scale: float,
        seed: int,
        message: npt.NDArray[Any],
    ) -> None: ...
    def decode(self, message: npt.NDArray[Any], out: npt.NDArray[Any]) -> None: ...
    def decode_add(self, message: npt.NDArray[Any], into: npt.NDArray[Any]) -> None: ...

class Bucket:
    elements: int
    def __init__(self, arrays: Sequence[tuple[npt.NDArray[Any], str]]) -> None: ...
    def __len__(self) -> int: ...
    def pack(self, begin: int, end: int, scale: float, out: npt.NDArray[Any]) -> None: ...
    def unpack(self, flat: npt.NDArray[Any], begin: int, end: int, scale: float) -> None: ...
    def encode(
        self,
        codec: Codec,
        begin: int,
        end: int,
        scale: float,
        residual: npt.NDArray[Any] | None,
        seed: int,
        message: npt.NDArray[Any],
    ) -> None: ...
    def decode(self, codec: Codec, message: npt.NDArray[Any], begin: int, end: int, scale: float) -> None: ...

class LowRank:
    def __init__(self, rows: int, columns: int, rank: int, dtype: str = "float32") -> None: ...
    def project(
        self,
        gradient: npt.NDArray[Any],
        matrix: npt.NDArray[Any],
        sent: npt.NDArray[Any] | None,
        q: npt.NDArray[Any],
        p: npt.NDArray[Any],
        begin: int,
        end: int,
    ) -> None: ...
    def gather(
        self, matrix: npt.NDArray[Any], p: npt.NDArray[Any], q: npt.NDArray[Any], begin: int, end: int
    ) -> None: ...
    def rebuild(
        self, p: npt.NDArray[Any], q: npt.NDArray[Any], product: npt.NDArray[Any], begin: int, end: int
    ) -> None: ...
    def settle(
        self, p: npt.NDArray[Any], q: npt.NDArray[Any], matrix: npt.NDArray[Any], begin: int, end: int
    ) -> None: ...
    def orthonormalize(self, p: npt.NDArray[Any]) -> bool: ...

def draw_uniform(seed: int, out: npt.NDArray[Any]) -> None: ...
def cuda_devices() -> int: ...
def cuda_capability(device: int) -> tuple[int, int]: ...
def cuda_scratch_bytes(codec: Codec, elements: int, has_residual: bool) -> int: ...

class CudaTable:
    elements: int
    is_long: bool
    def __init__(self, tensors: Sequence[tuple[int, int, str]]) -> None: ...
    def rows(self) -> bytes: ...
    def set_far_rows(self, address: int) -> None: ...

class Gpu:
    name: str
    def __init__(self, device: int, image: bytes) -> None: ...
    def pack(self, table: CudaTable, scale: float, out: int, stream: int) -> None: ...
    def unpack(self, floats: int, table: CudaTable, scale: float, add: bool, stream: int) -> None: ...
    def encode(
        self,
        codec: Codec,
        table: CudaTable,
        scale: float,
        seed: int,
        residual: int,
        message: int,
        message_bytes: int,
        scratch: int,
        stream: int,
    ) -> None: ...
    def decode(
        self,
        codec: Codec,
        message: int,
        message_bytes: int,
        table: CudaTable,
        scale: float,
        add: bool,
        flag: int,
        stream: int,
    ) -> None: ...

def quick(method: _Method, /) -> _Method: ...
def leave_all_groups(reason: str) -> None: ...
def serve(
    store: _Store,
    reach: str,
    links: tuple[str, str, float, float, float, float] | None,
    stopped: Callable[[], bool],
    say: Callable[[str], Any],
) -> None: ...
def stats() -> list[dict[str, Any]]: ...
