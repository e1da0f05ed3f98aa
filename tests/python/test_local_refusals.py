# SPDX-License-Identifier: Apache-2.0
"""What LocalSGD and DiLoCo refuse, each in one sentence on every worker; their text forms; small parts alone."""

import copy
from collections.abc import Callable
from typing import Any

import braid.strategies as bs
import pytest
import torch
from braid.strategies.local.fragments import cut
from braid.strategies.local.options import LocalOptions
from braid.strategies.local.speeds import steps_for
from braid.strategies.packing import Entry
from braid.strategies.text import read
from fake_cluster import Cluster
from torch import nn
from torch.optim import LBFGS, SGD, Adam, RMSprop

pytestmark = pytest.mark.unit


def linear(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2, **options)


def diloco(model: nn.Module | None = None, kind: type = SGD, **options: Any) -> bs.DiLoCo:
    model = linear() if model is None else model
    return bs.DiLoCo(model, kind(model.parameters()), **{"asynchronous": True, **options})


def in_rounds(**options: Any) -> bs.DiLoCo:
    return diloco(asynchronous=False, **options)


def local(**options: Any) -> bs.LocalSGD:
    model = linear()
    return bs.LocalSGD(model, SGD(model.parameters()), **options)


def of_two_optimizers() -> bs.DiLoCo:
    model = nn.Sequential(linear(), nn.Linear(2, 2))
    return bs.DiLoCo(model, SGD(model[0].parameters()))


