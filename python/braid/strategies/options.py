# SPDX-License-Identifier: Apache-2.0
"""The options of a parameter server, checked, and as text that all workers compare."""

from dataclasses import dataclass
from typing import ClassVar

from braid._array.parameters import OFF
from braid._codec import Codec

MODES = ("async", "ssp", "sync")
BUFFERS = ("average", "broadcast", "local")
CONSISTENCIES = ("atomic", "relaxed")
DEFAULT_STALENESS = 3


@dataclass(frozen=True)
class Options:
    """How workers and servers work together; ParameterServer explains each option."""

    mode: str = "async"
    staleness: int | None = None
    delay: int = 0
    staleness_rate: bool = False
    compensate: float = 0.0
    implicit_momentum: bool = False
    buffers: str = "average"
    local: bool = False
    compression: str = OFF
    pull_compression: str = OFF
    consistency: str = "atomic"
    replicas: int = 0
    init_sync: bool = True

    # Workers may differ in these.
    OWN: ClassVar = ("delay",)

    def check(self, *, is_local: bool) -> None:
        """Raise ValueError if an option has no such value, or does not fit another; `is_local`: a local step."""
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r}: there is none of that name; there are {', '.join(MODES)}")
        if self.staleness is not None and self.mode != "ssp":
            raise ValueError(f"staleness= is for mode 'ssp', not for {self.mode!r}")
        if self.bound < 0:
            raise ValueError(f"staleness={self.staleness}: a number of steps, at least 0")
        if self.delay not in (0, 1):
            raise ValueError(
                f"delay={self.delay}: 0 waits in each step for its own pull, 1 for that of the last one"
            )
        if self.compensate and self.delay:
            raise ValueError("compensate= needs delay=0: servers keep only the values of a worker's last pull")
        if self.compensate < 0:
            raise ValueError(f"compensate={self.compensate}: lambda must not be negative; the paper's is 0.04")
        if self.buffers not in BUFFERS:
            raise ValueError(f"buffers {self.buffers!r}: there are {', '.join(BUFFERS)}")
        if self.consistency not in CONSISTENCIES:
            raise ValueError(f"consistency {self.consistency!r}: there are {' and '.join(CONSISTENCIES)}")
        if self.consistency == "relaxed" and self.mode != "async":
            raise ValueError(f"consistency 'relaxed' is for mode 'async', not for {self.mode!r}")
        if self.consistency == "relaxed" and self.compensate:
            raise ValueError("compensate= needs consistency 'atomic': servers see no pulls in mapped memory")
        if self.replicas not in (0, 1):
            raise ValueError(f"replicas={self.replicas!r}: 1 keeps a second copy of each shard, 0 none")
        if self.replicas and self.consistency == "relaxed":
            raise ValueError("replicas=1 needs consistency 'atomic': servers see no updates in mapped memory")
        for name in ("compression", "pull_compression"):
            if (codec := getattr(self, name)) != OFF:
                try:
                    Codec(codec)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}; or {OFF}, which sends float32") from None
        for name in ("staleness_rate", "compensate", "implicit_momentum"):
            if not getattr(self, name):
                continue
            if is_local:
                raise ValueError(f"{name}= needs SGD, Adam or AdamW at the servers, not a local step")
            if self.mode == "sync":
                raise ValueError(f"{name}= is for stale gradients: in mode 'sync' there are none")

    @property
    def bound(self) -> int:
        """The bound of mode "ssp"."""
        return DEFAULT_STALENESS if self.staleness is None else self.staleness

    def describe(self) -> list[str]:
        """Return one line for each option that must be the same on all workers."""
        return [f"{name}={value}" for name, value in vars(self).items() if name not in self.OWN]
