# SPDX-License-Identifier: Apache-2.0
"""Update rules beside torch's optimizers and beside NumPy in float64, and what apply_rule refuses."""

import functools
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from braid import _core

pytestmark = pytest.mark.unit

Numbers = np.ndarray[Any, np.dtype[np.float32]]

SIZES = [0, 1, 7, 64, 1000, 100003]
STEPS = 50
# Without fused multiply-add torch rounds products that are added; the core never does.
FUSES = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") or platform.machine() == "aarch64"


@functools.cache
def random(n: int, seed: int) -> Numbers:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


class Shard:
    """Values, and the state of a rule, which is applied to them."""

    def __init__(self, rule: str, values: Numbers) -> None:
        self.rule, self.values, self.step = rule, values.copy(), 0
        self.state = [np.zeros_like(values) for _ in range(_core.rule_states(rule))]

    def apply(
        self, update: Numbers, scale: float = 1.0, backup: Numbers | None = None, **numbers: float
    ) -> Numbers:
        self.step += 1
        result = np.empty_like(update)
        _core.apply_rule(
            self.rule, numbers, self.step, scale, self.values, update, self.state, backup=backup, result=result
        )
        return result


def rate_at(step: int) -> float:
    return 0.1 / (1 + 0.05 * step) if step % 7 else 0.03


# Rule, torch's class, its arguments besides the rate, and the names of its state in the order of ours. Arguments
# that are no numbers are part of the rule's text.
SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
MEANS = ("exp_avg", "exp_avg_sq")
TORCH: list[tuple[str, type[torch.optim.Optimizer], dict[str, Any], tuple[str, ...]]] = [
    ("sgd", SGD, {}, ()),
    ("sgd", SGD, {"weight_decay": 0.01}, ()),
    ("sgd:maximize", SGD, {"weight_decay": 0.01, "maximize": True}, ()),
    ("sgd:momentum", SGD, {"momentum": 0.9}, ("momentum_buffer",)),
    ("sgd:momentum", SGD, {"momentum": 0.8, "dampening": 0.1, "weight_decay": 0.01}, ("momentum_buffer",)),
    ("sgd:momentum,nesterov", SGD, {"momentum": 0.9, "nesterov": True}, ("momentum_buffer",)),
    (
        "sgd:momentum,nesterov,maximize",
        SGD,
        {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True, "maximize": True},
        ("momentum_buffer",),
    ),
    ("adam", ADAM, {}, MEANS),
    ("adam", ADAM, {"betas": (0.4, 0.99), "eps": 1e-3, "weight_decay": 0.01}, MEANS),
    ("adam:amsgrad,maximize", ADAM, {"amsgrad": True, "maximize": True}, (*MEANS, "max_exp_avg_sq")),
    ("adamw", ADAMW, {"weight_decay": 0.1}, MEANS),
    ("adamw:amsgrad", ADAMW, {"weight_decay": 0.1, "amsgrad": True}, (*MEANS, "max_exp_avg_sq")),
]
OURS = {"momentum": "momentum", "dampening": "dampening", "weight_decay": "weight_decay", "eps": "epsilon"}


def beside_torch(
    rule: str,
    kind: type[torch.optim.Optimizer],
    options: dict[str, Any],
    names: tuple[str, ...],
    size: int,
    **way: bool,
) -> tuple[list[Numbers], list[Numbers]]:
    """Return values and state, ours and torch's, after STEPS steps of changing rate."""
    shard = Shard(rule, random(size, 0))
    parameter = torch.nn.Parameter(torch.from_numpy(shard.values.copy()))
    optimizer: Any = kind([parameter], lr=1.0, **options, **way)  # type: ignore[call-arg]
    numbers = {OURS[name]: value for name, value in options.items() if name in OURS}
    if "betas" in options:
        numbers["beta1"], numbers["beta2"] = options["betas"]
    for step in range(1, STEPS + 1):
        gradient = random(size, step)
        result = shard.apply(gradient, rate=rate_at(step), **numbers)
        assert np.array_equal(result, shard.values)
        optimizer.param_groups[0]["lr"] = rate_at(step)
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    state = optimizer.state[parameter]
    return [shard.values, *shard.state], [parameter.detach().numpy(), *(state[name].numpy() for name in names)]


