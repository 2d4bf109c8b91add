"""The page file: strict JSON with one block and one wire a line, read with suspicion and written all or nothing.

Whatever is wrong with a file is refused with its line and the reason. The structure is what `page.schema.json` says;
names, types, pins and wires are checked here.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import PoolgradError
from ..policy import Policy
from .files import write_array
from .problems import PageError
from .values import Values

if TYPE_CHECKING:
    from .page import Page

VERSION: Final = 1
"""The version that is written. Older ones are brought up to it by `MIGRATIONS`."""

MIGRATIONS: Final[dict[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {}
"""For every older version the step to the next one. Version 1 is the first."""

LARGEST: Final = 16 * 2**20
"""Bytes of the largest file that is read."""

DEEPEST: Final = 64
"""How deeply lists may be nested."""

LARGEST_INLINE: Final = 4096
"""How many elements a constant may have to stay in the page; a larger one gets a file of its own."""

Path_: TypeAlias = "tuple[str | int, ...]"


def load(path: Path) -> Page:
    """The page in a file; its folder is the file's."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise PageError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        return loads(content, path.resolve().parent)
    except PageError as error:
        error.source = path.name
        raise


def loads(content: str | bytes, folder: Path | None = None) -> Page:
    """The page that a file with this content holds."""
    text = _decoded(content)
    data = _parsed(text)
    _expect_whole_characters(text)
    try:
        return from_dict(data, folder)
    except _At as error:
        line, column = _line_of(text, error.at)
        raise PageError(error.reason, line=line, column=column, path=_shown(error.at)) from None


class _At(PageError):
    """A refusal that knows where in the data it belongs, but not yet on which line."""

    def __init__(self, reason: str, at: Path_) -> None:
        super().__init__(reason, path=_shown(at))
        self.at = at


def _shown(at: Path_) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at)


# ---------------------------------------------------------------------------------------------------------------------
# From text to data


def _decoded(content: str | bytes) -> str:
    if len(content) > LARGEST:
        raise PageError(f"the file has more than {LARGEST // 2**20} MiB: keep large constants in files beside it")
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PageError("the file is not UTF-8 text", line=line) from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        problem = f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise PageError(problem, line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise PageError("the lists are nested too deeply") from None
    except ValueError as error:  # from the hooks below, or an integer with thousands of digits
        line, column = _line_of_fault(text)
        raise PageError(str(error), line=line, column=column) from None


_ESCAPED_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_HALF: Final = re.compile(r"[\ud800-\udfff]")


def _expect_whole_characters(text: str) -> None:
    """Refuses halves of characters (lone surrogates): JSON can write them, but no file can hold them as text."""
    if _ESCAPED_HALF.search(text) is None:
        return
    for _, begin, token in _places(text):
        if token[0] == '"' and _HALF.search(json.loads(token, strict=False)):
            line, column = _position(text, begin)
            raise PageError("a text has half of a character in it", line=line, column=column)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)[:50]!r} is there twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f'{name} is not JSON; in the value of a constant, write "{name.lower()[:4].strip("i")}" as a text')


def _finite(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise ValueError(f"{digits[:30]} is larger than any number here")
    return found


_TOKEN: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+)')


def _places(text: str) -> Iterator[tuple[Path_, int, str]]:
    """Every value and key of a JSON text: its path, where it begins, and its first token. A key's path ends in ""."""
    path: list[str | int] = []
    kinds: list[str] = []
    key = False
    for found in _TOKEN.finditer(text):
        token, at = found.group(1), found.start(1)
        if token in "}]":
            kinds.pop() if kinds else None
            path.pop() if path else None
            key = False
        elif token == ",":
            key = bool(kinds) and kinds[-1] == "{"
            if kinds and kinds[-1] == "[":
                path[-1] = int(path[-1]) + 1
        elif token == ":":
            key = False
        elif key:
            path[-1] = json.loads(token) if token[0] == '"' else token
            yield (*path, ""), at, token
        else:
            yield tuple(path), at, token
            if token in "{[":
                kinds.append(token)
                path.append("" if token == "{" else 0)
                key = token == "{"


