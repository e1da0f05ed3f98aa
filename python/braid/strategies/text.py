# SPDX-License-Identifier: Apache-2.0
"""Makes a strategy from one line of text, as the command line has it."""

import difflib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

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
        raise ValueError
    return text.lower() in _YES


def _wholes(text: str) -> list[int]:
    return [int(each) for each in text.split("+")]


def _groups(text: str) -> str | list[list[int]]:
    return [_wholes(group) for group in text.split("/")] if text[:1].isdecimal() else text


def _periods(text: str) -> int | tuple[int, ...]:
    steps = tuple(_wholes(text))
    return steps if len(steps) > 1 else steps[0]


def _graph(text: str) -> str | list[tuple[int, int]]:
    if not text[:1].isdecimal():
        return text
    return [(int(a), int(b)) for a, b in (edge.split("-") for edge in text.split("+"))]


class _Form(NamedTuple):
    """How the values of an option are written.

    Attributes:
        read: makes a value of a text; ValueError if it is none.
        what: such a value in words.
        example: one that is right.
    """

    read: Callable[[str], Any]
    what: str
    example: str


def _word(example: str) -> _Form:
    return _Form(str, "text", example)


_TRUTH = _Form(_truth, "true or false", "true")
_WHOLE = _Form(int, "a whole number", "4")
_NUMBER = _Form(float, "a number", "0.5")
_PERIODS = _Form(_periods, "a whole number, or two with a plus sign between", "5+20")
_GROUPS = _Form(_groups, "ranks with plus signs, and slashes between groups", "0+1/2+3")
_GRAPH = _Form(_graph, "edges between ranks, with plus signs", "0-1+1-2")
_SERVERS = _Form(items_of, "ranks, 'ranks' or 'serve:N', with plus signs", "ranks+serve:2")
_MODE, _BUFFERS, _NAME, _CODEC = _word("ssp"), _word("local"), _word("mine"), _word("int8")
_Options = dict[str, _Form]

_PARAMETER_SERVER: _Options = {
    "mode": _MODE,
    "staleness": _WHOLE,
    "delay": _WHOLE,
    "staleness_rate": _TRUTH,
    "compensate": _NUMBER,
    "implicit_momentum": _TRUTH,
    "buffers": _BUFFERS,
    "init_sync": _TRUTH,
    "local": _TRUTH,
    "compression": _CODEC,
    "pull_compression": _CODEC,
    "consistency": _word("relaxed"),
    "replicas": _WHOLE,
    "servers": _SERVERS,
    "name": _NAME,
    "timeout": _NUMBER,
}
_ELASTIC: _Options = {
    "sync_every": _WHOLE,
    "alpha": _NUMBER,
    "beta": _NUMBER,
    "schedule": _word("sync1"),
    "overlap": _WHOLE,
    "buffers": _BUFFERS,
    "init_sync": _TRUTH,
    "root": _WHOLE,
    "servers": _SERVERS,
    "name": _NAME,
    "timeout": _NUMBER,
}
_LOCAL: _Options = {
    "sync_every": _PERIODS,
    "warmup_steps": _WHOLE,
    "groups": _GROUPS,
    "compression": _CODEC,
    "quorum": _WHOLE,
    "grace_s": _NUMBER,
    "buffers": _BUFFERS,
    "init_sync": _TRUTH,
    "backup_device": _word("cpu"),
    "servers": _SERVERS,
    "name": _NAME,
    "timeout": _NUMBER,
}
_DILOCO: _Options = {
    **_LOCAL,
    "outer_lr": _NUMBER,
    "outer_momentum": _NUMBER,
    "num_fragments": _WHOLE,
    "fragment_sync_delay": _WHOLE,
    "fragment_update_alpha": _NUMBER,
    "asynchronous": _TRUTH,
    "momentum_every": _WHOLE,
    "follow_speed": _TRUTH,
    "group_lr": _NUMBER,
    "group_momentum": _NUMBER,
}
_GOSSIP: _Options = {
    "mode": _word("push_sum"),
    "graph": _GRAPH,
    "sync_every": _WHOLE,
    "probability": _NUMBER,
    "overlap": _TRUTH,
    "buffers": _BUFFERS,
    "init_sync": _TRUTH,
    "seed": _WHOLE,
    "max_steps_alone": _WHOLE,
    "name": _NAME,
    "timeout": _NUMBER,
}
_HYBRID: _Options = {
    **_PARAMETER_SERVER,
    "servers": _SERVERS,
    "groups": _GROUPS,
    "measure_steps": _WHOLE,
    "rate_rule": _word("sqrt"),
    "base_workers": _WHOLE,
    "warmup_steps": _WHOLE,
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
_FORM = "NAME:OPTION=VALUE,OPTION=VALUE, as in hybrid:groups=0+1/2+3,rate_rule=sqrt"


def _bare(name: str) -> str:
    return name.lower().replace("_", "")


# Names as text has them, and those of the classes, in any spelling: LocalSGD, local_sgd.
_NAMES = {_bare(spelling): name for name, (kind, _) in _STRATEGIES.items() for spelling in (name, kind.__name__)}


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
        text: a strategy's name, or its class's (``local``, ``local_sgd``, ``LocalSGD``), then options as
            NAME=VALUE, separated by commas. Places of shards are joined by plus signs: ``servers=0+2``,
            ``servers=ranks+serve:2``. So are ranks; slashes part groups of them: ``groups=0+1/2+3``. Edges of a
            graph: ``graph=0-1+1-2``.
        model: the bare model.
        optimizer: an optimizer of the model. For a parameter server it must not have stepped.
        process_group: the workers; by default the default group.

    Returns:
        The strategy.

    Raises:
        ValueError: a name or value is unknown. The message has the nearest known name, or the value's form.

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
    if _bare(name.strip()) not in _NAMES:
        raise ValueError(f"strategy {text!r}: there is no {name!r}; {_nearest(name, _STRATEGIES)}")
    name = name_of(text)
    kind, known = _STRATEGIES[name]
    options: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        option, equals, value = (word.strip() for word in part.partition("="))
        if option not in known:
            why = f"{name} has no option {option!r}; {_nearest(option, known)}"
            raise ValueError(f"strategy {text!r}: {why}" + ("" if equals else f". Write {_FORM}"))
        form = known[option]
        if option in options:
            raise ValueError(f"strategy {text!r}: {option} is given twice")
        if not equals or not value:
            raise ValueError(
                f"strategy {text!r}: {option} has no value; write {option}=VALUE, as in {option}={form.example}"
            )
        try:
            options[option] = form.read(value)
        except ValueError:
            why = f"expected {form.what}, as in {option}={form.example}"
            raise ValueError(f"strategy {text!r}: {option}={value}: {why}") from None
    return kind, options


def name_of(text: str) -> str:
    """Return the name of the strategy of a line that read() takes, as messages have it.

    Example:
        >>> name_of("LocalSGD:sync_every=5")
        'local'
    """
    return _NAMES[_bare(text.partition(":")[0].strip())]


def _nearest(word: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
