"""Load, Save and constants in files: every format, and never a file that the page may not see."""

import bz2
import gzip
import json
import lzma
import os
import pickle
import zipfile
import zlib

import numcodecs
import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from poolgrad.errors import InvalidArgument, OutOfMemory
from poolgrad.graph import BlockError, ClientSession, Page, ops
from poolgrad.graph.files import Files, _codecs, write_array

NUMBERS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def loading(folder, file, **attributes):
    page = Page(folder=folder)
    page.add("Load", "x", {"file": file, **attributes})
    return page


def test_bfloat16_is_refused_before_a_file_is_written_that_nobody_can_read(tmp_path):
    page = Page(folder=tmp_path)
    page.add("Const", "x", {"value": [1, 2], "dtype": "bfloat16"})
    page.add("Save", "s", {"file": "y.npy"})
    page.wire("x.output", "s.input")
    with pytest.raises(BlockError, match=r"'y\.npy' cannot hold bfloat16: Cast to float32"):
        ClientSession(page).run("s.output")
    with pytest.raises(InvalidArgument, match="cannot hold bfloat16"):
        write_array(tmp_path / "z.npz", ClientSession(page).run("x.output"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "int64", "bool"])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".zarr", ".tif"])
def test_what_is_saved_is_loaded(tmp_path, suffix, dtype):
    numbers = NUMBERS.astype(dtype)
    page = Page(folder=tmp_path)
    page.add("Const", "x", {"value": numbers, "dtype": dtype})
    page.add("Save", "s", {"file": f"inner/y{suffix}"})
    page.wire("x.output", "s.input")
    assert ClientSession(page).run("s.output").tobytes() == numbers.tobytes()
    back = loading(tmp_path, f"inner/y{suffix}")
    assert back.infer().outputs["x.output"][:2] == (numbers.shape, dtype), "described without reading it"
    assert ClientSession(back).run("x.output").tobytes() == numbers.tobytes()


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pictures(tmp_path, channels):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(tmp_path / "p.png")
    page = loading(tmp_path, "p.png")
    assert page.infer().outputs["x.output"].shape == (5, 7, channels)
    found = ClientSession(page).run("x.output")
    assert np.array_equal(found, pixels)
    page.add("Save", "s", {"file": "q.png"})
    page.wire("x.output", "s.input")
    ClientSession(page).evaluate()
    assert np.array_equal(np.asarray(Image.open(tmp_path / "q.png")).reshape(pixels.shape), pixels)


def test_pictures_of_numbers_are_scaled(tmp_path):
    Files(tmp_path).write("p.png", np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 3, 4, 1))
    assert np.asarray(Image.open(tmp_path / "p.png")).ravel()[[0, -1]].tolist() == [0, 255]


