"""A page: blocks and the wires between them, with every change an editor makes to one.

A change is made completely or refused with a `PageError`, and then nothing has happened. Blocks are values: a change
makes a new one, so a copy of a page is cheap and an old one stays as it was. Where blocks stand and what notes say has
no influence on what is computed.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ..errors import PoolgradError
from ..policy import Policy
from . import inference, pagefile
from .blocktypes import BlockType, block_types, to_json
from .files import Files
from .inference import Inference, Inferred
from .problems import PageError, Problem
from .values import Spec, Values

if TYPE_CHECKING:
    from .scope import Scope

LONGEST_NAME: Final = 200
_NAME: Final = re.compile(r"\w[\w-]*(?:/\w[\w-]*)*")
_TARGET: Final = re.compile(r"(?P<block>[^.\s]+)\.(?P<pin>\w+)(?:\[(?P<index>\d{1,6})\])?")
_SOURCE: Final = re.compile(r"(?P<block>[^.\s]+)\.(?P<output>\w+)")


@dataclass(frozen=True, eq=False)
class Block:
    """A block of a page. `inputs` has for every wired pin the outputs that are wired to it, as "block.output"."""

    name: str
    type: BlockType
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def sources(self) -> list[str]:
        """The names of the blocks that it reads from, in the order of the pins."""
        return [source.partition(".")[0] for wires in self.inputs.values() for source in wires]

    def to_dict(self) -> dict[str, Any]:
        """The block as the file has it, without its wires."""
        attributes = {name: to_json(value) for name, value in self.attributes.items()}
        return {"name": self.name, "type": self.type.name} | ({"attributes": attributes} if attributes else {})


class Page:
    """Blocks, wires, and what a person wrote around them.

    >>> page = Page("squares")
    >>> _ = page.add("Const", "x", {"value": "1,2,3"})
    >>> _ = page.add("Square", "y")
    >>> page.wire("x.output", "y.x")
    >>> print(page.infer().outputs["y.output"].text())
    float32 [3]
    """

    def __init__(self, title: str = "", folder: Path | str | None = None) -> None:
        self.title = title
        self.comment = ""
        self.policy = Policy()
        self.layout: dict[str, tuple[float, float]] = {}
        self.notes: list[dict[str, Any]] = []
        self.folder = None if folder is None else Path(folder)
        self._blocks: dict[str, Block] = {}
        self._order: list[str] | None = None
        self._memory = inference.Memory()
        self._sure: dict[str, Inferred] = {}
        self._scopes: set[str] = set()
        self._files: Files | None = None

    # -- reading and writing ------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Page:
        """The page in a file."""
        return pagefile.load(Path(path))

    @classmethod
    def loads(cls, text: str | bytes, folder: Path | str | None = None) -> Page:
        """The page that a file with this text holds."""
        return pagefile.loads(text, None if folder is None else Path(folder))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], folder: Path | str | None = None) -> Page:
        """The page from plain data."""
        return pagefile.from_dict(data, None if folder is None else Path(folder))

    def to_dict(self) -> dict[str, Any]:
        """The page as plain data, the same as in its file."""
        return pagefile.to_dict(self)

    def dumps(self) -> str:
        """The text of its file."""
        return pagefile.dumps(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file: whoever reads it, and whatever happens, finds the old page or the new one whole.

        Large constants move into files beside it.
        """
        pagefile.save(self, Path(path))

    def with_files(self, files: Files) -> Page:
        """The same page, seeing these files."""
        made = self.copy()
        made._files, made._sure = files, {}
        return made

    def copy(self) -> Page:
        """The same page, to be changed independently."""
        made = Page(self.title, self.folder)
        made.comment, made.policy = self.comment, self.policy
        made.layout, made.notes = dict(self.layout), [dict(note) for note in self.notes]
        made._blocks, made._order = dict(self._blocks), self._order
        made._memory, made._sure = self._memory.copy(), dict(self._sure)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Page) and self.dumps() == other.dumps()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Page {self.title!r}: {len(self._blocks)} blocks>"

    # -- looking ------------------------------------------------------------------------------------------------------

    @property
    def blocks(self) -> Mapping[str, Block]:
        """The blocks by name, in the order of the page."""
        return MappingProxyType(self._blocks)

    @property
    def scope(self) -> Scope:
        """The scope at the root of the page, in which `ops` make blocks."""
        from .scope import Scope

        return Scope(self)

    def __getitem__(self, name: str) -> Block:
        """The block of this name."""
        try:
            return self._blocks[name]
        except KeyError:
            raise PageError(f"there is no block {name!r}{_meant(name, self._blocks)}") from None

    def wires(self) -> list[str]:
        """The wires as texts, in the order of the blocks and pins that they lead to."""
        return [
            f"{source} -> {block.name}.{pin.name}" + (f"[{index}]" if pin.many else "")
            for block in self._blocks.values()
            for pin in block.type.inputs
            for index, source in enumerate(block.inputs.get(pin.name, ()))
        ]

    def order(self) -> list[str]:
        """The blocks, each behind all that it reads from."""
        if self._order is None:
            self._order = sorted_blocks(self._blocks)
        return list(self._order)

    def readers(self) -> dict[str, list[str]]:
        """For every block the blocks that read from it."""
        found: dict[str, list[str]] = {name: [] for name in self._blocks}
        for block in self._blocks.values():
            for source in dict.fromkeys(block.sources()):
                found[source].append(block.name)
        return found

    # -- changing -----------------------------------------------------------------------------------------------------

    def add(
        self,
        type: str,
        name: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        at: Sequence[float] | None = None,
    ) -> Block:
        """A new block. Without a name it is called after its type."""
        kind = type_of(type)
        name = self.unique(type) if name is None else self._new_name(name)
        block = Block(name, kind, MappingProxyType(_canonical(kind, attributes or {})))
        place = None if at is None else _place(at)
        self._put_new(block)
        if place is not None:
            self.layout[name] = place
        return block

    def _put_new(self, block: Block) -> None:
        """Nothing reads from a new block, so all that is known of the others stays true."""
        self._blocks[block.name] = block
        self._order = None

    def put_new(self, block: Block) -> tuple[Problem, ...]:
        """Puts a new block on the page with all its wires, unless there is a problem with it."""
        for source in block.sources():
            self._inferred(source)
        problems = self._memory.infer(block, self._specs(block), self._files or Files(self.folder)).problems
        if not problems:
            self._put_new(block)
        return problems

    def remove(self, *names: str) -> None:
        """Takes blocks away, with their wires."""
        gone = {self[name].name for name in names}
        kept = {name: _without_sources(block, gone) for name, block in self._blocks.items() if name not in gone}
        self._replace_all(kept)
        self.layout = {name: at for name, at in self.layout.items() if name not in gone}
        self._note_blocks(lambda name: None if name in gone else name)

    def rename(self, old: str, new: str) -> None:
        """Gives a block another name; wires, layout and notes follow."""
        self[old]
        if old == new:
            return
        self._new_name(new)
        found = {(new if name == old else name): _renamed(block, old, new) for name, block in self._blocks.items()}
        self._replace_all(found)
        self.layout = {(new if name == old else name): at for name, at in self.layout.items()}
        self._note_blocks(lambda name: new if name == old else name)

    def set(self, name: str, attribute: str, value: Any) -> None:
        """Sets an attribute or a typed pin, by value or by text; None takes it back to its default.

        A text that cannot be read stays as it was typed and shows up as a problem.
        """
        block = self[name]
        _known_setting(block.type, attribute)
        attributes = {key: given for key, given in block.attributes.items() if key != attribute}
        if value is not None:
            attributes = in_order(block.type, attributes | _canonical(block.type, {attribute: value}))
        self._replace(replace(block, attributes=MappingProxyType(attributes)))

    def wire(self, source: str, target: str) -> None:
        """Draws a wire. A pin has one wire, which is replaced; one that takes many gets one more, or pin[i]."""
        block, pin, index = self._target(target)
        self._source(source)
        wires = block.inputs.get(pin, ())
        if not block.type.pins[pin].many:
            wires = (source,)
        elif index is None or index == len(wires):
            wires = (*wires, source)
        elif index < len(wires):
            wires = (*wires[:index], source, *wires[index + 1 :])
        else:
            raise PageError(f"{target}: {pin} has {len(wires)} wires, the next one is {pin}[{len(wires)}]")
        if self._reaches(source.partition(".")[0], block.name):
            raise PageError(f"{source} -> {target} would make a cycle")
        attributes = {key: given for key, given in block.attributes.items() if key != pin}
        self._replace(_wired(replace(block, attributes=MappingProxyType(attributes)), pin, wires))

    def unwire(self, target: str) -> None:
        """Takes the wire of a pin away; without an index all wires of a pin that takes many."""
        block, pin, index = self._target(target)
        wires = block.inputs.get(pin, ())
        if not wires or (index is not None and index >= len(wires)):
            raise PageError(f"{target} is not wired")
        left = () if index is None else (*wires[:index], *wires[index + 1 :])
        self._replace(_wired(block, pin, left))

    def refusal(self, source: str, target: str) -> str | None:
        """Why this wire may not be drawn, or None."""
        trial = self.copy()
        try:
            trial.wire(source, target)
        except PageError as error:
            return error.reason
        name, _, pin = target.partition(".")
        pin = pin.partition("[")[0]
        problems = trial._inferred(name).problems
        return next((p.message for p in problems if p.place == pin and p.severity == "error"), None)

    def move(self, name: str, x: float, y: float) -> None:
        """Puts a block somewhere else."""
        self.layout[self[name].name] = _place((x, y))

    def fragment(self, names: Iterable[str]) -> dict[str, Any]:
        """Some blocks and the wires among them, as plain data: what copying takes."""
        part = self.copy()
        kept = {self[name].name for name in names}
        part.remove(*(name for name in self._blocks if name not in kept))
        part.title = part.comment = ""
        part.notes = []
        return part.to_dict()

    def paste(self, fragment: Mapping[str, Any], offset: Sequence[float] = (20, 20)) -> dict[str, str]:
        """Puts the blocks of a fragment on the page, beside their old place, under names that are free; old to new."""
        part = Page.from_dict(fragment, self.folder)
        names: dict[str, str] = {}
        taken = set(self._blocks)
        for name in part._blocks:
            names[name] = unique_name(name, taken)
            taken.add(names[name])
        right, down = _place(offset)
        for block in part._blocks.values():
            made = {pin: tuple(_moved(w, names) for w in wires) for pin, wires in block.inputs.items()}
            self._blocks[names[block.name]] = replace(block, name=names[block.name], inputs=MappingProxyType(made))
        self.layout |= {names[name]: (x + right, y + down) for name, (x, y) in part.layout.items()}
        self._replace_all(self._blocks)
        return names

    def add_gradients(
        self, outputs: Sequence[str], inputs: Sequence[str], scope: str = "gradients"
    ) -> dict[str, list[str]]:
        """Adds the blocks that compute the gradients of the sum of outputs with respect to inputs."""
        from .gradients import add_symbolic_gradients
        from .scope import Output

        trial = self.copy()
        made = add_symbolic_gradients(
            trial.scope.new_sub_scope(scope),
            [Output(trial, *trial._source(o)) for o in outputs],
            [Output(trial, *trial._source(i)) for i in inputs],
            nested=False,
        )
        new = [name for name in trial._blocks if name not in self._blocks]
        self._replace_all(trial._blocks)
        return {"wires": [str(output) for output in made], "blocks": new}

    def widget(self, **options: Any) -> Any:
        """The page in the block editor, in a notebook; needs the package poolgrad-studio."""
        from importlib import metadata

        for entry in metadata.entry_points(group="poolgrad.widgets", name="page"):
            return entry.load()(self, **options)
        raise PageError("the block editor is not installed: pip install 'poolgrad-studio[jupyter]'")

    def to_python(self) -> str:
        """Plain code that computes the same."""
        from .export import to_python

        return to_python(self)

    def unique(self, name: str) -> str:
        """The name, with a number behind it if it is taken."""
        return unique_name(name, self._blocks)

    # -- knowing ------------------------------------------------------------------------------------------------------

    def infer(self) -> Inference:
        """Shapes, dtypes and problems of all blocks."""
        self._sure.clear()
        found: dict[str, Spec] = {}
        problems: dict[str, Inferred] = {}
        for name in self.order():
            problems[name] = self._inferred(name)
        for name, block in self._blocks.items():
            found |= {f"{name}.{o}": s for o, s in zip(block.type.outputs, problems[name].outputs, strict=True)}
        return Inference(found, tuple(p for name in self._blocks for p in problems[name].problems))

    def spec(self, output: str) -> Spec:
        """What is known of one output."""
        name, found = self._source(output)
        return self._inferred(name).outputs[self[name].type.outputs.index(found)]

    def _inferred(self, name: str) -> Inferred:
        if name not in self._sure:
            files = self._files or Files(self.folder)
            for each in self._upstream(name):
                block = self._blocks[each]
                self._sure[each] = self._memory.infer(block, self._specs(block), files)
        return self._sure[name]

    def _specs(self, block: Block) -> dict[str, Spec | tuple[Spec, ...]]:
        return {
            pin.name: tuple(map(self._known, block.inputs.get(pin.name, ())))
            if pin.many
            else self._known(block.inputs[pin.name][0])
            for pin in block.type.inputs
            if pin.many or block.inputs.get(pin.name)
        }

    def _known(self, source: str) -> Spec:
        name, _, output = source.partition(".")
        return self._sure[name].outputs[self._blocks[name].type.outputs.index(output)]

    def _upstream(self, name: str) -> list[str]:
        """What is not known yet of the blocks that lead to this one, in order, and the block itself."""
        found: dict[str, None] = {}
        waiting = [(name, False)]
        while waiting:
            each, ready = waiting.pop()
            if ready:
                found[each] = None
            elif each not in found and each not in self._sure:
                waiting.append((each, True))
                waiting.extend((source, False) for source in self._blocks[each].sources())
        return list(found)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _replace(self, block: Block) -> None:
        self._replace_all(self._blocks | {block.name: block})

    def _replace_all(self, blocks: dict[str, Block]) -> None:
        self._blocks = dict(blocks)
        self._order = None
        self._sure = {}

    def _note_blocks(self, changed: Any) -> None:
        for note in self.notes:
            if "blocks" in note:
                names = [changed(name) for name in note["blocks"]]
                note["blocks"] = [name for name in names if name is not None]

    def _new_name(self, name: str) -> str:
        check_name(name)
        if name in self._blocks:
            raise PageError(f"there is a block {name!r} already")
        return name

    def _source(self, text: str) -> tuple[str, str]:
        found = _SOURCE.fullmatch(text)
        if not found:
            raise PageError(f"{text!r} is not an output: expected block.output")
        block = self[found["block"]]
        if found["output"] not in block.type.outputs:
            outputs = ", ".join(block.type.outputs) or "none"
            raise PageError(f"{block.name} ({block.type.name}) has no output {found['output']!r}; it has {outputs}")
        return block.name, found["output"]

    def _target(self, text: str) -> tuple[Block, str, int | None]:
        found = _TARGET.fullmatch(text)
        if not found:
            raise PageError(f"{text!r} is not a pin: expected block.pin or block.pin[0]")
        block = self[found["block"]]
        pin = block.type.pins.get(found["pin"])
        if pin is None:
            pins = ", ".join(block.type.pins) or "none"
            raise PageError(f"{block.name} ({block.type.name}) has no pin {found['pin']!r}; it has {pins}")
        if found["index"] is not None and not pin.many:
            raise PageError(f"{block.name}.{pin.name} takes one wire and has no index")
        return block, pin.name, None if found["index"] is None else int(found["index"])

    def _reaches(self, start: str, goal: str) -> bool:
        """Whether data flows from `goal` to `start`."""
        seen, waiting = {start}, [start]
        while waiting:
            name = waiting.pop()
            if name == goal:
                return True
            new = [s for s in self._blocks[name].sources() if s not in seen]
            seen.update(new)
            waiting.extend(new)
        return False