def _line_of(text: str, wanted: Path_) -> tuple[int, int]:
    """Line and column of a value; of the nearest one around it, if it is not there."""
    best, at = -1, 0
    for path, begin, _ in _places(text):
        if path == wanted[: len(path)] and len(path) > best:
            best, at = len(path), begin
            if best == len(wanted):
                break
    return _position(text, at)


def _line_of_fault(text: str) -> tuple[int, int]:
    """Line and column of a number that is none, or of a key that is there twice."""
    keys: set[Path_] = set()
    for path, begin, token in _places(text):
        if path and path[-1] == "":
            if path in keys:
                return _position(text, begin)
            keys.add(path)
        elif token[0] not in '"{[' and not _sound(token):
            return _position(text, begin)
    return 1, 1


def _sound(token: str) -> bool:
    try:
        return token in ("true", "false", "null") or (math.isfinite(float(token)) and len(token) < 4000)
    except ValueError:
        return False


def _position(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


# ---------------------------------------------------------------------------------------------------------------------
# From data to a page


@lru_cache
def schema() -> dict[str, Any]:
    """The JSON Schema of page files."""
    found: dict[str, Any] = json.loads(resources.files(__package__).joinpath("page.schema.json").read_text("utf-8"))
    return found


@lru_cache
def _validator() -> Any:
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        raise PageError("reading pages needs the package jsonschema: pip install 'poolgrad[graph]'") from None
    return Draft202012Validator(schema())


def from_dict(data: Any, folder: Path | None = None) -> Page:
    """The page from plain data."""
    from .page import Page

    data = _current(data)
    _expect_shallow(data)
    _expect_schema(data)
    page = Page(data.get("title", ""), folder)
    page.comment = data.get("comment", "")
    page.policy = Policy(**data.get("policy", {}))
    for number, block in enumerate(data["blocks"]):
        with _located(("blocks", number)):
            page.add(block["type"], block["name"], block.get("attributes"))
    _add_wires(page, data["wires"])
    for name, at in data.get("layout", {}).items():
        with _located(("layout", name)):
            page.move(name, *at)
    for number, note in enumerate(data.get("notes", ())):
        for name in note.get("blocks", ()):
            with _located(("notes", number)):
                page[name]
        page.notes.append({key: list(v) if isinstance(v, list) else v for key, v in note.items()})
    return page


class _located:
    """Says where in the data a refusal belongs."""

    def __init__(self, at: Path_) -> None:
        self.at = at

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PageError) and not isinstance(error, _At):
            raise _At(error.reason, self.at) from None
        if isinstance(error, PoolgradError) and not isinstance(error, PageError):
            raise _At(str(error), self.at) from None


