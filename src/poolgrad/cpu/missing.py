"""Stands in for the compiled module where it is missing: every use of it says so."""

from typing import Any, NoReturn

from ..errors import MissingKernels


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise MissingKernels(
        "the compiled CPU kernels (poolgrad.cpu._kernels) are missing: build them with `pip install .` in the checkout"
    )


class Block:
    """Memory of the kernels."""

    def __init__(self, bytes: int) -> None:
        _refuse()


class Plan:
    """A pooling made ready for the kernels."""

    def __init__(self, *_: Any) -> None:
        _refuse()


get_num_threads = set_num_threads = instruction_set = instruction_sets = release_memory = use_instruction_set = _refuse
