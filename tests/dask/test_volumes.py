"""Volumes in Zarr arrays: right to the bit, in bounded memory, resumable, and readable by others."""

import collections
import itertools
import subprocess
import sys

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import poolgrad as pg
from poolgrad import volumes
from poolgrad.volumes import engine
from poolgrad.volumes.blocks import MARKERS

SMALL = {"memory": engine.BASE_MEMORY + engine.TIMES_INPUT * 6000, "threads": 1}
"""So little memory that a task is one chunk of 8 x 8 x 8 bytes."""

OPS = {"max": pg.max_pool, "min": pg.min_pool, "avg": pg.avg_pool}


def made(store, x, zarr_format=3, chunks=8, **options):
    array = zarr.create_array(
        store, shape=x.shape, chunks=(chunks,) * x.ndim, dtype=x.dtype, zarr_format=zarr_format, **options
    )
    array[:] = x
    return array


@pytest.fixture
def volume(rng):
    return rng.integers(0, 200, (37, 40, 26)).astype(np.uint8)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("limits", [SMALL, {}])
def test_the_result_is_the_in_memory_result(op, padding, limits, volume):
    source = made(MemoryStore(), volume)
    found = volumes.pool(source, MemoryStore(), op, (2, 3, 3), (1, 2, 2), padding, **limits)
    np.testing.assert_array_equal(found[:], OPS[op](volume, (2, 3, 3), (1, 2, 2), padding, layout="ZYX"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", ">i2"])
def test_dtypes(dtype, volume):
    x = (volume.astype(np.int16) - 100).astype(dtype)
    for op, whole in OPS.items():
        found = volumes.pool(made(MemoryStore(), x), MemoryStore(), op, 3, 2)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found[:], whole(x.astype(x.dtype.newbyteorder("=")), 3, 2, layout="ZYX"))


def test_nan(rng):
    x = rng.normal(size=(16, 16)).astype(np.float32)
    x[3, 3] = np.nan
    source = made(MemoryStore(), x)
    for nan in ("propagate", "ignore"):
        found = volumes.pool(source, MemoryStore(), "max", 2, nan=nan)[:]
        np.testing.assert_array_equal(found, pg.max_pool(x, 2, layout="YX", nan=nan))


def test_fewer_windows_than_axes_hold_for_the_last_axes(rng):
    x = rng.integers(0, 9, (2, 3, 8, 8)).astype(np.uint8)
    found = volumes.pool(made(MemoryStore(), x), MemoryStore(), "max", (2, 2))
    np.testing.assert_array_equal(found[:], pg.max_pool(x, 2, layout="NCHW"))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_format_chunks_and_compression_are_kept_or_chosen(zarr_format, volume, tmp_path):
    codec = zarr.codecs.GzipCodec(level=3) if zarr_format == 3 else __import__("numcodecs").GZip(3)
    source = made(tmp_path / "a.zarr", volume, zarr_format, compressors=codec, fill_value=7)
    kept = volumes.pool(tmp_path / "a.zarr", tmp_path / "kept.zarr")
    assert kept.metadata.zarr_format == zarr_format
    assert (kept.chunks, kept.compressors, kept.fill_value) == (source.chunks, source.compressors, 7)
    chosen = volumes.pool(
        tmp_path / "a.zarr", tmp_path / "chosen.zarr", zarr_format=5 - zarr_format, chunks=5, compression="zstd:9"
    )
    assert chosen.metadata.zarr_format == 5 - zarr_format
    assert chosen.chunks == (5, 5, 5)
    assert "Zstd" in type(chosen.compressors[0]).__name__
    crossed = volumes.pool(tmp_path / "a.zarr", tmp_path / "crossed.zarr", zarr_format=5 - zarr_format)
    assert "gzip" in type(crossed.compressors[0]).__name__.lower()
    for found in (kept, chosen, crossed):
        np.testing.assert_array_equal(found[:], pg.max_pool(volume, 2, layout="ZYX"))


def test_sharding(volume):
    source = made(MemoryStore(), volume, chunks=4, shards=(16, 16, 16))
    kept = volumes.pool(source, MemoryStore(), memory=engine.BASE_MEMORY + 3 * 40_000, threads=1)
    assert (kept.chunks, kept.shards) == ((4, 4, 4), (16, 16, 16))
    chosen = volumes.pool(source, MemoryStore(), chunks=2, shards=8)
    assert (chosen.chunks, chosen.shards) == ((2, 2, 2), (8, 8, 8))
    for found in (kept, chosen):
        np.testing.assert_array_equal(found[:], pg.max_pool(volume, 2, layout="ZYX"))


@pytest.mark.parametrize("shape", [(0, 20), (20, 0)])
def test_nothing_to_pool(shape):
    source = zarr.create_array(MemoryStore(), shape=shape, chunks=(8, 8), dtype="uint8")
    assert volumes.pool(source, MemoryStore()).shape == (shape[0] // 2, shape[1] // 2)


@pytest.mark.parametrize("options", [{}, {"padding": "ceil"}, {"padding": 3}, {"strides": 7}])
def test_a_window_that_does_not_fit_is_refused_and_nothing_is_written(options, volume, tmp_path):
    with pytest.raises(pg.errors.InvalidArgument, match=r"window.* 100.*axis.* length (of )?37"):
        volumes.pool(made(MemoryStore(), volume), tmp_path / "out.zarr", "max", 100, **options)
    assert not (tmp_path / "out.zarr").exists()
    found = volumes.pool(made(MemoryStore(), volume), MemoryStore(), "max", 100, padding="same")
    assert found[:].ravel() == volume.max()


@pytest.mark.parametrize("source", ["a.zarr", zarr.open_array])
def test_local_paths_mean_the_same_to_workers_started_elsewhere(source, volume, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made("a.zarr", volume)
    seen = []
    submit = engine.compute_block
    monkeypatch.setattr(engine, "compute_block", lambda work, block: seen.append(work) or submit(work, block))
    volumes.pool(source if isinstance(source, str) else source("a.zarr", mode="r"), "b.zarr")
    volumes.pyramid("a.zarr", output="c.zarr", levels=1)
    assert seen
    assert all(a.store_path.store.root.is_absolute() for work in seen for a in (work.source, work.target))


def test_a_task_that_cannot_see_the_source_fails_instead_of_pooling_fill_values(volume, tmp_path):
    source = made(tmp_path / "a.zarr", volume)
    (tmp_path / "a.zarr").rename(tmp_path / "b.zarr")
    with pytest.raises(pg.errors.PoolgradError, match=r"there is no file://.*a\.zarr where this task runs"):
        volumes.pool(source, tmp_path / "out.zarr", retries=0)


# ---------------------------------------------------------------------------------------------------------------------
# Interruptions


class Faulty(WrapperStore):
    """A store that counts what is written, and fails for some keys some times."""

    def __init__(self, store, faults=None):
        super().__init__(store)
        self.written = collections.Counter()
        self.faults = dict(faults or {})

    async def get(self, key, *args, **options):
        if self.faults.get(key, 0) > 0:
            self.faults[key] -= 1
            raise OSError(f"cannot read {key}")
        return await super().get(key, *args, **options)

    async def set(self, key, value, *args, **options):
        self.written[key] += 1
        await super().set(key, value, *args, **options)

    def chunks(self):
        """How often every chunk was written."""
        return {key: n for key, n in self.written.items() if key.startswith("c/")}


def test_a_task_that_fails_is_tried_again(volume):
    store = MemoryStore()
    made(store, volume)
    source = zarr.open_array(Faulty(store, {"c/1/2/0": 3}))
    found = volumes.pool(source, MemoryStore(), **SMALL, retries=3)
    np.testing.assert_array_equal(found[:], pg.max_pool(volume, 2, layout="ZYX"))


def test_what_fails_to_the_end_is_named_and_the_rest_is_done(volume):
    store, target = MemoryStore(), Faulty(MemoryStore())
    made(store, volume)
    broken = Faulty(store, {"c/1/2/0": 99})
    with pytest.raises(pg.errors.Unfinished) as caught:
        volumes.pool(zarr.open_array(broken), target, **SMALL)
    assert "[0:8, 8:16, 0:8]" in str(caught.value)
    assert "failed 4 times" in str(caught.value)
    assert "cannot read c/1/2/0" in str(caught.value)
    assert list(caught.value.given) == ["[0:8, 8:16, 0:8]"]
    written = target.chunks()
    assert len(written) == 3 * 3 * 2 - 1

    broken.faults.clear()
    found = volumes.pool(zarr.open_array(broken), target, **SMALL, resume=True)
    np.testing.assert_array_equal(found[:], pg.max_pool(volume, 2, layout="ZYX"))
    assert set(target.chunks().values()) == {1}, "nothing is written twice"


def test_an_interrupted_run_goes_on(volume):
    """Also with other blocks than before: more memory, larger tasks."""
    source, target = made(MemoryStore(), volume), Faulty(MemoryStore())

    class Stop(Exception):
        pass

    def stop(progress):
        if progress.done == 4:
            raise Stop

    with pytest.raises(Stop):
        volumes.pool(source, target, **SMALL, watch=stop)
    assert 4 <= len(target.chunks()) < 18
    seen = []
    found = volumes.pool(source, target, **SMALL, resume=True, watch=lambda now: seen.append(now.done))
    assert seen[0] > 4
    np.testing.assert_array_equal(found[:], pg.max_pool(volume, 2, layout="ZYX"))
    assert set(target.chunks().values()) == {1}
    del target.written["zarr.json"]
    volumes.pool(source, target, **SMALL, resume=True)
    assert not target.written["zarr.json"], "a complete result is left alone"


def test_a_larger_block_writes_only_what_is_missing(volume):
    source, target = made(MemoryStore(), volume), Faulty(MemoryStore())
    with pytest.raises(KeyboardInterrupt):
        volumes.pool(source, target, **SMALL, watch=interrupt_after(3))
    found = volumes.pool(source, target, memory=None, resume=True)
    np.testing.assert_array_equal(found[:], pg.max_pool(volume, 2, layout="ZYX"))
    assert set(target.chunks().values()) == {1}


def interrupt_after(blocks):
    def watch(progress):
        if progress.done >= blocks:
            raise KeyboardInterrupt

    return watch


def test_empty_chunks_stay_empty_and_are_not_computed_again():
    """Where everything is fill value nothing is stored; a marker remembers that the block is finished."""
    x = np.zeros((64, 64), np.float32)
    x[:9, :9] = 1
    store = MemoryStore()
    made(store, x, fill_value=0)
    source, target = Faulty(store), Faulty(MemoryStore())
    limits = {"memory": engine.BASE_MEMORY + engine.TIMES_INPUT * 300, "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        volumes.pool(zarr.open_array(source), target, **limits, watch=interrupt_after(12), chunks=4)
    assert any(MARKERS in key for key in target.written)
    seen = []
    found = volumes.pool(
        zarr.open_array(source), target, **limits, resume=True, chunks=4, watch=lambda now: seen.append(now.done)
    )
    assert seen[0] > 12
    np.testing.assert_array_equal(found[:], pg.max_pool(x, 2, layout="YX"))
    assert len(target.chunks()) == 4
    assert not any(MARKERS in key for key in found.store._store._store_dict)


@pytest.fixture(params=["local", "memory", "zip", "fsspec"])
def source_of(request, volume, tmp_path):
    """Makes the source in a store, anew at every call."""

    def make(x):
        if request.param == "local":
            return made(tmp_path / "in.zarr", x, overwrite=True)
        if request.param == "memory":
            return made(make.__dict__.setdefault("store", MemoryStore()), x, overwrite=True)
        if request.param == "zip":
            with zarr.storage.ZipStore(tmp_path / "in.zip", mode="w") as store:
                made(store, x)
            return zarr.open_array(zarr.storage.ZipStore(tmp_path / "in.zip", mode="r"))
        pytest.importorskip("fsspec")
        made(tmp_path / "remote.zarr", x, overwrite=True)
        return zarr.open_array(zarr.storage.FsspecStore.from_url(f"file://{tmp_path}/remote.zarr"), mode="r")

    return make


def test_a_run_does_not_go_on_with_another_source(source_of, volume, tmp_path):
    """Neither an interrupted run nor a finished one: half of the result would be of the old source."""
    target = tmp_path / "out.zarr"
    with pytest.raises(KeyboardInterrupt):
        volumes.pool(source_of(volume), target, **SMALL, watch=interrupt_after(3))
    changed = volume.copy()
    changed[20, 20, 20] += 1
    source = source_of(changed)
    with pytest.raises(pg.errors.InvalidArgument, match=r"source .* has changed since target .*out\.zarr was begun"):
        volumes.pool(source, target, **SMALL, resume=True)
    volumes.pool(source, target, overwrite=True)
    found = volumes.pool(source, target, resume=True)
    np.testing.assert_array_equal(found[:], pg.max_pool(changed, 2, layout="ZYX"))


def test_a_store_that_may_be_read_but_not_listed(volume, tmp_path, monkeypatch):
    """As buckets that are open to everybody often are. What is known of such a source is its metadata."""
    made(tmp_path / "remote.zarr", volume)
    store = zarr.storage.FsspecStore.from_url(f"file://{tmp_path}/remote.zarr", read_only=True)

    async def refuse(*_, **__):
        raise PermissionError("AccessDenied")

    monkeypatch.setattr(store.fs, "_find", refuse)
    found = volumes.pool(zarr.open_array(store, mode="r"), tmp_path / "out.zarr")
    np.testing.assert_array_equal(found[:], pg.max_pool(volume, 2, layout="ZYX"))


def test_a_chunk_that_is_written_in_place_is_noticed_and_attributes_are_not(volume, tmp_path):
    source = made(tmp_path / "in.zarr", volume, compressors=None)
    with pytest.raises(KeyboardInterrupt):
        volumes.pool(source, tmp_path / "out.zarr", **SMALL, watch=interrupt_after(3))
    source.attrs["note"] = "read by somebody"
    with pytest.raises(KeyboardInterrupt):
        volumes.pool(source, tmp_path / "out.zarr", **SMALL, resume=True, watch=interrupt_after(6))
    source[0, 0, 0] = source[0, 0, 0] ^ 1  # no size changes
    with pytest.raises(pg.errors.InvalidArgument, match=r"has changed since .*\(then \d+ chunks, \d+ bytes; now"):
        volumes.pool(source, tmp_path / "out.zarr", **SMALL, resume=True)


class TestTargets:
    def test_one_that_exists(self, volume):
        source, target = made(MemoryStore(), volume), MemoryStore()
        volumes.pool(source, target)
        with pytest.raises(pg.errors.InvalidArgument, match="exists already; resume goes on"):
            volumes.pool(source, target)
        assert volumes.pool(source, target, "min", overwrite=True)[0, 0, 0] == volume[:2, :2, :2].min()

    def test_one_that_another_call_has_begun(self, volume):
        source, target = made(MemoryStore(), volume), MemoryStore()
        volumes.pool(source, target)
        with pytest.raises(pg.errors.InvalidArgument, match="was not begun by this call"):
            volumes.pool(source, target, "avg", resume=True)
        other = MemoryStore()
        made(other, volume)
        with pytest.raises(pg.errors.InvalidArgument, match="it has no record of one"):
            volumes.pool(source, other, resume=True)

    def test_the_source_itself(self, volume, tmp_path):
        made(tmp_path / "a.zarr", volume)
        with pytest.raises(pg.errors.InvalidArgument, match="target is the source"):
            volumes.pool(tmp_path / "a.zarr", tmp_path / "a.zarr", overwrite=True)
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr")[:], volume)

    @pytest.mark.parametrize("target", ["a.zarr", "../here/a.zarr", "link.zarr", "a.zarr/inner", "."])
    def test_the_source_by_another_name(self, target, volume, tmp_path, monkeypatch):
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        made("a.zarr", volume)
        (tmp_path / "here/link.zarr").symlink_to("a.zarr")
        for source in ("a.zarr", zarr.open_array("a.zarr", mode="r")):
            with pytest.raises(pg.errors.InvalidArgument, match=r"target is the source|one inside the other"):
                volumes.pool(source, target, overwrite=True)
        with pytest.raises(pg.errors.InvalidArgument, match="one inside the other"):
            volumes.pyramid("a.zarr", output="a.zarr", overwrite=True)
        np.testing.assert_array_equal(zarr.open_array("a.zarr", mode="r")[:], volume)

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_somebody_elses_folder(self, overwrite, volume, tmp_path):
        (tmp_path / "letters").mkdir()
        (tmp_path / "letters/one.txt").write_text("dear")
        source = made(MemoryStore(), volume)
        for target in (tmp_path / "letters", tmp_path / "letters/one.txt"):
            with pytest.raises(pg.errors.InvalidArgument, match="neither a Zarr array nor free"):
                volumes.pool(source, target, overwrite=overwrite)
            with pytest.raises(pg.errors.InvalidArgument, match="neither a Zarr array nor free"):
                volumes.pyramid(source, output=target, overwrite=overwrite)
        assert [path.name for path in (tmp_path / "letters").iterdir()] == ["one.txt"]

    @pytest.mark.parametrize(
        "options", [{"memory": 1}, {"memory": SMALL["memory"], "chunks": 37}, {"chunks": 0}, {"shards": -1}]
    )
    def test_a_refused_call_leaves_what_is_there(self, options, volume, tmp_path):
        source = made(MemoryStore(), volume)
        with pytest.raises(pg.errors.InvalidArgument, match=r"memory|chunks|shards"):
            volumes.pool(source, tmp_path / "new.zarr", **options)
        assert not (tmp_path / "new.zarr").exists()
        volumes.pool(source, tmp_path / "old.zarr")
        with pytest.raises(pg.errors.InvalidArgument, match=r"memory|chunks|shards"):
            volumes.pool(source, tmp_path / "old.zarr", "min", overwrite=True, **options)
        found = zarr.open_array(tmp_path / "old.zarr", mode="r")[:]
        np.testing.assert_array_equal(found, pg.max_pool(volume, 2, layout="ZYX"))

    @pytest.mark.parametrize("options", [{"op": "sum"}, {"window": 0}, {"window": (2, 2, 2, 2)}, {"nan": "maybe"}])
    def test_a_pyramid_is_refused_before_the_volume_is_copied(self, options, volume, tmp_path):
        with pytest.raises(pg.errors.InvalidArgument):
            volumes.pyramid(made(MemoryStore(), volume), output=tmp_path / "new.zarr", **options)
        assert not (tmp_path / "new.zarr/0").exists()

    def test_a_single_number(self):
        source = zarr.create_array(MemoryStore(), shape=(), dtype="uint8")
        with pytest.raises(pg.errors.InvalidArgument, match="expected an array with axes"):
            volumes.pool(source, MemoryStore())

    def test_nothing_there(self, tmp_path):
        with pytest.raises(pg.errors.InvalidArgument, match="there is no Zarr array or group at"):
            volumes.pool(str(tmp_path / "no.zarr"), str(tmp_path / "out.zarr"))

    def test_memory_of_this_process_for_a_cluster(self, volume, tmp_path):
        inside, outside = made(MemoryStore(), volume), made(tmp_path / "a.zarr", volume)
        for source, target in ((inside, tmp_path / "b.zarr"), (outside, Faulty(MemoryStore()))):
            with pytest.raises(pg.errors.InvalidArgument, match="is in the memory of this process"):
                volumes.pool(source, target, cluster="tcp://127.0.0.1:1")
            with pytest.raises(pg.errors.InvalidArgument, match="is in the memory of this process"):
                volumes.pyramid(source, output=target, cluster="tcp://127.0.0.1:1")

    def test_no_cluster(self, volume):
        problem = r"no scheduler with workers answers at tcp://127\.0\.0\.1:1"
        with pytest.raises(pg.errors.InvalidArgument, match=problem), engine.cluster("tcp://127.0.0.1:1", None, 0.3):
            pass

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"op": "median"}, "op is 'median', expected one of 'max', 'min', 'avg'"),
            ({"window": (1, 2, 2, 2)}, "at most 3 integers"),
            ({"window": 0}, "at least 1"),
            ({"padding": "full"}, "padding is 'full'"),
            ({"compression": "rar"}, "compression is 'rar'"),
            ({"memory": 1000}, "memory must be more than 256 MiB"),
            ({"memory": engine.BASE_MEMORY + 5000}, "give more memory, fewer threads or smaller chunks"),
        ],
    )
    def test_impossible_wishes(self, options, problem, volume):
        with pytest.raises(pg.errors.InvalidArgument, match=problem):
            volumes.pool(made(MemoryStore(), volume), MemoryStore(), **options)


