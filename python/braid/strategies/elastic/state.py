# SPDX-License-Identifier: Apache-2.0
"""What is saved of elastic averaging: the centre and the clock; and how all workers load it."""

from typing import Any

import torch
from torch import Tensor

from braid.strategies.elastic.at_servers import CentreAtServers
from braid.strategies.elastic.in_rounds import CentreInRounds
from braid.strategies.elastic.preparation import KIND, ElasticPrepared
from braid.strategies.model_state import difference_of
from braid.strategies.restoring import restore_first

_VERSION = 1


def saved(
    prepared: ElasticPrepared, clock: int, steps: int, parameters: list[Tensor], buffers: list[Tensor]
) -> dict[str, Any]:
    """Return the state. Values are float32, in the order of the packing."""
    return {
        **{"strategy": KIND, "version": _VERSION, "clock": clock, "steps": steps},
        **{"parameters": prepared.packing.describe(), "buffers": prepared.buffer_packing.describe()},
        **{"centre": _flat(parameters), "centre_buffers": _flat(buffers)},
    }


def load(
    exchange: CentreInRounds | CentreAtServers,
    key: str,
    state: dict[str, Any] | None,
    prepared: ElasticPrepared,
    timeout_s: float,
) -> tuple[int, int]:
    """Let worker 0 set the centre, and tell the others at `key` of the store. Return clock and steps.

    Raises: as restore_first().
    """

    def restore() -> dict[str, int]:
        fitting = _fitting(state, prepared)
        exchange.set_centre(fitting["centre"], fitting["centre_buffers"])
        return {"clock": fitting["clock"], "steps": fitting["steps"]}

    exchange.finish()
    said = restore_first(exchange.meeting, key, timeout_s, restore, exchange.present)
    if isinstance(exchange, CentreInRounds):
        exchange.share_centre()
    return int(said["clock"]), int(said["steps"])


def _fitting(state: Any, prepared: ElasticPrepared) -> dict[str, Any]:
    if not isinstance(state, dict) or "strategy" not in state:
        raise ValueError("this is no state of an ElasticAverage: load what state_dict() returned")
    if state["strategy"] != KIND:
        raise ValueError(f"this is a state of the strategy {state['strategy']!r}, not of {KIND!r}")
    if state.get("version") != _VERSION:
        raise ValueError(f"this state has version {state.get('version')!r}, but the strategy has {_VERSION}")
    own = {"parameters": prepared.packing.describe(), "buffers": prepared.buffer_packing.describe()}
    for name, lines in own.items():
        if why := difference_of(state[name], lines, name):
            raise ValueError(why)
    return state


def _flat(views: list[Tensor]) -> Tensor:
    return torch.cat([view.flatten() for view in views]) if views else torch.zeros(0, dtype=torch.float32)
