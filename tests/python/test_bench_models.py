# SPDX-License-Identifier: Apache-2.0
"""The models of ``braid bench ddp``, the step that stands in for one, and the time that it takes."""

import time

import pytest
import torch
from braid._bench.ddp import gradient_values, step_compute
from braid._bench.ddp.models import MODEL_NAMES, Layer, Model, Parameter, model
from braid._bench.ddp.step_compute import ProductCompute, SleptCompute
from braid._bench.ddp.training_step import TrainingStep

pytestmark = pytest.mark.unit

TINY = Model(
    "tiny",
    "nothing",
    4,
    (
        Layer("embedding", (Parameter("embedding.weight", (30, 8)),), rows_per_sample=2),
        Layer("first", (Parameter("first.weight", (5, 8)), Parameter("first.bias", (5,))), (3, 8, 5)),
        Layer("mixing", (), (2, 3, 4)),
        Layer("last.fc", (Parameter("last.fc.weight", (7, 5)),), (1, 5, 7)),
    ),
)


class Recorder:
    """Computes nothing, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def start(self) -> None:
        self.calls.append("start")

    def forward(self, layer: int) -> None:
        self.calls.append(("forward", layer))

    def backward(self, layer: int) -> None:
        self.calls.append(("backward", layer))


# ---- tables


@pytest.mark.parametrize(
    ("name", "tensors", "elements", "giga_macs"),
    [
        ("resnet50", 161, 25_557_032, 4.089),
        ("vgg16", 32, 138_357_544, 15.470),
        ("bert-base", 199, 109_482_240, 11.174),
        ("gpt2", 148, 124_439_808, 145.824),
        ("dlrm", 38, 54_294_273, 0.000520),
    ],
)
def test_totals(name: str, tensors: int, elements: int, giga_macs: float) -> None:
    found = model(name)
    assert len(found.parameters) == tensors
    assert found.elements == elements
    assert found.macs / 1e9 == pytest.approx(giga_macs, rel=1e-3)
    assert len({parameter.name for parameter in found.parameters}) == tensors


@pytest.mark.parametrize(
    ("name", "places"),
    [
        (
            "resnet50",
            {
                0: ("conv1.weight", (64, 3, 7, 7)),
                12: ("layer1.0.downsample.0.weight", (256, 64, 1, 1)),
                33: ("layer2.0.conv1.weight", (128, 256, 1, 1)),
                -2: ("fc.weight", (1000, 2048)),
            },
        ),
        ("vgg16", {24: ("features.28.weight", (512, 512, 3, 3)), -6: ("classifier.0.weight", (4096, 25088))}),
        (
            "bert-base",
            {
                3: ("embeddings.LayerNorm.weight", (768,)),
                15: ("encoder.layer.0.intermediate.dense.weight", (3072, 768)),
                -2: ("pooler.dense.weight", (768, 768)),
            },
        ),
        ("gpt2", {0: ("wte.weight", (50257, 768)), 4: ("h.0.attn.c_attn.weight", (768, 2304))}),
        ("dlrm", {8: ("tables.2.weight", (100_000, 64)), 32: ("top.0.weight", (512, 415))}),
    ],
)
def test_some_shapes(name: str, places: dict[int, tuple[str, tuple[int, ...]]]) -> None:
    parameters = model(name).parameters
    assert {i: (parameters[i].name, parameters[i].shape) for i in places} == places


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_work_fits_the_weights(name: str) -> None:
    for layer in model(name).layers:
        positions, fan_in, fan_out = layer.product
        if layer.parameters and positions:
            assert fan_in * fan_out == layer.parameters[0].elements, layer.name


def test_sparse_gradients_count_by_the_row() -> None:
    dense = 4 * (5 * 8 + 5 + 7 * 5)
    assert TINY.gradient_bytes(batch=10) == dense + 20 * (8 * 4 + 8)


def test_unknown_model() -> None:
    with pytest.raises(ValueError, match=r"no such model: 'alexnet', expected one of resnet50, .*"):
        model("alexnet")


# ---- the step


def test_module_has_the_table_in_its_order() -> None:
    for table in (TINY, model("resnet50")):
        found = [tuple(parameter.shape) for parameter in TrainingStep(table, 0, 1).parameters()]
        assert found == [parameter.shape for parameter in table.parameters]


def test_gradients_arrive_layer_by_layer_from_the_last_on() -> None:
    step = TrainingStep(TINY, 0, 4)
    step.compute = recorder = Recorder()
    for number, parameter in enumerate(step.parameters()):
        parameter.register_post_accumulate_grad_hook(lambda _, number=number: recorder.calls.append(number))
    step().backward()
    calls = recorder.calls
    assert calls[:5] == ["start", *(("forward", layer) for layer in range(4))]
    assert calls[5:8] == [("backward", 3), 3, ("backward", 2)]
    assert calls[8] == ("backward", 1)
    assert set(calls[9:11]) == {1, 2}  # those of one layer are ready at once
    assert calls[11:] == [("backward", 0), 0]


def test_dense_gradients_are_not_copied_and_sparse_ones_are() -> None:
    step = TrainingStep(TINY, 1, 4)
    for _ in range(2):
        step().backward()
        table, *dense = step.parameters()
        assert all(parameter.grad.data_ptr() == parameter.data_ptr() for parameter in dense)
        table.grad.div_(3)  # as DistributedDataParallel does
        assert step.gradients(0)[0]._values()[0, 0] == 2.0  # the first of the pattern, times rank_factor(1)
        step.zero_grad(set_to_none=True)


def test_every_wrong_element_is_counted() -> None:
    step = TrainingStep(TINY, 0, 4)
    assert step.count_wrong(1) == TINY.elements  # nothing has arrived
    step().backward()
    assert step.count_wrong(1) == 0  # of one rank, the average is its own
    # Of two ranks, it is not; rows of the table that nobody looked up are right all the same.
    looked_up = {int(row) for rank in range(2) for row in gradient_values.rows(30, 8, 0, rank)}
    assert step.count_wrong(2) == 5 * 8 + 5 + 7 * 5 + len(looked_up) * 8
    table, weight, bias, last = step.parameters()
    table.grad = table.grad.to_dense()
    untouched = table.grad[:, 0].argmin()
    table.grad[untouched, 3] = 1e-6
    weight.grad = weight.grad.roll(1)
    bias.grad = bias.grad * torch.tensor([1, 1, float("nan"), 1, 1.001])
    last.grad = None
    assert step.count_wrong(1) == 1 + 40 + 2 + 35


def test_no_rank_can_stand_in_for_others() -> None:
    factors = [gradient_values.rank_factor(rank) for rank in range(5)]
    for missing in range(5):
        for twice in range(5):
            total = sum(factors) - factors[missing] + factors[twice]
            assert (total / 5 == gradient_values.mean_factor(5)) == (missing == twice)


def test_patterns_go_on_over_chunks() -> None:
    elements = gradient_values._CHUNK + 5000
    tensor = torch.empty(elements)
    gradient_values.fill(tensor, 3, 2)
    assert tensor[0] == 5 * (97 * 3 + 1)
    assert torch.equal(tensor[: elements - 1021], tensor[1021:])
    tensor *= gradient_values.mean_factor(2) / 5
    tensor[-1] += 1
    assert gradient_values.count_wrong(tensor, tensor, 3, 2) == 1


# ---- the time


def test_given_time_is_spent_and_shared_by_work() -> None:
    compute = SleptCompute(TINY.layers, 0.06)
    begin = time.perf_counter()
    compute.start()
    for layer in range(4):
        compute.forward(layer)
    forward_s = time.perf_counter() - begin
    compute.backward(3)
    first_s = time.perf_counter() - begin
    for layer in (2, 1, 0):
        compute.backward(layer)
    assert forward_s >= 0.02
    assert first_s >= 0.02 + 0.04 * 35 / (120 + 24 + 35)
    assert time.perf_counter() - begin >= 0.06


class Clock:
    """Time that passes only asleep."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept_s: list[float] = []

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


