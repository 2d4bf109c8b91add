"""The same bits from the kernels of every instruction set: the default's are held against the reference elsewhere."""

import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from poolgrad import backends, cpu, windows
from poolgrad.windows import Pool

NAMES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = [np.dtype(name) for name in NAMES] + [np.dtype(ml_dtypes.bfloat16)]
KERNELS = [p for p in Path(__file__).parents[1].glob("src/poolgrad/cpu/*.cpp") if "POOLGRAD_KERNEL" in p.read_text()]
X86_64 = {
    "avx2": ["-march=x86-64-v3"],
    "avx512": ["-march=x86-64-v4"],
    "zen5": ["-march=x86-64-v4", "-DPOOLGRAD_ASKS_NEAREST"],
}
CHANNELS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 130]


@pytest.fixture
def every_set() -> Iterator[list[str]]:
    before = cpu.instruction_set()
    if len(cpu.instruction_sets()) < 2:
        pytest.skip("this processor runs one set of kernels only: nothing to compare it with")
    yield cpu.instruction_sets()
    cpu.use_instruction_set(before)


def some_windows(rng: np.random.Generator, longest: int) -> windows.Windows:
    n = int(rng.integers(1, longest))
    kind = rng.integers(4)
    if kind == 0:
        return windows.adaptive(n, int(rng.integers(1, n + 3)))
    if kind == 1:
        inner = np.sort(rng.choice(np.arange(1, n), int(rng.integers(0, n)), replace=False)) if n > 1 else []
        return windows.fractional(n, [0, *map(int, inner), n], bool(rng.integers(2)))
    window, stride, dilation = int(rng.integers(1, min(n, 6) + 1)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    return windows.regular(n, window, stride, "SAME", dilation if n > dilation * window else 1)


def some_pool(rng: np.random.Generator) -> Pool:
    rank = int(rng.integers(1, 4))
    axes = [some_windows(rng, 90 if a == rank - 1 else 12) for a in range(rank)]
    channels, letters, sizes = int(rng.choice(CHANNELS)), "DHW"[-rank:], tuple(w.size for w in axes)
    if rng.integers(2):
        return Pool.of((2, *sizes, channels), f"N{letters}C", axes)
    return Pool.of((2, channels, *sizes), f"NC{letters}", axes)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    low = 0 if dtype.kind == "u" else -40
    values = rng.integers(low, 41, shape) / (1 if dtype.kind in "iu" else 8)
    array = values.astype(dtype)
    if dtype.kind not in "iu" and rng.integers(3) == 0:
        array[rng.random(shape) < 0.05] = np.nan
        array[rng.random(shape) < 0.05] = -np.inf
        array[rng.random(shape) < 0.05] = -0.0
    return array


def everything(pool: Pool, x: np.ndarray, v: np.ndarray, g: np.ndarray) -> dict[str, bytes]:
    on = backends.of(x)
    y, choice = on.maximum_and_choice(pool, x, "propagate")
    results = {
        "maximum": y,
        "choose": choice,
        "ignoring": on.maximum(pool, x, "ignore"),
        "take": on.take(pool, v, choice),
        "put": on.put(pool, g, choice),
        "assign": on.put(pool, g, choice, assign=True),
        "max_put": on.max_put(pool, x, g, "first", "propagate"),
        "max_put equal": on.max_put(pool, x, g, "first", "propagate", equal_to=y),
        "max_take": on.max_take(pool, x, v, "first", "ignore"),
        "max_take equal": on.max_take(pool, x, v, "first", "propagate", equal_to=y),
        "mean": on.mean(pool, v),
        "spread": on.spread(pool, g),
    }
    return {name: canonical(result).tobytes() for name, result in results.items()}


def canonical(array: np.ndarray) -> np.ndarray:
    """One NaN for all: which of several NaN comes out of a sum is the processor's choice."""
    if array.dtype.kind in "iu":
        return array
    return np.where(np.isnan(array.astype(np.float32)), np.array(np.nan, array.dtype), array)


@pytest.mark.parametrize("seed", range(24))
def test_every_instruction_set_gives_the_same_bits(every_set: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for dtype in DTYPES:
        pool = some_pool(rng)
        data = numbers(rng, pool.shape, dtype), numbers(rng, pool.shape, dtype), numbers(rng, pool.out_shape, dtype)
        found = {}
        for name in every_set:
            cpu.use_instruction_set(name)
            found[name] = everything(pool, *data)
        for name in every_set:
            for operation, expected in found[every_set[-1]].items():
                assert found[name][operation] == expected, (operation, name, dtype, pool)


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("sizes", [(50, 112), (33, 30), (5, 20, 56)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_instruction_set_gives_the_same_averages_of_large_planes(
    every_set: list[str],
    rng: np.random.Generator,
    dtype: str,
    sizes: tuple[int, ...],
    stride: int,
    before: int,
    divided: bool,
) -> None:
    """Windows of 3 x 3 (x 3), whole rows of them and others, in more bytes than are read without asking ahead."""
    axes = [windows.explicit(size, 3, stride, before, 2 - before if stride == 1 else 1 - before) for size in sizes]
    check_averages(every_set, rng, np.dtype(dtype), axes, 1 << 20, divided)


@pytest.mark.parametrize("window", [2, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_instruction_set_writes_the_same_averages_past_the_caches(
    every_set: list[str], rng: np.random.Generator, dtype: str, window: int
) -> None:
    axes = [windows.regular(size, window, 2, "SAME") for size in (34, 60)]
    check_averages(every_set, rng, np.dtype(dtype), axes, 36 << 20, False)


def check_averages(
    every_set: list[str],
    rng: np.random.Generator,
    dtype: np.dtype,
    axes: list[windows.Windows],
    least: int,
    divided: bool,
) -> None:
    sizes = [w.size for w in axes]
    channels = 1 + least // (dtype.itemsize * int(np.prod(sizes)))
    pool = Pool.of((channels, *sizes), "C" + "DHW"[-len(sizes) :], axes)
    if divided:
        pool = pool.divided_by([[5, *[3] * (w.count - 2), 7] for w in axes])
    x, g = scattered(rng, pool.shape, dtype), scattered(rng, pool.out_shape, dtype)
    on, found = backends.of(x), {}
    for name in every_set:
        cpu.use_instruction_set(name)
        found[name] = canonical(on.mean(pool, x)), canonical(on.spread(pool, g))
    for name in every_set:
        for mine, expected in zip(found[name], found[every_set[-1]], strict=True):
            assert mine.tobytes() == expected.tobytes(), (name, dtype, pool)


def scattered(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Numbers of many sizes, so that the order in which they are added shows."""
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)).astype(dtype)


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(ValueError, match="not one of"):
        cpu.use_instruction_set("mmx")


MISSING = [
    pytest.param(source, name, id=f"{source.stem}-{name}")
    for name in X86_64
    for source in KERNELS
    if platform.machine().lower() in ("x86_64", "amd64") and name not in cpu.instruction_sets()
]


@pytest.mark.parametrize(("source", "name"), MISSING)
def test_the_sets_that_are_not_built_here_parse(source: Path, name: str) -> None:
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if not shutil.which(compiler[0]):
        pytest.skip("no C++ compiler: the kernels were installed from a wheel")
    options = ["-std=gnu++20", "-fsyntax-only", "-Wno-psabi", *X86_64[name], f"-DPOOLGRAD_ISA={name}"]
    checked = subprocess.run([*compiler, *options, str(source)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_every_intrinsic_of_avx512_is_emulated() -> None:
    """Where there is no AVX-512, `make emulate` compiles its kernels with these macros in place of the intrinsics."""
    sources = "".join(path.read_text() for path in Path(__file__).parents[1].glob("src/poolgrad/cpu/*.?pp"))
    used = set(re.findall(r"\b(_mm512_\w+|_mm(?:256)?_(?!movemask)\w*mask\w*)\(", sources))
    emulated = (Path(__file__).parents[1] / "tools" / "avx512.hpp").read_text()
    missing = {name for name in used if not re.search(rf"^#define {name}\b", emulated, re.MULTILINE)}
    assert len(used) > 50 and not missing
