# SPDX-License-Identifier: Apache-2.0
"""What encodes and decodes on an accelerator, by type of device. CUDA has the kernels of braid.cuda."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Coder(Protocol):
    """Codecs on one type of device. All functions queue their work on the current stream, and return at once.

    Bytes, residuals and decoded values are those of braid.Codec. Tensors are one-dimensional and contiguous.
    """

    def encode(
        self, codec: str, values: "Tensor", residual: "Tensor | None", scale: float, message: "Tensor"
    ) -> None:
        """Encode ``values * scale + residual`` into a message, and leave the error in the residual.

        Args:
            codec: a codec without random choices.
            values: float32, float16 or bfloat16.
            residual: float32, changed in place; or None.
            scale: a factor.
            message: uint8, of the size that the codec says.
        """

    def decode(self, codec: str, message: "Tensor", into: "Tensor", *, add: bool) -> None:
        """Decode a message into float32: store the values, or add them."""


class _Cuda:
    def encode(
        self, codec: str, values: "Tensor", residual: "Tensor | None", scale: float, message: "Tensor"
    ) -> None:
        from braid import cuda

        cuda.encode(codec, values, residual=residual, scale=scale, out=message)

    def decode(self, codec: str, message: "Tensor", into: "Tensor", *, add: bool) -> None:
        from braid import cuda

        # A check would wait for the stream. A wrong message changes nothing.
        (cuda.decode_add if add else cuda.decode)(codec, message, into, check=False)


_registered: dict[str, Coder] = {}


def register(device_type: str, coder: Coder) -> None:
    """Let a coder encode tensors of a type of device, as "sim". All ranks must do so before their first call."""
    _registered[device_type] = coder


def coder_of(device: Any) -> Coder | None:
    """Return the coder for a device; None if tensors there are encoded on the host."""
    if device.type == "cuda" and device.type not in _registered:
        import torch

        from braid import cuda

        if torch.version.cuda is not None and cuda.is_available():
            _registered["cuda"] = _Cuda()
    return _registered.get(device.type)
