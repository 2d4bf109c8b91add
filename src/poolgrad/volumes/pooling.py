"""What users call: pooling one Zarr array into another, and the coarser levels of an OME-Zarr image."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import zarr

from .. import __version__, checks, parts, windows
from ..backends import Numpy
from ..backends.chunks import Job
from ..errors import InvalidArgument, named
from ..policy import Policy, resolve
from ..windows import Pool, Windows
from . import arrays, engine, ngff
from .arrays import ZarrArray, ZarrGroup
from .blocks import MARKERS, Work, block_shape, expect_room
from .engine import Engine, Watcher
from .fingerprint import fingerprint
from .ngff import Level

PerAxis: TypeAlias = int | Sequence[int]
Namer: TypeAlias = Callable[[str], Watcher | None]


def _maximum(on: Numpy, pool: Pool, rule: Policy, x: Any) -> Any:
    return on.maximum(pool, x, rule.nan)


def _minimum(on: Numpy, pool: Pool, rule: Policy, x: Any) -> Any:
    flip = np.invert if x.dtype.kind in "iu" else np.negative
    return flip(on.maximum(pool, flip(x), rule.nan))


def _average(on: Numpy, pool: Pool, rule: Policy, x: Any) -> Any:
    return on.mean(pool, x)


OPS: Final = {"max": _maximum, "min": _minimum, "avg": _average}
"""What the elements of a window can become."""


def pool(
    source: Any,
    target: Any,
    op: str = "max",
    window: PerAxis = 2,
    strides: PerAxis | None = None,
    padding: str | PerAxis = "valid",
    *,
    nan: str | None = None,
    chunks: PerAxis | None = None,
    shards: PerAxis | None = None,
    compression: str = "keep",
    zarr_format: int | None = None,
    cluster: str | None = None,
    threads: int | None = None,
    memory: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    retries: int = 3,
    watch: Watcher | None = None,
) -> ZarrArray:
    """Pools a Zarr array into a new one, which is returned.

    source, target  paths, addresses or stores; the source may be an OME-Zarr image, whose first level is meant
    op              "max", "min" or "avg"
    window, strides, padding   one integer for all axes, or one per axis; fewer than there are axes hold for the last
                    ones. Padding may also be "valid", "same", or "ceil": a last window that hangs over the end is kept
    chunks, shards, compression, zarr_format   of the target; the source's unless given
    cluster         address of a `distributed` scheduler; otherwise `threads` of this process compute
    memory          bytes this process may take (with a cluster: each worker)
    resume          go on with a target that an interrupted run of the same call has left
    """
    try:
        array, target = arrays.opened_array("source", source), arrays.absolute(target)
        arrays.expect_shared(cluster, array, target)
        geometry = _geometry(array.shape, window, strides, padding)
        recipe = _recipe(array, op, geometry, nan)
        layout = {"chunks": chunks, "shards": shards, "compression": compression, "zarr_format": zarr_format}
        with _engine(cluster, threads, memory) as on:
            result, fresh = _target(on, array, target, None, geometry, recipe, layout, resume, overwrite)
            _run(on, array, result, fresh, geometry, recipe, retries, watch)
        return result
    except Exception as error:
        raise named("pool", error) from None


def pyramid(
    source: Any,
    op: str = "max",
    window: PerAxis = 2,
    levels: int | None = None,
    *,
    output: Any = None,
    axes: str | None = None,
    scale: Sequence[float] | None = None,
    unit: str | None = None,
    nan: str | None = None,
    chunks: PerAxis | None = None,
    shards: PerAxis | None = None,
    compression: str = "keep",
    cluster: str | None = None,
    threads: int | None = None,
    memory: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    retries: int = 3,
    watch: Namer | None = None,
) -> ZarrGroup:
    """Adds `levels` coarser levels to an OME-Zarr image, each pooled from the one before; the group is returned.

    The source is an OME-Zarr image, a group with one array in it, or an array. An array that is not in a group cannot
    have levels beside it: then `output` says where the image is made, with a copy of the array as its first level.
    Without `levels` there are as many as it takes until a level is one chunk. Where the window does not divide an axis,
    the last window hangs over its end.

    axes, scale, unit   of an image that has no metadata yet: "zyx", the size of an element per axis, "micrometer"
    watch               gives, for the name of a level, what is told of its progress

    Everything else is as in `pool`.
    """
    try:
        arrays.expect_shared(cluster, source, output)
        checks.choice("op", op, tuple(OPS))
        resolve(nan=nan)
        group, path, image = _image(source, arrays.absolute(output), axes, scale, unit)
        first = ngff.first_level(image, len(image["axes"]))
        sizes = _level_window(window, image["axes"])  # whatever can be refused is, before hours of copying
        names = [axis["name"] for axis in image["axes"]]
        layout = {"chunks": chunks, "shards": shards, "compression": compression, "zarr_format": None, "names": names}
        if path is not None and overwrite:
            _expect_no_level(arrays.opened_array("source", source), group)
        with _engine(cluster, threads, memory) as on:
            if path is not None:  # not in the image yet
                _copy_first_level(on, arrays.opened_array("source", source), group, layout, resume, overwrite, retries,
                                  watch and watch("0"))  # fmt: skip
            made = _add_levels(on, group, first, op, sizes, levels, nan, layout, resume, overwrite, retries, watch)
        details = {"method": f"poolgrad.volumes.pyramid {op}", "version": __version__, "window": _shown(window)}
        arrays.name_dimensions(group[first.path], names)
        ngff.write(group, image, made, op, details)
        return group
    except Exception as error:
        raise named("pyramid", error) from None


# ---------------------------------------------------------------------------------------------------------------------
# One array into another


def _run(
    on: Engine, source: ZarrArray, target: ZarrArray, fresh: bool, geometry: tuple[Windows | None, ...],
    recipe: dict[str, Any], retries: int, watch: Watcher | None,
) -> None:  # fmt: skip
    """Computes what is missing of the target, and says so in its attributes."""
    if target.attrs["poolgrad"].get("complete"):
        return
    if target.size:
        shape = block_shape(source, target.shape, arrays.unit(target), geometry, on.task_memory, 4 * on.workers())
        work = Work(source, target, geometry, _job(source, geometry, recipe), shape)
        on.run(work, None if fresh else work.finished(), retries, watch)
    arrays.remove_all(target, MARKERS)
    target.attrs["poolgrad"] = {**recipe, "complete": True}


def _job(source: ZarrArray, geometry: tuple[Windows | None, ...], recipe: dict[str, Any]) -> Job | None:
    pooled = [w for w in geometry if w is not None]
    if not pooled:
        return None
    first = next(axis for axis, w in enumerate(geometry) if w is not None)
    whole = Pool(tuple(source.shape), first, tuple(pooled))
    dtype = np.dtype(source.dtype)
    kernel = partial(_in_native_order, OPS[recipe["op"]])
    rule = Policy(nan=recipe["nan"])
    return Job(kernel, rule, "i", "o", (dtype,), whole.shape, first, False, parts.sums_of(whole), recipe["op"])


def _in_native_order(kernel: Any, on: Numpy, pool: Pool, rule: Policy, x: Any) -> Any:
    return kernel(on, pool, rule, on.asarray(x))


def _geometry(
    shape: tuple[int, ...], window: PerAxis, strides: PerAxis | None, padding: str | PerAxis
) -> tuple[Windows | None, ...]:
    """The windows of every axis; None before the first and behind the last axis that is pooled."""
    sizes = _per_axis("window", window, len(shape), 1)
    steps = sizes if strides is None else _per_axis("strides", strides, len(shape), 1)
    word = padding.lower() if isinstance(padding, str) else None
    amounts = (0,) * len(shape) if isinstance(padding, str) else _per_axis("padding", padding, len(shape), 0)
    if word not in (None, "valid", "same", "ceil"):
        checks.refuse("padding", padding, "'valid', 'same', 'ceil' or integers")
    found = []
    for n, k, s, p in zip(shape, sizes, steps, amounts, strict=True):
        if word == "same":
            found.append(windows.regular(n, k, s, "SAME"))
        else:
            found.append(windows.explicit(n, k, s, p, p, ceil=word == "ceil"))
        if n and not found[-1].count:
            expected = f"windows that fit: axis {len(found) - 1} has a length of {n}" + f" and padding {p} + {p}" * (
                p > 0
            )
            checks.refuse(
                "window", window, expected if word == "same" else f"{expected}; padding 'same' keeps one window"
            )
    pooled = [axis for axis, (k, s) in enumerate(zip(sizes, steps, strict=True)) if (k, s) != (1, 1)]
    inside = range(pooled[0], pooled[-1] + 1) if pooled else range(0)
    return tuple(w if axis in inside else None for axis, w in enumerate(found))


def _per_axis(name: str, value: PerAxis, rank: int, otherwise: int) -> tuple[int, ...]:
    """One integer for all axes, or as many as there are for the last axes."""
    if not isinstance(value, (list, tuple)):
        return (checks.integer(name, value, at_least=otherwise),) * rank
    values = checks.integers(name, value, at_least=otherwise)
    if len(values) > rank:
        checks.refuse(name, value, f"at most {rank} integers, one per axis")
    return (otherwise,) * (rank - len(values)) + values


def _recipe(source: ZarrArray, op: str, geometry: tuple[Windows | None, ...], nan: str | None) -> dict[str, Any]:
    """What is computed, in the words that stand in the attributes of the target: a run goes on only with its own."""
    checks.choice("op", op, tuple(OPS))
    if not source.shape:
        checks.refuse("source", "a single number", "an array with axes")
    if np.dtype(source.dtype).kind not in "iuf" and source.dtype.name != "bfloat16":
        checks.refuse_type("source", source.dtype, "an array of numbers")
    axes = [None if w is None else [w.window, w.stride, w.before, w.count] for w in geometry]
    known = {"op": op, "windows": axes, "nan": resolve(nan=nan).nan, "from": list(source.shape)}
    return {**known, "source": fingerprint(source)}


def _target(
    on: Engine, source: ZarrArray, store: Any, name: str | None, geometry: tuple[Windows | None, ...],
    recipe: dict[str, Any], layout: dict[str, Any], resume: bool, overwrite: bool,
) -> tuple[ZarrArray, bool]:  # fmt: skip
    """The array to write to, and whether it is new: if not, an interrupted run has left it."""
    _expect_apart(source, store, name)
    there = _existing(store, name)
    if there is None:
        _expect_free(store, name)
    elif not overwrite:
        if not resume:
            problem = "exists already; resume goes on with it, overwrite replaces it"
            raise InvalidArgument(f"target {_called(store, name)} {problem}", argument="target")
        _expect_begun(there, recipe, source, _called(store, name))
        return there, False
    shape = tuple(n if w is None else w.count for n, w in zip(source.shape, geometry, strict=True))
    wanted = {
        key: None if layout[key] is None else _per_axis(key, layout[key], len(shape), 1) for key in ("chunks", "shards")
    }
    chunks, shards = arrays.cut_like(source, shape, **wanted, zarr_format=layout["zarr_format"])
    expect_room(source, shape, shards or chunks, geometry, on.task_memory)  # before anything is made or replaced
    made = arrays.made_like(
        source, store, name, shape, chunks, shards, compression=layout["compression"],
        zarr_format=layout["zarr_format"],
        attributes={"poolgrad": {**recipe, "complete": False}}, overwrite=overwrite,
        dimension_names=layout.get("names"),
    )  # fmt: skip
    return made, True


def _expect_begun(there: Any, recipe: dict[str, Any], source: ZarrArray, target: str) -> None:
    """Refuses to go on with what another call has begun, or with a source that is not what it was then."""
    known = dict(there.attrs).get("poolgrad") if isinstance(there, zarr.Array) else None
    if known is None or any(known.get(key) != value for key, value in recipe.items() if key != "source"):
        problem = f"was not begun by this call ({known or 'it has no record of one'}), so it cannot be resumed"
        raise InvalidArgument(f"target {target} {problem}", argument="resume", given=known)
    then, now = known.get("source"), recipe["source"]
    if then != now:
        before = f"{then['chunks']} chunks, {then['bytes']} bytes" if then else "no record of it"
        problem = f"source {source.store_path} has changed since target {target} was begun"
        counts = f"then {before}; now {now['chunks']} chunks, {now['bytes']} bytes"
        problem = f"{problem} ({counts}; or chunks were written again), so it cannot be resumed; overwrite begins anew"
        raise InvalidArgument(problem, argument="resume", given=then, expected=now)


def _existing(store: Any, name: str | None) -> Any:
    try:
        return zarr.open(store, path=name, mode="r+")
    except (FileNotFoundError, FileExistsError):  # nothing, or a file
        return None


def _expect_apart(source: ZarrArray, store: Any, name: str | None) -> None:
    """Refuses a target that would be written over the source."""
    here, there = arrays.location(source.store_path.store, source.path), arrays.location(store, name)
    if here == there:
        raise InvalidArgument("target is the source", argument="target", given=there)
    if here.startswith(f"{there}/") or there.startswith(f"{here}/"):
        problem = f"target {there} and source {here} lie one inside the other"
        raise InvalidArgument(problem, argument="target", given=there)


def _expect_free(store: Any, name: str | None) -> None:
    """Refuses a place on this machine where something lies that is not Zarr's, also for replacing it."""
    place = arrays.location(store, name)
    if (os.path.isdir(place) and os.listdir(place)) or (os.path.isfile(place) and not place.endswith(".zip")):
        problem = f"target {place} is neither a Zarr array nor free"
        raise InvalidArgument(problem, argument="target", given=place)