def fails(parameters: Any) -> torch.optim.Optimizer:
    raise KeyError("no such\nthing")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: in_rounds(sync_every=0), "sync_every=0: a whole number of steps, at least 1"),
        (lambda: in_rounds(sync_every=2.5), "sync_every=2.5: a whole number of steps, or two"),
        (lambda: in_rounds(sync_every=(2, 5)), r"sync_every=\(2, 5\): the second must be a multiple of the first"),
        (lambda: in_rounds(sync_every=[2, 4, 8]), r"sync_every=\(2, 4, 8\): a whole number of steps, or two"),
        (lambda: in_rounds(sync_every=(2, 4), groups="auto"), "groups='auto': 'host', or lists of ranks"),
        (lambda: in_rounds(sync_every=(2, 4), groups=[[0], [0]]), "rank 0 is there twice|not among the ranks"),
        (lambda: in_rounds(groups="host"), "groups= needs two periods"),
        (lambda: in_rounds(warmup_steps=-1), "warmup_steps=-1: a whole number of steps, at least 0"),
        (
            lambda: in_rounds(sync_every=50, num_fragments=3),
            "num_fragments=3 does not divide sync_every=50: every ",
        ),
        (lambda: in_rounds(sync_every=9, num_fragments=9), "num_fragments=9: the model has only 8 trained param"),
        (lambda: in_rounds(num_fragments=0), "num_fragments=0: a whole number, at least 1"),
        (
            lambda: in_rounds(sync_every=(2, 8), num_fragments=3),
            r"num_fragments=3 does not divide the 4 rounds of a group in sync_every=\(2, 8\): a fragment is exch",
        ),
        (lambda: in_rounds(sync_every=(2, 4), fragment_sync_delay=1), "fragment_sync_delay= needs one period"),
        (
            lambda: in_rounds(sync_every=8, num_fragments=4, fragment_sync_delay=2),
            "fragment_sync_delay=2: a whole number of steps, less than the 2 from one exchange",
        ),
        (lambda: in_rounds(fragment_update_alpha=1.5), "fragment_update_alpha=1.5: from 0, the centre's values"),
        (lambda: in_rounds(compression="int3"), "compression: .*int3.*; or off, which sends float32"),
        (lambda: in_rounds(buffers="broadcast"), "buffers 'broadcast': there are average and local"),
        (lambda: in_rounds(backup_device="cuda:0"), "backup_device=cuda:0: the centre is on the CPU"),
        (lambda: in_rounds(servers=[0]), "servers= needs quorum= or asynchronous=True"),
        (lambda: in_rounds(grace_s=1.0), "grace_s= needs quorum= or asynchronous=True"),
        (lambda: in_rounds(momentum_every=2), "momentum_every= is for asynchronous=True"),
        (lambda: in_rounds(follow_speed=True), "follow_speed= is for asynchronous=True"),
        (lambda: in_rounds(quorum=9), "quorum=9: a number of workers, from 1 to "),
        (lambda: in_rounds(quorum=0), "quorum=0: a number of workers, from 1 to "),
        (lambda: in_rounds(quorum=1, grace_s=-1.0), "grace_s=-1.0: seconds, from 0 to "),
        (lambda: in_rounds(quorum=1, compression="int3"), "compression: .*int3.*; or off, which sends float32"),
        (lambda: in_rounds(quorum=1, sync_every=9, num_fragments=2), "num_fragments=2 does not divide sync_every"),
        (
            lambda: in_rounds(quorum=1, sync_every=(2, 4), num_fragments=2),
            "num_fragments= with two periods needs rounds of all workers: leave out quorum= and asynchronous=True",
        ),
        (
            lambda: in_rounds(quorum=0, sync_every=(2, 4), groups=[[0], [1], [2]]),
            "quorum=0: a number of groups, from 1 to all|not among the ranks",
        ),
        (lambda: diloco(sync_every=(0, 4)), r"sync_every=\(0, 4\): a whole number of steps, or two"),
        (lambda: diloco(sync_every=(2, 5)), r"sync_every=\(2, 5\): the second must be a multiple of the first"),
        (lambda: diloco(groups=[[0]]), "groups= needs two periods"),
        (lambda: diloco(sync_every=(2, 4), groups=[[0], [0]]), "rank 0 is there twice|not among the ranks"),
        (
            lambda: diloco(sync_every=(2, 4), num_fragments=2),
            "num_fragments= with two periods needs rounds of all workers: leave out quorum= and asynchronous=True",
        ),
        (lambda: diloco(sync_every=(2, 4), warmup_steps=2), "warmup_steps= takes means of all workers, or of a"),
        (lambda: diloco(warmup_steps=2), "warmup_steps= takes means of all workers, or of a quorum: async"),
        (lambda: diloco(sync_every=(2, 4), quorum=1), "quorum= and grace_s= are for rounds"),
        (lambda: diloco(sync_every=(2, 4), follow_speed=True), "follow_speed= needs one period"),
        (
            lambda: diloco(sync_every=(2, 8), fragment_sync_delay=3),
            "fragment_sync_delay=3: groups take the servers' values .* give a multiple of 2 that is less than 8",
        ),
        (lambda: diloco(sync_every=(2, 8), fragment_sync_delay=8), "a multiple of 2 that is less than 8"),
        (lambda: diloco(sync_every=(2, 4), group_lr=-1.0), "group_lr=-1.0: a number, at least 0$"),
        (
            lambda: diloco(sync_every=(2, 4), group_momentum=1),
            "group_momentum=1: a number, at least 0, less than 1",
        ),
        (lambda: diloco(group_lr=0.5), "group_lr= is for asynchronous=True or quorum= with two"),
        (lambda: in_rounds(sync_every=(2, 4), group_momentum=0.5), "group_momentum= is for asynchronous=True or"),
        (
            lambda: in_rounds(quorum=1, outer_optimizer=RMSprop),
            "outer_optimizer=RMSprop: with quorum= the servers' rules are SGD, Adam, AdamW",
        ),
        (lambda: diloco(quorum=1), "quorum= and grace_s= are for rounds: with asynchronous=True nobody waits"),
        (lambda: diloco(momentum_every=0), "momentum_every=0: a whole number of updates, at least 1"),
        (lambda: diloco(outer_optimizer=Adam), "outer_optimizer= is not for asynchronous=True"),
        (lambda: diloco(servers=[9]), r"servers=\[9\]: give one or more different ranks"),
        (lambda: in_rounds(outer_optimizer=Adam, outer_lr=1.0), "outer_lr= and outer_momentum= are those of the"),
        (lambda: in_rounds(outer_lr=-1.0), "made no optimizer of a list of parameters: Invalid learning rate"),
        (lambda: in_rounds(outer_optimizer=fails), "made no optimizer of a list of parameters: 'no such"),
        (lambda: in_rounds(outer_optimizer=LBFGS), "outer_optimizer= made LBFGS, which needs closures"),
        (lambda: in_rounds(kind=LBFGS), "LBFGS evaluates its closure several times"),
        (lambda: diloco(linear(dtype=torch.float64)), "^weight is float64: "),
        (lambda: local(sync_every=True), "sync_every=True: a whole number of steps"),
        (of_two_optimizers, "1.weight is trained, but is not in the optimizer: a strategy needs one optimizer"),
    ],
)
def test_what_does_not_fit(make: Callable[[], Any], why: str, cluster: Cluster) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        make()
    assert "\n" not in str(caught.value)
    # All other workers hear of it at once.
    results = cluster.run(lambda worker: make() if worker == 1 else diloco(), 3)
    assert all(isinstance(result, ValueError) for result in results), results
    assert str(results[0]) == f"worker 1 cannot begin: {results[1]}" == str(results[2])


@pytest.mark.parametrize(
    ("outer", "why"),
    [
        (SGD(linear().parameters(), lr=0.1), "outer_optimizer= takes what makes an optimizer, as lambda"),
        (0.7, "outer_optimizer= takes what makes an optimizer"),
        (lambda parameters: 0.7, "outer_optimizer= made no optimizer of torch, but a float"),
    ],
)
def test_what_is_no_outer_optimizer(outer: Any, why: str, cluster: Cluster) -> None:
    with pytest.raises(TypeError, match=why):
        in_rounds(outer_optimizer=outer)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sync_every": 3}, "has 'sync_every=3', but worker 0 has 'sync_every=50'"),
        ({"outer_lr": 0.5}, r"has \"outer SGD .*'lr', 0.5.* but worker 0 has \"outer SGD .*'lr', 0.7"),
        ({"momentum_every": 3}, "has 'momentum_every=3', but worker 0 has 'momentum_every=None'"),
    ],
)
def test_workers_that_differ(options: dict[str, Any], why: str, cluster: Cluster) -> None:
    results = cluster.run(lambda worker: diloco(**options) if worker == 2 else diloco(), 3)
    assert {type(result) for result in results} == {ValueError}
    with pytest.raises(ValueError, match=why):
        raise results[0]
    results = cluster.run(lambda worker: diloco() if worker else bs.ParameterServer(linear(), SGD), 2)
    with pytest.raises(ValueError, match="has 'strategy diloco', but worker 0 has 'strategy parameter_server'"):
        raise results[0]


