"""A page as a flat map of entries, so that an edit says what it touches and two people's edits can be told apart.

    page      field            title, comment, policy
    block     name             {"type": ..., "attributes": {...}}
    wire      block.pin        the output that feeds it, "block.output"
    position  name             [x, y]
    note      id               a comment or a frame around blocks

An edit is a list of changes `[kind, key, value]`, where None removes the entry. Documents are values: nothing here
changes one in place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Final, TypeAlias

from .problems import Refused

KINDS: Final = ("page", "block", "wire", "position", "note")
FIELDS: Final = ("title", "comment", "policy")
MOST_CHANGES: Final = 50_000
FORMAT: Final = "poolgrad-page"

Document: TypeAlias = Mapping[str, Mapping[str, Any]]
Change: TypeAlias = tuple[str, str, Any]
Entry: TypeAlias = tuple[str, str]


def empty() -> Document:
    """A page with nothing on it."""
    return {kind: {} for kind in KINDS}


def from_file(page: Mapping[str, Any]) -> Document:
    """The entries of a page as its file has it (`Page.to_dict()`).

    >>> page = {"poolgrad-page": 1, "blocks": [{"name": "x", "type": "Const"}, {"name": "y", "type": "Square"}],
    ...         "wires": ["x.output -> y.x"], "layout": {"x": [0, 0]}, "title": "T"}
    >>> from_file(page)["wire"], from_file(page)["block"]["x"]
    ({'y.x': 'x.output'}, {'type': 'Const', 'attributes': {}})
    >>> to_file(from_file(page)) == page
    True
    """
    wires = (wire.split(" -> ") for wire in page.get("wires", ()))
    return {
        "page": {field: page[field] for field in FIELDS if field in page},
        "block": {b["name"]: {"type": b["type"], "attributes": b.get("attributes", {})} for b in page["blocks"]},
        "wire": {target: source for source, target in wires},
        "position": dict(page.get("layout", {})),
        "note": {f"n{i}": note for i, note in enumerate(page.get("notes", ()))},
    }


def to_file(doc: Document) -> dict[str, Any]:
    """The page as its file has it, for `Page.from_dict`."""
    page: dict[str, Any] = {FORMAT: 1}
    page |= {field: doc["page"][field] for field in FIELDS if field in doc["page"]}
    page["blocks"] = [_block(name, block) for name, block in doc["block"].items()]
    page["wires"] = [f"{source} -> {target}" for target, source in doc["wire"].items()]
    if doc["position"]:
        page["layout"] = dict(doc["position"])
    if doc["note"]:
        page["notes"] = list(doc["note"].values())
    return page


def _block(name: str, block: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in block.items() if key != "name" and (key != "attributes" or value)}
    return {"name": name, **rest}


def read_changes(given: object) -> list[Change]:
    """The changes in a message, if that is what they are."""
    if not isinstance(given, list) or len(given) > MOST_CHANGES:
        raise Refused("bad_request", f"changes must be a list of at most {MOST_CHANGES}")
    return [_read_change(change) for change in given]


def _read_change(change: object) -> Change:
    if not (isinstance(change, list) and len(change) == 3 and isinstance(change[1], str)):
        raise Refused("bad_request", "a change is [kind, key, value]")
    kind, key, value = change
    expected = {"block": dict, "wire": str, "position": list, "note": dict}.get(kind, object)
    if kind not in KINDS or (kind == "page" and key not in FIELDS):
        raise Refused("bad_request", f"a page has no entry {kind!r} {key!r}")
    if value is not None and not isinstance(value, expected):
        raise Refused("bad_request", f"{kind} {key!r} cannot be {value!r}")
    return kind, key, value


def applied(doc: Document, changes: Iterable[Change]) -> Document:
    """The document after the changes.

    >>> applied(empty(), [("block", "x", {"type": "Const", "attributes": {}})])["block"]
    {'x': {'type': 'Const', 'attributes': {}}}
    """
    after = {kind: dict(entries) for kind, entries in doc.items()}
    for kind, key, value in changes:
        if value is None:
            after[kind].pop(key, None)
        else:
            after[kind][key] = value
    return after


def difference(before: Document, after: Document) -> list[Change]:
    """The changes that lead from one document to the other."""
    changes: list[Change] = []
    for kind in KINDS:
        old, new = before[kind], after[kind]
        changes += [(kind, key, None) for key in old if key not in new]
        changes += [(kind, key, value) for key, value in new.items() if key not in old or old[key] != value]
    return changes


def orphans(doc: Document) -> list[Change]:
    """What removes wires and positions of blocks that are no more, and their names from notes."""
    blocks = doc["block"]
    changes: list[Change] = [
        ("wire", target, None)
        for target, source in doc["wire"].items()
        if block_of(target) not in blocks or block_of(source) not in blocks
    ]
    changes += [("position", name, None) for name in doc["position"] if name not in blocks]
    for key, note in doc["note"].items():
        members = note.get("blocks")
        if isinstance(members, list) and any(name not in blocks for name in members):
            changes.append(("note", key, {**note, "blocks": [name for name in members if name in blocks]}))
    return changes


def clashes(mine: Sequence[Change], theirs: Sequence[Change]) -> list[Entry]:
    """The entries on account of which my changes cannot follow theirs unseen.

    >>> clashes([("position", "x", [1, 1])], [("position", "y", [2, 2])])
    []
    >>> clashes([("block", "x", None)], [("wire", "y.input", "x.output")])
    [('wire', 'y.input')]
    """
    removed_by_me = {key for kind, key, value in mine if kind == "block" and value is None}
    removed_by_them = {key for kind, key, value in theirs if kind == "block" and value is None}
    written = {(kind, key): value for kind, key, value in theirs}
    found: dict[Entry, None] = {}
    for kind, key, value in mine:
        moved_only = kind == "position" and key in removed_by_me
        if (kind, key) in written and written[kind, key] != value and not moved_only:
            found[kind, key] = None
        found |= {("block", name): None for name in _ends(kind, key, value) if name in removed_by_them}
    for kind, key, value in theirs:
        if any(name in removed_by_me for name in _ends(kind, key, value)):
            found[kind, key] = None
    return list(found)


def _ends(kind: str, key: str, value: Any) -> tuple[str, ...]:
    """The blocks that a new wire needs."""
    return (block_of(key), block_of(value)) if kind == "wire" and value is not None else ()


def block_of(pin: str) -> str:
    """The block of a pin or an output; block names have no dots.

    >>> block_of("layer/pool.output")
    'layer/pool'
    """
    return pin.partition(".")[0]


def signatures(doc: Document) -> dict[str, str]:
    """For every block a hash of all that its results depend on: its type, its attributes and what feeds it."""
    feeds: dict[str, list[tuple[str, str]]] = {name: [] for name in doc["block"]}
    for target, source in doc["wire"].items():
        feeds[block_of(target)].append((target, source))
    policy = json.dumps(doc["page"].get("policy"), sort_keys=True)
    found: dict[str, str] = {}
    for name in _sources_first(feeds):
        block = json.dumps(doc["block"][name], sort_keys=True)
        wires = [(target, source, found[block_of(source)]) for target, source in sorted(feeds[name])]
        found[name] = hashlib.sha1(f"{policy}{block}{wires}".encode()).hexdigest()
    return found


def _sources_first(feeds: Mapping[str, list[tuple[str, str]]]) -> Iterable[str]:
    return TopologicalSorter({name: [block_of(s) for _, s in wires] for name, wires in feeds.items()}).static_order()
