"""Pooling sequences of fractional pooling: where the cells of an axis begin and end.

A sequence for an axis of length n is a read-only int64 array 0 = a[0] < a[1] < ... < a[m] = n whose steps are n // m or
one more. The same seeds give the same sequence as TensorFlow's `FractionalMaxPool` and `FractionalAvgPool`, on every
machine. A sequence is a value: pass it to gradients, to other arrays, to `windows.fractional`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from . import checks
from .checks import Int64Array
from .errors import InvalidArgument


def fractional(n: int, ratio: float, *, pseudo_random: bool = False, seed: int = 0, seed2: int = 0) -> Int64Array:
    """The sequence for one axis of length n, cut into `output_size(n, ratio)` cells.

    With `pseudo_random` the cell borders are an evenly spaced grid with a random phase, otherwise cells of the two
    possible lengths follow each other in random order.

    >>> fractional(10, 1.5, seed=3)
    array([ 0,  2,  3,  5,  6,  8, 10])
    >>> fractional(10, 1.5, seed=3, pseudo_random=True)
    array([ 0,  1,  3,  5,  6,  8, 10])
    """
    return fractional_axes([n], [ratio], pseudo_random=pseudo_random, seed=seed, seed2=seed2)[0]


def fractional_axes(
    sizes: Sequence[int], ratios: Sequence[float], *, pseudo_random: bool = False, seed: int = 0, seed2: int = 0
) -> tuple[Int64Array, ...]:
    """The sequences of several axes, drawn one after the other from one generator: rows first, then columns, and so on.

    >>> rows, columns = fractional_axes([6, 9], [1.5, 2.0], seed=1, seed2=2)
    >>> rows, columns
    (array([0, 1, 3, 4, 6]), array([0, 2, 4, 7, 9]))
    """
    sizes, ratios = checks.integers("sizes", sizes), checks.numbers("ratios", ratios)
    if len(sizes) != len(ratios):
        checks.refuse("ratios", ratios, f"{len(sizes)} numbers, one per axis")
    counts = [output_size(n, ratio) for n, ratio in zip(sizes, ratios, strict=True)]
    return counted_axes(sizes, counts, pseudo_random=pseudo_random, seed=seed, seed2=seed2)


def counted_axes(
    sizes: Sequence[int], counts: Sequence[int], *, pseudo_random: bool = False, seed: int = 0, seed2: int = 0
) -> tuple[Int64Array, ...]:
    """The sequences of several axes, given how many cells each is cut into instead of a ratio.

    >>> counted_axes([6, 9], [4, 4], seed=1, seed2=2)
    (array([0, 1, 3, 4, 6]), array([0, 2, 4, 7, 9]))
    """
    sizes, counts = checks.integers("sizes", sizes, at_least=1), checks.integers("counts", counts, at_least=1)
    if len(sizes) != len(counts) or any(count > n for n, count in zip(sizes, counts, strict=True)):
        checks.refuse("counts", counts, f"for each axis of {sizes} at most one cell per element")
    cut = _evenly_spaced if checks.flag("pseudo_random", pseudo_random) else _shuffled
    generator = Philox(seed, seed2)
    return tuple(cut(n, count, generator) for n, count in zip(sizes, counts, strict=True))


def output_size(n: int, ratio: float) -> int:
    """How many cells an axis is cut into: n / ratio rounded down, the division done in single precision.

    >>> output_size(11, 1.1), int(11 / float(np.float32(1.1)))
    (10, 9)
    """
    n = checks.integer("n", n)
    with np.errstate(over="ignore"):
        single = np.float32(checks.number("ratio", ratio))
    if not single >= 1:
        checks.refuse("ratio", ratio, "at least 1")
    if n < single:
        raise InvalidArgument(
            f"ratio is {ratio}, more than the {n} elements of the axis", argument="ratio", given=ratio
        )
    return min(n, int(np.float32(n) / single))  # above 2**24 a length may round up in single precision


def fresh_seeds() -> tuple[int, int]:
    """A pair of seeds that nobody has used before."""
    return int.from_bytes(os.urandom(8), "little"), int.from_bytes(os.urandom(8), "little")


class Philox:
    """The counter-based generator Philox4x32-10: `seed` is the key, `seed2` the upper half of the counter.

    >>> Philox(1, 2).words(3)
    array([3878945999, 2364392915, 1057429302], dtype=uint32)
    """

    def __init__(self, seed: int, seed2: int = 0) -> None:
        self._key = _halves(_modulo_2_64("seed", seed))
        self._stream = _halves(_modulo_2_64("seed2", seed2))
        self._block = 0

    def words(self, count: int) -> npt.NDArray[np.uint32]:
        """The next `count` words of 32 bits. Every call begins with a fresh block of four."""
        blocks = -(-count // 4)
        counters = np.arange(self._block, self._block + blocks, dtype=np.uint64)
        self._block += blocks
        low, high = counters & _MASK, counters >> _SHIFT
        words = np.stack(_rounds(low, high, self._stream, self._key), axis=1)
        return words.astype(np.uint32).ravel()[:count]


_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)

_Words = npt.NDArray[np.uint64]


def _rounds(low: _Words, high: _Words, stream: tuple[int, int], key: tuple[int, int]) -> tuple[_Words, ...]:
    c0, c1 = low, high
    c2, c3 = (np.full_like(low, half) for half in stream)
    for r in range(10):
        k0, k1 = (np.uint64((half + r * step) & 0xFFFFFFFF) for half, step in zip(key, _WEYL, strict=True))
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _MASK,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _MASK,
        )
    return c0, c1, c2, c3


def _shuffled(n: int, count: int, generator: Philox) -> Int64Array:
    """Cells of both lengths in random order: a forward Fisher-Yates shuffle, one word per cell."""
    short, longer = divmod(n, count)
    cells = [short + 1] * longer + [short] * (count - longer)
    left = np.arange(count, 0, -1, dtype=np.uint64)
    partners = (np.arange(count, dtype=np.uint64) + generator.words(count) % left).tolist()
    for i, j in enumerate(partners[:-1]):
        cells[i], cells[j] = cells[j], cells[i]
    return _sealed(list(accumulate(cells, initial=0)))


def _evenly_spaced(n: int, count: int, generator: Philox) -> Int64Array:
    """Borders at alpha * (i + u) with one random phase u, rounded up; u is small enough that no cell grows too long."""
    first, second = (int(word) for word in generator.words(2))
    fraction = ((first & 0xFFFFF) << 32 | second) / 2**52
    alpha, short = n / count, n // count
    u = fraction * min((short + 2) / alpha - 1, (n + 1 - short) / alpha - (count - 1))
    borders = np.ceil(alpha * (np.arange(1, count) + u)).astype(np.int64) - 1
    return _sealed([0, *borders.tolist(), n])


def _sealed(edges: list[int]) -> Int64Array:
    sequence = np.array(edges, np.int64)
    sequence.flags.writeable = False
    return sequence


def _modulo_2_64(name: str, value: int) -> int:
    seed = checks.integer(name, value)
    if not -(2**63) <= seed < 2**64:
        checks.refuse(name, seed, "an integer of 64 bits")
    return seed % 2**64


def _halves(word: int) -> tuple[int, int]:
    return word & 0xFFFFFFFF, word >> 32
