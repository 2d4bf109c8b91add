"""Installs what building the packages in the given folders takes: python tools/builders.py FOLDER...

It goes into the environment of the Python that runs this. Builds there go on where the last one ended; builds in an
environment of their own begin anew each time, and compile every kernel again.
"""

from __future__ import annotations

import subprocess
import sys

from build import ProjectBuilder


def install(requirements: set[str]) -> None:
    """All of them with one call of pip; nothing where nothing is needed."""
    if requirements:
        options = ["--quiet", "--disable-pip-version-check", "--no-compile"]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *sorted(requirements)], check=True)


def main(folders: list[str]) -> None:
    builders = [ProjectBuilder(folder) for folder in folders]
    install({needed for builder in builders for needed in builder.build_system_requires})
    # Only now can they say what else is missing on this machine: CMake, Ninja, Node.
    install({needed for builder in builders for needed in builder.get_requires_for_build("editable")})


if __name__ == "__main__":
    main(sys.argv[1:])
