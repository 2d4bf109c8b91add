"""Zarr arrays: finding the one that is meant, and making one like another. Formats 2 and 3, sharded or not."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numcodecs
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, WrapperStore

from ..errors import InvalidArgument

ZarrArray: TypeAlias = Any
ZarrGroup: TypeAlias = Any


def opened(name: str, path: Any, mode: str = "r") -> ZarrArray | ZarrGroup:
    """The array or group at a path, an address or in a store."""
    if isinstance(path, zarr.Array | zarr.Group):
        store = path.store_path.store
        if not isinstance(store, LocalStore) or store.root.is_absolute():
            return path
        return zarr.open(LocalStore(absolute(store.root), read_only=store.read_only), path=path.path, mode=mode)
    try:
        return zarr.open(absolute(path), mode=mode)
    except FileNotFoundError:
        raise InvalidArgument(f"{name}: there is no Zarr array or group at {path}", argument=name, given=path) from None


def opened_array(name: str, path: Any) -> ZarrArray:
    """The array at a path; of an OME-Zarr image the level of full resolution."""
    found = opened(name, path)
    if isinstance(found, zarr.Array):
        return found
    from .ngff import multiscales

    levels = multiscales(found)
    if levels is None:
        problem = f"{name}: {path} is a group with {', '.join(sorted(found)) or 'nothing'} in it, expected an array"
        raise InvalidArgument(problem, argument=name, given=path)
    return found[levels["datasets"][0]["path"]]


def absolute(path: Any) -> Any:
    """A local path from the root on, so that it means the same folder to workers that were started elsewhere."""
    return os.path.abspath(path) if _is_local(path) else path


def location(store: Any, path: str | None = None) -> str:
    """Where something is, links followed: equal for all names of one place."""
    store = innermost(store)
    store = store.root if isinstance(store, LocalStore) else store
    text = str(store).removeprefix("file://")
    store = os.path.realpath(text) if _is_local(text) else text
    return os.path.join(store, path or "").rstrip("/")


def _is_local(path: Any) -> bool:
    return isinstance(path, str | os.PathLike) and "://" not in str(path)


def expect_shared(address: str | None, *places: Any) -> None:
    """Refuses stores in the memory of this process for a cluster: its workers would each have one of their own."""
    if address is None or address.startswith("inproc"):
        return
    for place in places:
        found = place.store_path.store if isinstance(place, zarr.Array | zarr.Group) else place
        if isinstance(innermost(found), MemoryStore):
            problem = f"{found} is in the memory of this process, which the workers at {address} cannot see"
            raise InvalidArgument(problem, argument="cluster", given=address)


def innermost(store: Any) -> Any:
    """The store that holds the data, without what is wrapped around it."""
    while isinstance(store, WrapperStore):
        store = store._store
    return store


def unit(array: ZarrArray) -> tuple[int, ...]:
    """What is written in one piece: a shard, or a chunk where there are none."""
    return tuple(array.shards or array.chunks)


def keys_of(array: ZarrArray, cells: Iterable[tuple[int, ...]]) -> list[str]:
    """Where the pieces with these numbers are stored."""
    prefix = f"{array.path}/" if array.path else ""
    return [prefix + array.metadata.encode_chunk_key(cell) for cell in cells]


def present(array: ZarrArray, keys: Sequence[str]) -> list[bool]:
    """Which of the keys are stored."""
    store = array.store_path.store

    async def ask() -> list[bool]:
        return list(await asyncio.gather(*map(store.exists, keys)))

    return list(sync(ask()))


def expect_within_reach(array: ZarrArray) -> None:
    """Refuses an array that this process cannot see. Its chunks would be taken for ones that are not stored: for the
    fill value."""
    key = "zarr.json" if array.metadata.zarr_format == 3 else ".zarray"
    if not present(array, [f"{array.path}/{key}" if array.path else key])[0]:
        raise InvalidArgument(f"there is no {array.store_path} where this task runs", given=str(array.store_path))


def all_keys(array: ZarrArray) -> set[str]:
    """Everything that is stored of the array."""

    async def collect() -> set[str]:
        return {key async for key in array.store_path.store.list_prefix(f"{array.path}/" if array.path else "")}

    found: set[str] = sync(collect())
    return found


def put(array: ZarrArray, key: str, data: bytes) -> None:
    """Stores some bytes beside the chunks of the array."""
    sync(array.store_path.store.set(key, zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)))


def remove_all(array: ZarrArray, folder: str) -> None:
    """Removes everything under a folder beside the chunks of the array."""
    sync(array.store_path.store.delete_dir(f"{array.path}/{folder}" if array.path else folder))


def name_dimensions(array: ZarrArray, names: Sequence[str]) -> None:
    """Names the dimensions of a Zarr 3 array that has no names for them, as OME-NGFF wants it."""
    if array.metadata.zarr_format == 3 and array.metadata.dimension_names is None:
        metadata = {**array.metadata.to_dict(), "dimension_names": list(names)}
        put(array, f"{array.path}/zarr.json" if array.path else "zarr.json", json.dumps(metadata, indent=2).encode())


def cut_like(
    source: ZarrArray,
    shape: tuple[int, ...],
    *,
    chunks: tuple[int, ...] | None,
    shards: tuple[int, ...] | None,
    zarr_format: int | None,
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Chunks and shards for an array of this shape: those of the source unless others are given."""
    form = zarr_format or source.metadata.zarr_format
    if form == 2 and shards is not None:
        raise InvalidArgument("shards need Zarr format 3", argument="shards", given=shards)
    if shards is None and chunks is None and form == 3 and source.shards is not None:
        shards = source.shards
    chunks = tuple(max(1, min(n, size)) for n, size in zip(chunks or source.chunks, shape, strict=True))
    if shards is not None:  # a shard is whole chunks
        shards = tuple(max(c, min(s, -(-n // c) * c) // c * c) for s, c, n in zip(shards, chunks, shape, strict=True))
    return chunks, shards


def made_like(
    source: ZarrArray,
    store: Any,
    name: str | None,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    shards: tuple[int, ...] | None,
    *,
    compression: str = "keep",
    zarr_format: int | None = None,
    attributes: dict[str, Any] | None = None,
    dimension_names: Sequence[str] | None = None,
    overwrite: bool = False,
) -> ZarrArray:
    """A new array with the dtype of the source, and with its format and compression unless others are given."""
    form = zarr_format or source.metadata.zarr_format
    names = dimension_names or getattr(source.metadata, "dimension_names", None)
    options: dict[str, Any] = {"dimension_names": names} if form == 3 else {}
    return zarr.create_array(
        store,
        name=name,
        shape=shape,
        dtype=source.dtype,
        chunks=chunks,
        shards=shards,
        compressors=_compressors(source, compression, form),
        filters=source.filters if compression == "keep" and form == source.metadata.zarr_format else None,
        fill_value=source.fill_value,
        zarr_format=form,
        attributes=attributes,
        chunk_key_encoding={"name": "v2" if form == 2 else "default", "separator": "/"},
        overwrite=overwrite,
        **options,
    )


def _compressors(source: ZarrArray, compression: str, form: int) -> Any:
    if compression == "keep":
        if form == source.metadata.zarr_format:
            return source.compressors or None
        compression = _described(source)
    name, *options = compression.split(":")
    try:
        if name == "none":
            return None
        if name == "zstd":
            level = int(options[0]) if options else 3
            return ZstdCodec(level=level) if form == 3 else numcodecs.Zstd(level)
        if name == "gzip":
            level = int(options[0]) if options else 5
            return GzipCodec(level=level) if form == 3 else numcodecs.GZip(level)
        if name == "blosc":
            inner, level = (options[0] if options else "zstd"), (int(options[1]) if len(options) > 1 else 5)
            return BloscCodec(cname=inner, clevel=level) if form == 3 else numcodecs.Blosc(inner, level)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"compression {compression!r}: {error}", argument="compression") from None
    expected = "keep, none, zstd:LEVEL, gzip:LEVEL or blosc:NAME:LEVEL"
    raise InvalidArgument(
        f"compression is {compression!r}, expected {expected}", argument="compression", given=compression
    )


def _described(source: ZarrArray) -> str:
    """The compression in words that hold for both formats."""
    if not source.compressors:
        return "none"
    codec = source.compressors[0]
    options = codec.get_config() if hasattr(codec, "get_config") else codec.to_dict().get("configuration", {})
    name = type(codec).__name__.removesuffix("Codec").lower()
    if name == "blosc":
        inner = options.get("cname", "zstd")
        return f"blosc:{getattr(inner, 'value', inner)}:{options.get('clevel', 5)}"
    return f"{name}:{options.get('level', 3)}" if name in ("zstd", "gzip") else "zstd:3"
