"""Places for blocks: new ones beside what is there, and small drawings of whole pages for the gallery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Final

from .document import Document, block_of

COLUMN: Final = 380
ROW: Final = 300
WIDTH: Final = 232
HEIGHT: Final = 150
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


def arranged(
    names: Sequence[str], wires: Mapping[str, str], known: Mapping[str, Sequence[float]]
) -> dict[str, list[float]]:
    """Positions in columns, every block as near as can be to the height of what feeds it."""
    heights: dict[str, float] = {name: place[1] for name, place in known.items()}
    feeding: dict[str, list[str]] = {}
    for target, source in wires.items():
        feeding.setdefault(block_of(target), []).append(block_of(source))
    placed: dict[str, list[float]] = {}
    for column, layer in enumerate(layered(names, wires)):
        wanted = {name: _mean([heights[s] for s in feeding.get(name, ()) if s in heights]) for name in layer}
        floor = -float("inf")
        for name in sorted(layer, key=lambda name: wanted[name]):
            floor = max(floor + ROW, round(wanted[name]))
            placed[name] = [column * COLUMN, floor]
            heights[name] = floor
    return placed


def beside(before: Document, after: Document, new: Sequence[str]) -> dict[str, list[float]]:
    """Positions for new blocks, to the right of those that have one."""
    known = before["position"]
    edge = max((place[0] for place in known.values()), default=-COLUMN) + COLUMN
    places = arranged(new, after["wire"], known)
    return {name: [x + edge, y] for name, (x, y) in places.items()}


def miniature(doc: Document, groups: Mapping[str, str]) -> dict[str, Any]:
    """A drawing of a page: rectangles and lines."""
    names = list(doc["block"])[:MOST_DRAWN]
    shown = set(names)
    places: dict[str, Sequence[float]] = dict(arranged(names, doc["wire"], {}))
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
