"""Shapes, dtypes and problems of a page before anything runs. What has not changed is not worked out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import PoolgradError
from .blocktypes import BlockType, Call
from .files import Files
from .problems import Problem, TextError
from .values import Spec

if TYPE_CHECKING:
    from .page import Block

Specs = Mapping[str, Spec | tuple[Spec, ...]]


@dataclass(frozen=True)
class Inference:
    """What is known of a page: the tensor of every output, by "block.output", and everything that is wrong."""

    outputs: Mapping[str, Spec]
    problems: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "outputs": {name: spec.to_dict() for name, spec in self.outputs.items()},
            "problems": [problem.to_dict() for problem in self.problems],
        }


class Inferred(NamedTuple):
    """What is known of one block."""

    outputs: tuple[Spec, ...]
    problems: tuple[Problem, ...]


class Memory:
    """What has been worked out for the blocks of a page, each found again while block and inputs are the same."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Any, Inferred]] = {}

    def copy(self) -> Memory:
        """The same memory for a copy of the page."""
        made = Memory()
        made._found = dict(self._found)
        return made

    def infer(self, block: Block, specs: Specs, files: Files) -> Inferred:
        """What is known of the block, given what is known of its inputs."""
        state = files.state(str(block.attributes.get(block.type.reads, ""))) if block.type.reads else ()
        known = self._found.get(block.name)
        if known is not None and known[0][0] is block and known[0][1:] == (specs, state):
            return known[1]
        found = infer_block(block, specs, files)
        self._found[block.name] = ((block, specs, state), found)
        return found


def infer_block(block: Block, specs: Specs, files: Files) -> Inferred:
    """What is known of the block, given what is known of its inputs."""
    values, problems = read_attributes(block)
    problems += _missing(block, specs)
    if not problems:
        try:
            found = block.type.infer(Call(block.type, specs, values, files))
            return Inferred((found,) if isinstance(found, Spec) else tuple(found), ())
        except PoolgradError as error:
            problems = [problem_of(block, error)]
    return Inferred((Spec(),) * len(block.type.outputs), tuple(problems))


def read_attributes(block: Block) -> tuple[dict[str, Any], list[Problem]]:
    """The values of all attributes and typed pins that can be read, and what is wrong with the others."""
    values = {s.name: s.default for s in block.type.settings.values() if s.default is not None}
    problems: list[Problem] = []
    for name, given in block.attributes.items():
        try:
            values[name] = block.type.parse(name, given)
        except PoolgradError as error:
            problems.append(problem_of(block, error, name))
    for pin in block.inputs:
        if block.inputs[pin]:
            values.pop(pin, None)
    return values, problems


def _missing(block: Block, specs: Specs) -> list[Problem]:
    problems: list[Problem] = []
    for pin in block.type.inputs:
        wired, typed = pin.name in specs, pin.name in block.attributes
        if wired and typed:
            problems.append(Problem(block.name, pin.name, f"{pin.name} is wired and typed: remove one of the two"))
        elif pin.required and not wired and not typed:
            how = "wired or typed" if pin.text else "wired"
            problems.append(Problem(block.name, pin.name, f"{pin.name} must be {how}"))
    for attribute in block.type.attributes:
        if attribute.required and attribute.name not in block.attributes:
            problems.append(Problem(block.name, attribute.name, f"{attribute.name} must be given"))
    return problems


def problem_of(block: Block, error: BaseException, place: str | None = None) -> Problem:
    """An error as a remark on the block that it belongs to."""
    position = None
    message = str(error) or type(error).__name__
    if isinstance(error, TextError):
        message, position = error.problem, error.position
    elif isinstance(error, PoolgradError):
        message = str(error.args[0]) if error.args else message
        place = place or place_of(block.type, error.argument)
    return Problem(block.name, place, message, position)


def place_of(type: BlockType, argument: str | None) -> str | None:
    """The pin or attribute that an error's argument is about."""
    name = (argument or "").partition("[")[0].partition(",")[0].strip()
    return name if name in type.pins or name in type.settings else None
