"""The benchmark cases as data: everything that is measured is listed here, once, and all other files read it.

Shapes are channels-last; peers and poolgrad receive the same values in the layout they run in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

TIMES = "\N{MULTIPLICATION SIGN}"

MAX = ("max_forward", "max_forward_choice", "max_grad", "max_gradgrad", "max_grad_choice", "max_gradgrad_choice")
AVG = ("avg_forward", "avg_grad")
FIRST_ORDER = ("max_grad", "max_grad_choice", "avg_grad")
SECOND_ORDER = ("max_gradgrad", "max_gradgrad_choice")
FORWARD = ("max_forward", "avg_forward")
STARTS_FROM_INPUT = ("max_forward", "max_forward_choice", "max_grad", "max_gradgrad")

OPERATORS = {
    "max_forward": "max forward",
    "max_forward_choice": "max forward with choice",
    "max_grad": "max gradient, input given",
    "max_gradgrad": "max second order, input given",
    "max_grad_choice": "max gradient, choice given",
    "max_gradgrad_choice": "max second order, choice given",
    "avg_forward": "average forward",
    "avg_grad": "average gradient",
}

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "uint8": 1}


@dataclass(frozen=True)
class Case:
    """One pooling geometry on one array: `shape` is [batch, spatial..., channel]."""

    name: str
    group: str
    shape: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str
    operators: tuple[str, ...]
    dtype: str = "float32"
    layouts: tuple[str, ...] = ("last", "first")
    ratio: tuple[float, ...] | None = None
    overlapping: bool = False
    quick: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape) - 2

    @property
    def spatial(self) -> tuple[int, ...]:
        return self.shape[1:-1]

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """(before, after) of each spatial axis."""
        if self.padding == "VALID":
            return ((0, 0),) * self.rank
        totals = [
            max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(self.spatial, self.window, self.stride, strict=True)
        ]
        return tuple((total // 2, total - total // 2) for total in totals)

    @property
    def out_spatial(self) -> tuple[int, ...]:
        if self.ratio:
            return tuple(int(n / r) for n, r in zip(self.spatial, self.ratio, strict=True))
        return tuple(
            (n + before + after - k) // s + 1
            for n, k, s, (before, after) in zip(self.spatial, self.window, self.stride, self.pads, strict=True)
        )

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.shape[0], *self.out_spatial, self.shape[-1])

    @property
    def disjoint(self) -> bool:
        """Windows do not overlap: k = s, or fractional cells that share no border."""
        return not self.overlapping if self.ratio else self.window == self.stride

    @property
    def label(self) -> str:
        dtype = "" if self.dtype == "float32" else f" {self.dtype}"
        return f"{self.name}{dtype}"

    @property
    def title(self) -> str:
        """The case in one line, for tables."""
        shape = TIMES.join(map(str, self.shape))
        if self.ratio:
            kind = "overlapping" if self.overlapping else "disjoint"
            return f"{shape} ratio {TIMES.join(map(str, self.ratio))} {kind}"
        window = TIMES.join(map(str, self.window)) if len(set(self.window)) > 1 else str(self.window[0])
        stride = TIMES.join(map(str, self.stride)) if len(set(self.stride)) > 1 else str(self.stride[0])
        return f"{shape} k{window} s{stride} {self.padding}"


@dataclass(frozen=True)
class Cell:
    """One operator of one case: what is timed against each other in the same rounds."""

    case: Case
    operator: str

    @property
    def name(self) -> str:
        return f"{self.case.label} {self.operator}"

    @property
    def search_text(self) -> str:
        return f"{self.case.group} {self.case.title} {self.case.dtype} {self.name}"

    @property
    def bytes(self) -> int:
        """What has to move: every array the rule must read, read once, and the output written once."""
        return self.read + self.written

    @property
    def read(self) -> int:
        """The choice counts as poolgrad stores it; orig_output counts where its values decide the result."""
        x, y = self._input, self._output
        compared = y if self.case.rank == 3 or self.case.ratio else 0
        return {
            "max_forward": x,
            "max_forward_choice": x,
            "max_grad": x + compared + y,
            "max_gradgrad": x + y + x,
            "max_grad_choice": y + self._choice,
            "max_gradgrad_choice": x + self._choice,
            "avg_forward": x,
            "avg_grad": y,
        }[self.operator]

    @property
    def written(self) -> int:
        if self.operator in FIRST_ORDER:
            return self._input
        return self._output + (self._choice if self.operator == "max_forward_choice" else 0)

    @property
    def _input(self) -> int:
        return prod(self.case.shape) * ITEM_BYTES[self.case.dtype]

    @property
    def _output(self) -> int:
        return prod(self.case.out_shape) * ITEM_BYTES[self.case.dtype]

    @property
    def _choice(self) -> int:
        return prod(self.case.out_shape) * choice_bytes(self.case)


def choice_bytes(case: Case) -> int:
    """Bytes poolgrad stores for one chosen element."""
    elements = 9 if case.ratio else prod(min(k, n) for k, n in zip(case.window, case.spatial, strict=True))
    return 1 if elements <= 256 else 2 if elements <= 65536 else 4


def _square(name: str, group: str, shape: tuple[int, ...], k: int, s: int, padding: str, **more: object) -> Case:
    rank = len(shape) - 2
    settings: dict[str, object] = {"operators": MAX + AVG, **more}
    return Case(name, group, shape, (k,) * rank, (s,) * rank, padding, **settings)  # type: ignore[arg-type]


_IMAGES = (32, 112, 112, 64)
_BLOCKS = (4, 32, 64, 64, 32)
_VOLUME = (1, 256, 256, 256, 1)

PLAIN = (
    _square("2d-k3s2", "2-D", _IMAGES, 3, 2, "SAME", quick=MAX + AVG),
    _square("2d-k2s2", "2-D", _IMAGES, 2, 2, "VALID", quick=("max_grad",)),
    _square("2d-k3s1", "2-D", (8, 56, 56, 256), 3, 1, "SAME", quick=("max_forward", "max_grad", "max_gradgrad")),
    _square("3d-k2s2", "3-D", _BLOCKS, 2, 2, "VALID", quick=("max_grad", "avg_grad")),
    _square("3d-k3s2", "3-D", _BLOCKS, 3, 2, "SAME", quick=("max_forward", "max_grad", "max_gradgrad")),
    _square("volume-k2s2", "volume", _VOLUME, 2, 2, "VALID"),
    _square("volume-k3s2", "volume", _VOLUME, 3, 2, "SAME"),
)

_BY_NAME = {case.name: case for case in PLAIN}
_TYPED = ("max_forward", "max_grad", "max_gradgrad", "max_grad_choice", *AVG)


def _typed(name: str, dtype: str, operators: tuple[str, ...] = _TYPED) -> Case:
    quick = ("max_forward",) if (name, dtype) == ("2d-k3s2", "bfloat16") else ()
    return replace(_BY_NAME[name], dtype=dtype, group="dtypes", operators=operators, quick=quick)


DTYPES = (
    _typed("2d-k3s2", "bfloat16"),
    _typed("3d-k2s2", "bfloat16"),
    _typed("2d-k3s2", "float16"),
    _typed("2d-k3s2", "float64"),
    _typed("3d-k2s2", "float64"),
    _typed("2d-k2s2", "uint8", ("max_forward", "max_forward_choice", "max_grad")),
)

SMALL = (_square("small", "small", (1, 28, 28, 16), 2, 2, "VALID", quick=("max_forward", "max_grad", "max_gradgrad")),)

_FRACTIONAL = ("max_forward", "max_grad", "max_gradgrad", "avg_forward", "avg_grad")
FRACTIONAL = tuple(
    Case(
        f"fractional-{kind}", "fractional", (16, 64, 64, 32), (2, 2), (1, 1), "VALID", _FRACTIONAL,
        ratio=(1.44, 1.73), overlapping=kind == "overlapping", quick=("max_grad",) if kind == "disjoint" else (),
    )
    for kind in ("disjoint", "overlapping")
)  # fmt: skip

_LARGE = ("max_forward", "max_grad", "max_gradgrad", "avg_forward", "avg_grad")
LARGE = (
    *(
        Case(
            f"1d-k{k}", "large", (1, 1, 100001, 1), (1, k), (1, 1), "SAME", _LARGE, layouts=("last",),
            quick=("max_forward",) if k == 513 else (),
        )
        for k in (3, 33, 513)
    ),
    _square("512x512-k65", "large", (1, 512, 512, 1), 65, 1, "SAME", operators=_LARGE, layouts=("last",)),
    _square("2d-k7s1", "large", (8, 56, 56, 256), 7, 1, "SAME", operators=MAX + AVG),
)  # fmt: skip

CASES = (*PLAIN, *DTYPES, *SMALL, *FRACTIONAL, *LARGE)


def cells(filter: str = "", quick: bool = False) -> list[Cell]:
    """The cells whose name holds every word of `filter`; with `quick` and no filter the representative ones."""
    words = filter.split()
    return [cell for cell in _all(quick and not words) if all(word in cell.search_text for word in words)]


def _all(quick: bool) -> Iterator[Cell]:
    for case in CASES:
        for operator in case.quick if quick else case.operators:
            yield Cell(case, operator)
