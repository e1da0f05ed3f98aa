# SPDX-License-Identifier: Apache-2.0
"""``braid build``: compiles the torch adapter ahead of its first use."""

from pathlib import Path
from typing import Annotated

import typer

from braid._torch.adapter import Compiler, PackageFiles, TorchInstall, build_adapter, export_adapter, find_adapter
from braid.cli.errors import CommandError


def build(
    force: Annotated[bool, typer.Option("--force", help="Compile again, even if it is there already.")] = False,
    into: Annotated[
        Path | None,
        typer.Option(help="Also copy it into this folder, laid out as in braid/prebuilt of a wheel."),
    ] = None,
) -> None:
    """Compile the adapter for the installed torch now, rather than when the first group is created."""
    torch = TorchInstall.current()
    package = PackageFiles.installed()
    compiler = Compiler.find()
    ready = None if force else find_adapter(torch, package, compiler)
    path = ready or build_adapter(torch, package, compiler, force=force)
    print(path)
    if into is not None:
        try:
            print(export_adapter(path, torch, into))
        except OSError as error:
            raise CommandError(f"--into: cannot write into {into}: {error.strerror}") from None
