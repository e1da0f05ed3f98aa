# SPDX-License-Identifier: Apache-2.0
"""What is saved of a strategy, and what a saved state must fit."""

from typing import Any

from braid.strategies.exchange import Steps
from braid.strategies.preparation import Prepared

KIND = "parameter_server"
_VERSION = 1
_DONE = "done"


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
    if saved["parameters"] != own["parameters"]:
        pairs = zip(saved["parameters"], own["parameters"], strict=False)
        theirs, ours = next(((a, b) for a, b in pairs if a != b), ("another number of parameters", "its own"))
        raise ValueError(f"this state is of another model: it has {theirs!r} where the model has {ours!r}")


def restore_from_first(
    exchange: Steps,
    key: str,
    saved: dict[str, Any] | None,
    prepared: Prepared,
    timeout_s: float,
) -> None:
    """Let worker 0 restore the servers, and return when that is done. The others hear the result at `key`."""
    store = exchange.meeting.store
    if exchange.meeting.member != 0:
        if (said := store.get(key, timeout_s).decode()) != _DONE:
            raise ValueError(said)
        return
    try:
        must_fit(saved, prepared, "service_state()")
        assert saved is not None
        exchange.restore(saved["servers"])
    except Exception as error:
        store.set(key, f"worker 0 cannot load the service's state: {error}".encode())
        raise
    store.set(key, _DONE.encode())
