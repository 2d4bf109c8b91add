"""The CUDA C++ kernel for listed windows against the definition. Without a GPU, a processor emulates one.

Tiles, tables, arguments and shared memory are the library's own: only the compiler and the driver are others.
"""

import ctypes
import fcntl
import hashlib
import random
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from poolgrad.backends.numpy import Numpy
from poolgrad.gpu import Gpu, listed
from poolgrad.gpu.frame import frame_of
from poolgrad.gpu.listed import CODE, PUT, VALUE, Tile
from poolgrad.windows import Pool, Windows, adaptive, explicit, fractional, regular

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
ALL = (VALUE, CODE, VALUE | CODE, PUT)
WINNERS = ALL[:3]
PARTS = 132  # of the GPU that is emulated
FORWARDS_AT_ONCE, BACKWARDS_LATE = 0, 3  # in which order threads run, and when copies are made


def drawn(seed, n, longest, overlapping):
    """Cells of a pooling sequence with steps of 1 to `longest`. If the last step is 1, two windows may end together."""
    rng, edges = random.Random(seed), [0]
    while edges[-1] < n - longest:
        edges.append(edges[-1] + rng.randint(1, longest))
    return fractional(n, [*edges, n], overlapping)


def gaps(seed, n, longest):
    """Windows in order with gaps, also at both ends. No element is in more than two of them."""
    rng, start, stop = random.Random(seed), [0, 2], [1, 3]
    while stop[-1] < n:
        start.append(rng.randint(max(start[-1] + 1, stop[-2]), stop[-1] + 3))
        stop.append(rng.randint(max(start[-1], stop[-1]) + 1, start[-1] + longest))
    return Windows(n, len(start) - 3, starts=np.array(start[2:-1]), stops=np.array(stop[2:-1]))


class Case(NamedTuple):
    images: int
    windows: tuple
    dtype: torch.dtype = F32
    tile: Tile | None = None
    put: Tile | None = None
    aligned: bool = True
    wanted: tuple = ALL  # images of short floats: only winners

    @property
    def pool(self):
        return Pool((1, self.images, *(w.size for w in self.windows)), 2, self.windows, 1)

    def walk(self, wanted):
        tile = self.put if wanted & PUT else self.tile
        return listed.walk.__wrapped__(self.pool, place(), self.dtype, wanted, self.aligned, tile)