def test_pictures_with_palette_and_sixteen_bits(tmp_path):
    Image.fromarray(np.zeros((2, 2, 3), np.uint8)).convert("P").save(tmp_path / "palette.png")
    deep = np.array([[0, 65535]], np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    for file, spec in (("palette.png", ((2, 2, 3), "uint8")), ("deep.png", ((1, 2, 1), "uint16"))):
        page = loading(tmp_path, file)
        assert page.infer().outputs["x.output"][:2] == spec
        found = ClientSession(page).run("x.output")
        assert (found.shape, found.dtype.name) == spec
    assert found.ravel().tolist() == [0, 65535]


def test_arrays_of_archives_and_groups(tmp_path):
    np.savez(tmp_path / "a.npz", first=np.zeros(2), second=np.ones(3))
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("inner", shape=(4,), dtype="float32")[...] = 7
    assert ClientSession(loading(tmp_path, "a.npz", key="second")).run("x").tolist() == [1, 1, 1]
    assert ClientSession(loading(tmp_path, "g.zarr", key="inner")).run("x").tolist() == [7, 7, 7, 7]
    (problem,) = loading(tmp_path, "a.npz").infer().problems
    assert "the file has the arrays first, second" in problem.message
    assert problem.place == "key"
    (problem,) = loading(tmp_path, "g.zarr").infer().problems
    assert "inner" in problem.message
    page = Page(folder=tmp_path)
    page.add("Const", "c", {"file": "a.npz:second"})
    assert ClientSession(page).run("c").tolist() == [1, 1, 1]


def test_other_byte_orders(tmp_path):
    np.save(tmp_path / "big.npy", np.arange(3, dtype=">f4"))
    found = ClientSession(loading(tmp_path, "big.npy")).run("x")
    assert (found.dtype, found.tolist()) == (np.dtype("float32"), [0, 1, 2])


def test_a_changed_file_is_read_again(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(2))
    page = loading(tmp_path, "x.npy")
    session = ClientSession(page)
    assert session.run("x").tolist() == [0, 0]
    assert session.evaluate().blocks["x"].status == "cached"
    np.save(tmp_path / "x.npy", np.ones(3))
    os.utime(tmp_path / "x.npy", ns=(1, 1))
    assert page.infer().outputs["x.output"].shape == (3,)
    assert session.run("x").tolist() == [1, 1, 1]


# ---------------------------------------------------------------------------------------------------------------------
# What a page may not see


@pytest.mark.parametrize(
    "name", ["../x.npy", "inner/../../x.npy", "/etc/passwd", "link.npy", "folder/x.npy", "..", ".", ""]
)
def test_files_outside_the_folder(tmp_path, name):
    inside = tmp_path / "page"
    inside.mkdir()
    np.save(tmp_path / "x.npy", np.zeros(2))
    (inside / "link.npy").symlink_to(tmp_path / "x.npy")
    (inside / "folder").symlink_to(tmp_path)
    for type, pin in (("Load", None), ("Save", "input"), ("Const", None)):
        page = Page(folder=inside)
        page.add(type, "b", {"file": name})
        if pin:
            page.add("Const", "c", {"value": 1})
            page.wire("c.output", f"b.{pin}")
        result = ClientSession(page).evaluate(["b"]).blocks["b"]
        assert result.status == "failed"
        assert result.problem.place in ("file", "value")
    assert np.load(tmp_path / "x.npy").tolist() == [0, 0]


@pytest.mark.parametrize("name", ["a\0b.npy", "x" * 300 + ".npy", "\ud800.npy"])
@pytest.mark.parametrize("type", ["Load", "Save"])
def test_names_that_no_file_can_have(tmp_path, name, type):
    page = Page(folder=tmp_path)
    page.add(type, "x", {"file": name})
    if type == "Save":
        page.add("Const", "c", {"value": "1"})
        page.wire("c.output", "x.input")
    report = ClientSession(page).evaluate()
    assert [problem.block for problem in report.problems] == ["x"]
    assert list(tmp_path.iterdir()) == [] or type == "Save"


def test_folders_that_the_caller_allows(tmp_path):
    inside, beside = tmp_path / "page", tmp_path / "data"
    inside.mkdir()
    beside.mkdir()
    np.save(beside / "x.npy", np.ones(2))
    page = loading(inside, str(beside / "x.npy"))
    with pytest.raises(BlockError, match="outside the folder"):
        ClientSession(page).run("x")
    assert ClientSession(page, allow=[beside]).run("x").tolist() == [1, 1]


def test_pages_without_a_folder_see_no_files():
    page = Page()
    page.add("Load", "x", {"file": "x.npy"})
    assert "no folder yet" in page.infer().problems[0].message


def test_existing_files_are_not_replaced_unless_allowed(tmp_path):
    page = Page(folder=tmp_path)
    page.add("Const", "x", {"value": "1,2"})
    page.add("Save", "s", {"file": "y.npy"})
    page.wire("x.output", "s.input")
    for _ in range(2):
        assert ClientSession(page).evaluate().ok, "the same contents may be saved again"
    page.set("x", "value", "3,4")
    report = ClientSession(page).evaluate()
    assert "exists with other contents" in report.problems[0].message
    assert np.load(tmp_path / "y.npy").tolist() == [1, 2]
    assert ClientSession(page, overwrite=True).evaluate().ok
    assert np.load(tmp_path / "y.npy").tolist() == [3, 4]
    assert [p.name for p in tmp_path.iterdir()] == ["y.npy"]


def test_an_existing_file_larger_than_memory_has_other_contents(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(2**18))
    with pytest.raises(InvalidArgument, match=r"'x.npy' exists with other contents; allow overwriting"):
        Files(tmp_path, memory=2**20).write("x.npy", np.zeros(4))


def test_a_page_cannot_be_overwritten_by_its_blocks(tmp_path):
    page = Page(folder=tmp_path)
    page.add("Const", "x", {"value": 1})
    page.add("Save", "s", {"file": "p.page.json"})
    page.wire("x.output", "s.input")
    assert "is not one of .npy" in page.infer().problems[0].message


def test_nothing_is_unpickled(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "pwned"),))

    np.save(tmp_path / "evil.npy", np.array([Evil()], object), allow_pickle=True)
    np.savez(tmp_path / "evil.npz", a=np.array([Evil()], object))
    for file in ("evil.npy", "evil.npz"):
        assert not ClientSession(loading(tmp_path, file)).evaluate().ok
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("codec", ["zstd", "gzip", "blosc"])
def test_zarr_arrays_with_the_usual_codecs(tmp_path, version, codec):
    import numcodecs

    old = {"zstd": numcodecs.Zstd(), "gzip": numcodecs.GZip(), "blosc": numcodecs.Blosc()}
    new = {"zstd": zarr.codecs.ZstdCodec(), "gzip": zarr.codecs.GzipCodec(), "blosc": zarr.codecs.BloscCodec()}
    packed = old[codec] if version == 2 else new[codec]
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(4,), chunks=(2,), dtype="int16", zarr_format=version, compressors=packed
    )
    array[...] = [1, 2, 3, 4]
    assert ClientSession(loading(tmp_path, "x.zarr")).run("x").tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("where", ["compressor", "filters"])
