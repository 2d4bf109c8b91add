"""Files of a page: only those in its folder, or in folders that the caller allows; described before they are read.

A name is resolved with all its links before it is compared with the folder. Nothing is unpickled, and nothing is read
that would take more memory than there is, or more than it says. Existing files are replaced only if the caller said so.
"""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ..declare import dtype_name, physical_memory
from ..errors import InvalidArgument, OutOfMemory
from .packed import PACKING, Read, expect_honest
from .values import DTYPES, Array, Spec, digest_of, itemsize, shown_bytes

FORMATS: Final = (".npy", ".npz", ".zarr", ".png", ".tif", ".tiff")


class Described(NamedTuple):
    """Shape and dtype of an array in a file."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """The memory that the array takes."""
        return math.prod(self.shape) * itemsize(self.dtype)


class Files:
    """The files that a page may see, and the memory that one of them may take."""

    def __init__(
        self,
        folder: Path | None,
        allow: Sequence[Path] = (),
        overwrite: bool = False,
        memory: int | None = None,
    ) -> None:
        self.folder = folder
        self.allowed = tuple(Path(os.path.realpath(p)) for p in ([folder] if folder else []) + list(allow))
        self.overwrite = overwrite
        self.memory = physical_memory() if memory is None else memory

    def source(self, name: str) -> Path:
        """The file of this name, which must be there."""
        path = self._resolved(name)
        if not os.path.exists(path):
            raise InvalidArgument(f"there is no file {name!r} in the folder of the page", argument="file", given=name)
        return path

    def target(self, name: str) -> Path:
        """The file of this name, which may be written."""
        path = self._resolved(name)
        if path.suffix.lower() not in FORMATS:
            _refuse_format(name)
        return path

    def state(self, name: str) -> tuple[int, ...]:
        """What changes when the file does."""
        try:
            return _state(self.source(name.partition(":")[0]))
        except (InvalidArgument, OSError):
            return ()

    def describe(self, name: str, key: str = "") -> Described:
        """Shape and dtype of the array, without reading it."""
        name, key = _with_key(name, key)
        return self._guarded(name, lambda path, form: form.describe(path, key))  # type: ignore[no-any-return]

    def read(self, name: str, key: str = "") -> Array:
        """The array, if there is memory for it."""
        name, key = _with_key(name, key)
        return self._guarded(name, lambda path, form: self._read(name, form, path, key))  # type: ignore[no-any-return]

    def _read(self, name: str, form: Any, path: Path, key: str) -> Array:
        self._expect_room(f"{name!r} holds", form.describe(path, key))
        form.expect_honest(path, key, self)
        numbers: Array = form.read(path, key)
        return numbers

    def _expect_room(self, what: str, found: Described) -> None:
        if found.bytes > self.memory:
            sizes = f"{shown_bytes(found.bytes)}; {shown_bytes(self.memory)} are allowed"
            raise OutOfMemory(f"{what} {Spec(*found).text()}, which takes {sizes}", argument="file", given=found.bytes)

    def in_parts(self, name: str, key: str = "") -> bool:
        """Whether the array is read only when it is needed, in parts."""
        return False

    def write(self, name: str, array: Any) -> Any:
        """Writes the array, completely or not at all. A file that has other contents stays, unless told otherwise."""
        self._write(name, array)
        return array

    def _write(self, name: str, array: Any) -> None:
        path = self.target(name)
        numbers = array.detach().cpu().numpy() if hasattr(array, "detach") else np.asarray(array)
        if self._makes_room(name, path, lambda: self._holds(name, numbers)):
            write_array(path, numbers)

    def _makes_room(self, name: str, path: Path, holds: Callable[[], bool]) -> bool:
        """Whether the file is to be written: not where it holds the same; where it holds something else, refused."""
        if os.path.exists(path) and not self.overwrite:
            if holds():
                return False
            problem = f"{name!r} exists with other contents; allow overwriting, or choose another name"
            raise InvalidArgument(problem, argument="file", given=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return True

    def _holds(self, name: str, numbers: Array) -> bool:
        try:
            if self.describe(name) != (numbers.shape, dtype_name(numbers.dtype)):
                return False
            return digest_of(self.read(name)) == digest_of(numbers)
        except InvalidArgument:
            return False

    def _resolved(self, name: str) -> Path:
        if self.folder is None and not os.path.isabs(name):
            raise InvalidArgument("this page has no folder yet: save it first", argument="file", given=name)
        try:
            path = Path(os.path.realpath((self.folder or Path()) / name))
        except (OSError, ValueError):  # such as a null character
            raise InvalidArgument(f"{name!r} cannot be the name of a file", argument="file", given=name) from None
        if not any(path.is_relative_to(folder) for folder in self.allowed) or path in self.allowed:
            problem = f"{name!r} is outside the folder of the page"
            raise InvalidArgument(problem, argument="file", given=name)
        return path

    def _expect_no_way_out(self, name: str, folder: Path) -> None:
        """Refuses a folder of chunks in which a link leads to something that the page may not see."""
        for here, folders, files in os.walk(folder):
            for entry in (*folders, *files):
                path = os.path.join(here, entry)
                if os.path.islink(path) and not any(
                    Path(os.path.realpath(path)).is_relative_to(allowed) for allowed in self.allowed
                ):
                    problem = f"{name!r} has a link to outside the folder of the page"
                    raise InvalidArgument(problem, argument="file", given=name)

    def _guarded(self, name: str, use: Callable[[Path, Any], Any]) -> Any:
        path = self.source(name)
        form = _FORMS.get(path.suffix.lower())
        if form is None:
            _refuse_format(name)
        if path.is_dir():
            self._expect_no_way_out(name, path)
        try:
            return use(path, form)
        except (InvalidArgument, MemoryError):
            raise
        except ImportError as error:
            problem = f"{path.suffix} files need the package {error.name}: pip install 'poolgrad[files]'"
            raise InvalidArgument(problem, argument="file", given=name) from None
        except Exception as error:  # readers of foreign formats raise whatever they like
            raise InvalidArgument(f"{name!r} cannot be read: {error}", argument="file", given=name) from None


def expect_storable(dtype: str | None, file: str) -> None:
    """No format of arrays knows bfloat16: what NumPy writes of it, nobody can read."""
    if dtype == "bfloat16":
        problem = f"{file!r} cannot hold bfloat16: Cast to float32, which is exact, and save that"
        raise InvalidArgument(problem, argument="file", given=dtype)


def write_array(path: Path, numbers: Array) -> None:
    """Writes an array in the format of the file's name."""
    expect_storable(dtype_name(numbers.dtype), path.name)
    with placed(path) as made:
        _FORMS[path.suffix.lower()].write(made, numbers)


