"""Everything the documentation shows runs and prints what it says."""

import doctest
import importlib
import pkgutil
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import poolgrad

ROOT = Path(__file__).resolve().parent.parent
MODULES = ["poolgrad"] + [
    m.name
    for m in pkgutil.walk_packages(poolgrad.__path__, "poolgrad.")
    if not m.name.rpartition(".")[2].startswith("_")
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    module = importlib.import_module(name)
    with np.printoptions(legacy=False):
        result = doctest.testmod(
            module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
        )
    assert result.failed == 0


def test_every_operator_shows_an_example():
    """Docstrings built at run time are found too."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in poolgrad.raw_ops.__all__:
        tests = finder.find(
            getattr(poolgrad.raw_ops, name), name, module=False, globs={"np": np, "pg": poolgrad, "poolgrad": poolgrad}
        )
        examples = [t for t in tests if t.examples]
        assert examples, name
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False)
        for test in examples:
            runner.run(test)
        assert runner.failures == 0, name


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages(page, tmp_path, monkeypatch):
    """The Python blocks of a page run one after the other in one namespace; those with >>> print what they say."""
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "page"}
    for number, block in enumerate(blocks(page)):
        if ">>>" in block:
            parsed = doctest.DocTestParser().get_doctest(block, scope, f"{page.name} block {number}", str(page), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False)
            runner.run(parsed, clear_globs=False)
            scope.update(parsed.globs)
            assert runner.failures == 0
        else:
            exec(compile(block, f"{page.name} block {number}", "exec"), scope)


def test_the_readme_shows_code():
    assert blocks(PAGES[0]), "README.md has Python examples"


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(script):
    import subprocess

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