def _called(store: Any, name: str | None) -> str:
    return f"{store}/{name}" if name else str(store)


def _engine(address: str | None, threads: int | None, memory: int | None) -> AbstractContextManager[Engine]:
    if threads is not None:
        checks.integer("threads", threads, at_least=1)
    return engine.local(threads, memory) if address is None else engine.cluster(address, memory)


# ---------------------------------------------------------------------------------------------------------------------
# Levels of an image


def _image(
    source: Any, output: Any, axes: str | None, scale: Sequence[float] | None, unit: str | None
) -> tuple[ZarrGroup, str | None, dict[str, Any]]:
    """The group that the levels go to, where its first level must be copied from (None: it is there), and the image."""
    found = arrays.opened("source", source, mode="r" if output is not None else "r+")
    if isinstance(found, zarr.Group) and output is None:
        image = ngff.multiscales(found)
        if image is None:
            name = _only_array(source, found)
            return found, None, _new_image(found[name], name, axes, scale, unit)
        ngff.expect_axes(image, found[image["datasets"][0]["path"]].ndim)
        return found, None, image
    array = arrays.opened_array("source", source)
    if output is None:
        problem = f"{source} is an array, which cannot have levels beside it: say with output where to make the image"
        raise InvalidArgument(problem, argument="output")
    known = ngff.multiscales(found) if isinstance(found, zarr.Group) else None
    if known is not None and (axes, scale, unit) == (None, None, None):
        ngff.expect_axes(known, array.ndim)
        level = ngff.first_level(known, array.ndim)._replace(path="0")
        image = {**known, "datasets": [level.dataset()]}
    else:
        image = _new_image(array, "0", axes, scale, unit)
    _expect_apart(array, output, "0")
    if _existing(output, None) is None:
        _expect_free(output, None)
    group = zarr.open_group(output, mode="a", zarr_format=array.metadata.zarr_format)
    return group, "0", image


