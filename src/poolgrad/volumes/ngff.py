"""OME-NGFF image metadata: version 0.4 for Zarr 2, 0.5 for Zarr 3. What is there is kept; levels are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from ..errors import InvalidArgument
from .arrays import ZarrGroup

Multiscales: TypeAlias = dict[str, Any]

DEFAULT_AXES = {1: "x", 2: "yx", 3: "zyx", 4: "czyx", 5: "tczyx"}
KINDS = {"t": "time", "c": "channel"}


class Level(NamedTuple):
    """A level of a pyramid: where it is, how large its elements are, and where the centre of the first one lies."""

    path: str
    scale: tuple[float, ...]
    translation: tuple[float, ...]

    def coarser(self, path: str, windows: Sequence[int], strides: Sequence[int]) -> Level:
        """The next level: its elements lie in the middle of their windows."""
        moved = [t + (w - 1) / 2 * s for t, w, s in zip(self.translation, windows, self.scale, strict=True)]
        return Level(path, tuple(s * n for s, n in zip(self.scale, strides, strict=True)), tuple(moved))

    def dataset(self) -> dict[str, Any]:
        """The level as the metadata has it."""
        transformations: list[dict[str, Any]] = [{"type": "scale", "scale": list(self.scale)}]
        if any(self.translation):
            transformations.append({"type": "translation", "translation": list(self.translation)})
        return {"path": self.path, "coordinateTransformations": transformations}


def multiscales(group: ZarrGroup) -> Multiscales | None:
    """The first image of a group; None if it has none."""
    attributes = dict(group.attrs)
    found = attributes.get("ome", attributes).get("multiscales")
    return found[0] if found else None


def expect_axes(image: Multiscales, rank: int) -> None:
    """Refuses metadata to which levels cannot be added: of older versions, which do not say what their axes are."""
    axes = image.get("axes")
    sound = isinstance(axes, list) and len(axes) == rank and all(isinstance(a, dict) and "name" in a for a in axes)
    if not sound:
        given = f"version {image.get('version', 'unknown')}, axes {axes}"
        problem = f"the metadata of the image ({given}) is not OME-NGFF 0.4 or 0.5 for an array of {rank} axes"
        raise InvalidArgument(problem, argument="source", given=axes)


def axes_of(given: str | None, rank: int, units: str | None) -> list[dict[str, str]]:
    """The axes by their letters: t and c are what they are called, all others are in space."""
    letters = given or DEFAULT_AXES.get(rank)
    if letters is None or len(letters) != rank or len(set(letters)) != rank:
        expected = f"{rank} distinct letters such as {DEFAULT_AXES.get(rank, 'tczyx')!r}"
        raise InvalidArgument(f"axes is {given!r}, expected {expected}", argument="axes", given=given)
    found = []
    for letter in letters:
        kind = KINDS.get(letter, "space")
        unit = {"unit": units} if units and kind == "space" else {}
        found.append({"name": letter, "type": kind, **unit})
    return found


def first_level(image: Multiscales, rank: int) -> Level:
    """The level of full resolution of an image."""
    dataset = image["datasets"][0]
    found = {t["type"]: t[t["type"]] for t in dataset.get("coordinateTransformations", []) if t["type"] in t}
    scale = tuple(map(float, found.get("scale", [1.0] * rank)))
    translation = tuple(map(float, found.get("translation", [0.0] * rank)))
    return Level(dataset["path"], scale, translation)


def levels_of(group: ZarrGroup) -> list[str]:
    """Where the levels of the first image of a group are."""
    image = multiscales(group)
    return [] if image is None else [dataset["path"] for dataset in image["datasets"]]


def forget_levels(group: ZarrGroup, paths: Sequence[str]) -> None:
    """Takes these levels out of the first image of a group; everything else stays."""
    attributes = dict(group.attrs)
    place = attributes.get("ome", attributes)
    found = place.get("multiscales")
    if not found:
        return
    left = [dataset for dataset in found[0]["datasets"] if dataset["path"] not in paths]
    images = [{**found[0], "datasets": left}, *found[1:]]
    if "ome" in attributes:
        group.attrs["ome"] = {**place, "multiscales": images}
    else:
        group.attrs["multiscales"] = images


def write(group: ZarrGroup, image: Multiscales, levels: Sequence[Level], op: str, details: dict[str, Any]) -> None:
    """Writes the image with these levels into the attributes of the group."""
    version = "0.4" if group.metadata.zarr_format == 2 else "0.5"
    kept = {key: value for key, value in image.items() if key not in ("datasets", "version", "type", "metadata")}
    made = {**kept, "datasets": [level.dataset() for level in levels], "type": op, "metadata": details}
    if version == "0.4":
        others = list(dict(group.attrs).get("multiscales", []))[1:]
        group.attrs["multiscales"] = [{"version": version, **made}, *others]
    else:
        before = dict(group.attrs).get("ome", {})
        others = list(before.get("multiscales", []))[1:]
        group.attrs["ome"] = {**before, "version": version, "multiscales": [made, *others]}