CASES = {
    "fractional": Case(3, (drawn(1, 20, 3, False), drawn(2, 24, 3, False))),
    "overlapping": Case(3, (drawn(3, 21, 2, True), drawn(4, 32, 3, True))),
    "many images": Case(70, (drawn(5, 9, 2, True), drawn(6, 13, 2, True)), F16, wanted=WINNERS),
    "overlapping volumes": Case(2, (drawn(7, 9, 2, True), drawn(8, 11, 2, True), drawn(9, 20, 2, True))),
    "disjoint volumes": Case(2, (drawn(10, 9, 3, False), drawn(11, 11, 3, False), drawn(12, 24, 3, False)), BF16),
    "adaptive": Case(5, (adaptive(23, 9), adaptive(29, 12))),
    "adaptive, many": Case(2, (adaptive(17, 13), adaptive(24, 20)), BF16, wanted=WINNERS),
    "adaptive volumes": Case(3, (adaptive(9, 5), adaptive(10, 4), adaptive(16, 9)), F16),
    "wide": Case(2, (drawn(13, 8, 2, True), drawn(14, 600, 3, True)), wanted=(VALUE | CODE, PUT)),
    "wide and short": Case(2, (drawn(15, 7, 2, True), drawn(16, 601, 2, False)), F16, wanted=(VALUE,)),
    "wide volumes": Case(2, (adaptive(5, 3), adaptive(8, 5), adaptive(304, 123)), BF16, wanted=(VALUE | CODE, PUT)),
    "tall volumes": Case(1, (adaptive(4, 3), adaptive(300, 200), adaptive(13, 9)), wanted=(CODE, PUT)),
    "tiles": Case(
        5, (drawn(17, 40, 3, True), drawn(18, 64, 3, True)), F32, Tile((5, 2, 8), 1, 3, 2), Tile((7, 3, 24), 1, 3, 2)
    ),
    "tiles of short floats": Case(
        5, (drawn(17, 40, 3, False), drawn(18, 64, 3, True)), F16, Tile((5, 2, 8), 2, 4, 2), wanted=WINNERS
    ),
    "tiles of short volumes": Case(
        2,
        (drawn(40, 9, 3, True), drawn(41, 12, 2, True), drawn(42, 40, 3, True)),
        BF16,
        put=Tile((4, 5, 24), 2, 4, 2),
        wanted=(PUT,),
    ),
    "tiles of volumes": Case(
        2,
        (drawn(19, 20, 3, True), drawn(20, 18, 2, True), drawn(21, 40, 2, True)),
        F32,
        Tile((3, 5, 16), 1, 3, 2),
        Tile((6, 5, 16), 1, 3, 2),
    ),
    "tiles that fill their columns": Case(
        6,
        (drawn(50, 12, 2, True), drawn(51, 4, 2, True), drawn(67, 100, 4, True)),
        put=Tile((12, 4, 28), 1, 3, 2),
        aligned=False,
        wanted=(PUT,),
    ),
    "unaligned": Case(3, (adaptive(11, 6), adaptive(15, 8), adaptive(24, 14)), F32, aligned=False),
    "unaligned, short": Case(3, (drawn(22, 24, 3, True), drawn(23, 24, 3, True)), BF16, aligned=False, wanted=WINNERS),
    "unaligned volumes, short": Case(
        2, (adaptive(7, 3), adaptive(9, 4), drawn(43, 24, 3, True)), BF16, aligned=False, wanted=(VALUE, PUT)
    ),
    "ends together": Case(2, tuple(fractional(n, [0, 1, 3, n - 3, n - 1, n], True) for n in (7, 7, 8))),
    "gaps": Case(3, (gaps(24, 31, 4), gaps(25, 40, 4))),
    "gaps in volumes": Case(2, (gaps(26, 17, 3), gaps(27, 15, 3), gaps(28, 40, 3)), F16),
    "gaps and tiles": Case(
        2,
        (gaps(29, 24, 2), gaps(30, 15, 3), gaps(31, 40, 3)),
        F32,
        Tile((3, 2, 8), 1, 3, 2),
        Tile((2, 2, 8), 1, 3, 2),
    ),
    "regular beside listed": Case(3, (adaptive(20, 9), regular(33, 2, 2))),
    "a rest beside listed": Case(2, (drawn(32, 9, 2, True), explicit(21, 3, 2, 0, 0), regular(35, 2, 3))),
    "every fourth plane": Case(
        2, (regular(33, 1, 4), adaptive(20, 9)), F32, Tile((3, 2, 9), 1, 3, 2), Tile((6, 2, 20), 1, 3, 2)
    ),
    "columns far apart": Case(2, (adaptive(20, 9), regular(400, 1, 20)), wanted=(VALUE | CODE, PUT)),
    "long windows": Case(2, (adaptive(45, 8), adaptive(96, 17)), wanted=(VALUE | CODE, PUT)),
    "one image": Case(1, (drawn(33, 90, 3, True), drawn(34, 40, 2, True)), wanted=(VALUE, PUT)),
}


# ---------------------------------------------------------------------------------------------------------------------
# The GPU, or what stands in for it