# ---------------------------------------------------------------------------------------------------------------------


def check_name(name: object) -> None:
    """Refuses what cannot name a block."""
    plain = isinstance(name, str) and len(name) <= LONGEST_NAME and unicodedata.is_normalized("NFC", name)
    if not plain or not _NAME.fullmatch(str(name)):
        problem = "expected letters, digits, _ and -, with / between the names of scopes"
        raise PageError(f"{str(name)[:50]!r} cannot name a block: {problem}")


def type_of(name: str) -> BlockType:
    """The block type of this name."""
    found = block_types.get(name)
    if found is None:
        raise PageError(f"there is no block type {name!r}{_meant(name, block_types)}")
    return found


def unique_name(name: str, taken: Mapping[str, Any] | set[str]) -> str:
    """The name, with a number behind it if it is taken.

    >>> unique_name("x", {"x", "x_1"})
    'x_2'
    """
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def sorted_blocks(blocks: Mapping[str, Block]) -> list[str]:
    """The names of the blocks, each behind all that it reads from; a PageError names a cycle."""
    done: dict[str, None] = {}
    for first in blocks:
        waiting, path = [(first, False)], dict[str, None]()
        while waiting:
            name, ready = waiting.pop()
            if ready:
                done[name] = None
                path.pop(name, None)
            elif name in path:
                cycle = [*list(path)[list(path).index(name) :], name]
                raise PageError(f"the wires make a cycle: {' <- '.join(cycle)}")
            elif name not in done:
                path[name] = None
                waiting.append((name, True))
                waiting.extend((source, False) for source in reversed(blocks[name].sources()) if source not in done)
    return list(done)


