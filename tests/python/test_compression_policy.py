# SPDX-License-Identifier: Apache-2.0
"""Compression policies: their text, what they allow, and the choices from predicted times."""

import pytest
import torch
from braid.compression import CompressionPolicy, Rule
from braid.compression.error_feedback import ErrorFeedbackStore
from braid.compression.factors import FactorReport, FactorRow
from braid.compression.layout import LONG_ELEMENTS, Part, Piece, parts_of
from braid.compression.low_rank import element_s, is_worth, matrix_shape
from braid.compression.parameter_kinds import kind_of, owners
from braid.compression.policy import Wish
from braid.compression.prediction import Decision, decide, decide_on_one_host
from braid.compression.report import Report, Row
from torch import nn

pytestmark = pytest.mark.unit
read = CompressionPolicy.from_text


def test_nothing_is_compressed_unless_asked() -> None:
    for policy in (CompressionPolicy(), read(""), read(" off "), read("exact"), read("none")):
        assert policy.is_exact
        assert policy.wish("w", 1 << 30, "").codec == "exact"
    assert not read("exact,head.*=int8").is_exact


def test_text() -> None:
    policy = read("INT8, embed*=exact,head.*>=1M=top_k:0.01,head.*<4K=exact,warmup:25")
    assert policy == CompressionPolicy(
        default="int8",
        rules=(
            Rule("embed*", "exact"),
            Rule("head.*", "top_k:0.01", at_least_bytes=1 << 20),
            Rule("head.*", "exact", below_bytes=4096),
        ),
        warmup_steps=25,
    )
    assert read("auto,trial:0") == CompressionPolicy(default="auto", trial_steps=0)
    assert read("auto").trial_steps == 24
    assert [read(text).uses_auto for text in ("auto", "int8,w=auto", "int8", "")] == [True, True, False, False]
    assert read("auto:aggressive") == CompressionPolicy(default="auto", budget="aggressive")
    assert read("*=auto").rules == (Rule("*", "auto"),)
    assert read("*.weight>=2GB=power_sgd:4").rules[0].at_least_bytes == 2 << 30


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("int9", 'codec "int9": there is none of that name; there are fp16, .* exact, auto, power_sgd:RANK'),
        ("int8,bf16", "the default was given before"),
        ("auto,auto:8bit", "the default was given before"),
        ("warmup:1,warmup:2", "warmup was given before"),
        ("trial:8,trial:9", "trial was given before"),
        ("auto,trial:x", "trial:24"),
        ("auto,trial:7", "0 or at least 8"),
        ("auto:7bit", "budget '7bit'"),
        ("warmup:0", "at least 1"),
        ("warmup:x", "warmup:100"),
        ("int8,,bf16", "nothing between two commas"),
        ("top_k", "which part is sent"),
        ("top_k:0.5", r"from .* to 0\.25"),
        ("top_k:nan", "must be a number"),
        ("random_k:x", "must be a number"),
        ("power_sgd", "say the rank"),
        ("power_sgd:0", "say the rank"),
        ("int8:3", "takes no part after a colon"),
        ("exact:3", "takes nothing after a colon"),
        ("=int8", "needs a pattern"),
        ("w=", "there is none of that name"),
        ("w>=1M", "the codec is missing"),
        ("w>=1X=int8", "'1X' is no size"),
        ("w<0=int8", "no parameter has"),
    ],
)
def test_wrong_text(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        read(text)
    assert str(caught.value).startswith(f"compression {text!r}: ")


def test_wrong_arguments() -> None:
    for wrong, why in (
        ({"budget": ()}, "one or more"),
        ({"budget": ("exact",)}, "exact is always"),
        ({"warmup_steps": 0}, "at least 1"),
        ({"small_bytes": -1}, "negative"),
        ({"least_gain": -1.0}, "negative"),
    ):
        with pytest.raises(ValueError, match=why):
            CompressionPolicy(**wrong)
    with pytest.raises(TypeError, match="Rule"):
        CompressionPolicy(rules=(("w", "int8"),))


def test_first_rule_wins_and_is_taken_at_its_word() -> None:
    policy = read("int8,block.*.bias=bf16,block.*=int4")
    assert policy.wish("block.1.bias", 100, "bias").codec == "bf16"
    assert policy.wish("block.1.weight", 100, "").codec == "int4"
    assert policy.wish("other.bias", 1 << 20, "bias") == Wish("exact", "bias")
    assert policy.wish("other.weight", (64 << 10) - 4, "").reason == "small"
    assert policy.wish("other.weight", 64 << 10, "").codec == "int8"


def test_parameter_kinds() -> None:
    model = nn.ModuleDict(
        {
            "embed": nn.Embedding(3, 4),
            "ln_f": nn.LayerNorm(4),
            "bn1": nn.BatchNorm2d(4),
            "block": nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4)),
            "linear_of_norms": nn.Linear(4, 4),
        }
    )
    owner = owners(model)
    kinds = {name: kind_of(name, p.dim(), owner[name]) for name, p in model.named_parameters()}
    assert kinds == {
        "embed.weight": "embedding",
        **{f"{norm}.{part}": "norm" for norm in ("ln_f", "bn1", "block.1") for part in ("weight", "bias")},
        "block.0.weight": "",
        "block.0.bias": "bias",
        "linear_of_norms.weight": "",
        "linear_of_norms.bias": "bias",
    }
    # If the module's type says nothing, the name decides.
    assert kind_of("wte.weight", 2, model["block"][0]) == "embedding"
    assert kind_of("scale", 0, model) == "bias"


