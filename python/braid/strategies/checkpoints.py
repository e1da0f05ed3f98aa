# SPDX-License-Identifier: Apache-2.0
"""What is saved of a strategy, and what a saved state must fit."""

from typing import Any

from braid.strategies.exchange import Steps
from braid.strategies.model_state import difference_of
from braid.strategies.preparation import Prepared
from braid.strategies.restoring import restore_first

KIND = "parameter_server"
_VERSION = 1


def about(prepared: Prepared) -> dict[str, Any]:
    """Return what a state belongs to."""
    return {
        "strategy": KIND,
        "version": _VERSION,
        "rule": prepared.rule.text,
        "parameters": prepared.packing.describe(),
    }


def must_fit(saved: Any, prepared: Prepared, source: str) -> None:
    """Raise ValueError if a state is from something else; `source` is the method that makes fitting ones."""
    if not isinstance(saved, dict) or "strategy" not in saved:
        raise ValueError(f"this is no state of a ParameterServer: load what {source} returned")
    if saved["strategy"] != KIND:
        raise ValueError(f"this is a state of the strategy {saved['strategy']!r}, not of {KIND!r}")
    own = about(prepared)
    for name in ("version", "rule"):
        if saved.get(name) != own[name]:
            raise ValueError(f"this state has {name} {saved.get(name)!r}, but the strategy has {own[name]!r}")
    if why := difference_of(saved["parameters"], own["parameters"], "parameters"):
        raise ValueError(why)


def restore_from_first(
    exchange: Steps,
    key: str,
    saved: dict[str, Any] | None,
    prepared: Prepared,
    timeout_s: float,
) -> None:
    """Let worker 0 restore the servers, and return when that is done. Raises as restore_first()."""

    def restore() -> dict[str, Any]:
        must_fit(saved, prepared, "service_state()")
        assert saved is not None
        exchange.restore(saved["servers"])
        return {}

    exchange.finish()
    restore_first(exchange.meeting, key, timeout_s, restore, exchange.present)
