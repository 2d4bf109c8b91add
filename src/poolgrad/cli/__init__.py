"""The command line: `poolgrad run page.json` and its siblings. Nothing imports this package.

Every module named in `MODULES` adds its commands with `register(app)`; so does every installed package that has an
entry point in the group `poolgrad.commands`. Exit codes: 0 all is well, 1 something failed or was refused, 2 the
command line cannot be understood, 130 stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from .. import __version__

if TYPE_CHECKING:
    import typer

MODULES: Final = ("pages", "operators", "volumes")
"""The modules of this package that have commands, in the order of the help."""

GROUP: Final = "poolgrad.commands"
"""Where other packages announce theirs."""

_HELP = """Pooling and all its derivatives, as programs of blocks.

A page is a file of blocks and wires. Begin with one of the examples:

    poolgrad run examples/maxpool3dgrad.page.json

and see what there is to build with: `poolgrad ops`, `poolgrad show MaxPool3DGrad`.
"""


def application() -> typer.Typer:
    """All commands together."""
    import typer

    app = typer.Typer(
        name="poolgrad",
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"poolgrad {__version__}")
            raise typer.Exit

    def callback(
        version: bool = typer.Option(
            False, "--version", help="Show the version and end.", callback=version, is_eager=True
        ),
    ) -> None:
        pass

    app.callback()(callback)
    for name in MODULES:
        if find_spec(f"{__name__}.{name}") is not None:
            import_module(f"{__name__}.{name}").register(app)
    for entry in metadata.entry_points(group=GROUP):
        try:
            entry.load()(app)
        except Exception as error:  # one broken package must not take all other commands away
            sys.stderr.write(f"poolgrad: the commands of {entry.value} cannot be loaded: {error}\n")
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and ends the process with its exit code."""
    try:
        app = application()
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.exit(f"The command line needs the package {error.name}: pip install 'poolgrad[cli]'")
    sys.exit(_run(app, arguments))


def _run(app: typer.Typer, arguments: Sequence[str] | None) -> int:
    from ..errors import PoolgradError
    from .output import complain

    try:
        app(arguments)
    except PoolgradError as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # somebody ran `poolgrad ops | head`
        sys.stderr.close()
        return 141
    except OSError as error:  # a folder that is not there or may not be written to, a full disk
        complain(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0