def test_codecs_that_run_code_are_refused(tmp_path, where):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "pwned"),))

    zarr.create_array(tmp_path / "x.zarr", shape=(2,), chunks=(2,), dtype="float32", zarr_format=2, compressors=None)
    described = json.loads((tmp_path / "x.zarr" / ".zarray").read_text())
    pickled = {"id": "pickle", "protocol": 4}
    described |= {"compressor": pickled} if where == "compressor" else {"filters": [{"id": "crc32"}, pickled]}
    (tmp_path / "x.zarr" / ".zarray").write_text(json.dumps(described))
    (tmp_path / "x.zarr" / "0").write_bytes(pickle.dumps(Evil()))
    report = ClientSession(loading(tmp_path, "x.zarr")).evaluate()
    assert not report.ok
    assert not (tmp_path / "pwned").exists()


def test_codecs_are_known_by_name():
    class Metadata:
        compressor, filters = None, (type("Pickle", (), {"codec_id": "pickle"}),)

    assert list(_codecs(Metadata)) == ["pickle"]


def test_links_inside_a_folder_of_chunks(tmp_path):
    """A chunk that is a link would show a file from elsewhere as numbers."""
    inside = tmp_path / "page"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"secret!!")
    array = zarr.create_array(inside / "x.zarr", shape=(8,), chunks=(8,), dtype="uint8", compressors=None)
    array[...] = 1
    (chunk,) = [p for p in (inside / "x.zarr").rglob("*") if p.is_file() and p.name != "zarr.json"]
    chunk.unlink()
    chunk.symlink_to(tmp_path / "secret")
    report = ClientSession(loading(inside, "x.zarr")).evaluate()
    assert "a link to outside" in report.problems[0].message


def test_broken_files(tmp_path):
    for suffix in (".npy", ".npz", ".png", ".tif"):
        (tmp_path / f"bad{suffix}").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': garbage")
        page = loading(tmp_path, f"bad{suffix}")
        (problem,) = page.infer().problems
        assert "cannot be read" in problem.message
    np.save(tmp_path / "text.npy", np.array(["a"]))
    assert "dtype" in loading(tmp_path, "text.npy").infer().problems[0].message
    (tmp_path / "bad.csv").write_text("1,2")
    assert "is not one of" in loading(tmp_path, "bad.csv").infer().problems[0].message
    assert "there is no file 'no.npy'" in loading(tmp_path, "no.npy").infer().problems[0].message


