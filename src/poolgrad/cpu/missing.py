"""Stands in for the compiled module where it is missing: every use of it says so."""

from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import MissingKernels


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise MissingKernels(
        "the compiled CPU kernels (poolgrad.cpu._kernels) are missing: build them with `pip install .` in the checkout"
    )


class Block:
    """Memory of the kernels."""


class Plan:
    """A pooling made ready for the kernels."""

    def __init__(self, *_: Any) -> None:
        _refuse()


class Program:
    """What a call does."""

    def __init__(self, *_: Any) -> None:
        _refuse()


def remembering(kinds: str, through_python: Callable[..., tuple[Any, Any]], *_: Any) -> Callable[..., Any]:
    """Calls that are made anew every time."""
    return lambda *arguments: through_python(*arguments)[1]


get_num_threads = set_num_threads = instruction_set = instruction_sets = use_instruction_set = _refuse
new_array = release_memory = _refuse
