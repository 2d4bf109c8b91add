"""The examples in the studio's docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import poolgrad_studio

MODULES = [
    m.name for m in pkgutil.iter_modules(poolgrad_studio.__path__, "poolgrad_studio.") if m.name[-8:] != "__main__"
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