def test_a_late_layer_delays_no_other(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr(step_compute, "time", clock)
    compute = SleptCompute(TINY.layers, 179 * 3.0)  # three seconds per multiply-accumulate of the forward
    compute.start()
    for layer in range(4):
        compute.forward(layer)
    assert clock.slept_s == pytest.approx([120, 24, 35])
    clock.now_s += 80  # something else takes longer than the last layer's backward
    compute.backward(3)
    compute.backward(2)
    assert clock.slept_s[3:] == pytest.approx([2 * 35 + 2 * 24 - 80])
    compute.backward(1)
    compute.backward(0)
    assert clock.now_s == pytest.approx(1000 + 179 * 3)


def test_products_do_the_work_of_each_layer(monkeypatch) -> None:
    step = TrainingStep(TINY, 0, 4)
    step.compute = ProductCompute(TINY.layers, step.weights(), batch=10)
    macs = []
    original = torch.mm

    def counted(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        macs.append(left.shape[0] * left.shape[1] * right.shape[1])
        return original(left, right, out=out)

    monkeypatch.setattr(torch, "mm", counted)
    step().backward()
    assert sum(macs[:3]) == 10 * TINY.macs
    assert sum(macs) == 3 * 10 * TINY.macs
    assert step.count_wrong(1) == 0  # the products leave the gradients alone
