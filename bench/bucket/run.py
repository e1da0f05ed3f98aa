# SPDX-License-Identifier: Apache-2.0
"""The gradients of a ResNet-50 to an int8 message and back, one thread: braid in one pass, the same in torch's ops."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import braid
import numpy as np
import torch
from braid import _core
from braid._bench.ddp.models import model
from braid._bench.intervals import median_interval
from braid._machine import cpu_model

SCALE = 1 / 8  # as of eight ranks
BLOCK = 256
HEADER = 16


class TorchOps:
    """What a careful user of torch writes: every buffer is there before, and operators work in place."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.parts = [tensor.view(-1) for tensor in tensors]
        self.elements = sum(part.numel() for part in self.parts)
        rows = -(-self.elements // BLOCK)
        self.residual, self.padded, self.work = (torch.zeros(rows, BLOCK) for _ in range(3))
        self.codes = torch.zeros(rows, BLOCK, dtype=torch.int8)
        self.scales, self.largest = torch.zeros(rows, 1), torch.zeros(rows, 1)
        self.most = torch.tensor(127.0)
        self.flat = self.padded.view(-1)[: self.elements]
        self.gathered = torch.empty(self.elements, dtype=tensors[0].dtype)

    def encode(self) -> None:
        same = self.gathered.dtype == torch.float32
        torch.cat(self.parts, out=self.flat if same else self.gathered)
        if not same:
            self.flat.copy_(self.gathered)
        self.padded.mul_(SCALE).add_(self.residual)
        torch.abs(self.padded, out=self.work)
        torch.amax(self.work, dim=1, keepdim=True, out=self.largest)
        torch.div(self.largest, 127, out=self.scales)
        # Of a number and a tensor torch would take the reciprocal, which rounds twice.
        torch.mul(self.padded, torch.div(self.most, self.largest), out=self.work)
        self.codes.copy_(self.work.round_())
        torch.sub(self.padded, self.work.mul_(self.scales), out=self.residual)

    def decode(self) -> None:
        torch.mul(self.codes, self.scales, out=self.work)
        flat = self.work.view(-1)[: self.elements]
        for part, piece in zip(self.parts, flat.split([part.numel() for part in self.parts]), strict=True):
            part.copy_(piece)


class Braid:
    """One call each; or two passes, through a vector of floats."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.codec, self.bucket = braid.Codec("int8"), braid.Bucket(tensors)
        elements = self.bucket.elements
        self.residual, self.flat = np.zeros(elements, np.float32), np.zeros(elements, np.float32)
        self.message = np.zeros(self.codec.encoded_bytes(elements), np.uint8)

    def encode(self) -> None:
        self.bucket.encode(self.codec, self.residual, SCALE, out=self.message)

    def decode(self) -> None:
        self.bucket.decode(self.codec, self.message)

    def encode_in_two(self) -> None:
        self.bucket.pack(self.flat)
        self.codec.encode(self.flat, residual=self.residual, scale=SCALE, out=self.message)

    def decode_in_two(self) -> None:
        self.codec.decode(self.message, self.flat)
        self.bucket.unpack(self.flat)


def check(ours: Braid, theirs: TorchOps) -> None:
    """Both make the same bits, or the times say nothing."""
    ours.residual[:] = 0
    theirs.residual.zero_()
    for _ in range(2):
        ours.encode()
        theirs.encode()
        rows = theirs.scales.numel()
        scales = ours.message[HEADER : HEADER + 4 * rows].view(np.float32)
        codes = ours.message[-(-(HEADER + 4 * rows) // 16) * 16 :][: rows * BLOCK].view(np.int8)
        np.testing.assert_array_equal(scales, theirs.scales.numpy().ravel())
        np.testing.assert_array_equal(codes, theirs.codes.numpy().ravel())
        np.testing.assert_array_equal(ours.residual, theirs.residual.view(-1)[: theirs.elements].numpy())
    before = [part.clone() for part in theirs.parts]
    ours.decode()
    by_ours = [part.clone() for part in theirs.parts]
    theirs.decode()
    for part, same, old in zip(theirs.parts, by_ours, before, strict=True):
        assert torch.equal(part, same)
        part.copy_(old)


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(dtype: torch.dtype, rounds: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    shapes = [parameter.shape for parameter in model("resnet50").parameters]
    tensors = [(torch.randn(shape, generator=generator) * 0.01).to(dtype) for shape in shapes]
    ours, theirs = Braid(tensors), TorchOps(tensors)
    check(ours, theirs)
    copied = np.empty_like(ours.flat)
    calls: dict[str, Callable[[], Any]] = {
        "memcpy": lambda: np.copyto(copied, ours.flat),
        "encode, braid": ours.encode,
        "encode, braid in two passes": ours.encode_in_two,
        "encode, torch": theirs.encode,
        "decode, braid": ours.decode,
        "decode, braid in two passes": ours.decode_in_two,
        "decode, torch": theirs.decode,
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            taken = seconds(call)
            if turn > 0:  # the first round warms up
                times[name].append(taken * 1e3)

    def ratio(slower: str, faster: str) -> dict[str, Any]:
        # Within a round, so that what slowed the machine down slowed both.
        ratios = [a / b for a, b in zip(times[slower], times[faster], strict=True)]
        return {"median": median(ratios), "interval": median_interval(ratios)}

    return {
        "tensors": len(tensors),
        "elements": ours.bucket.elements,
        "ms": {name: {"median": median(row), "interval": median_interval(row)} for name, row in times.items()},
        "ratios": {
            f"{job}, {slower} over braid": ratio(f"{job}, {slower}", f"{job}, braid")
            for job in ("encode", "decode")
            for slower in ("torch", "braid in two passes")
        }
        | {f"{job}, braid over memcpy": ratio(f"{job}, braid", "memcpy") for job in ("encode", "decode")},
    }


def table(cases: dict[str, Any]) -> str:
    lines = ["| | " + " | ".join(cases) + " |", "|---" * (len(cases) + 1) + "|"]
    for kind, unit in (("ms", " ms"), ("ratios", "x")):
        for name in next(iter(cases.values()))[kind]:
            cells = [case[kind][name] for case in cases.values()]
            shown = [f"{c['median']:.1f}{unit} ({c['interval'][0]:.1f}-{c['interval'][1]:.1f})" for c in cells]
            lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "resnet50.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {name: measure(getattr(torch, name), arguments.rounds) for name in ("float32", "bfloat16")}
    report = {
        "processor": cpu_model(),
        "instruction_set": _core.reduce_instruction_set(),
        "torch": torch.__version__,
        "commit": _core.commit,
        "rounds": arguments.rounds,
        "cases": found,
    }
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table(found))