def _meant(name: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name)[:100], list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _known_setting(type: BlockType, name: str) -> None:
    if name not in type.settings:
        has = ", ".join(type.settings) or "none"
        raise PageError(f"{type.name} has no attribute {str(name)[:50]!r}{_meant(name, type.settings)}; it has {has}")


def _canonical(type: BlockType, given: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as values where they can be read, as they are where not."""
    found: dict[str, Any] = {}
    if hasattr(given.get("value"), "dtype") and "dtype" in type.settings:
        given = {"dtype": str(given["value"].dtype.name)} | dict(given)  # an array brings its dtype along
    for name, value in given.items():
        _known_setting(type, name)
        try:
            found[name] = type.parse(name, value)
        except PoolgradError:
            found[name] = _kept(name, value)
    return in_order(type, found)


def in_order(type: BlockType, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults are left out, and the order is that of the declaration."""
    value = attributes.get("value")
    if isinstance(value, Values) and 0 in value.array.shape[:-1] and not attributes.get("shape"):
        attributes = {**attributes, "shape": value.array.shape}  # an empty list does not tell what it is a list of
    return {
        name: attributes[name]
        for name, setting in type.settings.items()
        if name in attributes and not _is_default(setting.default, attributes[name])
    }


def _is_default(default: Any, value: Any) -> bool:
    return default is not None and type(value) is type(default) and bool(value == default)


def _kept(name: str, value: Any) -> Any:
    """What cannot be read, as plain data that a file can hold."""
    if isinstance(value, (list, tuple)):
        return tuple(_kept(name, item) for item in value)
    if isinstance(value, (str, bool)) or (isinstance(value, (int, float)) and math.isfinite(value)):
        return value
    raise PageError(f"{name} is a {type(value).__name__}, expected numbers, texts or lists of them")


def _place(at: Sequence[float]) -> tuple[float, float]:
    try:
        x, y = (float(n) for n in at)
    except (TypeError, ValueError):
        raise PageError(f"{at!r} is not a place: expected [x, y]") from None
    if not (math.isfinite(x) and math.isfinite(y)):
        raise PageError(f"{at!r} is not a place: expected finite numbers")
    return x, y


def _wired(block: Block, pin: str, wires: tuple[str, ...]) -> Block:
    inputs = dict(block.inputs) | {pin: wires}
    ordered = {name: inputs[name] for name in block.type.pins if inputs.get(name)}
    return replace(block, inputs=MappingProxyType(ordered))


def _without_sources(block: Block, gone: set[str]) -> Block:
    if gone.isdisjoint(block.sources()):
        return block
    for pin, wires in block.inputs.items():
        block = _wired(block, pin, tuple(w for w in wires if w.partition(".")[0] not in gone))
    return block


def _moved(source: str, names: Mapping[str, str]) -> str:
    name, _, output = source.partition(".")
    return f"{names.get(name, name)}.{output}"


def _renamed(block: Block, old: str, new: str) -> Block:
    if block.name != old and old not in block.sources():
        return block
    inputs = {pin: tuple(_moved(w, {old: new}) for w in wires) for pin, wires in block.inputs.items()}
    return replace(block, name=new if block.name == old else block.name, inputs=MappingProxyType(inputs))