def _only_array(source: Any, group: ZarrGroup) -> str:
    names = sorted(name for name, _ in group.arrays())
    if "0" in names or len(names) == 1:
        return "0" if "0" in names else names[0]
    problem = f"{source} has no multiscales metadata and the arrays {names}: which one is meant cannot be known"
    raise InvalidArgument(problem, argument="source", given=names)


def _new_image(
    array: ZarrArray, path: str, axes: str | None, scale: Sequence[float] | None, unit: str | None
) -> dict[str, Any]:
    if scale is not None and len(scale) != array.ndim:
        checks.refuse("scale", scale, f"{array.ndim} numbers, one per axis")
    names = getattr(array.metadata, "dimension_names", None)
    if axes is None and names and all(isinstance(name, str) and len(name) == 1 for name in names):
        axes = "".join(names)
    level = Level(path, tuple(map(float, scale or [1.0] * array.ndim)), (0.0,) * array.ndim)
    return {
        "axes": ngff.axes_of(axes, array.ndim, unit),
        "datasets": [level.dataset()],
        "name": array.basename or "image",
    }


def _copy_first_level(
    on: Engine, array: ZarrArray, group: ZarrGroup, layout: dict[str, Any], resume: bool, overwrite: bool, retries: int,
    watch: Watcher | None,
) -> None:  # fmt: skip
    geometry: tuple[Windows | None, ...] = (None,) * array.ndim
    recipe = _recipe(array, "max", geometry, None)
    place = _inside(group, "0")
    target, fresh = _target(on, array, group.store_path.store, place, geometry, recipe, layout, resume, overwrite)
    _run(on, array, target, fresh, geometry, recipe, retries, watch)