def piece(name: str, offset: int, *shape: int) -> Piece:
    return Piece(name, offset, shape, torch.Size(shape).numel())


def test_parts() -> None:
    long = LONG_ELEMENTS
    pieces, codecs, offset = [], [], 0
    for name, elements, codec in (
        ("a", 10, "int8"),
        ("b", 5, "exact"),
        ("c", long - 1, "int8"),
        ("d", 1, "int8"),
        ("e", 7, "exact"),
        ("f", 3, "int8"),
    ):
        pieces.append(piece(name, offset, elements))
        codecs.append(codec)
        offset += elements
    parts = parts_of(pieces, codecs)
    assert [(part.codec, "".join(part.names), part.in_place) for part in parts] == [
        ("int8", "cd", True),
        ("int8", "af", False),
        ("exact", "be", False),
    ]
    buffer = torch.arange(float(offset))
    for part in parts:
        flat = part.take(buffer)
        assert flat.tolist() == [
            float(at) for one in part.pieces for at in range(one.offset, one.offset + one.elements)
        ]
        part.put(flat.neg_(), buffer)
    assert torch.equal(buffer, -torch.arange(float(offset)))
    assert [part.in_place for part in parts_of(pieces, ["exact"] * 6)] == [True]


def test_what_is_short_and_exact_rides_with_the_first_factors() -> None:
    def told(
        codecs: list[str], second: int = 20, dtype: torch.dtype = torch.float32
    ) -> list[tuple[str, str, str]]:
        sizes = (900, second, 700, 30)
        pieces = [Piece(name, sum(sizes[:k]), (sizes[k],), sizes[k], dtype) for k, name in enumerate("abcd")]
        parts = parts_of(pieces, codecs)
        assert sum(part.all_elements for part in parts) == sum(sizes)
        return [
            (part.codec, "".join(part.names), "".join(part.rider.names if part.rider else ())) for part in parts
        ]

    assert told(["power_sgd:4", "exact", "power_sgd:4", "exact"]) == [("power_sgd:4", "ac", "bd")]
    assert told(["exact", "exact", "power_sgd:4", "power_sgd:2"]) == [
        ("power_sgd:4", "c", "ab"),
        ("power_sgd:2", "d", ""),
    ]
    assert told(["int8", "exact", "int8", "exact"]) == [("int8", "ac", ""), ("exact", "bd", "")]
    # A long run does not ride, but short ones beside it do. Gradients of 16 bits never do: factors are float32.
    long = ["power_sgd:4", "exact", "power_sgd:4", "exact"]
    assert told(long, LONG_ELEMENTS) == [("power_sgd:4", "ac", "d"), ("exact", "b", "")]
    assert told(long, dtype=torch.bfloat16) == [("power_sgd:4", "ac", ""), ("exact", "bd", "")]


def test_a_rider_is_brought_back() -> None:
    for pieces in ([piece("a", 2, 3)], [piece("a", 0, 2), piece("b", 4, 1)]):
        buffer = torch.arange(6.0)
        part = Part("exact", tuple(pieces), len(pieces) == 1)
        part.fill(-part.take(buffer), buffer)
        moved = {at for one in pieces for at in range(one.offset, one.offset + one.elements)}
        assert buffer.tolist() == [-at if at in moved else at for at in range(6)]


