# SPDX-License-Identifier: Apache-2.0
"""Lists the sub-commands of ``braid``, which have a file each, and makes errors one line each."""

import sys
from typing import Annotated

import typer

from braid import _core
from braid._errors import NO_TORCH
from braid._notices import tell
from braid._torch.adapter import AdapterError
from braid.cli import advise, aggregator, bench, build, compare, explain, info, lab, serve, topo
from braid.cli import run as run_command
from braid.cli.errors import CommandError

app = typer.Typer(
    name="braid",
    help="A communication backend for torch.distributed.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(info.info)
app.command()(build.build)
app.command(context_settings=run_command.CONTEXT)(run_command.run)
app.command(context_settings=lab.CONTEXT)(lab.lab)
app.command()(topo.topo)
app.command()(aggregator.aggregator)
app.command()(serve.serve)
app.command("server", hidden=True)(aggregator.under_former_name)
app.command()(explain.explain)
app.command()(advise.advise)
app.command(context_settings=compare.CONTEXT)(compare.compare)
app.add_typer(bench.app)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        print(f"braid {_core.version}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    pass


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; see main()."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        result = app(arguments or ["--help"], prog_name="braid", standalone_mode=False)
    except CommandError as error:
        return _complain(str(error), error.exit_code)
    except AdapterError as error:
        return _complain(str(error), 1)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        return _complain(f"this command needs torch: {NO_TORCH}", 1)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        # Usage errors have these two in every typer, whichever click it brings along.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        return _complain(message(), int(getattr(error, "exit_code", 2)))
    return result if isinstance(result, int) else 0


def _complain(line: str, exit_code: int) -> int:
    tell(line)
    return exit_code
