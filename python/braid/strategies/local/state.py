# SPDX-License-Identifier: Apache-2.0
"""What is saved of local steps, and how all workers load it."""

from copy import deepcopy
from typing import Any

import torch

from braid.strategies.local.at_servers import LocalAtServers
from braid.strategies.local.in_groups import InGroups
from braid.strategies.local.in_rounds import LocalInRounds
from braid.strategies.local.outer import describe
from braid.strategies.local.preparation import LocalPrepared
from braid.strategies.model_state import difference_of
from braid.strategies.restoring import restore_first

_VERSION = 2
_PLACES = {LocalAtServers: "servers", InGroups: "servers of groups"}  # others: rounds


def saved(exchange: LocalInRounds | LocalAtServers, prepared: LocalPrepared, steps: int) -> dict[str, Any]:
    """Return the state of a strategy."""
    own = {**_about(exchange, prepared), "steps": steps}
    if isinstance(exchange, LocalAtServers):
        return {**own, "clock": exchange.clock, "servers": exchange.snapshot()}
    # Copies: the next round changes the optimizer's own tensors.
    outers = [deepcopy(part.outer.optimizer.state_dict()) if part.outer else None for part in exchange.parts]
    if isinstance(exchange, InGroups):
        return {**own, "clock": 0, "servers": exchange.snapshot(), "outer": outers}
    counters = {"clock": exchange.clock, "turn": exchange.began_turns(), "warm_left": exchange.warm_left}
    residuals = [[vector.clone() for vector in part.message.residuals()] for part in exchange.parts]
    return {**own, **counters, "centre": exchange.vector.clone(), "outer": outers, "residuals": residuals}


def load(
    exchange: LocalInRounds | LocalAtServers,
    key: str,
    state: dict[str, Any] | None,
    prepared: LocalPrepared,
    timeout_s: float,
) -> int:
    """Let worker 0 set the centre, and tell the others at `key` of the store. Return the steps.

    Raises: as restore_first().
    """

    def restore() -> dict[str, int]:
        fitting = _fitting(state, exchange, prepared)
        if isinstance(exchange, LocalAtServers | InGroups):
            exchange.restore(fitting["servers"])
        return {"clock": fitting["clock"], "steps": fitting["steps"]}

    own = [tensor.clone() for tensor in prepared.tensors]  # what is under way must not change them
    exchange.end_requests()
    said = restore_first(exchange.meeting, key, timeout_s, restore, exchange.present)
    if isinstance(exchange, LocalAtServers):
        torch._foreach_copy_(prepared.tensors, own)
        exchange.pull(takes_values=state is None)
    elif isinstance(exchange, InGroups):
        exchange.begin_at_centre(state["outer"] if state else None)
    else:
        _take_in_rounds(exchange, state)
        if state is not None:
            torch._foreach_copy_(prepared.tensors, own)
            exchange.note_distance()
    exchange.clock = int(said["clock"])
    return int(said["steps"])


def _take_in_rounds(exchange: LocalInRounds, state: dict[str, Any] | None) -> None:
    if exchange.meeting.member == 0:
        assert state is not None
        exchange.vector.copy_(state["centre"])
    common = exchange.hear({name: state[name] for name in ("outer", "turn", "warm_left")} if state else None)
    exchange.turn, exchange.warm_left = common["turn"], common["warm_left"]
    for part, outer in zip(exchange.parts, common["outer"], strict=True):
        if part.outer is not None:
            part.outer.optimizer.load_state_dict(outer)
    exchange.share_centre()
    if state is None:
        return
    for part, lacking in zip(exchange.parts, state["residuals"], strict=False):
        for mine, theirs in zip(part.message.residuals(), lacking, strict=False):
            if mine.shape == theirs.shape:  # else there are other workers now, and what messages lacked is lost
                mine.copy_(theirs)


def _about(exchange: LocalInRounds | LocalAtServers, prepared: LocalPrepared) -> dict[str, Any]:
    place = _PLACES.get(type(exchange), "rounds")
    return {
        **{"strategy": prepared.kind, "version": _VERSION, "centre is in": place},
        **{"fragments": len(exchange.parts)},
        "outer optimizer": describe(prepared.outer).split()[1],
        **{"parameters": prepared.packing.describe(), "buffers": prepared.buffer_packing.describe()},
    }


def _fitting(state: Any, exchange: LocalInRounds | LocalAtServers, prepared: LocalPrepared) -> dict[str, Any]:
    if not isinstance(state, dict) or "strategy" not in state:
        raise ValueError("this is no state of LocalSGD or DiLoCo: load what state_dict() returned")
    for name, ours in _about(exchange, prepared).items():
        theirs = state.get(name)
        if name in ("parameters", "buffers"):
            if why := difference_of(theirs, ours, name):
                raise ValueError(why)
            continue
        if theirs == ours:
            continue
        if name == "strategy":
            raise ValueError(f"this is a state of the strategy {theirs!r}, not of {ours!r}")
        raise ValueError(f"this state has {name} {theirs!r}, but the strategy has {ours!r}")
    return state