def _add_levels(
    on: Engine, group: ZarrGroup, first: Level, op: str, sizes: tuple[int, ...], levels: int | None, nan: str | None,
    layout: dict[str, Any], resume: bool, overwrite: bool, retries: int, watch: Namer | None,
) -> list[Level]:  # fmt: skip
    made, current = [first], group[first.path]
    stale = overwrite
    while levels is None or len(made) <= levels:
        pooled = [axis for axis, k in enumerate(sizes) if k > 1]
        if levels is None and all(current.shape[axis] <= current.chunks[axis] for axis in pooled):
            break
        steps = tuple(min(k, n) for k, n in zip(sizes, current.shape, strict=True))
        if all(step == 1 for step in steps):
            break
        level = made[-1].coarser(str(len(made)), steps, steps)
        geometry = _geometry(current.shape, steps, None, "ceil")
        recipe = _recipe(current, op, geometry, nan)
        place = _inside(group, level.path)
        target, fresh = _target(on, current, group.store_path.store, place, geometry, recipe, layout, resume, overwrite)
        if stale:  # now, so that no later run takes what is left of them for its own
            _remove_levels(group, keep=(first.path, level.path))
            stale = False
        _run(on, current, target, fresh, geometry, recipe, retries, watch and watch(level.path))
        made.append(level)
        current = target
    if stale:
        _remove_levels(group, keep=(first.path,))
    return made