def near(found: Numbers, expected: np.ndarray[Any, Any], relative: float = 1e-6) -> None:
    """Of numbers around 1, some of which come close to 0 on their way."""
    np.testing.assert_allclose(found, expected, rtol=relative, atol=relative / 2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("rule", "kind", "options", "names"), TORCH)
def test_steps_are_torchs(
    rule: str, kind: type[torch.optim.Optimizer], options: dict[str, Any], names: tuple[str, ...], size: int
) -> None:
    ours, theirs = beside_torch(rule, kind, options, names, size)
    for index, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
        # Adam's values depend on a square root, which torch does not round correctly. So does its state if the
        # values are added to the gradient.
        decays_gradient = kind is ADAM and "weight_decay" in options
        if FUSES and (kind is SGD or (index > 0 and not decays_gradient)):
            assert found.tobytes() == expected.tobytes(), names[index - 1] if index else "values"
        else:
            near(found, expected)


@pytest.mark.skipif(not FUSES, reason="torch uses no fused multiply-add on this CPU")
@pytest.mark.parametrize(("way", "size"), [("foreach", 1003), ("fused", 1024)])
@pytest.mark.parametrize(("rule", "options"), [(row[0], row[2]) for row in TORCH if row[1] is SGD])
def test_torchs_other_ways_give_the_same_bits(rule: str, options: dict[str, Any], way: str, size: int) -> None:
    # The fused optimizer rounds momentum in another way in the elements after the last whole vector.
    ours, theirs = beside_torch(rule, SGD, options, (), size, **{way: True})
    assert ours[0].tobytes() == theirs[0].tobytes()


def test_scale_is_that_of_the_mean() -> None:
    gradient, shard, mean = (
        random(1000, 1),
        Shard("sgd:momentum", random(1000, 0)),
        Shard("sgd:momentum", random(1000, 0)),
    )
    for _ in range(3):
        shard.apply(gradient * 4, scale=0.25, momentum=0.9)
        mean.apply(gradient, momentum=0.9)
    assert np.array_equal(shard.values, mean.values)


def every_step(rule: str, one: Callable[[int, Numbers], None], size: int = 1000, **numbers: float) -> Shard:
    shard = Shard(rule, random(size, 0))
    for step in range(1, STEPS + 1):
        gradient = random(size, step)
        one(step, gradient)
        shard.apply(gradient, backup=random(size, 100 + step) if "compensates" in rule else None, **numbers)
    return shard


def test_compensation_is_that_of_float64() -> None:
    w, rate, lam = random(1000, 0).astype(np.float64), 0.05, 0.3

    def one(step: int, gradient: Numbers) -> None:
        nonlocal w
        g = gradient.astype(np.float64)
        w = w - rate * (g + lam * g * g * (w - random(1000, 100 + step)))

    near(every_step("sgd:compensates", one, rate=rate, **{"lambda": lam}).values, w, 1e-5)


def test_elastic_steps_are_those_of_float64() -> None:
    centre, shard, alpha = random(1000, 0).astype(np.float64), Shard("elastic", random(1000, 0)), 0.3
    for step in range(1, STEPS + 1):
        worker = random(1000, step)
        elastic = alpha * (worker - centre)
        centre += elastic
        near(shard.apply(worker, alpha=alpha), elastic, 1e-5)
    near(shard.values, centre, 1e-5)


def test_an_elastic_step_may_replace_the_workers_values() -> None:
    centre, worker = random(100, 0).copy(), random(100, 1).copy()
    expected = np.float32(0.5) * (worker - centre)
    _core.apply_rule("elastic", {"alpha": 0.5}, 1, 1.0, centre, worker, [], result=worker)
    assert np.array_equal(worker, expected)


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_delayed_nesterov_is_that_of_float64(every: int) -> None:
    w, rate, beta = random(1000, 0).astype(np.float64), 0.07, 0.9
    momentum, gathered = np.zeros(1000), np.zeros(1000)

    def one(step: int, gradient: Numbers) -> None:
        nonlocal w, momentum, gathered
        gathered += gradient
        w = w - rate * gradient / every
        if step % every == 0:
            momentum = beta * momentum + gathered / every
            gathered[:] = 0
            w = w - rate * beta * momentum

    shard = every_step(f"delayed_nesterov:every={every}", one, rate=rate, momentum=beta)
    near(shard.values, w, 1e-5)
    near(shard.state[0], gathered, 1e-5)
    near(shard.state[1], momentum, 1e-5)


