# SPDX-License-Identifier: Apache-2.0
"""The command ``braid``. One file per sub-command; this one lists them and makes errors one line each."""

import sys

import typer

from braid._notices import tell
from braid._torch.adapter import AdapterError
from braid.cli import advise, aggregator, bench, build, explain, info, lab, run, serve, topo
from braid.cli.errors import CommandError

app = typer.Typer(
    name="braid",
    help="A communication backend for torch.distributed.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(info.info)
app.command()(build.build)
app.command(context_settings=run.CONTEXT)(run.run)
app.command(context_settings=lab.CONTEXT)(lab.lab)
app.command()(topo.topo)
app.command()(aggregator.aggregator)
app.command()(serve.serve)
app.command("server", hidden=True)(aggregator.under_former_name)
app.command()(explain.explain)
app.command()(advise.advise)
app.add_typer(bench.app)


@app.callback()
def _program() -> None:
    pass


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 2 for bad input, 130 when interrupted.

    Args:
        arguments: the command line without the program's name; ``sys.argv`` when omitted.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        result = app(arguments or ["--help"], prog_name="braid", standalone_mode=False)
    except CommandError as error:
        return _complain(str(error), error.exit_code)
    except AdapterError as error:
        return _complain(str(error), 1)
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
