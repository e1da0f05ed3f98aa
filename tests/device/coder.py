# SPDX-License-Identifier: Apache-2.0
"""Codecs on the simulated device: operators of torch with the host's codec, so that its streams queue them."""

import braid
import torch
from braid._torch import coders
from torch import Tensor

_library: list[torch.library.Library] = []


def _encode(values: Tensor, residual: Tensor | None, message: Tensor, codec: str, scale: float) -> None:
    floats = values.to(torch.float32).contiguous()
    braid.Codec(codec).encode(floats, residual=residual, scale=scale, out=message)


def _decode(message: Tensor, into: Tensor, codec: str, add: bool) -> None:
    (braid.Codec(codec).decode_add if add else braid.Codec(codec).decode)(message, into)


class SimulatedCoder:
    """What braid.cuda is for CUDA."""

    def encode(self, codec: str, values: Tensor, residual: Tensor | None, scale: float, message: Tensor) -> None:
        torch.ops.braid_sim.encode(values, residual, message, codec, scale)

    def decode(self, codec: str, message: Tensor, into: Tensor, *, add: bool) -> None:
        torch.ops.braid_sim.decode(message, into, codec, add)


def register() -> None:
    """Let the simulated device encode. REQUIRES: it is loaded."""
    library = torch.library.Library("braid_sim", "DEF")
    library.define("encode(Tensor values, Tensor(a!)? residual, Tensor(b!) message, str codec, float scale) -> ()")
    library.define("decode(Tensor message, Tensor(a!) into, str codec, bool add) -> ()")
    library.impl("encode", _encode, "CPU")
    library.impl("decode", _decode, "CPU")
    _library.append(library)
    coders.register("sim", SimulatedCoder())
