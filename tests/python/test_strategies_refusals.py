# SPDX-License-Identifier: Apache-2.0
"""What a parameter server refuses, each in one sentence; and that all workers hear of it."""

import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import braid.strategies as bs
import pytest
import torch
from braid.strategies import store
from braid.strategies.text import _STRATEGIES, name_of, read
from fake_cluster import Cluster
from fake_service import FakeService
from slowness import limit
from torch import nn
from torch.optim import LBFGS, SGD, Adam, AdamW, RMSprop

pytestmark = pytest.mark.unit


def linear(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2, **options)


def with_buffer(dtype: torch.dtype) -> nn.Module:
    model = linear()
    model.register_buffer("past", torch.zeros(2, dtype=dtype))
    return model


def stepped() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = linear()
    optimizer = Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def server(model: nn.Module, *args: Any, **options: Any) -> bs.ParameterServer:
    return bs.ParameterServer(model, *(args or (SGD,)), **{"lr": 0.1, **options})


def other_parameters() -> bs.ParameterServer:
    return bs.ParameterServer(linear(), SGD, lr=0.1, params=linear().parameters())


def mixed(option: str, first: object, second: object) -> list[dict[str, Any]]:
    model = linear()
    return model, [{"params": [model.weight], option: first}, {"params": [model.bias], option: second}]


def with_groups(option: str, first: object, second: object, kind: type, **numbers: Any) -> bs.ParameterServer:
    model, groups = mixed(option, first, second)
    return bs.ParameterServer(model, kind, params=groups, **numbers)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: server(linear(dtype=torch.float64)), r"^weight is float64: strategies keep float32"),
        (
            lambda: server(with_buffer(torch.float64)),
            r'^past is float64: .* only; let DistributedDataParallel ignore it, or say buffers="local"$',
        ),
        (lambda: server(linear(dtype=torch.complex64)), r"^weight is complex64: "),
        (lambda: server(linear(device="meta")), r"^weight is on meta: this strategy works on the CPU only"),
        (lambda: server(linear().requires_grad_(False)), "nothing to train"),
        (lambda: server(linear(), LBFGS), "LBFGS evaluates its closure several times"),
        (lambda: bs.ParameterServer(*stepped()), "make the strategy before the first step"),
        (lambda: bs.ParameterServer(linear(), SGD), None),
        (lambda: server(linear(), lr=-1.0), "Invalid learning rate: -1.0"),
        (other_parameters, "parameter 0 of group 0 is not a parameter of the model"),
        (
            lambda: server(linear(), mode="fast"),
            "mode 'fast': there is none of that name; there are async, ssp, sync",
        ),
        (
            lambda: server(linear(), compression="int9"),
            'compression: codec "int9": there is none of that name',
        ),
        (lambda: server(linear(), pull_compression=""), "pull_compression: codec"),
        (lambda: server(linear(), consistency="lax"), "consistency 'lax': there are atomic and relaxed"),
        (lambda: server(linear(), mode="ssp", consistency="relaxed"), "is for mode 'async', not for 'ssp'"),
        (lambda: server(linear(), compensate=0.1, consistency="relaxed"), "needs consistency 'atomic'"),
        (lambda: server(linear(), replicas=2), "replicas=2: 1 keeps a second copy of each shard, 0 none"),
        (lambda: server(linear(), replicas=1, consistency="relaxed"), "replicas=1 needs consistency 'atomic'"),
        (lambda: server(linear(), staleness=2), "staleness= is for mode 'ssp', not for 'async'"),
        (lambda: server(linear(), mode="ssp", staleness=-1), "at least 0"),
        (lambda: server(linear(), delay=2), "delay=2: 0 waits"),
        (lambda: server(linear(), compensate=-0.1), "lambda must not be negative"),
        (lambda: server(linear(), compensate=0.04, delay=1), "compensate= needs delay=0"),
        (lambda: server(linear(), Adam, compensate=0.04), "compensate= is for SGD"),
        (
            lambda: server(linear(), RMSprop, compensate=0.04),
            "compensate= needs SGD, Adam or AdamW at the servers",
        ),
        (lambda: server(linear(), RMSprop, staleness_rate=True), "staleness_rate= needs SGD"),
        (lambda: server(linear(), mode="sync", staleness_rate=True), "in mode 'sync' there are none"),
        (lambda: server(linear(), buffers="mean"), "buffers 'mean': there are average, broadcast, local"),
        (lambda: server(linear(), servers=[7]), r"servers=\[7\]: give one or more different ranks from 0 to "),
        (lambda: server(linear(), servers=[]), r"servers=\[\]"),
        (lambda: server(linear(), differentiable=True), "servers have no rule for differentiable=True"),
        (
            lambda: with_groups("nesterov", True, False, SGD, lr=0.1, momentum=0.9),
            "groups differ in nesterov: servers have one rule for all",
        ),
        (lambda: with_groups("amsgrad", True, False, AdamW), "groups differ in amsgrad"),
    ],
)
def test_what_does_not_fit(make: Callable[[], bs.ParameterServer], why: str | None, cluster: Cluster) -> None:
    if why is None:  # torch has a default rate
        make().close()
        return
    with pytest.raises(ValueError, match=why) as caught:
        make()
    assert "\n" not in str(caught.value)
    # All other workers hear of it at once.
    results = cluster.run(lambda worker: make() if worker == 1 else server(linear()), 3)
    assert all(isinstance(result, ValueError) for result in results), results
    assert str(results[0]) == f"worker 1 cannot begin: {results[1]}" == str(results[2])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: bs.ParameterServer(SGD(linear().parameters())),
            "takes a model and then an optimizer class, not SGD",
        ),
        (lambda: server(linear(), "sgd"), "takes a class of torch.optim, such as SGD, not 'sgd'"),
        (lambda: server(linear(), SGD(linear().parameters(), lr=0.1)), "has its parameters and numbers"),
        (lambda: server(linear(), momentums=0.9), "momentums"),
    ],
)
def test_what_has_the_wrong_type(make: Callable[[], object], why: str, cluster: Cluster) -> None:
    with pytest.raises(TypeError, match=why):
        make()


