# SPDX-License-Identifier: Apache-2.0
"""What is saved of gossip: one worker's vector, its weight, and its steps; and how all workers load it."""

import json
from typing import Any

import torch

from braid.strategies.gossip.engine import Engine
from braid.strategies.gossip.local import Local
from braid.strategies.gossip.preparation import KIND, GossipPrepared
from braid.strategies.gossip.together import hear, say
from braid.strategies.gossip.vector import TAIL, new_vector
from braid.strategies.model_state import difference_of
from braid.strategies.store import Meeting

_VERSION = 1
_WHERE = "load_state_dict()"


def saved(prepared: GossipPrepared, local: Local, mode: str, steps: int) -> dict[str, Any]:
    """Return this worker's state. Values are float32, in the order of the packing, not times the weight."""
    vector = new_vector(prepared.together.elements)
    weight = local.values(vector)
    values = vector[:-TAIL].clone()
    return {
        **{"strategy": KIND, "version": _VERSION, "mode": mode, "steps": steps},
        **{"contents": prepared.state.describe_shared(), "values": values.div_(weight), "weight": weight},
    }


def load(
    meeting: Meeting,
    key: str,
    engine: Engine,
    local: Local,
    state: dict[str, Any] | None,
    prepared: GossipPrepared,
    timeout_s: float,
) -> int:
    """Load this worker's state. A worker that has none begins at the mean of those that have one.

    Returns:
        The steps: those of the state, or the most of all workers.

    Raises:
        ValueError: the state of some worker does not fit, or no worker has one; on all workers.
        CommunicatorTimeoutError: a worker did not call this in time.
    """
    why, steps = "", -1
    try:
        if state is not None:
            _must_fit(state, prepared)
            steps = int(state["steps"])
    except ValueError as error:
        why = str(error)
    say(meeting, f"{key}/of", json.dumps({"why": why, "steps": steps}).encode())
    found = [json.loads(text) for text in hear(meeting, f"{key}/of", _WHERE, timeout_s)]
    for other, said in enumerate(found):
        if said["why"]:
            raise ValueError(f"worker {other} cannot load its state: {said['why']}")
    most = max(said["steps"] for said in found)
    if most < 0:
        raise ValueError("no worker has a state to load: give one to load_state_dict() on at least one worker")
    # Those without a state weigh nothing in the mean.
    values = torch.zeros(prepared.together.elements, dtype=torch.float32) if state is None else state["values"]
    local.install(values, 0.0 if state is None else float(state["weight"]))
    _meet(meeting, f"{key}/has", timeout_s)
    if state is None:
        mean = engine.mean()
    _meet(meeting, f"{key}/knows", timeout_s)
    if state is None:
        local.install(mean)
    _meet(meeting, f"{key}/begins", timeout_s)
    return most if state is None else steps


def _meet(meeting: Meeting, key: str, timeout_s: float) -> None:
    say(meeting, key)
    hear(meeting, key, _WHERE, timeout_s)


def _must_fit(state: Any, prepared: GossipPrepared) -> None:
    if not isinstance(state, dict) or "strategy" not in state:
        raise ValueError("this is no state of a Gossip: load what state_dict() returned")
    if state["strategy"] != KIND:
        raise ValueError(f"this is a state of the strategy {state['strategy']!r}, not of {KIND!r}")
    if state.get("version") != _VERSION:
        raise ValueError(f"this state has version {state.get('version')!r}, but the strategy has {_VERSION}")
    if why := difference_of(state["contents"], prepared.state.describe_shared(), "tensors"):
        raise ValueError(why)