def test_error_feedback_follows_the_name() -> None:
    store, cpu = ErrorFeedbackStore(), torch.device("cpu")
    store.flat(["a", "b", "c"], [2, 3, 1], cpu).copy_(torch.arange(6.0))
    again = store.flat(["c", "a"], [1, 2], cpu)
    assert again.tolist() == [5, 0, 1]
    again += 10
    assert store.flat(["c", "a"], [1, 2], cpu) is again
    assert {name: value.tolist() for name, value in store.state_dict().items()} == {
        "a": [10, 11],
        "b": [2, 3, 4],
        "c": [15],
    }
    assert store.flat(["b"], [4], cpu).tolist() == [0] * 4  # another size: another parameter
    other = ErrorFeedbackStore()
    other.load(store.state_dict())
    assert other.flat(["a"], [2], cpu).tolist() == [10, 11]
    other.clear()
    assert other.flat(["a"], [2], cpu).tolist() == [0, 0]


def times(factor: dict[str | None, float], latency_s: float = 1e-4) -> object:
    return lambda elements, codec: latency_s + elements * 1e-8 * factor[codec]


def choose(policy: CompressionPolicy, predict: object, agree: object = lambda choice: choice) -> list[Decision]:
    pieces = [piece("w", 0, 1000, 500), piece("b", 500_000, 500), piece("v", 500_500, 600, 600)]
    return decide(policy, pieces, ["", "bias", ""], predict, agree)


def test_auto_takes_what_gains_enough() -> None:
    factor = {None: 1.0, "bf16": 0.5, "int8": 0.27, "int4": 0.15, "sign": 0.05, "top_k:0.01": 0.03}
    policy = read("auto")
    made = choose(policy, times(factor))
    assert [one.codec for one in made] == ["int8", "exact", "int8"]
    assert made[1].reason == "small"
    assert "instead of" in made[0].reason
    # One operation of 860 500 floats, against one of 500 exact floats and two of long runs.
    gain = 860_500 * 1e-8 - 2e-4 - 500 * 1e-8 - 860_000 * 0.27e-8
    assert sum(one.gain_s for one in made) == pytest.approx(gain)
    assert made[0].gain_s == pytest.approx(gain * 500 / 860)

    slow_coding = {None: 1.0, "bf16": 0.95, "int8": 0.91}
    assert {one.codec for one in choose(policy, times(slow_coding))} == {"exact"}
    # A second operation costs more than the bytes it saves.
    assert {one.codec for one in choose(policy, times(factor, latency_s=1e-2))} == {"exact"}
    # int8 is faster than bf16, but by less than least_gain.
    near = {None: 1.0, "bf16": 0.30, "int8": 0.29}
    assert choose(policy, times(near))[0].codec == "bf16"
    assert choose(read("auto:16bit"), times(factor))[0].codec == "bf16"


def test_auto_counts_what_is_copied_together() -> None:
    # Matrices of 64 KiB with biases between. With a codec biases travel apart, so matrices are copied twice.
    matrices = [piece(f"w{k}", k * 16512, 128, 128) for k in range(16)]
    biases = [piece(f"b{k}", k * 16512 + 16384, 128) for k in range(16)]
    pieces = [one for pair in zip(matrices, biases, strict=True) for one in pair]
    whole = decide(read("auto"), matrices[:1], [""], times({None: 0.1, "bf16": 0.05, "int8": 0.07}, 0), int)
    assert whole[0].codec == "bf16"
    for factor, codec in ((0.1, "exact"), (1.0, "bf16")):  # a copy takes 0.08 of these units
        predict = times({None: factor, "bf16": factor * 0.5, "int8": factor * 0.7}, latency_s=0)
        made = decide(read("auto"), pieces, ["", "bias"] * 16, predict, int)
        assert [one.codec for one in made] == [codec, "exact"] * 16, factor


def test_auto_agrees_with_the_first_rank() -> None:
    factor = {None: 1.0, "bf16": 0.5, "int8": 0.27}
    asked = []
    made = choose(read("auto"), times(factor), lambda choice: asked.append(choice) or 1)
    assert asked == [2]
    assert made[0].codec == "bf16"
    assert choose(read("auto"), times(factor), lambda choice: 0)[0].codec == "exact"
    # Without predictions no rank is asked.
    choose(read("int8"), None, None)