def test_worker_0_may_be_the_one_that_fails(cluster: Cluster) -> None:
    results = cluster.run(lambda worker: server(linear(), mode="fast" if worker == 0 else "async"), 3)
    assert [str(result).startswith("worker 0 cannot begin: mode 'fast'") for result in results[1:]] == [True, True]


@pytest.mark.parametrize(
    ("differ", "why"),
    [
        (
            lambda: server(nn.Linear(3, 4)),
            r"has 'parameter weight \(4, 3\) float32, group 0', but worker 0 has .*\(2, 3\)",
        ),
        (lambda: server(linear(bias=False)), "has 'nothing more', but worker 0 has 'parameter bias"),
        (lambda: server(linear(dtype=torch.bfloat16)), "bfloat16"),
        (lambda: server(linear(), mode="sync"), "has 'mode=sync', but worker 0 has 'mode=async'"),
        (lambda: server(linear(), momentum=0.9), "has 'rule sgd:momentum', but worker 0 has 'rule sgd'"),
        (
            lambda: server(linear(), servers=[0, 1]),
            r"has 'servers \[0, 1\]', but worker 0 has 'servers \[0, 1, 2\]'",
        ),
        (lambda: server(nn.Sequential(linear(), nn.BatchNorm1d(2))), "0.weight"),
    ],
)
def test_workers_that_differ(differ: Callable[[], object], why: str, cluster: Cluster) -> None:
    results = cluster.run(lambda worker: differ() if worker == 2 else server(linear()), 3)
    assert {type(result) for result in results} == {ValueError}
    assert len({str(result) for result in results}) == 1
    with pytest.raises(ValueError, match=why):
        raise results[0]
    assert str(results[0]).startswith("worker 2 has ")


