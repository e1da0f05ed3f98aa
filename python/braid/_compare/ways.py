# SPDX-License-Identifier: Apache-2.0
"""The ways to train that ``braid compare`` compares, and what `braid advise` proposes as one of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from braid import _links
from braid._advice.candidate import Candidate
from braid._advice.candidates import candidates
from braid._advice.choice import choose
from braid._advice.network import Network
from braid._advice.workload import Worker, Workload
from braid._compare.messages import REPLACE_BRAID
from braid._settings import USUAL_TAKEOVER
from braid.lab import HostSpec

GLOO, BRAID, COMPRESSED = "Gloo", "braid", "braid, auto"
_LATENCY_S = 50e-6  # between stated hosts, one way
_OVERLAP = 0.5  # the part of a step beside which DistributedDataParallel sends: about half of it is backward
_SETTING = re.compile(r"\b(BRAID_\w+)=(\S+?)(?:,|$)")
_TEXT = re.compile(r'"([^"]+)"')
_GAIN = 1.05  # a proposal must be worth so many times the plain all-reduce
_WHY = {
    "parameter_server": "each worker pushes its gradients to servers and waits for nobody",
    "hybrid": "groups of equal workers average in each step, and groups meet at servers",
    "elastic": "workers are pulled to a common centre every few steps, and send nothing in between",
    "local": "workers average their values every few steps, and send nothing in between",
    "diloco": "workers send the sum of many steps at once, and an outer optimizer applies it",
    "gossip": "a worker exchanges with one other at a time, in the background, so a slow link holds up few",
}


@dataclass(frozen=True)
class Way:
    """One way to train.

    Attributes:
        name: in the table.
        environment: variables of its ranks.
        is_free: whether its workers do not wait for each other.
        period: steps from one exchange to the next: blocks of steps are multiples of it.
        why: one sentence on why it should be fast.
        is_rival: whether it is not braid's: it may fail.
    """

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    is_free: bool = False
    period: int = 1
    why: str = ""
    is_rival: bool = False


def gloo() -> Way:
    """Return the script on Gloo, also where it names braid."""
    return Way(GLOO, {"BRAID_TAKEOVER": "", REPLACE_BRAID: "1"}, is_rival=True)


def plain(why: str) -> Way:
    """Return the script on braid."""
    return Way(BRAID, _on_braid(), why=why)


def compressed(why: str) -> Way:
    """Return the script on braid, with gradients sent as BRAID_COMPRESSION=auto decides."""
    return Way(COMPRESSED, _on_braid(BRAID_COMPRESSION="auto"), why=why)


def strategy(text: str) -> Way:
    """Return the script with a strategy; ValueError as braid.strategies.from_text() raises it."""
    from braid.strategies.text import name_of, read  # imports torch, which other commands do without

    _, options = read(text)
    kind = name_of(text)
    every = options.get("sync_every", 1)
    period = every if isinstance(every, int) else every[-1]  # of levels, the outermost one's
    return Way(text, _on_braid(BRAID_STRATEGY=text), _is_free(kind, options), period, _WHY[kind])


def proposed(one: Candidate) -> Way:
    """Return the way that a candidate of `braid advise` describes."""
    if text := _strategy_of(one):
        return strategy(text)
    return Way(
        one.name, _on_braid(**dict(_SETTING.findall(one.how))), why="fast workers get more samples than slow ones"
    )


def topology(specs: Sequence[HostSpec], counts: Sequence[int]) -> str:
    """Return the text form of a cluster of stated hosts with so many ranks each."""
    cards = [_links.Card(spec.up_bits_per_s, spec.down_bits_per_s) for spec in specs]
    file = _links.LinksFile(_LATENCY_S, max(max(card.up, card.down) for card in cards))
    return str(_links.topology_text(file, cards, list(counts)))


def advised(text: str, step_s: Sequence[float], batch: int, gradient_bytes: int) -> Candidate | None:
    """Return what `braid advise` would choose beside plain and compressed all-reduces; None if nothing pays.

    Args:
        text: the cluster, as topology() returns it.
        step_s: seconds that each worker computes in a step.
        batch: samples of a worker in a step.
        gradient_bytes: of all gradients, as float32.
    """
    network = Network(text)
    workers = [Worker(seconds / batch) for seconds in step_s]
    found = candidates(Workload(batch * len(workers), gradient_bytes, workers, _OVERLAP), network)
    plain_one = found[0]
    others = [one for one in found[1:] if len(one.workers) == len(workers) and _is_new(one)]
    chosen = choose([plain_one, *others]).chosen
    return chosen if chosen is not plain_one and chosen.worth > _GAIN * plain_one.worth else None


def _is_free(kind: str, options: dict[str, Any]) -> bool:
    if kind in ("parameter_server", "hybrid"):
        return options.get("mode") != "sync"
    if kind == "elastic":
        return not str(options.get("schedule", "")).startswith("sync")
    return kind == "gossip" or bool(options.get("asynchronous"))


def _is_new(one: Candidate) -> bool:
    return bool(_strategy_of(one)) or ("BRAID_BALANCE" in one.how and "BRAID_COMPRESSION" not in one.how)


def _strategy_of(one: Candidate) -> str:
    """Return the strategy's text that a candidate names, "" if it names none."""
    if quoted := _TEXT.search(one.how):
        return quoted[1]
    return one.how if one.how.partition(":")[0] in _WHY else ""


def _on_braid(**more: str) -> dict[str, str]:
    return {"BRAID_TAKEOVER": USUAL_TAKEOVER, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1", **more}
