# SPDX-License-Identifier: Apache-2.0
"""``braid.Codec``: lossy codecs for users who send floats themselves, or want to see what a codec does."""

import operator
from typing import Any

from braid import _core
from braid._floats import apart, floats, fresh_message, message_bytes, scale_of, seed_of


class Codec:
    """Turns float32 numbers into a message of fewer bytes, and back. A residual keeps the error for the next call.

    Arrays are C-contiguous NumPy arrays or CPU tensors of torch, of any shape. They are not copied. All processors
    give the same bytes. Codecs are immutable. They are equal if their texts are equal. They can be pickled and
    used as keys. Other Python threads run while a codec works. docs/codecs.md has the format of messages.

    Args:
        text: ``"fp16"``, ``"bf16"``, ``"fp8_e4m3"``, ``"fp8_e5m2"``, ``"int8"``, ``"int4"``, ``"qsgd"``,
            ``"sign"``, or ``"top_k:0.001"``, ``"random_k:0.01"`` with the part of the elements that is sent.

    Raises:
        ValueError: there is no such codec; the message lists the known ones.

    Example:
        >>> import braid, numpy as np
        >>> codec = braid.Codec("int8")
        >>> message = codec.encode(np.array([1.0, -0.5, 0.003], np.float32))
        >>> message.nbytes, codec.decode(message, np.empty(3, np.float32))
        (288, array([ 1.      , -0.503937,  0.      ], dtype=float32))
    """

    __slots__ = ("_core",)

    def __init__(self, text: str) -> None:
        """Make the codec of this text."""
        if not isinstance(text, str):
            raise TypeError(f"a codec is made from its text, as 'int8', not from a {type(text).__name__}")
        self._core = _core.Codec(text)

    @property
    def name(self) -> str:
        """The codec's name, without the part that a sparse codec sends. str() has both."""
        return self._core.name

    @property
    def is_sparse(self) -> bool:
        """Whether it sends only a part of the elements, without rounding."""
        return self._core.is_sparse

    @property
    def is_unbiased(self) -> bool:
        """Whether the expected value of a decoded element is the encoded element."""
        return self._core.is_unbiased

    @property
    def is_linear(self) -> bool:
        """Whether, with one seed, the decoded sum of two messages' values is the sum of both decoded messages."""
        return self._core.is_linear

    @property
    def block_elements(self) -> int:
        """The number of elements that share a scale; 1 if there is no scale."""
        return self._core.block_elements

    @property
    def error_bound(self) -> float:
        """The largest error of a decoded element, divided by the largest magnitude of its block.

        For fp16 and bf16 it is divided by the element's own magnitude, for elements that are not subnormal.
        """
        return self._core.error_bound

    @property
    def ratio(self) -> float:
        """The bytes of a long message, divided by the bytes of its floats."""
        return self._core.ratio

    def encoded_bytes(self, elements: int) -> int:
        """Return the bytes of a message of `elements` elements. The size does not depend on their values.

        Raises:
            ValueError: `elements` is negative, or more than 2**31, the most that a message may have.

        Example:
            >>> braid.Codec("int4").encoded_bytes(1_000_000)
            515744
        """
        number = operator.index(elements)
        if number < 0:
            raise ValueError(f"encoded_bytes: {number} elements")
        return self._core.encoded_bytes(number)

    def encode(
        self, values: Any, *, residual: Any = None, scale: float = 1.0, seed: int = 0, out: Any = None
    ) -> Any:
        """Encode ``values * scale + residual``, and store the error of the message in `residual`.

        Args:
            values: float32.
            residual: float32, as many elements as values; changed in place. It gets exactly the float32
                difference, or 0 if that is not finite. Without a residual the error is lost.
            scale: a factor, such as 1 over the number of ranks.
            seed: from 0 to 2**32 - 1, for the random choices of qsgd and random_k. Other codecs ignore it.
            out: uint8, with encoded_bytes(values.size) elements.

        Returns:
            `out`, or a new one-dimensional array of uint8.

        Raises:
            TypeError: an argument is not an array or tensor, has a wrong dtype, or is not on the CPU.
            ValueError: a size is wrong, an array is not contiguous, an array to write is read-only, arrays share
                memory, or there are more than 2**31 elements.

        Example:
            >>> residual = np.zeros(8, np.float32)
            >>> for step in range(2):
            ...     message = braid.Codec("top_k:0.25").encode(np.arange(8, dtype="f4"), residual=residual)
            >>> residual
            array([0., 2., 4., 6., 0., 0., 6., 7.], dtype=float32)
        """
        source = floats(values, "encode: values")
        left = None
        if residual is not None:
            left = floats(residual, "encode: residual", elements=source.size, writable=True)
        result, target = fresh_message(out, "encode: out", self.encoded_bytes(source.size))
        apart("encode", values=source, residual=left, out=target)
        self._core.encode(source, left, scale_of(scale, "encode"), seed_of(seed, "encode"), target)
        return result

    def decode(self, message: Any, out: Any) -> Any:
        """Write a message's values into `out`, float32, and return `out`.

        Raises:
            TypeError, ValueError: as encode(). ValueError also if the message is not of this codec and this number
                of elements. `out` is unchanged then.

        Example:
            >>> message = braid.Codec("fp16").encode(np.ones(3, np.float32))
            >>> braid.Codec("fp16").decode(message, np.empty(3, np.float32))
            array([1., 1., 1.], dtype=float32)
        """
        self._core.decode(*_to_decode(message, out, "decode", "out"))
        return out

    def decode_add(self, message: Any, into: Any) -> Any:
        """Add a message's values to `into`, float32, in one pass, and return `into`. Raises as decode().

        Example:
            >>> message = braid.Codec("fp16").encode(np.ones(3, np.float32))
            >>> braid.Codec("fp16").decode_add(message, np.ones(3, np.float32))
            array([2., 2., 2.], dtype=float32)
        """
        self._core.decode_add(*_to_decode(message, into, "decode_add", "into"))
        return into

    def __eq__(self, other: object) -> bool:
        """Return whether both codecs have the same text."""
        return str(self) == str(other) if isinstance(other, Codec) else NotImplemented

    def __hash__(self) -> int:
        """Return the hash of the text."""
        return hash(str(self))

    def __str__(self) -> str:
        """Return the text that makes this codec."""
        return str(self._core)

    def __repr__(self) -> str:
        """Return the call that makes this codec."""
        return f"braid.Codec({str(self)!r})"

    def __reduce__(self) -> tuple[type["Codec"], tuple[str]]:
        """Pickle by the text."""
        return Codec, (str(self),)


def _to_decode(given: Any, into: Any, call: str, name: str) -> tuple[Any, Any]:
    source = message_bytes(given, f"{call}: message")
    target = floats(into, f"{call}: {name}", writable=True)
    apart(call, message=source, **{name: target})
    return source, target
