# SPDX-License-Identifier: Apache-2.0
"""Makes a strategy from one line of text, as the command line has it."""

import difflib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from braid._array.servers.placement import items_of
from braid.strategies.elastic.elastic_average import ElasticAverage
from braid.strategies.gossip.gossip import Gossip
from braid.strategies.hybrid.hybrid import Hybrid
from braid.strategies.local.diloco import DiLoCo
from braid.strategies.local.local_sgd import LocalSGD
from braid.strategies.parameter_server import ParameterServer

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _truth(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError("say true or false")
    return text.lower() in _YES


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number, got {text!r}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number, got {text!r}") from None


def _ranks(text: str) -> list[int]:
    return [_whole(rank) for rank in text.split("+")]


def _groups(text: str) -> str | list[list[int]]:
    return [_ranks(group) for group in text.split("/")] if text[:1].isdecimal() else text


def _periods(text: str) -> int | tuple[int, ...]:
    steps = tuple(_whole(each) for each in text.split("+"))
    return steps if len(steps) > 1 else steps[0]


def _graph(text: str) -> str | list[tuple[int, ...]]:
    if not text[:1].isdecimal():
        return text
    return [tuple(_whole(rank) for rank in edge.split("-")) for edge in text.split("+")]


_Options = dict[str, Callable[[str], Any]]

_PARAMETER_SERVER: _Options = {
    "mode": str,
    "staleness": _whole,
    "delay": _whole,
    "staleness_rate": _truth,
    "compensate": _number,
    "implicit_momentum": _truth,
    "buffers": str,
    "init_sync": _truth,
    "local": _truth,
    "compression": str,
    "pull_compression": str,
    "consistency": str,
    "replicas": _whole,
    "servers": items_of,
    "name": str,
    "timeout": _number,
}
_ELASTIC: _Options = {
    "sync_every": _whole,
    "alpha": _number,
    "beta": _number,
    "schedule": str,
    "overlap": _whole,
    "buffers": str,
    "init_sync": _truth,
    "root": _whole,
    "servers": items_of,
    "name": str,
    "timeout": _number,
}
_LOCAL: _Options = {
    "sync_every": _periods,
    "warmup_steps": _whole,
    "groups": _groups,
    "compression": str,
    "quorum": _whole,
    "grace_s": _number,
    "buffers": str,
    "init_sync": _truth,
    "backup_device": str,
    "servers": items_of,
    "name": str,
    "timeout": _number,
}
_DILOCO: _Options = {
    **_LOCAL,
    "outer_lr": _number,
    "outer_momentum": _number,
    "num_fragments": _whole,
    "fragment_sync_delay": _whole,
    "fragment_update_alpha": _number,
    "asynchronous": _truth,
    "momentum_every": _whole,
    "follow_speed": _truth,
    "group_lr": _number,
    "group_momentum": _number,
}
_GOSSIP: _Options = {
    "mode": str,
    "graph": _graph,
    "sync_every": _whole,
    "probability": _number,
    "overlap": _truth,
    "buffers": str,
    "init_sync": _truth,
    "seed": _whole,
    "max_steps_alone": _whole,
    "name": str,
    "timeout": _number,
}
_HYBRID: _Options = {
    **_PARAMETER_SERVER,
    "servers": items_of,
    "groups": _groups,
    "measure_steps": _whole,
    "rate_rule": str,
    "base_workers": _whole,
    "warmup_steps": _whole,
}
_Strategy = ParameterServer | ElasticAverage | LocalSGD | DiLoCo | Gossip
# Name -> the class, and how to read each option.
_STRATEGIES: dict[str, tuple[type[_Strategy], _Options]] = {
    "parameter_server": (ParameterServer, _PARAMETER_SERVER),
    "hybrid": (Hybrid, _HYBRID),
    "elastic": (ElasticAverage, _ELASTIC),
    "local": (LocalSGD, _LOCAL),
    "diloco": (DiLoCo, _DILOCO),
    "gossip": (Gossip, _GOSSIP),
}


def from_text(
    text: str, model: nn.Module, optimizer: torch.optim.Optimizer, *, process_group: Any = None
) -> _Strategy:
    """Make a strategy from a line such as ``"parameter_server:mode=ssp,staleness=3"``.

    Use a ParameterServer in place of the optimizer. It has the same parameter groups, so the optimizer's
    schedulers work. A plain SGD, Adam or AdamW hands its numbers to the servers. Any other steps locally, and
    pushes differences. An ElasticAverage, such as ``"elastic:sync_every=10,beta=0.9"``, attaches to the optimizer,
    which you go on using; so do ``"local:sync_every=2+16,groups=host"``, ``"diloco:sync_every=50"`` and
    ``"gossip:mode=push_sum,graph=exponential"``.

    Args:
        text: a strategy's name, then options as NAME=VALUE, separated by commas. Places of shards are
            joined by plus signs: ``servers=0+2``, ``servers=ranks+serve:2``. So are ranks; slashes part groups of
            them: ``groups=0+1/2+3``. Edges of a graph: ``graph=0-1+1-2``.
        model: the bare model.
        optimizer: an optimizer of the model. For a parameter server it must not have stepped.
        process_group: the workers; by default the default group.

    Returns:
        The strategy.

    Raises:
        ValueError: a name or value is unknown. The message names the nearest known one.

    Example:
        >>> import torch, torch.distributed as dist, braid.strategies as bs
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.Linear(2, 1)
        >>> plain = torch.optim.AdamW(model.parameters(), lr=1e-3)
        >>> with bs.from_text("parameter_server:mode=ssp,staleness=3", model, plain) as opt:
        ...     opt.stats()["rule"]
        'adamw'
        >>> dist.destroy_process_group()
    """
    kind, options = read(text)
    return kind(model, optimizer, process_group=process_group, **options)


def read(text: str) -> tuple[type[_Strategy], dict[str, Any]]:
    """Return the class and the options that a line names; ValueError as from_text()."""
    name, _, rest = text.strip().partition(":")
    if name not in _STRATEGIES:
        raise ValueError(f"strategy {text!r}: there is no {name!r}; {_nearest(name, _STRATEGIES)}")
    kind, known = _STRATEGIES[name]
    options: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        option, equals, value = (word.strip() for word in part.partition("="))
        if option not in known:
            raise ValueError(f"strategy {text!r}: {name} has no option {option!r}; {_nearest(option, known)}")
        if option in options:
            raise ValueError(f"strategy {text!r}: {option} is given twice")
        if not equals or not value:
            raise ValueError(f"strategy {text!r}: {option} has no value; write {option}=VALUE")
        try:
            options[option] = known[option](value)
        except ValueError as error:
            raise ValueError(f"strategy {text!r}: {option}={value}: {error}") from None
    return kind, options


def _nearest(word: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
