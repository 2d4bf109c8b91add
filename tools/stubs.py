"""Writes src/poolgrad/raw_ops.pyi from the catalog: `python tools/stubs.py`. With --check it only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from poolgrad.catalog import Attribute, Input, Operator, operators

STUB = Path(__file__).parents[1] / "src" / "poolgrad" / "raw_ops.pyi"

HEAD = """\
# Written by tools/stubs.py from the catalog.
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = Any
Ints: TypeAlias = Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]
Floats: TypeAlias = Sequence[float] | npt.NDArray[Any]
"""

TYPES = {"tensor": "Array", "index": "Array", "ints": "Ints", "shape": "Ints", "sequence": "Ints"}
TYPES |= {"floats": "Floats", "int": "SupportsIndex", "bool": "bool", "type": "npt.DTypeLike"}


def stub() -> str:
    """The text of the stub file."""
    return HEAD + "\n" + "".join(map(_declaration, operators.values()))


def _declaration(operator: Operator) -> str:
    result = "Array" if len(operator.outputs) == 1 else f"_{operator.name}"
    fields = "".join(f"    {output}: Array\n" for output in operator.outputs)
    class_ = f"\nclass {result}(NamedTuple):\n{fields}\n" if result != "Array" else ""
    parameters = "".join(f"    {_parameter(p)},\n" for p in operator.parameters)
    return f"{class_}def {operator.name}(\n    *,\n{parameters}    name: str | None = None,\n) -> {result}: ...\n"


def _parameter(p: Input | Attribute) -> str:
    words = "Literal[" + ", ".join(f'"{word}"' for word in p.kind.choices) + "]"
    return f"{p.name}: {words if p.kind.name == 'string' else TYPES[p.kind.name]}{_default(p)}"


def _default(p: Input | Attribute) -> str:
    if isinstance(p, Input) or p.required:
        return ""
    return " = " + (f'"{p.default}"' if isinstance(p.default, str) else "[]" if p.default == () else repr(p.default))


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if STUB.read_text() == stub() else f"{STUB} is out of date: run python tools/stubs.py")
    STUB.write_text(stub())
