# SPDX-License-Identifier: Apache-2.0
"""Update rules in NumPy, written from torch's formulas: for the fake service and the event simulation."""

from dataclasses import dataclass, field

import numpy as np

Numbers = list[tuple[int, dict[str, float]]]


@dataclass
class NumpyRule:
    """A rule with its state. `text` is as the core has it; `maximize` is not there."""

    text: str
    count: int
    step: int = 0
    state: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        kind, _, options = self.text.partition(":")
        self.kind, self.options = kind, set(filter(None, options.split(",")))
        assert kind in ("add", "sgd", "adam", "adamw", "elastic", "delayed_nesterov"), self.text
        self.every = int(options.removeprefix("every=")) if kind == "delayed_nesterov" else 1
        if kind == "delayed_nesterov":
            self.options = set()
        assert self.options <= {"momentum", "nesterov", "compensates", "amsgrad"}, self.text
        vectors = {"add": 0, "elastic": 0, "sgd": int("momentum" in self.options), "delayed_nesterov": 2}.get(
            kind, 2 + ("amsgrad" in self.options)
        )
        self.state = [np.zeros(self.count, np.float32) for _ in range(vectors)]

    def apply(
        self,
        values: np.ndarray,
        update: np.ndarray,
        numbers: Numbers,
        scale: float = 1.0,
        backup: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """Change the values in place. Return the elastic difference, if the rule is that."""
        self.step += 1
        if self.kind == "elastic":
            (_, alone), *others = numbers
            assert not others, numbers
            elastic = np.float32(alone["alpha"]) * (np.float32(scale) * update - values)
            values += elastic
            return elastic
        begin = 0
        for end, those in numbers:
            part = slice(begin, end)
            begin = end
            saved = None if backup is None else backup[part].astype(np.float64)
            states = [vector[part] for vector in self.state]
            self._apply(values[part], scale * update[part].astype(np.float64), states, those, saved)
        assert begin == self.count, numbers
        return None

    def _apply(
        self,
        values: np.ndarray,
        g: np.ndarray,
        state: list[np.ndarray],
        numbers: dict[str, float],
        backup: np.ndarray | None,
    ) -> None:
        w = values.astype(np.float64)
        if self.kind == "add":
            values[:] = w + g
            return
        rate, decay = numbers["rate"], numbers.get("weight_decay", 0.0)
        if self.kind == "sgd":
            if "compensates" in self.options:
                assert backup is not None
                g = g + numbers["lambda"] * g * g * (w - backup)
            g = g + decay * w
            if "momentum" in self.options:
                momentum = numbers["momentum"]
                old = state[0].astype(np.float64)
                v = g if self.step == 1 else momentum * old + (1 - numbers["dampening"]) * g
                state[0][:] = v
                g = g + momentum * v if "nesterov" in self.options else v
            values[:] = w - rate * g
            return
        if self.kind == "delayed_nesterov":
            part = (g + decay * w) / self.every
            state[0][:] += part
            if self.step % self.every == 0:
                state[1][:] = numbers["momentum"] * state[1] + state[0]
                state[0][:] = 0
                part = part + numbers["momentum"] * state[1]
            values[:] = w - rate * part
            return
        beta1, beta2 = numbers["beta1"], numbers["beta2"]
        if self.kind == "adamw":
            w = w * (1 - rate * decay)
        else:
            g = g + decay * w
        state[0][:] = beta1 * state[0].astype(np.float64) + (1 - beta1) * g
        state[1][:] = beta2 * state[1].astype(np.float64) + (1 - beta2) * g * g
        squares = state[1].astype(np.float64)
        if len(state) == 3:
            state[2][:] = np.maximum(state[2], squares)
            squares = state[2].astype(np.float64)
        divisor = np.sqrt(squares / (1 - beta2**self.step)) + numbers["epsilon"]
        values[:] = w - rate * state[0].astype(np.float64) / (1 - beta1**self.step) / divisor