def test_a_codec_that_the_policy_names_has_a_predicted_gain_too() -> None:
    made = choose(read("int8"), times({None: 1.0, "int8": 0.25}), None)
    coded = [one for one in made if one.codec == "int8"]
    assert coded
    assert not any(one.is_predicted for one in made), "the policy decided, not the prediction"
    assert sum(one.gain_s for one in coded) > 0
    assert all(one.gain_s == 0 for one in made if one.codec == "exact")
    slower = choose(read("int8"), times({None: 1.0, "int8": 1.5}), None)
    assert sum(one.gain_s for one in slower) < 0


def test_a_report_prints_as_a_table() -> None:
    rows = [
        Row("a.weight", "int8", "the default", 4000, 1016, 0.0015),
        Row("b.weight", "int8", "the default", 4000, 1016, 0.0005),
        Row("b.bias", "exact", "small", 40, 40, 0.0),
    ]
    assert str(Report(rows)).splitlines() == [
        "parameters           codec  bytes  sent  saves a step  reason",
        "a.weight and 1 more  int8    8000  2032       2.00 ms  the default",
        "b.bias               exact     40    40                small",
        "in all                       8040  2072       2.00 ms  against exact, predicted",
    ]
    assert Report(rows) == rows
    assert "no parameter was seen yet" in str(Report())


def test_a_report_of_factors_prints_as_a_table() -> None:
    assert str(FactorReport([FactorRow("a.weight", 3, 10), FactorRow("b", 0, 13)])).splitlines() == [
        "weight    sent as factors  as a matrix",
        "a.weight                3           10",
        "b                       0           13",
    ]


def test_on_one_host_only_a_rule_can_ask_for_anything() -> None:
    pieces = [piece("w", 0, 1000, 500), piece("b", 500_000, 500), piece("v", 500_500, 600, 600)]
    for text, expected in (
        ("auto:aggressive", ["exact", "exact", "exact"]),
        ("int8,b=sign", ["exact", "exact", "exact"]),
        ("power_sgd:4", ["exact", "exact", "exact"]),
        ("auto,w=power_sgd:4", ["power_sgd:4", "exact", "exact"]),
    ):
        made = decide_on_one_host(read(text), pieces, ["", "bias", ""])
        assert [one.codec for one in made] == expected, text
        assert made[2].reason == "all ranks are on one host"
    assert made[1].reason == "small"


def test_auto_counts_the_arithmetic_of_low_rank() -> None:
    policy = CompressionPolicy(default="auto", budget=("power_sgd:4",))
    made = choose(policy, times({None: 1.0, "power_sgd:4": 0.4}))
    assert [one.codec for one in made] == ["power_sgd:4", "exact", "power_sgd:4"]
    # Factors of rank 4 of 500 x 1000 and 600 x 600, in two operations, and the small parameter with them.
    sent = 500 + 4 * (500 + 1000) + 4 * (600 + 600)
    gain = 860_500 * 1e-8 - sent * 1e-8 - 860_000 * 0.4e-8
    free = choose(policy, times({None: 1.0, "power_sgd:4": 0.4}, latency_s=0))
    assert sum(one.gain_s for one in free) == pytest.approx(gain)
    # On a slow processor the arithmetic takes longer than the saved bytes.
    slow = choose(policy, times({None: 1.0, "power_sgd:4": 0.95}))
    assert {one.codec for one in slow} == {"exact"}


def test_the_arithmetic_of_low_rank_is_measured_once() -> None:
    state = torch.get_rng_state()
    of_4, of_64 = element_s(4, torch.float32), element_s(64, torch.float32)
    assert torch.equal(torch.get_rng_state(), state)
    assert 1e-11 < of_4 < of_64 < 1e-5  # seconds
    assert element_s(4, torch.float32) == of_4
    assert 1e-11 < element_s(4, torch.bfloat16) < 1e-5


def test_low_rank_only_where_it_shrinks() -> None:
    assert matrix_shape((8, 3, 3)) == (8, 9)
    assert matrix_shape((5,)) == (5, 1)
    assert matrix_shape(()) == (1, 1)
    assert matrix_shape((0, 4)) == (0, 0)
    assert is_worth((64, 64), 8)
    assert not is_worth((64, 64), 16)
    assert not is_worth((4096,), 1)
    assert [one.codec for one in choose(read("*=power_sgd:4"), None)] == ["power_sgd:4", "exact", "power_sgd:4"]