def test_after_a_refusal_the_model_is_free(cluster: Cluster) -> None:
    model = linear()
    results = cluster.run(lambda worker: server(model) if worker == 0 else server(nn.Linear(3, 4)), 2)
    assert {type(result) for result in results} == {ValueError}
    cluster.alone()
    server(model).close()


def test_a_worker_that_does_not_come(cluster: Cluster) -> None:
    import braid

    late_s = round(limit(2))  # the others have to come within that

    def begin(worker: int) -> object:
        return server(linear(), timeout=late_s) if worker != 1 else None

    results = cluster.run(begin, 3)
    for result in (results[0], results[2]):
        assert isinstance(result, braid.CommunicatorTimeoutError)
        assert result.rank == 1
        assert f"worker 1 did not come within {late_s} s" in str(result)


def test_without_a_process_group() -> None:
    with pytest.raises(
        RuntimeError, match=r"a strategy needs a process group: call torch.distributed.init_process_group"
    ):
        store.meet(None, None, 1.0)


def test_after_the_beginning(cluster: Cluster) -> None:
    model = linear()
    model.bias.requires_grad_(False)
    optimizer = server(model)
    with pytest.raises(RuntimeError, match="parameters are fixed when it begins: give all groups with params="):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.deepcopy(optimizer)
    with pytest.raises(ValueError, match="weight belongs to another strategy already"):
        server(model)
    model.bias.requires_grad_(True)
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(RuntimeError, match="bias was frozen when the strategy began"):
        optimizer.step()
    model.bias.grad = None
    optimizer.param_groups[0]["momentum"] = 0.9
    with pytest.raises(ValueError, match="momentum was 0 when the strategy began"):
        optimizer.step()
    optimizer.close()
    optimizer.close()
    for use in (optimizer.step, optimizer.stats, optimizer.service_state, optimizer.centre().__enter__):
        with pytest.raises(RuntimeError, match="the strategy is closed"):
            use()
    server(model).close()  # the parameters are free again


@pytest.mark.parametrize("is_handed_over", [True, False], ids=["handed over", "forgotten"])
def test_steps_of_another_optimizer_are_refused(is_handed_over: bool, cluster: Cluster) -> None:
    def train(_worker: int) -> None:
        model, other = linear(), linear()
        mine, unrelated = SGD(model.parameters(), lr=0.1), SGD(other.parameters(), lr=0.1)
        with bs.ParameterServer(model, mine) if is_handed_over else server(model) as strategy:
            for each in (model, other):
                each(torch.ones(1, 3)).sum().backward()
            before = [each.clone() for each in model.parameters()]
            with pytest.raises(RuntimeError, match=r"SGD.step\(\) changes weight, but servers would not hear"):
                mine.step()
            assert all(map(torch.equal, before, model.parameters()))
            unrelated.step()
            strategy.step()
        mine.step()  # the strategy is closed

    assert cluster.run(train, 1) == [None]


def test_a_strategy_that_was_dropped_looks_no_more(cluster: Cluster) -> None:
    def train(_worker: int) -> None:
        model = linear()
        strategy = server(model)
        strategy._exchange = None  # it has a thread of its own, and keeps nothing of the strategy
        del strategy
        gc.collect()
        SGD(model.parameters(), lr=0.1).step()

    assert cluster.run(train, 1) == [None]


def test_an_optimizer_that_steps_locally_may_step(cluster: Cluster) -> None:
    def train(_worker: int) -> None:
        model = linear()
        with server(model, RMSprop) as strategy:
            model(torch.ones(1, 3)).sum().backward()
            strategy.step()

    assert cluster.run(train, 1) == [None]


