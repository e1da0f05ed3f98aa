# SPDX-License-Identifier: Apache-2.0
"""What a user allows to be done to gradients: a default, rules by name and size, an error budget."""

from dataclasses import dataclass

from braid.compression import codecs
from braid.compression.parameter_kinds import PLAIN
from braid.compression.rule import Rule
from braid.compression.text import settings_from_text

# What "auto" may pick, the most exact first. A codec further right loses more and sends less.
BUDGETS: dict[str, tuple[str, ...]] = {
    "16bit": ("bf16",),
    "8bit": ("bf16", "int8"),
    "aggressive": ("bf16", "int8", "int4", "sign", "top_k:0.01", "power_sgd:4"),
}

LEAST_TRIAL = 8  # steps


@dataclass(frozen=True)
class Wish:
    """What a policy wants for a parameter, and why. "auto" is still to be decided by predicted times."""

    codec: str
    reason: str
    by_rule: bool = False


@dataclass(frozen=True)
class CompressionPolicy:
    """What may be done to gradients on their way. Nothing, unless the default or a rule says otherwise.

    The first rule that covers a parameter is taken at its word. The default is for what no rule covers and is
    not better left exact: small parameters, norms, biases and embeddings are.

    Args:
        default: a codec, "exact", or "auto": a codec of the budget where it is predicted to save time, else exact.
        rules: tried in order.
        budget: what "auto" may pick: "16bit", "8bit", "aggressive", or codecs in a tuple.
        warmup_steps: steps at the beginning in which all is exact. At least one, after which DDP sorts its
            buckets anew.
        small_bytes: below it the default leaves a parameter exact.
        least_gain: "auto" compresses where the predicted time, encoding and decoding included, is better by more
            than this part.
        trial_steps: steps after the warm-up in which what "auto" chose is used and left out in turns, to see
            whether steps are faster with it; else it is dropped. None where it is predicted to save half of a
            step. At least 8, or 0: the prediction is taken at its word.
    """

    default: str = codecs.EXACT
    rules: tuple[Rule, ...] = ()
    budget: str | tuple[str, ...] = "8bit"
    warmup_steps: int = 10
    small_bytes: int = 64 << 10
    least_gain: float = 0.10
    trial_steps: int = 24

    def __post_init__(self) -> None:
        """Raise ValueError for what makes no sense."""
        object.__setattr__(self, "default", codecs.checked(self.default))
        object.__setattr__(self, "rules", tuple(self.rules))
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise TypeError(f"rules are of type braid.compression.Rule, not {type(rule).__name__}")
        if isinstance(self.budget, str) and self.budget not in BUDGETS:
            raise ValueError(
                f"budget {self.budget!r}: there is none of that name; there are {', '.join(BUDGETS)}; "
                "or give codecs in a tuple"
            )
        if not isinstance(self.budget, str):
            budget = tuple(codecs.checked(codec) for codec in self.budget)
            if codecs.AUTO in budget or codecs.EXACT in budget or not budget:
                raise ValueError(
                    "a budget is made of one or more codecs; exact is always a candidate, auto is none"
                )
            object.__setattr__(self, "budget", budget)
        if self.warmup_steps < 1:
            raise ValueError("warmup_steps must be at least 1: after the first step DDP sorts its buckets anew")
        if self.small_bytes < 0 or self.least_gain < 0:
            raise ValueError("small_bytes and least_gain must not be negative")
        if self.trial_steps != 0 and self.trial_steps < LEAST_TRIAL:
            raise ValueError(f"trial_steps must be 0 or at least {LEAST_TRIAL}: some with codecs, as many without")

    @staticmethod
    def from_text(text: str) -> "CompressionPolicy":
        """Read a policy from one line, as --compression and BRAID_COMPRESSION have it.

        Comma separated: the default, ``auto:BUDGET`` for auto within a budget, ``PATTERN=CODEC`` for a rule,
        ``PATTERN>=SIZE=CODEC`` or ``PATTERN<SIZE=CODEC`` for one by size too (K, M, G for powers of 1024),
        ``warmup:STEPS`` and ``trial:STEPS``. For example ``auto``, ``int8,head.*=bf16``,
        ``auto:aggressive,*>=4M=power_sgd:4``.

        Raises:
            ValueError: says which part is wrong, and what there is.
        """
        try:
            return CompressionPolicy(**settings_from_text(text))
        except ValueError as error:
            raise ValueError(f"compression {text!r}: {error}") from None

    @property
    def is_exact(self) -> bool:
        """Whether nothing is ever compressed."""
        return all(codec == codecs.EXACT for codec in (self.default, *(rule.codec for rule in self.rules)))

    @property
    def uses_auto(self) -> bool:
        """Whether anything is left to predictions."""
        return codecs.AUTO in (self.default, *(rule.codec for rule in self.rules))

    @property
    def candidates(self) -> tuple[str, ...]:
        """The codecs that "auto" may pick."""
        return BUDGETS[self.budget] if isinstance(self.budget, str) else self.budget

    @property
    def codecs(self) -> tuple[str, ...]:
        """All the codecs that may be used, "exact" and "auto" left out."""
        said = [self.default, *(rule.codec for rule in self.rules)]
        may = [*said, *(self.candidates if self.uses_auto else ())]
        return tuple(codec for codec in may if codec not in (codecs.EXACT, codecs.AUTO))

    def wish(self, name: str, size_bytes: int, kind: str) -> Wish:
        """Return what is wanted for a parameter of a kind (parameter_kinds.kind_of)."""
        for rule in self.rules:
            if rule.covers(name, size_bytes):
                return Wish(rule.codec, f"rule {rule.pattern}", by_rule=True)
        if self.default == codecs.EXACT:
            return Wish(codecs.EXACT, "default")
        if size_bytes < self.small_bytes:
            return Wish(codecs.EXACT, "small")
        return Wish(codecs.EXACT, kind) if kind != PLAIN else Wish(self.default, "default")