def test_ten_thousand_small_updates_add_up() -> None:
    shard = Shard("add", np.ones(5, np.float32))
    small = np.full(5, 1e-4, np.float32)
    for _ in range(10000):
        shard.apply(small)
    np.testing.assert_allclose(shard.values, 2, atol=5e-4)  # float16 would still say 1


def test_texts_are_printed_as_they_mean() -> None:
    assert _core.rule_text("sgd:nesterov,momentum") == "sgd:momentum,nesterov"
    assert _core.rule_text("delayed_nesterov") == "delayed_nesterov:every=1"
    assert [_core.rule_states(rule) for rule in ("add", "sgd:momentum", "adamw", "adam:amsgrad")] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="there is none of that name"):
        _core.rule_states("lion")


def wide(n: int = 8) -> Numbers:
    return np.zeros(n, np.float32)


def locked() -> Numbers:
    array = wide()
    array.flags.writeable = False
    return array


SHARED = wide(12)

REFUSED: list[tuple[str, dict[str, Any]]] = [
    (r'rule "sgd:nesterov": nesterov needs momentum', {"rule": "sgd:nesterov"}),
    (r'there is no number "lr"; there are rate, momentum', {"numbers": {"lr": 0.1}}),
    (r'rule "sgd:momentum": rate is -1, expected', {"numbers": {"rate": -1}}),
    (
        r'rule "adam": momentum is 0.9, but',
        {"rule": "adam", "numbers": {"momentum": 0.9}, "state": [wide(), wide()]},
    ),
    (r"step is 0, expected 1 for the first update", {"step": 0}),
    (r'state has 0 arrays, but the rule "sgd:momentum" keeps 1', {"state": []}),
    (r"a rule that compensates needs a backup", {"rule": "sgd:compensates", "state": []}),
    (r"a backup is given, but the rule does not compensate", {"backup": wide()}),
    (r"update has 7 elements, but values has 8", {"update": wide(7)}),
    (r"state\[0\] has 9 elements, but values has 8", {"state": [wide(9)]}),
    (r"values: expected an array that may be written", {"values": locked()}),
    (r"result: expected an array that may be written", {"result": locked()}),
    (r"values: expected a C-contiguous array", {"values": wide(16)[::2]}),
    (r"update: expected an aligned array of float32", {"update": np.zeros(8)}),
    (r"update: expected an aligned array of float32", {"update": np.zeros(33, np.int8)[1:].view(np.float32)}),
    (r"values and update overlap", {"values": SHARED[:8], "update": SHARED[4:]}),
    (r"values and state\[0\] overlap", {"values": SHARED[:8], "state": [SHARED[:8]]}),
    (r"update and result overlap", {"update": SHARED[:8], "result": SHARED[1:9]}),
]


@pytest.mark.parametrize(("message", "change"), REFUSED)
def test_refuses(message: str, change: dict[str, Any]) -> None:
    call: dict[str, Any] = {
        "rule": "sgd:momentum",
        "numbers": {},
        "step": 1,
        "scale": 1.0,
        "values": wide(),
        "update": wide(),
        "state": [wide()],
    }
    _core.apply_rule(**call)
    with pytest.raises(ValueError, match=message):
        _core.apply_rule(**(call | change))


def test_takes_arrays_alone() -> None:
    for bad in ([0.0] * 8, torch.zeros(8)):
        with pytest.raises(TypeError):
            _core.apply_rule("sgd", {}, 1, 1.0, bad, wide(), [])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="result is no NumPy array"):
            _core.apply_rule("sgd", {}, 1, 1.0, wide(), wide(), [], result=bad)  # type: ignore[arg-type]
