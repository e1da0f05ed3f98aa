# SPDX-License-Identifier: Apache-2.0
"""What real models send and compute: the shapes of all their parameters, and the work of one sample's forward."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

FLOAT_BYTES = 4  # every parameter is float32
INDEX_BYTES = 8  # of a row in a sparse gradient


@dataclass(frozen=True)
class Parameter:
    """One tensor of a model, named as in the model that it is of."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


@dataclass(frozen=True)
class Layer:
    """One step of the forward, and the parameters whose gradients are ready once its backward is done.

    What it computes is given as one matrix product: positions x fan_in by fan_in x fan_out. Work that is no
    product (norms, activations, look-ups) counts as none.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    product: tuple[int, int, int] = (0, 0, 0)  # positions, fan_in, fan_out; of one sample
    rows_per_sample: int = 0  # an embedding table with sparse gradients: the rows that one sample looks up

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the forward of one sample. The backward needs twice as many."""
        return prod(self.product)


@dataclass(frozen=True)
class Model:
    """A model as DistributedDataParallel sees it. Layers come in the order of the forward, which is also
    the order of ``module.parameters()``."""

    name: str
    sample: str  # what one sample is
    batch: int  # samples of a step on one rank, unless told otherwise
    layers: tuple[Layer, ...]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All tensors, in the order of ``module.parameters()``."""
        return tuple(parameter for layer in self.layers for parameter in layer.parameters)

    @property
    def elements(self) -> int:
        """How many numbers all parameters have together."""
        return sum(parameter.elements for parameter in self.parameters)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the forward of one sample."""
        return sum(layer.macs for layer in self.layers)

    def gradient_bytes(self, batch: int) -> int:
        """Bytes of one rank's gradients: whole tensors, or looked-up rows with their numbers where sparse."""
        total = 0
        for layer in self.layers:
            for parameter in layer.parameters:
                if layer.rows_per_sample:
                    rows = batch * layer.rows_per_sample
                    total += rows * (parameter.shape[1] * FLOAT_BYTES + INDEX_BYTES)
                else:
                    total += parameter.elements * FLOAT_BYTES
        return total


def _weights(name: str, *shapes: tuple[int, ...]) -> tuple[Parameter, ...]:
    names = ("weight", "bias")
    return tuple(Parameter(f"{name}.{kind}", shape) for kind, shape in zip(names, shapes, strict=False))


def _norm(name: str, width: int) -> Layer:
    return Layer(name, _weights(name, (width,), (width,)))


def _linear(name: str, fan_in: int, fan_out: int, positions: int = 1) -> Layer:
    return Layer(name, _weights(name, (fan_out, fan_in), (fan_out,)), (positions, fan_in, fan_out))


def _convolution(name: str, inputs: int, outputs: int, kernel: int, side: int, bias: bool = False) -> Layer:
    shapes = [(outputs, inputs, kernel, kernel), *([(outputs,)] if bias else [])]
    return Layer(name, _weights(name, *shapes), (side * side, inputs * kernel * kernel, outputs))


def _attention(name: str, tokens: int, width: int) -> Layer:
    # Queries by keys, and what comes of that by values: two products of tokens x tokens x width over all heads.
    return Layer(name, (), (tokens, width, 2 * tokens))


def _bottleneck(name: str, inputs: int, width: int, side: int, stride: int, shortcut: bool) -> list[Layer]:
    layers = [
        _convolution(f"{name}.conv1", inputs, width, 1, side * stride),
        _norm(f"{name}.bn1", width),
        _convolution(f"{name}.conv2", width, width, 3, side),
        _norm(f"{name}.bn2", width),
        _convolution(f"{name}.conv3", width, 4 * width, 1, side),
        _norm(f"{name}.bn3", 4 * width),
    ]
    if shortcut:
        layers.append(_convolution(f"{name}.downsample.0", inputs, 4 * width, 1, side))
        layers.append(_norm(f"{name}.downsample.1", 4 * width))
    return layers