def test_memory_stays_bounded(tmp_path):
    """A volume much larger than the limit, in a process of its own whose peak is measured."""
    x = zarr.create_array(tmp_path / "x.zarr", shape=(1024, 1024, 1024), chunks=(128, 128, 128), dtype="uint8")
    x[:128, :128, :128] = 3
    script = f"""
from pathlib import Path
from poolgrad import volumes
y = volumes.pool({str(tmp_path / "x.zarr")!r}, {str(tmp_path / "y.zarr")!r}, "max", 2, threads=2, memory={2**29})
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)  # not getrusage, which counts what the parent had when it forked
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout) < 2**29, f"{int(done.stdout) >> 20} MiB"
    y = zarr.open_array(tmp_path / "y.zarr")
    assert y[:64, :64, :64].min() == 3
    assert y.nchunks_initialized == 1


# ---------------------------------------------------------------------------------------------------------------------
# Pyramids


def levels_by_hand(x, op, window, count):
    """Each level from the one before; a window that hangs over the end has what is there."""
    reduce = {"max": np.max, "min": np.min, "avg": lambda v: (v.astype(np.int64).sum() / v.size).astype(x.dtype)}[op]
    found = [x]
    for _ in range(count):
        below = found[-1]
        shape = [-(-n // k) for n, k in zip(below.shape, window)]
        found.append(np.empty(shape, x.dtype))
        for at in itertools.product(*map(range, shape)):
            found[-1][at] = reduce(below[tuple(slice(i * k, (i + 1) * k) for i, k in zip(at, window))])
    return found


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("op", OPS)
def test_a_pyramid_of_a_lone_array(zarr_format, op, rng, tmp_path):
    x = rng.integers(0, 200, (17, 14, 9)).astype(np.uint16)
    made(tmp_path / "x.zarr", x, zarr_format)
    group = volumes.pyramid(
        tmp_path / "x.zarr", op, 2, 3, output=tmp_path / "image.zarr", scale=[4, 0.5, 0.5], unit="micrometer"
    )
    for level, expected in enumerate(levels_by_hand(x, op, (2, 2, 2), 3)):
        np.testing.assert_array_equal(group[str(level)][:], expected)
    image = accepted(tmp_path / "image.zarr", "0.4" if zarr_format == 2 else "0.5")
    transformations = [d.coordinateTransformations for d in image.datasets]
    assert [t[0].scale for t in transformations] == [[4 * 2**i, 0.5 * 2**i, 0.5 * 2**i] for i in range(4)]
    assert [t[1].translation for t in transformations[1:]] == [[2, 0.25, 0.25], [6, 0.75, 0.75], [14, 1.75, 1.75]]
    assert [axis.unit for axis in image.axes] == ["micrometer"] * 3


def accepted(path, version):
    """The image as the reference models of OME-NGFF read it, who refuse what is not right."""
    from ome_zarr_models import open_ome_zarr

    found = open_ome_zarr(zarr.open_group(path, mode="r"))
    assert type(found).__name__ == "Image"
    attributes = found.attributes.ome if version == "0.5" else found.attributes
    assert (attributes.version if version == "0.5" else attributes.multiscales[0].version) == version
    return attributes.multiscales[0]


def test_levels_are_added_to_an_image_that_is_there(rng, tmp_path):
    """Its first level is not copied, its other metadata stays, channels are not pooled."""
    x = rng.integers(0, 200, (2, 12, 12, 12)).astype(np.uint8)
    group = zarr.create_group(tmp_path / "image.zarr")
    group.create_array("full", shape=x.shape, chunks=(1, 8, 8, 8), dtype=x.dtype)[:] = x
    axes = [{"name": "c", "type": "channel"}] + [{"name": n, "type": "space"} for n in "zyx"]
    scale = [{"type": "scale", "scale": [1, 3, 2, 2]}]
    group.attrs["ome"] = {
        "version": "0.5",
        "omero": {"channels": [{"color": "FF0000", "window": {"min": 0, "max": 255, "start": 0, "end": 255}}] * 2},
        "multiscales": [
            {"name": "cells", "axes": axes, "datasets": [{"path": "full", "coordinateTransformations": scale}]}
        ],
    }
    volumes.pyramid(str(tmp_path / "image.zarr"), "max", 2)
    image = accepted(tmp_path / "image.zarr", "0.5")
    assert image.name == "cells"
    assert [d.path for d in image.datasets] == ["full", "1"], "until a level is one chunk"
    found = zarr.open_group(tmp_path / "image.zarr")
    assert found.attrs["ome"]["omero"]["channels"][0]["color"] == "FF0000"
    np.testing.assert_array_equal(found["1"][:], pg.max_pool(x, 2, layout="CZYX"))


def test_a_group_with_one_array_becomes_an_image(rng, tmp_path):
    x = rng.integers(0, 200, (12, 12)).astype(np.uint8)
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("0", shape=x.shape, chunks=(4, 4), dtype=x.dtype)[:] = x
    volumes.pyramid(tmp_path / "g.zarr", "avg", (2, 3), 1)
    assert [d.path for d in accepted(tmp_path / "g.zarr", "0.5").datasets] == ["0", "1"]


def test_a_pyramid_goes_on(rng, tmp_path):
    x = rng.integers(0, 200, (40, 40, 40)).astype(np.uint8)
    made(tmp_path / "x.zarr", x)
    target = Faulty(LocalStore(tmp_path / "image.zarr"))

    def watch(name):
        return interrupt_after(3) if name == "1" else lambda progress: None

    with pytest.raises(KeyboardInterrupt):
        volumes.pyramid(tmp_path / "x.zarr", "max", 2, 2, output=target, **SMALL, watch=watch)
    group = volumes.pyramid(tmp_path / "x.zarr", "max", 2, 2, output=target, **SMALL, resume=True)
    for level, expected in enumerate(levels_by_hand(x, "max", (2, 2, 2), 2)):
        np.testing.assert_array_equal(group[str(level)][:], expected)
    assert {n for key, n in target.written.items() if "/c/" in key} == {1}
    accepted(tmp_path / "image.zarr", "0.5")


def test_an_image_is_not_replaced_by_one_of_its_levels(rng, tmp_path):
    """The finest level would be lost, and then the source itself."""
    x = rng.integers(0, 200, (40, 40)).astype(np.uint8)
    made(tmp_path / "x.zarr", x)
    image = tmp_path / "image.zarr"
    volumes.pyramid(tmp_path / "x.zarr", "max", 2, 2, output=image)
    with pytest.raises(pg.errors.InvalidArgument, match="is a level of the image that overwrite would replace"):
        volumes.pyramid(image / "1", "max", 2, 2, output=image, overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(image / "0")[:], x)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_replacing_a_pyramid_leaves_no_old_levels(zarr_format, rng, tmp_path):
    x = rng.integers(0, 200, (40, 40)).astype(np.uint8)
    made(tmp_path / "x.zarr", x, zarr_format)
    image = tmp_path / "image.zarr"
    volumes.pyramid(tmp_path / "x.zarr", "max", 2, 4, output=image)
    group = zarr.open_group(image)
    group.create_array("mask", shape=(4,), dtype="uint8")
    group = volumes.pyramid(tmp_path / "x.zarr", "min", 2, 2, output=image, overwrite=True)
    assert sorted(group) == ["0", "1", "2", "mask"], "what is no level stays"
    assert [d.path for d in accepted(image, "0.4" if zarr_format == 2 else "0.5").datasets] == ["0", "1", "2"]
    assert sorted(path.name for path in image.iterdir() if path.is_dir()) == ["0", "1", "2", "mask"]
    for level, expected in enumerate(levels_by_hand(x, "min", (2, 2), 2)):
        np.testing.assert_array_equal(group[str(level)][:], expected)
    assert sorted(volumes.pyramid(image, "min", 64, overwrite=True)) == ["0", "1", "mask"]


def test_an_interrupted_replacement_goes_on_without_old_levels(rng, tmp_path):
    x = rng.integers(0, 200, (40, 40, 40)).astype(np.uint8)
    group = zarr.create_group(tmp_path / "image.zarr")
    full = group.create_array("0", shape=x.shape, chunks=(8, 8, 8), dtype=x.dtype)
    full[:] = x
    volumes.pyramid(tmp_path / "image.zarr", "max", 2, 3)
    full[:] = x[::-1]
    with pytest.raises(pg.errors.InvalidArgument, match="has changed since"):
        volumes.pyramid(tmp_path / "image.zarr", "max", 2, 3, resume=True)
    with pytest.raises(KeyboardInterrupt):
        volumes.pyramid(
            tmp_path / "image.zarr", "max", 2, 3, overwrite=True, **SMALL, watch=lambda name: interrupt_after(3)
        )
    assert [d.path for d in accepted(tmp_path / "image.zarr", "0.5").datasets] == ["0", "1"], "an image all the time"
    found = volumes.pyramid(tmp_path / "image.zarr", "max", 2, 3, resume=True)
    for level, expected in enumerate(levels_by_hand(x[::-1], "max", (2, 2, 2), 3)):
        np.testing.assert_array_equal(found[str(level)][:], expected)


def test_a_lone_array_needs_an_output(volume, tmp_path):
    made(tmp_path / "x.zarr", volume)
    with pytest.raises(pg.errors.InvalidArgument, match=r"pyramid: .* say with output where to make the image"):
        volumes.pyramid(tmp_path / "x.zarr")


def test_other_tools_read_the_pyramid(rng, tmp_path):
    """ome-zarr, which napari and others read images with, sees all levels."""
    from ome_zarr.io import parse_url
    from ome_zarr.reader import Reader

    made(tmp_path / "x.zarr", rng.integers(0, 9, (16, 16, 16)).astype(np.uint8), 2)
    volumes.pyramid(tmp_path / "x.zarr", "max", 2, 2, output=tmp_path / "image.zarr")
    (node,) = Reader(parse_url(tmp_path / "image.zarr"))()
    assert [level.shape for level in node.data] == [(16, 16, 16), (8, 8, 8), (4, 4, 4)]


@pytest.mark.parametrize(
    ("axes", "shape"), [("tcyx", (2, 2, 4, 5)), ("yxc", (4, 5, 2)), ("tczyx", (2, 2, 4, 4, 5)), ("zyx", (4, 4, 5))]
)
def test_one_number_pools_space_but_neither_time_nor_channels(axes, shape):
    source = zarr.create_array(MemoryStore(), shape=shape, chunks=(1,) * len(shape), dtype="uint8")
    image = volumes.pyramid(source, levels=1, output=MemoryStore(), axes=axes)
    assert image["1"].shape == tuple(n if a in "tc" else -(-n // 2) for a, n in zip(axes, shape, strict=True))


@pytest.mark.parametrize(
    "image",
    [
        {"version": "0.1", "datasets": [{"path": "0"}]},
        {"version": "0.3", "axes": ["y", "x"], "datasets": [{"path": "0"}]},
        {"version": "0.4", "axes": [{"name": "x", "type": "space"}], "datasets": [{"path": "0"}]},
    ],
)
def test_metadata_that_does_not_say_what_the_axes_are(image):
    group = zarr.create_group(MemoryStore(), zarr_format=2)
    group.create_array("0", shape=(8, 8), chunks=(4, 4), dtype="uint8")
    group.attrs["multiscales"] = [image]
    with pytest.raises(pg.errors.InvalidArgument, match=r"is not OME-NGFF 0\.4 or 0\.5 for an array of 2 axes"):
        volumes.pyramid(group)
    assert list(group) == ["0"]


def test_a_copy_of_an_image_keeps_what_its_axes_are():
    source, target = MemoryStore(), MemoryStore()
    group = zarr.create_group(source, zarr_format=2)
    group.create_array("full", shape=(3, 2, 8, 8), chunks=(1, 1, 4, 4), dtype="uint8")
    axes = [{"name": n, "type": t} for n, t in zip("tcyx", ("time", "channel", "space", "space"), strict=True)]
    scale = {"type": "scale", "scale": [1.0, 1.0, 0.5, 0.25]}
    levels = [{"path": "full", "coordinateTransformations": [scale]}]
    group.attrs["multiscales"] = [{"version": "0.4", "name": "cells", "axes": axes, "datasets": levels}]
    image = volumes.pyramid(source, levels=1, output=target)
    assert image["1"].shape == (3, 2, 4, 4)
    (found,) = image.attrs["multiscales"]
    assert (found["axes"], found["name"]) == (axes, "cells")
    assert [level["path"] for level in found["datasets"]] == ["0", "1"]
    assert found["datasets"][0]["coordinateTransformations"] == [scale]
    assert found["datasets"][1]["coordinateTransformations"][0]["scale"] == [1.0, 1.0, 1.0, 0.5]


def test_what_is_refused_is_an_error_of_the_command(volume, tmp_path):
    made(tmp_path / "in.zarr", volume)
    command = [sys.executable, "-m", "poolgrad.cli", "pool", "in.zarr", "out.zarr", "--window", "100"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 1
    assert "window is 100" in ran.stderr
    assert not (tmp_path / "out.zarr").exists()
