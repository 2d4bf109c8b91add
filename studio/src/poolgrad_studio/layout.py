"""Places for blocks: new ones below what is there, and small drawings of whole pages for the gallery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Final

from .document import Document, block_of

COLUMN: Final = 380
ROW: Final = 300
WIDTH: Final = 232
HEIGHT: Final = 150
MOST_COLUMNS: Final = 6
MOST_DRAWN: Final = 400


def layered(names: Iterable[str], wires: Mapping[str, str]) -> list[list[str]]:
    """The blocks in layers: each lies behind everything that feeds it.

    >>> layered(["x", "y", "z"], {"y.a": "x.output", "z.a": "y.output", "z.b": "x.output"})
    [['x'], ['y'], ['z']]
    """
    inside = list(names)
    sources: dict[str, list[str]] = {name: [] for name in inside}
    for target, source in wires.items():
        if block_of(target) in sources and block_of(source) in sources:
            sources[block_of(target)].append(block_of(source))
    depth: dict[str, int] = {}
    for name in TopologicalSorter(sources).static_order():
        depth[name] = max((depth[source] + 1 for source in sources[name]), default=0)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in inside:
        layers[depth[name]].append(name)
    return layers


def arranged(names: Sequence[str], wires: Mapping[str, str]) -> dict[str, list[float]]:
    """Positions in columns, every block as near as can be to the height of what feeds it.

    What has more columns than a screen goes on in the next row:

    >>> chain = {f"b{n}.x": f"b{n - 1}.output" for n in range(1, 8)}
    >>> places = arranged([f"b{n}" for n in range(8)], chain)
    >>> places["b5"], places["b6"]
    ([1900, 0], [0, 300])
    """
    feeding: dict[str, list[str]] = {}
    for target, source in wires.items():
        feeding.setdefault(block_of(target), []).append(block_of(source))
    layers = layered(names, wires)
    placed: dict[str, list[float]] = {}
    top: float = 0
    for begin in range(0, len(layers), MOST_COLUMNS):
        row: dict[str, list[float]] = {}
        for column, layer in enumerate(layers[begin : begin + MOST_COLUMNS]):
            wanted = {name: _mean([row[s][1] for s in feeding.get(name, ()) if s in row]) for name in layer}
            floor = -float("inf")
            for name in sorted(layer, key=lambda name: wanted[name]):
                floor = max(floor + ROW, round(wanted[name]))
                row[name] = [column * COLUMN, floor]
        highest = min(y for _, y in row.values())
        placed |= {name: [x, y - highest + top] for name, (x, y) in row.items()}
        top = max(y for _, y in placed.values()) + ROW
    return placed


def below(before: Document, after: Document, new: Sequence[str]) -> dict[str, list[float]]:
    """Positions for new blocks, in rows below those that have one."""
    known = before["position"].values()
    left = min((x for x, _ in known), default=0)
    bottom = max((y for _, y in known), default=-ROW) + ROW
    return {name: [x + left, y + bottom] for name, (x, y) in arranged(new, after["wire"]).items()}


def miniature(doc: Document, groups: Mapping[str, str]) -> dict[str, Any]:
    """A drawing of a page: rectangles and lines."""
    names = list(doc["block"])[:MOST_DRAWN]
    shown = set(names)
    places: dict[str, Sequence[float]] = dict(arranged(names, doc["wire"]))
    if all(name in doc["position"] for name in names):
        places = {name: doc["position"][name] for name in names}
    blocks = [
        {
            "x": places[name][0], "y": places[name][1], "w": WIDTH, "h": HEIGHT, "name": name,
            "type": doc["block"][name]["type"], "group": groups.get(doc["block"][name]["type"], ""),
        }
        for name in names
    ]  # fmt: skip
    wires = [
        [
            places[block_of(s)][0] + WIDTH,
            places[block_of(s)][1] + HEIGHT / 2,
            places[block_of(t)][0],
            places[block_of(t)][1] + HEIGHT / 2,
        ]
        for t, s in doc["wire"].items()
        if block_of(s) in shown and block_of(t) in shown
    ]
    return {"blocks": blocks, "wires": wires}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
