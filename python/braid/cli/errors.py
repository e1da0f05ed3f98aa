# SPDX-License-Identifier: Apache-2.0
"""How a sub-command says that it was called wrongly."""

import importlib.util

from braid import _core, _settings

# For the core's checks of what it reads itself; the rates do not matter.
_ONE_HOST = (
    "topology hosts=0\nwithin alpha_s=1e-6 beta_s_per_byte=1e-9\nbetween alpha_s=1e-6 beta_s_per_byte=1e-9\n"
)
# A script may register backends of its own, which these may name.
_KNOWN_BY_SCRIPTS = ("BRAID_LOCAL_LEG", "BRAID_TAKEOVER")


class CommandError(Exception):
    """Bad input: printed as one line, without a traceback."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        """Keep the one line and the exit code that goes with it."""
        super().__init__(message)
        self.exit_code = exit_code


def check_settings() -> None:
    """Tell of unknown BRAID_* names; CommandError for a setting with a wrong value."""
    try:
        _settings.check(0)
    except ValueError as error:
        raise CommandError(str(error)) from error


def check_settings_of_ranks() -> None:
    """Raise CommandError for a setting that ranks would refuse, before they are started."""
    try:
        _settings.refuse_wrong_values(_KNOWN_BY_SCRIPTS)
        _core.Tuner(_ONE_HOST)
        _check_strategy(_settings.value_of("BRAID_STRATEGY"))
    except ValueError as error:
        raise CommandError(str(error)) from error


def _check_strategy(text: str) -> None:
    if not text or importlib.util.find_spec("torch") is None:  # without torch nothing reads it
        return
    from braid.strategies.text import read

    try:
        read(text)
    except ValueError as error:
        what = str(error).removeprefix(f"strategy {text!r}: ")
        raise ValueError(f"BRAID_STRATEGY={text}: {what}") from None