def test_a_file_that_claims_to_be_huge(tmp_path):
    """The header is believed only as far as memory goes, and nothing is allocated for it."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000), }"
    header += b" " * (118 - len(header) - 1) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "huge.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("a.npy", content)
    for file in ("huge.npy", "huge.npz"):
        report = ClientSession(loading(tmp_path, file), max_memory=2**30).evaluate()
        assert "are in use" in report.problems[0].message


def refused(folder, file, memory=2**24, **attributes):
    """What is said of a file that would take more than it says, or more than there is."""
    report = ClientSession(loading(folder, file, **attributes), max_memory=memory).evaluate()
    assert not report.ok
    return report.problems[0].message


BOMB = 2**26
"""Bytes that a few kilobytes become when they are unpacked."""

PACKERS = {
    "gzip": gzip.compress,
    "gzip, two streams": lambda data: gzip.compress(data[:100]) + gzip.compress(data),
    "zlib": zlib.compress,
    "bz2": bz2.compress,
    "lzma": lzma.compress,
    "zstd": numcodecs.Zstd().encode,
    "zstd, size not told": lambda data: untold(numcodecs.Zstd().encode(data)),
    "zstd, two frames": lambda data: numcodecs.Zstd().encode(data[:4]) + numcodecs.Zstd().encode(data[4:]),
    "blosc": numcodecs.Blosc().encode,
    "lz4": numcodecs.LZ4().encode,
}


def untold(frame):
    """A Zstandard frame that does not say how much it becomes: another header, the same blocks."""
    width = {0: 1, 1: 2, 2: 4, 3: 8}[frame[4] >> 6]
    single = frame[4] >> 5 & 1
    blocks = frame[5 + (not single) + width :]
    return frame[:4] + bytes([frame[4] & 0b100, 0x80]) + blocks


@pytest.mark.parametrize("packer", PACKERS)
def test_a_chunk_that_becomes_more_than_it_should(tmp_path, packer):
    codec = {"id": packer.partition(",")[0]}
    zarr.create_array(tmp_path / "x.zarr", shape=(8,), chunks=(8,), dtype="uint8", zarr_format=2, compressors=None)
    described = json.loads((tmp_path / "x.zarr" / ".zarray").read_text())
    (tmp_path / "x.zarr" / ".zarray").write_text(json.dumps(described | {"compressor": codec}))
    (tmp_path / "x.zarr" / "0").write_bytes(PACKERS[packer](bytes(8)))
    if packer != "gzip, two streams":
        assert ClientSession(loading(tmp_path, "x.zarr")).run("x").tolist() == [0] * 8
    packed = PACKERS[packer](bytes(BOMB))
    assert len(packed) < BOMB / 100
    (tmp_path / "x.zarr" / "0").write_bytes(packed)
    message = refused(tmp_path, "x.zarr")
    assert f"0 would be unpacked from {len(packed)} bytes to" in message
    assert "but holds 8 bytes of the array" in message


@pytest.mark.parametrize("location", ["start", "end"])
def test_a_chunk_in_a_shard_that_becomes_more_than_it_should(tmp_path, location):
    layout = {"shape": (16,), "index_location": location}
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(16,), chunks=(8,), shards=layout, dtype="uint8", compressors=zarr.codecs.ZstdCodec()
    )
    array[...] = np.arange(16)
    assert ClientSession(loading(tmp_path, "x.zarr")).run("x").tolist() == list(range(16))
    (shard,) = (path for path in (tmp_path / "x.zarr" / "c").rglob("*") if path.is_file())
    data = shard.read_bytes()
    index = np.frombuffer(data[:32] if location == "start" else data[-36:-4], "<u8").reshape(2, 2)
    head = numcodecs.Zstd().encode(bytes(BOMB))[:10]  # which says how much comes out
    offset = int(index[1][0])
    shard.write_bytes(data[:offset] + head + data[offset + len(head) :])
    assert f"a chunk of c/0 would be unpacked from {index[1][1]} bytes to {BOMB}" in refused(tmp_path, "x.zarr")


def test_a_chunk_larger_than_memory(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", shape=(4,), chunks=(2**34,), dtype="float64")
    assert "a chunk holds float64 [17179869184], which takes 128.0 GiB; 16.0 MiB are allowed" in refused(
        tmp_path, "x.zarr"
    )


def test_data_that_packs_well_is_read(tmp_path):
    """Zeros become a thousandth; they are not taken for something else."""
    for version, codec in ((2, numcodecs.GZip()), (3, zarr.codecs.GzipCodec()), (3, zarr.codecs.ZstdCodec())):
        zarr.create_array(
            tmp_path / "x.zarr", shape=(2**23,), chunks=(2**22,), dtype="uint8", zarr_format=version, overwrite=True,
            compressors=codec, fill_value=1,
        )[...] = 0  # fmt: skip
        assert not ClientSession(loading(tmp_path, "x.zarr"), max_memory=2**23).run("x").any()
    np.savez_compressed(tmp_path / "x.npz", np.zeros(2**23, np.uint8))
    assert not ClientSession(loading(tmp_path, "x.npz"), max_memory=2**23).run("x").any()


def test_archives_that_hold_more_than_they_say(tmp_path):
    import io

    written = io.BytesIO()
    np.save(written, np.zeros(4))
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", written.getvalue() + bytes(BOMB))
    assert f"a.npy has {BOMB + 160} bytes, but its header says float64 [4]" in refused(tmp_path, "x.npz")
    with zipfile.ZipFile(tmp_path / "y.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x02\x00" + BOMB.to_bytes(4, "little") + b" " * BOMB)
    assert f"the header has {BOMB} bytes, expected at most 65536" in refused(tmp_path, "y.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_that_unpack_without_a_bound(tmp_path, method):
    """A few hundred bytes become half a gigabyte as soon as the first byte of it is asked for."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as archive:
        archive.writestr("a.npy", bytes(1000))
    assert f"a.npy is packed by method {method}, expected none or deflate" in refused(tmp_path, "x.npz")