def _resnet50() -> Model:
    layers = [_convolution("conv1", 3, 64, 7, 112), _norm("bn1", 64)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width, side = 64 << stage, 56 >> stage
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers += _bottleneck(f"layer{stage + 1}.{block}", inputs, width, side, stride, block == 0)
            inputs = 4 * width
    return Model("resnet50", "an image of 224 x 224", 1, (*layers, _linear("fc", 2048, 1000)))


def _vgg16() -> Model:
    layers: list[Layer] = []
    inputs, index = 3, 0
    for stage, (width, convolutions) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        for _ in range(convolutions):
            layers.append(_convolution(f"features.{index}", inputs, width, 3, 224 >> stage, bias=True))
            inputs, index = width, index + 2  # an activation follows
        index += 1  # so does the pooling of each stage
    layers.append(_linear("classifier.0", 512 * 7 * 7, 4096))
    layers.append(_linear("classifier.3", 4096, 4096))
    layers.append(_linear("classifier.6", 4096, 1000))
    return Model("vgg16", "an image of 224 x 224", 1, tuple(layers))


def _bert_layer(name: str, tokens: int, width: int) -> list[Layer]:
    return [
        *(_linear(f"{name}.attention.self.{part}", width, width, tokens) for part in ("query", "key", "value")),
        _attention(f"{name}.attention.self", tokens, width),
        _linear(f"{name}.attention.output.dense", width, width, tokens),
        _norm(f"{name}.attention.output.LayerNorm", width),
        _linear(f"{name}.intermediate.dense", width, 4 * width, tokens),
        _linear(f"{name}.output.dense", 4 * width, width, tokens),
        _norm(f"{name}.output.LayerNorm", width),
    ]


def _embeddings(prefix: str, rows: dict[str, int], width: int) -> list[Layer]:
    return [Layer(f"{prefix}{name}", _weights(f"{prefix}{name}", (count, width))) for name, count in rows.items()]


def _bert_base() -> Model:
    tokens, width = 128, 768
    tables = {"word_embeddings": 30522, "position_embeddings": 512, "token_type_embeddings": 2}
    layers = [*_embeddings("embeddings.", tables, width), _norm("embeddings.LayerNorm", width)]
    for number in range(12):
        layers += _bert_layer(f"encoder.layer.{number}", tokens, width)
    layers.append(_linear("pooler.dense", width, width))  # of the first token alone
    return Model("bert-base", f"a sequence of {tokens} tokens", 1, tuple(layers))


def _gpt2_linear(name: str, fan_in: int, fan_out: int, tokens: int) -> Layer:
    # This model keeps its weights the other way round.
    return Layer(name, _weights(name, (fan_in, fan_out), (fan_out,)), (tokens, fan_in, fan_out))


def _gpt2() -> Model:
    tokens, width, words = 1024, 768, 50257
    layers = _embeddings("", {"wte": words, "wpe": tokens}, width)
    for number in range(12):
        name = f"h.{number}"
        layers += [
            _norm(f"{name}.ln_1", width),
            _gpt2_linear(f"{name}.attn.c_attn", width, 3 * width, tokens),
            _attention(f"{name}.attn", tokens, width),
            _gpt2_linear(f"{name}.attn.c_proj", width, width, tokens),
            _norm(f"{name}.ln_2", width),
            _gpt2_linear(f"{name}.mlp.c_fc", width, 4 * width, tokens),
            _gpt2_linear(f"{name}.mlp.c_proj", 4 * width, width, tokens),
        ]
    # The head has the weights of wte, so their gradient is complete only where the backward ends.
    head = Layer("lm_head", (), (tokens, width, words))
    return Model("gpt2", f"a sequence of {tokens} tokens", 1, (*layers, _norm("ln_f", width), head))


# How many values each of the 26 categorical features of the Criteo Kaggle set has.
_CRITEO_VALUES = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
_MOST_ROWS = 100_000  # of a table; features with more values share rows, as by hashing


def _perceptron(name: str, widths: tuple[int, ...]) -> list[Layer]:
    return [_linear(f"{name}.{number}", *pair) for number, pair in enumerate(itertools.pairwise(widths))]


def _dlrm() -> Model:
    width = 64
    tables = [
        Layer(
            f"tables.{number}", _weights(f"tables.{number}", (min(values, _MOST_ROWS), width)), rows_per_sample=1
        )
        for number, values in enumerate(_CRITEO_VALUES)
    ]
    vectors = 1 + len(tables)
    pairs = vectors * (vectors // 2)  # their number is odd
    layers = (
        *_perceptron("bottom", (13, 512, 256, width)),
        *tables,
        Layer("interaction", (), (vectors, width, vectors // 2)),  # as much work as one product per pair
        *_perceptron("top", (pairs + width, 512, 256, 1)),
    )
    return Model("dlrm", "an impression with 13 numbers and 26 categories", 2048, layers)


_BUILDERS: dict[str, Callable[[], Model]] = {
    "resnet50": _resnet50,
    "vgg16": _vgg16,
    "bert-base": _bert_base,
    "gpt2": _gpt2,
    "dlrm": _dlrm,
}
MODEL_NAMES = tuple(_BUILDERS)


def model(name: str) -> Model:
    """Return a model by its name. Raises ValueError when there is none of that name."""
    if name not in _BUILDERS:
        raise ValueError(f"no such model: {name!r}, expected one of {', '.join(MODEL_NAMES)}")
    return _BUILDERS[name]()