def _expect_no_level(source: ZarrArray, group: ZarrGroup) -> None:
    """Refuses to replace an image by one that is made of a level of it: the level would be replaced with it."""
    inside = {*ngff.levels_of(group), *(name for name, _ in group.arrays() if name.isdecimal())}
    here = arrays.location(source.store_path.store, source.path)
    if here in {arrays.location(group.store_path.store, _inside(group, name)) for name in inside}:
        problem = f"source {here} is a level of the image that overwrite would replace; choose another output"
        raise InvalidArgument(problem, argument="output", given=here)


def _remove_levels(group: ZarrGroup, keep: tuple[str, ...]) -> None:
    """Removes the levels of the image that was there, and those that an interrupted run has left."""
    ours = [name for name, array in group.arrays() if name.isdecimal() and "poolgrad" in array.attrs]
    old = [path for path in {*ngff.levels_of(group), *ours} if path not in keep]
    ngff.forget_levels(group, old)
    for path in old:
        if path in group:
            del group[path]


def _level_window(window: PerAxis, axes: list[dict[str, str]]) -> tuple[int, ...]:
    """One integer holds for the axes in space: time and channels are not pooled."""
    if isinstance(window, (list, tuple)):
        return _per_axis("window", window, len(axes), 1)
    size = checks.integer("window", window, at_least=1)
    return tuple(size if axis.get("type", "space") == "space" else 1 for axis in axes)


def _inside(group: ZarrGroup, name: str) -> str:
    return f"{group.path}/{name}" if group.path else name


def _shown(window: PerAxis) -> Any:
    return list(window) if isinstance(window, (list, tuple)) else window
