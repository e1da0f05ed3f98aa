# SPDX-License-Identifier: Apache-2.0
"""The compression that a user allows: a default, rules by name and size, an error budget."""

from dataclasses import dataclass

from braid.compression import codecs
from braid.compression.parameter_kinds import PLAIN
from braid.compression.rule import Rule
from braid.compression.text import settings_from_text

# The codecs that "auto" may pick. Each loses more and sends less than the one before it.
BUDGETS: dict[str, tuple[str, ...]] = {
    "16bit": ("bf16",),
    "8bit": ("bf16", "int8"),
    "aggressive": ("bf16", "int8", "int4", "sign", "top_k:0.01", "power_sgd:4"),
}

LEAST_TRIAL = 8  # steps


@dataclass(frozen=True)
class Wish:
    """The codec that a policy wants for a parameter, and the reason. Predicted times decide about "auto"."""

    codec: str
    reason: str
    by_rule: bool = False


@dataclass(frozen=True)
class CompressionPolicy:
    """Which gradients may be compressed, and how. Without a default or a rule all stay exact.

    The first rule that covers a parameter decides. The default applies to all other parameters, but small ones,
    norms, biases and embeddings stay exact.

    Args:
        default: a codec, "exact", or "auto": a codec of the budget if it is predicted to save time, else exact.
        rules: rules in the order in which they are tried.
        budget: the codecs that "auto" may pick: "16bit", "8bit", "aggressive", or a tuple of codecs.
        warmup_steps: the number of first steps in which all gradients are exact. At least one: DDP sorts its
            buckets anew after the first step.
        small_bytes: the default leaves parameters below this size exact.
        least_gain: "auto" compresses if the predicted time, with encoding and decoding, is better by more than
            this part.
        trial_steps: steps of the trial after the warm-up; at least 8, or 0 for no trial. These steps use and leave
            out in turns the codecs that "auto" chose. The codecs are dropped if steps are not faster with them.
            There is no trial if the codecs are predicted to save more than half of a step.
    """

    default: str = codecs.EXACT
    rules: tuple[Rule, ...] = ()
    budget: str | tuple[str, ...] = "8bit"
    warmup_steps: int = 10
    small_bytes: int = 64 << 10
    least_gain: float = 0.10
    trial_steps: int = 24

    def __post_init__(self) -> None:
        """Check the settings; ValueError says which one is wrong."""
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
        """Read a policy from the text of --compression or BRAID_COMPRESSION.

        Its parts are separated by commas. ``CODEC`` or ``auto`` is the default; ``auto:BUDGET`` sets the budget,
        too. ``PATTERN=CODEC`` is a rule. ``PATTERN>=SIZE=CODEC`` and ``PATTERN<SIZE=CODEC`` are rules by size (K,
        M, G are powers of 1024). ``warmup:STEPS`` and ``trial:STEPS`` set steps. For example ``auto``,
        ``int8,head.*=bf16``, ``auto:aggressive,*>=4M=power_sgd:4``.

        Raises:
            ValueError: a part is wrong; the message names it and the possible values.
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
        """Whether "auto" is the default or in a rule."""
        return codecs.AUTO in (self.default, *(rule.codec for rule in self.rules))

    @property
    def candidates(self) -> tuple[str, ...]:
        """The codecs that "auto" may pick."""
        return BUDGETS[self.budget] if isinstance(self.budget, str) else self.budget

    @property
    def codecs(self) -> tuple[str, ...]:
        """All codecs that may be used, without "exact" and "auto"."""
        said = [self.default, *(rule.codec for rule in self.rules)]
        may = [*said, *(self.candidates if self.uses_auto else ())]
        return tuple(codec for codec in may if codec not in (codecs.EXACT, codecs.AUTO))

    def wish(self, name: str, size_bytes: int, kind: str) -> Wish:
        """Return the codec for a parameter; `kind` is from parameter_kinds.kind_of()."""
        for rule in self.rules:
            if rule.covers(name, size_bytes):
                return Wish(rule.codec, f"rule {rule.pattern}", by_rule=True)
        if self.default == codecs.EXACT:
            return Wish(codecs.EXACT, "default")
        if size_bytes < self.small_bytes:
            return Wish(codecs.EXACT, "small")
        return Wish(codecs.EXACT, kind) if kind != PLAIN else Wish(self.default, "default")