@pytest.mark.parametrize("size", [10, 5000])
def test_small_chunks_that_do_not_tell_their_size(tmp_path, size, rng):
    """As streaming writers leave them: what comes out is known only to a block of 128 KiB."""
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(size,), chunks=(size,), dtype="uint8", compressors=zarr.codecs.ZstdCodec()
    )
    array[...] = numbers = rng.integers(0, 4, size).astype(np.uint8)
    chunk = tmp_path / "x.zarr" / "c" / "0"
    chunk.write_bytes(untold(chunk.read_bytes()))
    assert ClientSession(loading(tmp_path, "x.zarr")).run("x").tolist() == numbers.tolist()


def test_tiles_that_become_more_than_they_should(tmp_path):
    file = tmp_path / "x.tif"
    tifffile.imwrite(file, np.arange(64, dtype=np.uint8).reshape(8, 8), compression="zlib", photometric="minisblack")
    assert ClientSession(loading(tmp_path, "x.tif")).run("x").sum() == 63 * 32
    packed, end = zlib.compress(bytes(BOMB)), file.stat().st_size
    with tifffile.TiffFile(file, mode="r+b") as opened:
        tags = opened.pages[0].tags
        tags["StripOffsets"].overwrite((end,))
        tags["StripByteCounts"].overwrite((len(packed),))
    file.write_bytes(file.read_bytes()[:end].ljust(end) + packed)
    message = refused(tmp_path, "x.tif")
    assert f"a tile of page 0 would be unpacked from {len(packed)} bytes" in message
    assert "but holds 64 bytes of the array" in message


def test_pictures_are_described_without_being_unpacked(tmp_path, monkeypatch):
    Image.new("P", (6000, 6000)).save(tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size < 2**16
    monkeypatch.setattr(Image.Image, "load", None)
    assert loading(tmp_path, "p.png").infer().outputs["x.output"].shape == (6000, 6000, 3)
    assert "this takes 103.0 MiB" in refused(tmp_path, "p.png")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".zarr", ".tif", ".png"])
def test_feeds_are_bounded_too(tmp_path, suffix):
    """What is fed is read before the run, so its size is looked at by itself."""
    Files(tmp_path).write(f"x{suffix}", np.zeros((3000, 3000), np.uint8))
    with pytest.raises(OutOfMemory, match=r"holds uint8 \[3000, 3000.*\], which takes 8.6 MiB; 1.0 MiB are allowed"):
        Files(tmp_path, memory=2**20).read(f"x{suffix}")


def test_names_are_not_code():
    page = Page()
    name = "x; import os"
    assert "cannot be" not in name
    page.add("Const", "x", {"value": "1"})
    page.add("Load", "y", {"file": "__import__('os').system('true').npy"})
    assert page.infer().problems
    assert "os.system" not in page.fragment(["x"])


def test_ops_read_files_too(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3.0))
    page = Page(folder=tmp_path)
    y = ops.Square(page.scope, ops.Load(page.scope, "x.npy"))
    assert ClientSession(page).run(y).tolist() == [0, 1, 4]
