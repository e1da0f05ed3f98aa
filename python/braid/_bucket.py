# SPDX-License-Identifier: Apache-2.0
"""``braid.Bucket``: many tensors as one vector of floats. The vector is never in memory as a whole."""

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from braid import _core
from braid._codec import Codec
from braid._floats import apart, floats, fresh_message, is_tensor, memory, message_bytes, scale_of, seed_of

_DTYPES = ("float64", "float32", "float16", "bfloat16")


class Bucket:
    """A list of tensors, such as the gradients of a model, used as one flat vector of float32, in order.

    Every call reads or writes the tensors' own memory, in one pass. It works on the elements ``[begin, end)`` of
    the flat vector, by default on all elements. A range may begin and end inside a tensor.

    A bucket keeps its tensors' memory alive. It does not notice if a tensor gets other memory. Autograd does not
    see what is written. Threads may work on ranges that do not overlap. Other Python threads run meanwhile.

    Args:
        tensors: C-contiguous NumPy arrays or CPU tensors of torch, of any shapes, also empty ones. Dtypes are
            float64, float32, float16 and bfloat16, in NumPy the bfloat16 of ml_dtypes.

    Raises:
        TypeError: not a list of arrays and tensors, another dtype, or a tensor on another device.
        ValueError: a tensor is not contiguous, or overlaps another.

    Example:
        >>> import braid, numpy as np
        >>> grads = [np.ones((2, 2), np.float32), np.full(3, 4, np.float16)]
        >>> bucket = braid.Bucket(grads)
        >>> bucket.pack(scale=0.5)
        array([0.5, 0.5, 0.5, 0.5, 2. , 2. , 2. ], dtype=float32)
    """

    __slots__ = ("_core", "_read_only")

    def __init__(self, tensors: Iterable[Any]) -> None:
        """Check the tensors. Nothing is copied."""
        if is_tensor(tensors) or isinstance(tensors, np.ndarray):
            raise TypeError("Bucket: expected a list of tensors, not one; use [x]")
        seen = [memory(tensor, f"Bucket: tensor {i}", _DTYPES) for i, tensor in enumerate(tensors)]
        self._core = _core.Bucket(seen)
        self._read_only = next((i for i, (array, _) in enumerate(seen) if not array.flags.writeable), None)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._core)

    @property
    def elements(self) -> int:
        """The number of elements of all tensors together."""
        return self._core.elements

    def pack(self, out: Any = None, scale: float = 1.0, *, begin: int = 0, end: int | None = None) -> Any:
        """Return the elements times `scale` as one float32 vector: `out`, of the range's length, or a new array.

        Raises:
            TypeError, ValueError: `out` has another dtype or size, is read-only or not contiguous, or shares
                memory with a tensor. Or the range is not in the vector, or scale is not finite.

        Example:
            >>> braid.Bucket([np.ones(2, np.float64), np.zeros(3, np.float16)]).pack(begin=1)
            array([1., 0., 0., 0.], dtype=float32)
        """
        begin, end = self._range("pack", begin, end)
        result = np.empty(end - begin, np.float32) if out is None else out
        target = floats(result, "pack: out", elements=end - begin, writable=True)
        self._core.pack(begin, end, scale_of(scale, "pack"), target)
        return result

    def unpack(self, flat: Any, scale: float = 1.0, *, begin: int = 0, end: int | None = None) -> None:
        """Write `flat` times `scale` into the tensors, rounded to the nearest number of their dtypes.

        Numbers that are too large for a dtype become infinite, as in torch.

        Raises:
            TypeError, ValueError: as pack(), for `flat` instead of `out`. ValueError also for a read-only tensor.

        Example:
            >>> grads = [np.zeros(2, np.float32), np.zeros(1, np.float16)]
            >>> braid.Bucket(grads).unpack(np.array([1, 2, 3], np.float32), 0.5)
            >>> grads
            [array([0.5, 1. ], dtype=float32), array([1.5], dtype=float16)]
        """
        begin, end = self._range("unpack", begin, end)
        source = floats(flat, "unpack: flat", elements=end - begin)
        self._check_writable("unpack")
        self._core.unpack(source, begin, end, scale_of(scale, "unpack"))

    def encode(
        self,
        codec: Codec,
        residual: Any = None,
        scale: float = 1.0,
        seed: int = 0,
        begin: int = 0,
        end: int | None = None,
        out: Any = None,
    ) -> Any:
        """Encode elements times `scale`, plus `residual`. The message equals codec.encode() of pack().

        Args:
            codec: the codec of the message.
            residual: float32, of the range's length. It gets the error of the message, as in Codec.encode().
            scale: a factor.
            seed: as in Codec.encode(). Positions count from `begin`.
            begin: the first element of the range.
            end: the element after the last one; by default the end of the vector.
            out: uint8, with codec.encoded_bytes(end - begin) elements.

        Returns:
            `out`, or a new one-dimensional array of uint8.

        Raises:
            TypeError, ValueError: as Codec.encode(). ValueError also if the range is not in the vector, or if
                residual or `out` shares memory with a tensor.

        Example:
            >>> bucket = braid.Bucket([np.ones(300, np.float32), np.zeros(5, np.float16)])
            >>> bucket.encode(braid.Codec("int8"), residual=np.zeros(305, np.float32)).nbytes
            544
        """
        begin, end = self._range("encode", begin, end)
        left = None
        if residual is not None:
            left = floats(residual, "encode: residual", elements=end - begin, writable=True)
        result, target = fresh_message(out, "encode: out", _checked(codec, "encode").encoded_bytes(end - begin))
        apart("encode", residual=left, out=target)
        self._core.encode(
            codec._core, begin, end, scale_of(scale, "encode"), left, seed_of(seed, "encode"), target
        )
        return result

    def decode(
        self, codec: Codec, message: Any, scale: float = 1.0, begin: int = 0, end: int | None = None
    ) -> None:
        """Write a message's values times `scale` into the tensors, as unpack() does.

        Raises:
            TypeError, ValueError: as Codec.decode() and unpack(). The tensors are unchanged then.

        Example:
            >>> codec, x = braid.Codec("bf16"), np.ones(3, np.float32)
            >>> braid.Bucket([x]).decode(codec, codec.encode(np.arange(3, dtype=np.float32)))
            >>> x
            array([0., 1., 2.], dtype=float32)
        """
        begin, end = self._range("decode", begin, end)
        source = message_bytes(message, "decode: message")
        self._check_writable("decode")
        self._core.decode(_checked(codec, "decode")._core, source, begin, end, scale_of(scale, "decode"))

    def _range(self, call: str, begin: int, end: int | None) -> tuple[int, int]:
        first = operator.index(begin)
        last = self.elements if end is None else operator.index(end)
        if not 0 <= first <= last <= self.elements:
            raise ValueError(f"{call}: the range {first} to {last} is not within {self.elements} elements")
        return first, last

    def _check_writable(self, call: str) -> None:
        if self._read_only is not None:
            raise ValueError(f"{call}: tensor {self._read_only} is read-only")

    def __repr__(self) -> str:
        """Return a text with the numbers of tensors and elements."""
        return f"<braid.Bucket of {len(self)} tensors, {self.elements} elements>"


def _checked(codec: Codec, call: str) -> Codec:
    if not isinstance(codec, Codec):
        raise TypeError(f"{call}: codec is {codec!r}, expected a braid.Codec")
    return codec