@contextmanager
def placed(path: Path) -> Iterator[Path]:
    """Where to write a file first: beside its place, which it takes when it is whole."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
            made = Path(folder) / path.name
            yield made
            os.replace(made, path) if made.is_file() else _replace_folder(made, path)
    except ImportError as error:
        problem = f"{path.suffix} files need the package {error.name}: pip install 'poolgrad[files]'"
        raise InvalidArgument(problem, argument="file", given=path.name) from None


def _replace_folder(made: Path, path: Path) -> None:
    if path.exists():
        os.replace(path, made.with_name("old"))
    os.replace(made, path)


def _refuse_format(name: str) -> Any:
    raise InvalidArgument(f"{name!r} is not one of {', '.join(FORMATS)}", argument="file", given=name)


def _with_key(name: str, key: str) -> tuple[str, str]:
    stem, colon, inside = name.rpartition(":")
    return (stem, inside) if colon and stem.endswith((".npz", ".zarr")) else (name, key)


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    if not path.is_dir():
        return found.st_mtime_ns, found.st_size, found.st_ino
    inner = [p.stat() for p in path.rglob("*")]
    return max((s.st_mtime_ns for s in inner), default=0), sum(s.st_size for s in inner), found.st_ino


def _described(shape: Any, dtype: Any) -> Described:
    name = dtype_name(np.dtype(dtype)) if not isinstance(dtype, str) else dtype
    if name not in DTYPES:
        raise InvalidArgument(f"the file has dtype {name}, expected one of {', '.join(DTYPES)}", argument="file")
    return Described(tuple(int(n) for n in shape), name)


# ---------------------------------------------------------------------------------------------------------------------
# Formats: how each is described, read and written


class _Honest:
    """Formats whose arrays take no more memory than they say."""

    @staticmethod
    def expect_honest(path: Path, key: str, files: Files) -> None:
        """Nothing to look for."""


class _Npy(_Honest):
    @staticmethod
    def describe(path: Path, key: str) -> Described:
        with path.open("rb") as file:
            return _npy_header(file)

    @staticmethod
    def read(path: Path, key: str) -> Array:
        return _native(np.load(path, allow_pickle=False))

    @staticmethod
    def write(path: Path, numbers: Array) -> None:
        with path.open("wb") as file:
            np.save(file, numbers, allow_pickle=False)
            _flush(file)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


LONGEST_HEADER: Final = 2**16
"""How long the header of a .npy file may be; NumPy reads it into memory, whatever length it says."""


def _npy_header(file: Any) -> Described:
    version = np.lib.format.read_magic(file)
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(file.read(width), "little")
    if length > LONGEST_HEADER:
        raise InvalidArgument(f"the header has {length} bytes, expected at most {LONGEST_HEADER}", argument="file")
    file.seek(-width, os.SEEK_CUR)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return _described(shape, dtype.newbyteorder("="))


def _native(numbers: Array) -> Array:
    return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)


class _Npz:
    @staticmethod
    def describe(path: Path, key: str) -> Described:
        import zipfile

        with zipfile.ZipFile(path) as archive:
            member = archive.getinfo(f"{_npz_key(archive.namelist(), key)}.npy")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # others are unpacked without a bound, whatever is asked for
                problem = f"{member.filename} is packed by method {member.compress_type}, expected none or deflate"
                raise InvalidArgument(problem, argument="file", given=member.compress_type)
            with archive.open(member) as file:
                return _npy_header(file)

    @staticmethod
    def expect_honest(path: Path, key: str, files: Files) -> None:
        import zipfile

        found = _Npz.describe(path, key)
        with zipfile.ZipFile(path) as archive:
            member = archive.getinfo(f"{_npz_key(archive.namelist(), key)}.npy")
        if not found.bytes <= member.file_size <= found.bytes + LONGEST_HEADER + 16:
            problem = f"{member.filename} has {member.file_size} bytes, but its header says {Spec(*found).text()}"
            raise InvalidArgument(problem, argument="file", given=member.file_size, expected=found.bytes)

    @staticmethod
    def read(path: Path, key: str) -> Array:
        with np.load(path, allow_pickle=False) as arrays:
            return _native(arrays[_npz_key([f"{n}.npy" for n in arrays.files], key)])

    @staticmethod
    def write(path: Path, numbers: Array) -> None:
        with path.open("wb") as file:
            np.savez(file, output=numbers)
            _flush(file)


def _npz_key(members: list[str], key: str) -> str:
    names = [m.removesuffix(".npy") for m in members]
    if not key and len(names) == 1:
        return names[0]
    if key not in names:
        problem = f"the file has the arrays {', '.join(names) or '(none)'}; key is {key!r}"
        raise InvalidArgument(problem, argument="key", given=key)
    return key


class _Zarr:
    @staticmethod
    def describe(path: Path, key: str) -> Described:
        found = _zarr_array(path, key)
        return _described(found.shape, found.dtype)

    @staticmethod
    def expect_honest(path: Path, key: str, files: Files) -> None:
        found = _zarr_array(path, key)
        chunk = _described(found.chunks, found.dtype)
        files._expect_room("a chunk holds", chunk)
        packing = [codec for codec in _codecs(found.metadata) if codec in PACKING]
        for name, file, offset, size in _zarr_pieces(path, found) if packing else ():
            if size > files.memory or len(packing) > 1:
                reason = "is packed twice" if len(packing) > 1 else f"has {size} bytes"
                raise InvalidArgument(f"{name} {reason}, which is not read here", argument="file", given=packing)
            expect_honest(name, packing[0], size, _reader(file, offset, size), chunk.bytes, files.memory)

    @staticmethod
    def read(path: Path, key: str) -> Array:
        return np.asarray(_zarr_array(path, key)[...])

    @staticmethod
    def write(path: Path, numbers: Array) -> None:
        import zarr

        zarr.create_array(str(path), shape=numbers.shape, dtype=numbers.dtype)[...] = numbers


def _zarr_array(path: Path, key: str) -> Any:
    import zarr

    found = zarr.open(str(path), mode="r", path=key or None)
    if not hasattr(found, "shape"):
        names = ", ".join(sorted(dict(found.arrays()))) or "(none)"
        raise InvalidArgument(f"the file is a group with the arrays {names}; key says which", argument="key", given=key)
    for codec in _codecs(found.metadata):
        if codec not in _CODECS:
            raise InvalidArgument(f"the file is packed with {codec!r}, which is not used here", argument="file")
    return found


def _zarr_pieces(path: Path, array: Any) -> Iterator[tuple[str, Path, int, int]]:
    """Everything that is packed by itself, chunks or what shards are made of: its name, file, offset and size."""
    unit = array.shards or array.chunks
    for cell in itertools.product(*(range(-(-n // u)) for n, u in zip(array.shape, unit, strict=True))):
        key = array.metadata.encode_chunk_key(cell)
        file = path.joinpath(array.path, key)
        if file.is_file():
            size = file.stat().st_size
            yield from [(key, file, 0, size)] if array.shards is None else _shard_pieces(key, file, size, array)


def _shard_pieces(name: str, file: Path, size: int, array: Any) -> Iterator[tuple[str, Path, int, int]]:
    """What a shard is made of, by its index: offset and size of every chunk, and a checksum."""
    described = [codec.to_dict() for codec in array.metadata.codecs]
    options = next(codec["configuration"] for codec in described if codec["name"] == "sharding_indexed")
    if [codec["name"] for codec in options["index_codecs"]] != ["bytes", "crc32c"]:
        raise InvalidArgument(f"the index of {name} is packed, which is not read here", argument="file")
    chunks = math.prod(s // c for s, c in zip(array.shards, array.chunks, strict=True))
    length = 16 * chunks + 4
    at = 0 if str(options["index_location"]).endswith("start") else max(size - length, 0)
    index = np.frombuffer(_reader(file, at, length)(16 * chunks), "<u8").reshape(-1, 2)
    for offset, inner in index.tolist():
        if offset != 2**64 - 1:
            yield f"a chunk of {name}", file, offset, inner


def _reader(file: Path, offset: int, size: int) -> Read:
    """Reads a part of a file."""

    def read(count: int, at: int = 0) -> bytes:
        with file.open("rb") as opened:
            opened.seek(offset + at)
            return opened.read(max(0, min(count, size - at)))

    return read


_CODECS: Final = frozenset(
    [
        "bytes",
        "transpose",
        "sharding_indexed",
        "crc32c",
        "gzip",
        "zlib",
        "zstd",
        "blosc",
        "lz4",
        "bz2",
        "lzma",
        "delta",
        "shuffle",
        "bitround",
        "quantize",
        "fixedscaleoffset",
        "packbits",
        "crc32",
        "adler32",
        "fletcher32",
    ]
)
"""How Zarr arrays may be packed: by codecs that do nothing but unpack numbers. Some that exist would run code."""


def _codecs(metadata: Any) -> Iterator[str]:
    """The names of all codecs of an array, those inside others too."""
    packing = [getattr(metadata, "compressor", None), *(getattr(metadata, "filters", None) or ())]
    yield from (str(codec.codec_id) for codec in packing if codec is not None)
    waiting = [codec.to_dict() for codec in getattr(metadata, "codecs", None) or ()]
    while waiting:
        codec = waiting.pop()
        yield str(codec["name"])
        inner = codec.get("configuration", {})
        waiting += [*inner.get("codecs", ()), *inner.get("index_codecs", ())]


class _Png(_Honest):
    @staticmethod
    def describe(path: Path, key: str) -> Described:
        from PIL import Image

        with Image.open(path, formats=["PNG"]) as picture:
            shape = (picture.height, picture.width, len(Image.getmodebandnames(_png_mode(picture))))
            return Described(shape, "uint16" if picture.mode.startswith("I") else "uint8")

    @staticmethod
    def read(path: Path, key: str) -> Array:
        from PIL import Image

        with Image.open(path, formats=["PNG"]) as picture:
            mode = _png_mode(picture)
            numbers = np.asarray(picture if mode == picture.mode else picture.convert(mode))
        numbers = numbers.astype(np.uint16 if numbers.dtype.itemsize > 1 else np.uint8, copy=False)
        return numbers.reshape(*numbers.shape[:2], -1)

    @staticmethod
    def write(path: Path, numbers: Array) -> None:
        from PIL import Image

        while numbers.ndim > 2 and numbers.shape[0] == 1:
            numbers = numbers[0]
        flat = numbers[..., 0] if numbers.ndim == 3 and numbers.shape[-1] == 1 else numbers
        if flat.ndim not in (2, 3) or (flat.ndim == 3 and flat.shape[-1] not in (3, 4)):
            raise InvalidArgument(f"a picture has 1, 3 or 4 channels, not shape {numbers.shape}", argument="input")
        Image.fromarray(flat if flat.dtype == np.uint8 else _bytes(flat)).save(path, "PNG")


def _bytes(numbers: Array) -> Array:
    """Values from the lowest to the highest, as 0 to 255."""
    wide = np.where(np.isfinite(numbers), numbers, 0).astype(np.float64)
    low, high = wide.min(initial=np.inf), wide.max(initial=-np.inf)
    scaled: Array = np.round((wide - low) * (255 / (high - low) if high > low else 0.0)).astype(np.uint8)
    return scaled


def _png_mode(picture: Any) -> str:
    """The channels that are read: palettes and truth values become colours and grey."""
    if picture.mode in ("P", "PA"):
        return "RGBA" if "transparency" in picture.info else "RGB"
    return "L" if picture.mode == "1" else str(picture.mode)


class _Tif:
    @staticmethod
    def describe(path: Path, key: str) -> Described:
        import tifffile

        with tifffile.TiffFile(path) as file:
            series = file.series[0]
            return _described(series.shape, series.dtype)

    @staticmethod
    def expect_honest(path: Path, key: str, files: Files) -> None:
        import tifffile

        with tifffile.TiffFile(path) as file:
            for number, page in enumerate(file.series[0].pages):
                if page is None:
                    continue
                chunk = _described(page.chunks, page.dtype)
                files._expect_room(f"a tile of page {number} holds", chunk)
                codec = _TIF_CODECS.get(int(page.compression))
                if codec is None:
                    continue
                for at, size in zip(page.dataoffsets, page.databytecounts, strict=False):
                    read = _reader(path, at, size)
                    expect_honest(f"a tile of page {number}", codec, size, read, chunk.bytes, files.memory)

    @staticmethod
    def read(path: Path, key: str) -> Array:
        import tifffile

        return _native(np.asarray(tifffile.imread(path)))

    @staticmethod
    def write(path: Path, numbers: Array) -> None:
        import tifffile

        tifffile.imwrite(path, numbers, photometric="minisblack")


_TIF_CODECS: Final = {8: "zlib", 32946: "zlib", 34925: "lzma", 50000: "zstd"}
"""The compressions of TIFF that a few bytes can become anything in."""

_FORMS: Final[dict[str, Any]] = {
    ".npy": _Npy, ".npz": _Npz, ".zarr": _Zarr, ".png": _Png, ".tif": _Tif, ".tiff": _Tif
}  # fmt: skip
