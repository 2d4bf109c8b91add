"""`python -m poolgrad_studio`: the same as `poolgrad studio`."""

import typer

from .command import studio

if __name__ == "__main__":
    typer.run(studio)