def test_a_model_in_ddp_is_refused(cluster: Cluster, tmp_path: Any) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(linear())
        with pytest.raises(ValueError, match=r"give the model inside, ddp.module"):
            server(model)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("parameter_sever", "there is no 'parameter_sever'; did you mean parameter_server?"),
        ("hogwild", "there is no 'hogwild'; there are parameter_server"),
        ("parameter_server:stalenes=3", "no option 'stalenes'; did you mean staleness?"),
        ("parameter_server:mode=ssp,mode=sync", "mode is given twice"),
        ("parameter_server:mode", "mode has no value; write mode=VALUE, as in mode=ssp"),
        ("parameter_server:delay=x", "delay=x: expected a whole number, as in delay=4"),
        ("elastic:alpha=much", "alpha=much: expected a number, as in alpha=0.5"),
        ("local:sync_every=(5", "expected a whole number, or two with a plus sign between, as in sync_every=5+20"),
        ("parameter_server:local=maybe", "local=maybe: expected true or false, as in local=true"),
        (
            "hybrid:groups=0-1|2-3",
            "groups=0-1|2-3: expected ranks with plus signs, and slashes between groups, as in groups=0+1/2+3",
        ),
        ("hybrid:groups=0,1", "hybrid has no option '1'; there are mode, "),
        (
            "hybrid:groups=0,1",
            ". Write NAME:OPTION=VALUE,OPTION=VALUE, as in hybrid:groups=0+1/2+3,rate_rule=sqrt",
        ),
        ("gossip:graph=0+1", "graph=0+1: expected edges between ranks, with plus signs, as in graph=0-1+1-2"),
        ("elastic:servers=serve", "servers=serve: expected ranks, 'ranks' or 'serve:N', with plus signs, as in "),
        ("LocalSGT", "there is no 'LocalSGT'; did you mean "),
    ],
)
def test_text_that_says_nothing_known(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="strategy ") as caught:
        read(text)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("spellings", "kind"),
    [
        (["parameter_server", "ParameterServer", "parameterserver"], bs.ParameterServer),
        (["hybrid", "Hybrid"], bs.Hybrid),
        (["elastic", "ElasticAverage", "elastic_average"], bs.ElasticAverage),
        (["local", "LocalSGD", "local_sgd"], bs.LocalSGD),
        (["diloco", "DiLoCo"], bs.DiLoCo),
        (["gossip", "Gossip"], bs.Gossip),
    ],
)
def test_text_names_a_strategy_as_its_class_or_shorter(spellings: list[str], kind: type) -> None:
    for name in spellings:
        assert read(f" {name} : timeout=5")[0] is kind
        assert name_of(f" {name} : timeout=5") == spellings[0]


def test_each_option_has_an_example_that_is_right() -> None:
    for name, (_, options) in _STRATEGIES.items():
        for option, form in options.items():
            assert list(read(f"{name}:{option}={form.example}")[1]) == [option]


def test_text() -> None:
    assert read("parameter_server") == (bs.ParameterServer, {})
    text = "parameter_server: mode=ssp, staleness=2,delay=1,compensate=0.04,local=no,servers=0+2,timeout=5"
    text += ",compression=top_k:0.01,pull_compression=bf16,consistency=atomic,replicas=1"
    assert read(text)[1] == {
        **{"mode": "ssp", "staleness": 2, "delay": 1, "compensate": 0.04, "local": False},
        **{"compression": "top_k:0.01", "pull_compression": "bf16", "consistency": "atomic", "replicas": 1},
        **{"servers": [0, 2], "timeout": 5.0},
    }


def test_from_text_hands_an_optimizer_over(cluster: Cluster) -> None:
    model = linear()
    plain = AdamW(model.parameters(), lr=0.5, betas=(0.5, 0.9))
    scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.1)
    with bs.from_text("parameter_server:mode=ssp,staleness=1", model, plain) as optimizer:
        assert optimizer.stats()["rule"] == "adamw"
        assert optimizer.param_groups[0]["betas"] == (0.5, 0.9)
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns if it thinks that no optimizer has stepped
            scheduler.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    settings = next(iter(FakeService.made.values()))
    assert (settings["mode"], settings["staleness"]) == ("ssp", 1)
    with bs.from_text("parameter_server", model, RMSprop(model.parameters())) as optimizer:
        assert optimizer.stats()["rule"] == "add"