def test_after_a_refusal_the_model_is_free(cluster: Cluster) -> None:
    model = linear()
    with pytest.raises(ValueError, match="only 8 trained"):
        diloco(model, asynchronous=False, sync_every=9, num_fragments=9)
    with diloco(model) as strategy:
        with pytest.raises(ValueError, match="weight belongs to another strategy already"):
            diloco(model)
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copy.deepcopy(strategy)
    for use in (strategy.stats, strategy.state_dict, strategy.settle, strategy.centre().__enter__):
        with pytest.raises(RuntimeError, match="the strategy is closed"):
            use()


def test_one_asynchronous_worker_on_the_fake_service(cluster: Cluster) -> None:
    model = linear()
    optimizer = SGD(model.parameters(), lr=0.5)
    begun = model.weight.detach().clone()
    with bs.DiLoCo(
        model, optimizer, sync_every=2, asynchronous=True, outer_lr=0.5, outer_momentum=0.0
    ) as strategy:
        for _ in range(2):
            model.weight.grad, model.bias.grad = torch.ones(2, 3), torch.zeros(2)
            optimizer.step()
        # Two steps of 0.5, of which the centre takes a half.
        torch.testing.assert_close(model.weight.detach(), begun - 0.5)
        with strategy.centre(), pytest.raises(RuntimeError, match="take no step inside centre"):
            optimizer.step()
        assert strategy.stats()["rounds"] == 1


def test_text(cluster: Cluster) -> None:
    kind, options = read(
        "diloco:sync_every=50,num_fragments=5,fragment_sync_delay=2,compression=int4,outer_lr=0.5"
    )
    numbers = {"sync_every": 50, "num_fragments": 5, "fragment_sync_delay": 2, "outer_lr": 0.5}
    assert (kind, options) == (bs.DiLoCo, {**numbers, "compression": "int4"})
    kind, options = read("local:sync_every=2+16,groups=0+1/2+3,warmup_steps=100")
    assert (kind, options) == (
        bs.LocalSGD,
        {"sync_every": (2, 16), "groups": [[0, 1], [2, 3]], "warmup_steps": 100},
    )
    kind, options = read("diloco:asynchronous=true,sync_every=8+32,groups=0+1/2,group_lr=0.5,group_momentum=0.9")
    groups = {"asynchronous": True, "sync_every": (8, 32), "groups": [[0, 1], [2]]}
    assert (kind, options) == (bs.DiLoCo, {**groups, "group_lr": 0.5, "group_momentum": 0.9})
    with pytest.raises(ValueError, match=r"diloco has no option 'sync_evry'; did you mean sync_every\?"):
        read("diloco:sync_evry=3")
    model = linear()
    with bs.from_text("diloco:asynchronous=true", model, SGD(model.parameters(), lr=0.1)) as strategy:
        assert strategy.stats()["sync_every"] == 50


def test_groups_take_no_late_worker() -> None:
    options = LocalOptions(sync_every=(2, 4), asynchronous=True)
    with pytest.raises(ValueError, match="join= needs one period, sync_every=H: groups are fixed when they begin"):
        options.check(0, has_servers=False, is_late=True)


def test_fragments_cover_the_model_once() -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(3, 5), torch.randn(4, 2).t(), torch.randn(7).to(torch.bfloat16), torch.randn(2)]
    entries = [Entry(str(place), tensor) for place, tensor in enumerate(tensors)]
    begun = [tensor.clone() for tensor in tensors]
    for count in (1, 2, 3, 5, 30):
        fragments = cut(entries, 30, count)  # the last two numbers are of a buffer
        sizes = [fragment.elements for fragment in fragments]
        assert sum(sizes) == 32
        assert max(sizes[:-1], default=0) - min(sizes[:-1], default=0) <= 1
        for fragment in fragments:
            vector = torch.zeros(fragment.elements)
            fragment.read(vector)
            assert torch.equal(fragment.shown(vector), vector)
            fragment.write(vector + 1)
            again = torch.zeros(fragment.elements)
            fragment.read(again)
            assert torch.equal(again, fragment.shown(vector + 1))
        for tensor, before in zip(tensors, begun, strict=True):
            assert torch.equal(tensor, before + 1)
            tensor.copy_(before)


def test_steps_for_a_speed() -> None:
    assert steps_for(8.0, [8.0, 2.0], 20) == 20
    assert steps_for(2.0, [8.0, 2.0], 20) == 5
    assert steps_for(0.001, [8.0, 0.001], 20) == 1
    assert steps_for(3.0, [], 20) == 20