def place():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def standing_in(compiled, driver):
    """A compiler and a driver in the place of CUDA's, where there is none. Small arrays too are for the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listed, "FEWEST", 0)
        if place().type == "cpu":
            patch.setattr(listed, "_compiles", lambda device: True)
            patch.setattr(listed, "_compiled", compiled)
            patch.setattr(listed, "_driver", lambda: driver)
            patch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=PARTS))
            patch.setattr(torch.cuda, "current_device", lambda: -1)
            patch.setattr(listed, "_stream", lambda device: 0)
            patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        listed.walk.cache_clear()
        yield
        listed.walk.cache_clear()


def names_of_all():
    """The kernels that the cases need."""
    names = []
    with standing_in(lambda name, *_: names.append(name), None):
        for case in CASES.values():
            for wanted in case.wanted:
                case.walk(wanted)
    return list(dict.fromkeys(names))


def built(names, folder):
    """They, compiled for the processor, once for all that run tests at the same time."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler to emulate a GPU")
    here = Path(__file__).parent
    kernels = Path(str(resources.files("poolgrad.gpu").joinpath("listed.cu")))
    calls = [f'extern "C" void kernel_{i}(void** given) {{ call({name}, given); }}' for i, name in enumerate(names)]
    source = "\n".join([f'#include "{here / "emulated.hpp"}"', f'#include "{kernels}"', *calls, ""])
    library = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.so"
    with open(folder / "emulated.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            text = library.with_suffix(".cpp")
            text.write_text(source)
            options = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC"]
            subprocess.run([compiler, *options, str(text), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="session")
def emulator(tmp_path_factory):
    """The library with the emulated kernels, and how to find one in it."""
    if place().type == "cuda":
        if not listed._compiles(place()):
            pytest.skip("PyTorch compiles no CUDA C++ for this GPU")
        return None, None
    names, folder = names_of_all(), tmp_path_factory.getbasetemp()
    library = built(names, folder.parent if folder.name.startswith("popen-") else folder)
    at = {name: ctypes.cast(library[f"kernel_{i}"], ctypes.c_void_p) for i, name in enumerate(names)}
    return library, lambda name, *_: SimpleNamespace(func=at[name])


@pytest.fixture
def gpu(emulator):
    library, compiled = emulator
    with standing_in(compiled, library):
        yield library


# ---------------------------------------------------------------------------------------------------------------------
# The definition


class Definition:
    """Which element of every window wins: the first of the largest, and NaN is the largest."""

    def __init__(self, pool, x):
        x = x.cpu().float().numpy()
        self.pool, images = pool, pool.outer
        self.shape, counts = pool.spatial_shape, pool.out_spatial_shape
        x = x.reshape(images, *self.shape)
        self.codes, self.index = (np.empty((images, *counts), np.int64) for _ in range(2))
        cells = [list(zip(w.start.tolist(), w.stop.tolist())) for w in pool.windows]
        for o in np.ndindex(*counts):
            begin, end = zip(*(axis[i] for axis, i in zip(cells, o)))
            cut = x[(slice(None), *map(slice, begin, end))]
            local = np.unravel_index(cut.reshape(images, -1).argmax(1), cut.shape[1:])
            self.codes[(slice(None), *o)] = np.ravel_multi_index(local, pool.extents)
            self.index[(slice(None), *o)] = np.ravel_multi_index([b + at for b, at in zip(begin, local)], self.shape)
        self.index = self.index.reshape(images, -1)
        self.codes = torch.from_numpy(self.codes).reshape(pool.out_shape)

    def take(self, x):
        flat = x.cpu().float().numpy().reshape(self.pool.outer, -1)
        return torch.from_numpy(np.take_along_axis(flat, self.index, 1)).reshape(self.pool.out_shape)

    def put(self, g):
        """Sums of 32-bit floats in the order of the windows."""
        gx = np.zeros((self.pool.outer, np.prod(self.shape)), np.float32)
        images, passed = np.arange(self.pool.outer), g.cpu().float().numpy().reshape(self.pool.outer, -1)
        for o in range(passed.shape[1]):
            gx[images, self.index[:, o]] += passed[:, o]
        return torch.from_numpy(gx).reshape(self.pool.shape)


def same(got, want):
    """To the bit, where NaN is NaN."""
    got, want = got.cpu(), want.to(got.dtype)
    if got.is_floating_point():
        kind = torch.int32 if got.dtype == F32 else torch.int16
        got, want = (torch.where(t.isnan(), torch.nan, t).view(kind) for t in (got, want))
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def troubled(rng, shape, dtype):
    """Few different numbers, so that there are ties; NaN, infinities and both zeros."""
    values, often = [-2.0, -1.0, -0.0, 0.0, -np.inf, np.inf, 3.25, np.nan], [30, 25, 10, 10, 20, 2, 1, 2]
    x = rng.choice(values, shape, p=np.array(often) / 100)
    nothing = x[..., : shape[-1] // 3]  # but -inf, almost
    nothing[rng.random(nothing.shape) < 0.98] = -np.inf
    return torch.from_numpy(x).to(dtype)


def uneven(rng, shape, dtype):
    """Numbers so different in size that the order of additions is seen."""
    large = 2.0 ** rng.integers(-8, 13, shape) * rng.choice([-1, 1], shape) * rng.random(shape)
    return torch.from_numpy(np.where(rng.random(shape) < 0.1, -0.0, large)).to(dtype)


GUARD = 64


class Guarded:
    """An array between values that nobody should touch."""

    def __init__(self, like, aligned):
        n, begin = like.numel(), GUARD + (not aligned)
        odd = torch.nan if like.is_floating_point() else 255
        self.memory = torch.full((n + 2 * GUARD + 1,), odd, dtype=like.dtype, device=place())
        self.array = self.memory[begin : begin + n].view(like.shape)
        self.array.copy_(like)
        self.before = self.bits().clone()
        self.inside = slice(begin, begin + n)

    def bits(self):
        return self.memory.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[self.memory.itemsize])

    def check(self, untouched=False):
        changed = self.bits() != self.before
        if not untouched:
            changed[self.inside] = False
        assert not changed.any()


def emulated(gpu, mode, x):
    """Sets how the next kernel is emulated; copies must lie in x."""
    if gpu is not None:
        ctypes.c_int.in_dll(gpu, "mode").value = mode
        for name, at in (("array_begin", 0), ("array_end", x.numel() * x.itemsize)):
            ctypes.c_void_p.in_dll(gpu, name).value = x.data_ptr() + at


def run(case, wanted, x, g, gpu, mode):
    """What the kernel makes of it: values and codes."""
    pool = case.pool
    values = torch.full(pool.shape if wanted & PUT else pool.out_shape, torch.nan, dtype=case.dtype)
    codes = torch.full(pool.out_shape, 255, dtype=torch.uint8)
    x, g, values, codes = (Guarded(array, case.aligned) for array in (x, g, values, codes))
    walk = case.walk(wanted)
    assert walk is not None, "these windows should be for the kernel"
    emulated(gpu, mode, x.array)
    walk(x.array, g.array, values.array, codes.array)
    x.check(untouched=True)
    g.check(untouched=True)
    values.check(untouched=wanted == CODE)
    codes.check(untouched=not wanted & CODE)
    return values.array, codes.array


@pytest.mark.parametrize("mode", [FORWARDS_AT_ONCE, BACKWARDS_LATE])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_definition(name, mode, gpu):
    case, rng = CASES[name], np.random.default_rng(len(name))
    x, g = troubled(rng, case.pool.shape, case.dtype), uneven(rng, case.pool.out_shape, case.dtype)
    definition = Definition(case.pool, x)
    for wanted in case.wanted:
        values, codes = run(case, wanted, x, g, gpu, mode)
        if wanted & VALUE:
            same(values, definition.take(x))
        if wanted & CODE:
            same(codes, definition.codes)
        if wanted & PUT:
            same(values, definition.put(g))


@pytest.mark.parametrize("name", ["overlapping", "disjoint volumes", "adaptive volumes"])
def test_the_maps_use_it(name, gpu, monkeypatch):
    case, rng, starts = CASES[name], np.random.default_rng(7), []
    pool, start = case.pool, listed.Walk.__call__
    monkeypatch.setattr(listed.Walk, "__call__", lambda self, *given: starts.append(start(self, *given)))
    x = troubled(rng, pool.shape, case.dtype).to(place())
    g = uneven(rng, pool.out_shape, case.dtype).to(place())
    definition = Definition(pool, x)
    emulated(gpu, FORWARDS_AT_ONCE, x)
    maps = Gpu()
    same(maps.maximum(pool, x, "propagate"), definition.take(x))
    same(maps.choose(pool, x, "propagate"), definition.codes)
    for got, want in zip(maps.maximum_and_choice(pool, x, "propagate"), (definition.take(x), definition.codes)):
        same(got, want)
    same(maps.max_put(pool, x, g, "first", "propagate"), definition.put(g))
    assert len(starts) == 4


@pytest.mark.skipif("poolgrad.cpu.missing" in sys.modules, reason="needs the CPU kernels")
@pytest.mark.parametrize("name", ["overlapping", "gaps", "many images", "adaptive volumes"])
def test_the_cpu_kernels_have_the_same_definition(name):
    case, rng = CASES[name], np.random.default_rng(8)
    x, g = troubled(rng, case.pool.shape, case.dtype), uneven(rng, case.pool.out_shape, case.dtype)
    definition = Definition(case.pool, x)
    y, codes = Numpy().maximum_and_choice(case.pool, x.numpy(), "propagate")
    same(torch.from_numpy(y), definition.take(x))
    same(torch.from_numpy(codes), definition.codes)
    same(torch.from_numpy(Numpy().max_put(case.pool, x.numpy(), g.numpy(), "first", "propagate")), definition.put(g))


# ---------------------------------------------------------------------------------------------------------------------
# What the kernel is for, and its tiles


LISTED = adaptive(40, 18)
UNSUITED = {
    "windows that need no tables": (regular(40, 2, 2), regular(40, 2, 2)),
    "dilation": (LISTED, regular(40, 2, 3, "VALID", 2)),
    "padding": (LISTED, explicit(40, 3, 2, 1, 1)),
    "three windows for an element": (LISTED, regular(40, 3, 1)),
    "windows that begin together": (LISTED, adaptive(40, 50)),
    "long windows": (LISTED, adaptive(40, 6)),
    "windows of many elements": (adaptive(40, 9), adaptive(40, 9), adaptive(40, 9)),
    "an axis": (LISTED,),
    "a long axis": (LISTED, adaptive(20000, 9000)),
}


def suits(windows, dtype=F32, images=2**20, channels=()):
    shape = (images, *(w.size for w in windows), *channels)
    return listed.suits(frame_of(Pool(shape, 1, tuple(windows), images), torch.device("cpu")), dtype)


@pytest.mark.parametrize("name", UNSUITED)
def test_other_windows_are_not_for_it(name):
    assert not suits(UNSUITED[name])


def test_gradients_of_images_of_short_floats_are_not_for_it():
    """Triton's kernels are quicker at them."""
    with standing_in(None, None):
        for dtype in (F16, BF16):
            assert CASES["overlapping"]._replace(dtype=dtype).walk(PUT) is None


def test_what_is_for_it():
    windows = (LISTED, LISTED)
    for dtype in (F32, F16, BF16):
        assert suits(windows, dtype)
    for dtype in (torch.float64, torch.int8, torch.int32, torch.uint8, torch.int64):
        assert not suits(windows, dtype)
    assert not suits(windows, channels=(8,))
    assert suits(windows, channels=(1,))
    assert suits((LISTED, LISTED, adaptive(30, 14)))
    assert suits((regular(40, 2, 2), LISTED)) and suits((LISTED, regular(40, 2, 2)))
    assert not suits(windows, images=1)  # too few elements for a GPU


def draw_windows(rng):
    n, kind = rng.randint(2, rng.choice([12, 70, 300, 900])), rng.choice(["apart", "overlapping", "adaptive", "gaps"])
    if kind == "adaptive":
        return adaptive(n, rng.randint(-(-n // 6), n))
    if kind == "gaps":
        return gaps(rng.random(), n + 20, rng.randint(1, 5))
    return drawn(rng.random(), n, rng.randint(1, 5), kind == "overlapping")


def reached(axis, own, put, step):
    """With how many windows a tile of an axis has to do, at most, and how many elements those have: one by one."""
    if isinstance(axis, listed.Images):
        return min(own, axis.count), min(own, axis.count)
    cells, most, span = list(zip(axis.windows.start.tolist(), axis.windows.stop.tolist())), 0, 0
    for begin in range(0, axis.size if put else axis.count, own):
        its = [c for c in cells if c[1] > begin and c[0] < begin + own] if put else cells[begin : begin + own]
        if its:
            most, span = max(most, len(its)), max(span, its[-1][1] - its[0][0] // step * step)
    return most, span


@pytest.mark.parametrize("seed", range(60))
def test_tiles_fit(seed, monkeypatch):
    monkeypatch.setattr(listed, "FEWEST", 0)
    rng, tiles = random.Random(seed), 0
    while tiles < 4:
        windows = tuple(draw_windows(rng) for _ in range(rng.choice([2, 3])))
        pool = Pool((rng.choice([1, 3, 200]), *(w.size for w in windows)), 1, windows)
        frame, dtype = frame_of(pool, torch.device("cpu")), rng.choice([F32, F16, BF16])
        if not listed.suits(frame, dtype):
            continue
        tiles += 1
        axes, _ = listed.seen(frame)
        step = listed.vector_of(axes, dtype, rng.random() < 0.8)
        for wanted in (VALUE, VALUE | CODE, PUT):
            put = wanted == PUT
            tile = listed.tile_of(axes, dtype, step, wanted, frame.outer, PARTS)
            (on_h, rows), (on_w, columns) = (reached(axes[i], tile.own[i], put, step ** (i - 1)) for i in (1, 2))
            columns = max(columns, tile.own[2]) if put else columns
            pitch = next(n for n in (32, 64, 128) if columns <= n)
            sums = 4 * axes[0].extent * tile.own[1] if put else 0
            assert on_h * on_w <= tile.each * 256 and tile.each <= 4
            shared = pitch * (tile.stages * rows * dtype.itemsize + sums)
            assert shared <= listed.SHARED
            assert tile.blocks >= 2
            assert tile.blocks * shared <= 224 * 1024  # of an H200, which keeps the rest
            assert (axes[0].extent - 1) * tile.own[1] * pitch < 2**15 or not put  # what `place` has room for
            assert all(0 < own <= n for own, n in zip(tile.own, listed.places_of(axes, put)))
            assert tile.own[2] % step == 0 or tile.own[2] == axes[2].size or not put
