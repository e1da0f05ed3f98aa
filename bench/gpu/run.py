# SPDX-License-Identifier: Apache-2.0
"""How near the GPU kernels come to a plain copy, and what the same job takes in torch's and CuPy's operations.

python bench/gpu/run.py OUT.json [--elements 268435456] [--repeats 30]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import braid.cuda
import torch

CODECS = ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign", "top_k:0.001", "random_k:0.01"]
# About a tenth of a second: to queue 30 jobs on 400 tensors takes some 30 ms.
_CYCLES_AHEAD = 200_000_000


@dataclass
class Job:
    """One job: `run` is timed, and moves at least so many bytes."""

    name: str
    contestant: str
    nbytes: int
    run: Callable[[], Any]


@dataclass
class Row:
    """What one job took."""

    name: str
    contestant: str
    nbytes: int
    median_us: float
    least_us: float
    most_us: float
    gb_per_s: float
    of_copy: float


def timed(job: Job, repeats: int) -> list[float]:
    """Return the microseconds of each run between two events, after a warm-up.

    The GPU is kept busy until all runs are queued, so that none waits for Python.
    """
    for _ in range(3):
        job.run()
    torch.cuda.synchronize()
    torch.cuda._sleep(_CYCLES_AHEAD)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in events:
        start.record()
        job.run()
        end.record()
    torch.cuda.synchronize()
    return [1e3 * start.elapsed_time(end) for start, end in events]


def gradients(elements: int, dtype: torch.dtype, many: bool) -> list[torch.Tensor]:
    """Return one tensor, or 400 of uneven sizes as a model has them, the first of 10; of so many elements."""
    flat = torch.randn(elements, device="cuda").to(dtype)
    if not many:
        return [flat]
    weights = [1 + (i * 7919) % 97 for i in range(400)]
    ends = [0, 10]  # a bias of 10 classes: no tensor after it begins at a multiple of 4
    for weight in weights[1:-1]:
        ends.append(ends[-1] + elements * weight // sum(weights) // 8 * 8)
    return [flat[a:b].clone() for a, b in zip(ends, [*ends[1:], elements], strict=True)]


def copies(elements: int) -> Iterator[Job]:
    source, target = torch.randn(elements, device="cuda"), torch.empty(elements, device="cuda")
    yield Job("copy", "device to device", 8 * elements, lambda: target.copy_(source))


def packing(elements: int) -> Iterator[Job]:
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        for many in (False, True):
            of = f"{'400 tensors' if many else '1 tensor'} of {str(dtype).removeprefix('torch.')}"
            tensors, flat = gradients(elements, dtype, many), torch.empty(elements, device="cuda")
            nbytes = (4 + size) * elements

            def in_torch(tensors: list[torch.Tensor] = tensors, flat: torch.Tensor = flat) -> None:
                torch.cat([tensor.reshape(-1).float() for tensor in tensors], out=flat)
                flat.mul_(0.5)

            def back_in_torch(tensors: list[torch.Tensor] = tensors, flat: torch.Tensor = flat) -> None:
                parts = (flat * 0.5).split([tensor.numel() for tensor in tensors])
                torch._foreach_copy_(tensors, list(parts))

            yield Job(
                f"pack {of}", "braid", nbytes, lambda t=tensors, f=flat: braid.cuda.pack(t, scale=0.5, out=f)
            )
            yield Job(f"pack {of}", "torch", nbytes, in_torch)
            yield Job(
                f"unpack {of}", "braid", nbytes, lambda t=tensors, f=flat: braid.cuda.unpack(f, t, scale=0.5)
            )
            yield Job(f"unpack {of}", "torch", nbytes, back_in_torch)


def coding(elements: int) -> Iterator[Job]:
    source = gradients(elements, torch.float32, False)[0]
    narrow = gradients(elements, torch.bfloat16, False)[0]
    residual, out = torch.zeros(elements, device="cuda"), torch.empty(elements, device="cuda")
    for text in CODECS:
        size = braid.Codec(text).encoded_bytes(elements)
        message = torch.empty(size, dtype=torch.uint8, device="cuda")

        def encode(source: torch.Tensor, left: torch.Tensor | None, c: str = text, m: Any = message) -> None:
            braid.cuda.encode(c, source, residual=left, scale=0.5, seed=1, out=m)

        yield Job(f"encode {text}", "braid", 4 * elements + size, lambda e=encode: e(source, None))
        yield Job(f"encode {text}, bfloat16", "braid", 2 * elements + size, lambda e=encode: e(narrow, None))
        yield Job(
            f"encode {text} with residual", "braid", 12 * elements + size, lambda e=encode: e(source, residual)
        )
        yield Job(
            f"decode {text}",
            "braid",
            4 * elements + size,
            lambda c=text, m=message: braid.cuda.decode(c, m, out, check=False),
        )
        if not braid.Codec(text).is_sparse:
            yield Job(
                f"decode_add {text}",
                "braid",
                8 * elements + size,
                lambda c=text, m=message: braid.cuda.decode_add(c, m, out, check=False),
            )


def in_torch(elements: int) -> Iterator[Job]:
    """Yield the nearest that torch's own operations have, with a residual, as a comm hook would be written."""
    source, residual = torch.randn(elements, device="cuda"), torch.zeros(elements, device="cuda")

    def fp16() -> None:
        sums = source * 0.5 + residual
        half = sums.half()
        torch.sub(sums, half.float(), out=residual)

    def int8() -> None:
        sums = (source * 0.5 + residual).view(-1, 256)
        scale = sums.abs().amax(dim=1, keepdim=True) / 127
        codes = (sums / scale).round_().to(torch.int8)
        torch.sub(sums, codes.float() * scale, out=residual.view(-1, 256))

    def sign() -> None:
        sums = (source * 0.5 + residual).view(-1, 1024)
        scale = sums.abs().mean(dim=1, keepdim=True)
        bits = (sums < 0).view(-1, 8).to(torch.uint8)
        (bits << torch.arange(8, dtype=torch.uint8, device="cuda")).sum(dim=1, dtype=torch.uint8)
        torch.sub(sums, torch.copysign(scale.expand_as(sums), sums), out=residual.view(-1, 1024))

    def top_k() -> None:
        torch.add(source * 0.5, residual, out=residual)
        _, positions = residual.abs().topk(elements // 1000, sorted=False)
        residual[positions]
        residual[positions] = 0

    for name, run, size in (
        ("fp16", fp16, 2 * elements),
        ("int8", int8, elements),
        ("sign", sign, elements // 8),
        ("top_k:0.001", top_k, elements // 125),
    ):
        yield Job(f"encode {name} with residual", "torch", 12 * elements + size, run)


def in_cupy(elements: int) -> Iterator[Job]:
    """Yield what CuPy does: fused element by element, the rest by its own kernels."""
    try:
        import cupy
    except ImportError:
        return
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    source = cupy.random.standard_normal(elements, dtype=cupy.float32)
    residual = cupy.zeros(elements, cupy.float32)
    codes = cupy.empty((elements // 256, 256), cupy.int8)
    add = cupy.ElementwiseKernel("float32 x", "float32 r", "r += x * 0.5f", "braid_bench_add")
    code = cupy.ElementwiseKernel(
        "float32 m", "float32 r, int8 c", "float s = m / 127; c = rintf(r / s); r -= c * s", "braid_bench_code"
    )

    def int8() -> None:
        with stream:
            add(source, residual)
            rows = residual.reshape(-1, 256)
            code(cupy.abs(rows).max(axis=1, keepdims=True), rows, codes)

    yield Job("encode int8 with residual", "cupy", 12 * elements + elements, int8)


def launches(_: int) -> Iterator[Job]:
    """Yield buckets so small that nothing but the launch counts."""
    small = list(torch.randn(400, 41, device="cuda"))
    size = braid.Codec("int8").encoded_bytes(41)
    yield Job("pack, 400 tensors of 41 elements", "braid", 8 * 400 * 41, lambda: braid.cuda.pack(small))
    yield Job(
        "encode int8, 1 tensor of 41 elements", "braid", 4 * 41 + size, lambda: braid.cuda.encode("int8", small[0])
    )


def row_of(job: Job, times: list[float], before: list[Row]) -> Row:
    """Return what one job took; the first of all is the copy."""
    median = statistics.median(times)
    rate = job.nbytes / median / 1e3
    copy = before[0].gb_per_s if before else rate
    return Row(job.name, job.contestant, job.nbytes, median, min(times), max(times), rate, rate / copy)


def text_of(row: Row) -> str:
    """Return a line of the table."""
    what = f"{row.name:45} {row.contestant:17}"
    return f"{what} {row.median_us:10.1f} us {row.gb_per_s:7.0f} GB/s {row.of_copy:5.0%}"


def main() -> int:
    """Run all jobs, print a table, write OUT.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--elements", type=int, default=1 << 28)
    parser.add_argument("--repeats", type=int, default=30)
    given = parser.parse_args()
    if why := braid.cuda.why_unavailable():
        print(why, file=sys.stderr)
        return 1
    elements = given.elements // 1024 * 1024
    properties = torch.cuda.get_device_properties(0)
    if 4 * elements < 4 * properties.L2_cache_size:
        print(f"{elements} elements are too few: the cache holds a good part of them", file=sys.stderr)
        return 1
    rows: list[Row] = []
    failed = 0
    for jobs in (copies, packing, coding, launches, in_torch, in_cupy):
        try:
            for job in jobs(elements):
                rows.append(row_of(job, timed(job, given.repeats), rows))
                print(text_of(rows[-1]), flush=True)
        except Exception:  # one contestant's trouble is no reason to lose what the others have shown
            traceback.print_exc()
            failed += 1
        report = {
            "device": properties.name,
            "capability": [properties.major, properties.minor],
            "torch": torch.__version__,
            "kernels": Path(braid.cuda.image()).name,
            "elements": elements,
            "repeats": given.repeats,
            "rows": [asdict(row) for row in rows],
        }
        given.out.write_text(json.dumps(report, indent=1) + "\n")
        torch.cuda.empty_cache()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