def _current(data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise _At("a page is a JSON object", ())
    version = data.get("poolgrad-page")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _At('this is not a poolgrad page: "poolgrad-page" must be its version', ("poolgrad-page",))
    if version > VERSION:
        problem = f"the page has version {version}, this poolgrad reads up to {VERSION}: install a newer poolgrad"
        raise _At(problem, ("poolgrad-page",))
    found = dict(data)
    for step in range(version, VERSION):
        found = MIGRATIONS[step](found) | {"poolgrad-page": step + 1}
    return found


def _expect_shallow(data: Any) -> None:
    level: list[tuple[Path_, Any]] = [((), data)]
    for _ in range(DEEPEST):
        level = [
            ((*path, key), inner)
            for path, value in level
            if isinstance(value, (dict, list, tuple))
            for key, inner in (value.items() if isinstance(value, dict) else enumerate(value))
            if isinstance(inner, (dict, list, tuple))
        ]
        if not level:
            return
    raise _At("the lists are nested too deeply", level[0][0][:3])


def _expect_schema(data: Any) -> None:
    for error in _validator().iter_errors(_without_numbers(_without_plain(data))):
        at = tuple(error.absolute_path)
        raise _At(f"{_shown(at)[2:] or 'the page'}: {_in_words(error)}", at)


def _without_plain(data: dict[str, Any]) -> dict[str, Any]:
    """The page without blocks, wires and places where all are plainly right: the validator is slow with long lists."""
    blocks, wires, layout = (data.get(key) for key in ("blocks", "wires", "layout"))
    found = dict(data)
    if isinstance(blocks, list) and len(blocks) <= 100_000 and all(map(_plain_block, blocks)):
        found["blocks"] = []
    if isinstance(wires, list) and len(wires) <= 1_000_000 and all(map(_plain_wire, wires)):
        found["wires"] = []
    if type(layout) is dict and all(map(_plain_pair, layout.values())):
        found["layout"] = {}
    return found


def _plain_block(block: Any) -> bool:
    if type(block) is not dict or not {"name", "type"} <= block.keys() <= {"name", "type", "attributes"}:
        return False
    name, kind, attributes = block["name"], block["type"], block.get("attributes", {})
    words = type(name) is str and 1 <= len(name) <= 200 and type(kind) is str and len(kind) <= 200
    return words and type(attributes) is dict and all(map(_plain, attributes.values()))


@lru_cache
def _wire_pattern() -> re.Pattern[str]:
    return re.compile(schema()["$defs"]["wire"]["pattern"])


def _plain_wire(wire: Any) -> bool:
    return type(wire) is str and len(wire) <= 1000 and _wire_pattern().search(wire) is not None


def _plain_pair(place: Any) -> bool:
    return type(place) is list and len(place) == 2 and all(type(at) in (int, float) for at in place)


def _without_numbers(data: dict[str, Any]) -> dict[str, Any]:
    """The page without attributes that are nothing but lists of numbers: the validator is slow with long ones."""
    blocks = data.get("blocks")
    if not isinstance(blocks, list):
        return data
    return data | {"blocks": [_short_block(block) for block in blocks]}


def _short_block(block: Any) -> Any:
    attributes = block.get("attributes") if isinstance(block, dict) else None
    if not isinstance(attributes, dict):
        return block
    return block | {"attributes": {n: [] if isinstance(v, list) and _plain(v) else v for n, v in attributes.items()}}


def _plain(value: Any) -> bool:
    return all(map(_plain, value)) if isinstance(value, list) else isinstance(value, (int, float, str))


def _in_words(error: Any) -> str:
    found = error.message
    if error.validator == "pattern":
        return f"{str(error.instance)[:80]!r} is not a wire: expected block.output -> block.pin"
    return found if len(found) <= 200 else f"{found[:90]} ... {found[-90:]}"


def _add_wires(page: Page, wires: list[str]) -> None:
    """All wires at once: cycles are looked for when all are there."""
    from .page import sorted_blocks

    found: dict[str, dict[str, dict[int, str]]] = {}
    lines: dict[tuple[str, str], int] = {}
    for number, wire in enumerate(wires):
        with _located(("wires", number)):
            source, _, target = wire.partition(" -> ")
            page._source(source)
            block, pin, index = page._target(target)
            if block.type.pins[pin].many != (index is not None):
                raise PageError(f"{target}: {pin} takes many wires, expected {pin}[0], {pin}[1], ...")
            pins = found.setdefault(block.name, {}).setdefault(pin, {})
            if (index or 0) in pins:
                raise PageError(f"{target} is wired twice")
            pins[index or 0] = source
            lines[(block.name, pin)] = number
    blocks = dict(page._blocks)
    for name, wired in found.items():
        for pin, sources in wired.items():
            if sorted(sources) != list(range(len(sources))):
                missing = next(i for i in range(len(sources)) if i not in sources)
                raise _At(f"{name}.{pin}[{missing}] is not wired, but a later one is", ("wires", lines[(name, pin)]))
        made = {
            pin: tuple(wired[pin][i] for i in range(len(wired[pin]))) for pin in page[name].type.pins if pin in wired
        }
        blocks[name] = replace(page[name], inputs=MappingProxyType(made))
    try:
        order = sorted_blocks(blocks)
    except PageError as error:
        raise _At(error.reason, ("wires", _closing_wire(error.reason, lines))) from None
    page._replace_all(blocks)
    page._order = order


def _closing_wire(reason: str, lines: Mapping[tuple[str, str], int]) -> int:
    names = set(reason.partition(": ")[2].split(" <- "))
    return max((number for (name, _), number in lines.items() if name in names), default=0)


# ---------------------------------------------------------------------------------------------------------------------
# From a page to text


def to_dict(page: Page) -> dict[str, Any]:
    """The page as plain data."""
    found: dict[str, Any] = {"poolgrad-page": VERSION}
    if page.title:
        found["title"] = page.title
    if page.comment:
        found["comment"] = page.comment
    if page.policy != Policy():
        found["policy"] = page.policy._asdict()
    found["blocks"] = [block.to_dict() for block in page.blocks.values()]
    found["wires"] = page.wires()
    layout = {name: [_short(n) for n in page.layout[name]] for name in page.blocks if name in page.layout}
    if layout:
        found["layout"] = layout
    if page.notes:
        found["notes"] = [dict(note) for note in page.notes]
    return found


def _short(number: float) -> float | int:
    return int(number) if number == int(number) and abs(number) < 2**53 else number


def dumps(page: Page) -> str:
    """The text of the page's file.

    >>> from poolgrad.graph import Page
    >>> page = Page("one block")
    >>> _ = page.add("Const", "x", {"value": [1, 2]}, at=(40, 80))
    >>> print(page.dumps(), end="")
    {
      "poolgrad-page": 1,
      "title": "one block",
      "blocks": [
        {"name": "x", "type": "Const", "attributes": {"value": [1, 2]}}
      ],
      "wires": [],
      "layout": {
        "x": [40, 80]
      }
    }
    """
    parts = [f"  {_json(key)}: {_lines(value)}" for key, value in to_dict(page).items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _lines(value: Any) -> str:
    """A list or an object of the page, one entry a line."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_json(item)}" for item in value) + "\n  ]"
    if isinstance(value, dict) and value and all(isinstance(v, list) for v in value.values()):
        return "{\n" + ",\n".join(f"    {_json(key)}: {_json(item)}" for key, item in value.items()) + "\n  }"
    return _json(value)


# ---------------------------------------------------------------------------------------------------------------------
# From a page to a file


def save(page: Page, path: Path) -> None:
    """Writes the page, and beside it the constants that are too large for it."""
    path = Path(os.path.realpath(path))
    _expect_readable(page)
    try:
        _save_constants(page, path)
        replace_file(path, dumps(page).encode())
    except OSError as error:
        raise PageError(f"{path} cannot be written: {error.strerror or error}") from None
    except UnicodeEncodeError:
        raise PageError(f"{path} cannot be written: a text has half of a character in it") from None
    page.folder = path.parent


def _expect_readable(page: Page) -> None:
    """Refuses texts and notes that no reader would take, before the old file is touched. Blocks are sound already."""
    data = to_dict(page)
    try:
        _expect_schema(json.loads(_json(data | {"blocks": [], "wires": []})))
    except (TypeError, ValueError) as error:
        raise PageError(f"the page cannot be written: {error}") from None


def replace_file(path: Path, content: bytes) -> None:
    """Puts a new file in the place of an old one in a single step, after the new one is safely on the disk."""
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(made, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        os.replace(made, path)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Makes the new name last; not every system lets a folder be opened for that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@lru_cache
def _umask() -> int:
    """What new files may not allow. Reading it means setting it, so it is read once."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _save_constants(page: Page, path: Path) -> None:
    """Files are named by their contents, so that the page in the old file keeps the constants it had."""
    for block in list(page.blocks.values()):
        value, file = block.attributes.get("value"), block.attributes.get("file")
        if isinstance(value, Values) and value.array.size > LARGEST_INLINE:
            page._replace(_moved_out(block, value, path))
        elif isinstance(file, str) and block.type.name == "Const" and page.folder not in (None, path.parent):
            _bring_along(page.folder or Path(), path.parent, file.partition(":")[0])


def _moved_out(block: Any, value: Values, path: Path) -> Any:
    values = block.type.values(block.attributes)
    numbers = value.cast(values["dtype"], values["shape"])
    stem = path.name.removesuffix(".json").removesuffix(".page")
    name = f"{stem}.data/{block.name.replace('/', '.')}-{value.digest[:8]}.npy"
    target = path.parent / name
    target.parent.mkdir(exist_ok=True)
    if not target.exists():
        write_array(target, numbers)
    return replace(block, attributes=MappingProxyType({"file": name}))


def _bring_along(old: Path, new: Path, name: str) -> None:
    source, target = old / name, new / name
    if (
        source.is_file()
        and not target.exists()
        and Path(os.path.realpath(source)).is_relative_to(os.path.realpath(old))
    ):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
