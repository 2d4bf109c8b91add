"""Draws the benchmark picture: speed-up over the best peer as bars, fraction of the memory limit beside them.

Plain SVG with its own light and dark colours, so that it can stand in a README.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from typing import TypeAlias

from .cases import OPERATORS, TIMES, Cell
from .records import Row, geometric_mean

WIDTH = 868
LABELS = 150
BARS = (LABELS + 14, 545)
SHARE = (640, 800)
ROW, GAP, HEAD = 19, 40, 92
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
SHARES = (0.0, 0.5, 1.0)

STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 }
  .group { font-weight: 600 }
  .dim { fill: #59636e } .small { font-size: 11px }
  .grid { stroke: #d1d9e0; stroke-width: 1 } .even { stroke: #818b98; stroke-width: 1 }
  .last { fill: #0969da } .first { fill: #54aeff }
  .track { fill: #818b98; fill-opacity: .18 }
  .share { fill: #1a7f37 } .share2 { fill: #4ac26b }
  .slower { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .dim { fill: #9198a1 }
    .grid { stroke: #3d444d } .even { stroke: #656c76 }
    .last { fill: #4493f8 } .first { fill: #1f4f8f } .share { fill: #3fb950 } .share2 { fill: #1d6b30 }
    .slower { fill: #f85149 }
  }
"""

NAMES = {
    "2d-k3s2": "2-D, k3 s2",
    "2d-k2s2": "2-D, k2 s2",
    "2d-k3s1": "2-D, k3 s1",
    "3d-k2s2": "3-D, k2 s2",
    "3d-k3s2": "3-D, k3 s2",
    "volume-k2s2": "one channel, k2 s2",
    "volume-k3s2": "one channel, k3 s2",
}
Shares: TypeAlias = dict[tuple[Cell, str], float]
SHOWN = ("max_forward", "max_grad", "max_gradgrad", "max_grad_choice", "avg_forward", "avg_grad")


def draw(every: Sequence[Row], headline: str) -> str:
    """The picture as SVG text, from the float32 rows.

    Speed-ups are those of plain calls, fractions of the limit those of calls into reused memory, where a run has both.
    """
    chosen = [row for row in every if row.case.name in NAMES and row.case.dtype == "float32"]
    modes = {row.mode for row in chosen}
    plain = [row for row in chosen if row.mode == "default" or len(modes) == 1]
    shares = {(row.cell, row.layout): row.fraction for row in chosen if row.mode == "reused" or len(modes) == 1}
    groups = [(name, _pairs(plain, name)) for name in SHOWN]
    groups = [(name, pairs) for name, pairs in groups if pairs]
    axis = Axis.around(row.speedup() or 1.0 for row in plain if row.operator in SHOWN)
    body: list[str] = []
    y = HEAD
    for operator, pairs in groups:
        body += [*_grid(axis, y + 9, y + 14 + ROW * len(pairs)), *_group(operator, pairs, shares, axis, y)]
        y += GAP + ROW * len(pairs)
    bottom = y - 8
    parts = [*_head(headline), *body, *_scale(axis, bottom), *_legend(bottom + 24)]
    height = bottom + 36
    label = "Speed-up of poolgrad over the best peer, and fraction of the memory limit"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="-8 0 {WIDTH} {height}" '
        f'role="img" aria-label="{label}">\n<style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"
    )


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis of speed-ups that ends at the ticks around all values."""

    ticks: tuple[float, ...]

    @staticmethod
    def around(speedups: Iterable[float]) -> Axis:
        values = [1.0, *speedups]
        low = max((tick for tick in TICKS if tick <= min(values)), default=TICKS[0])
        high = min((tick for tick in TICKS if tick >= max(values)), default=TICKS[-1])
        return Axis(tuple(tick for tick in TICKS if low <= tick <= max(high, 5)))

    def x(self, speedup: float) -> float:
        low, high = log10(self.ticks[0]), log10(self.ticks[-1])
        part = (log10(speedup) - low) / (high - low)
        return round(BARS[0] + (BARS[1] - BARS[0]) * min(max(part, 0.0), 1.0), 1)


def _pairs(chosen: Sequence[Row], operator: str) -> list[dict[str, Row]]:
    """Per case the rows of both layouts."""
    found: dict[str, dict[str, Row]] = {}
    for row in chosen:
        if row.operator == operator and row.speedup():
            found.setdefault(row.case.name, {})[row.layout] = row
    return [pair for pair in found.values() if "last" in pair]


def _head(headline: str) -> Iterator[str]:
    yield _text(0, 20, "poolgrad against the best peer of each cell", "title")
    yield _text(0, 40, f"{headline} · float32", "dim small")
    yield _text(BARS[0], 64, "times faster than the best of TensorFlow, PyTorch, JAX, ONNX Runtime", "dim small")
    yield _text(SHARE[0], 64, "of the memory limit, memory reused", "dim small")


def _grid(axis: Axis, top: int, bottom: int) -> Iterator[str]:
    """The lines behind one group."""
    lines = [("even" if value == 1 else "grid", axis.x(value)) for value in axis.ticks]
    lines += [("grid", _share_x(share)) for share in SHARES]
    for style, x in lines:
        yield f'<line class="{style}" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>'


def _scale(axis: Axis, y: int) -> Iterator[str]:
    for value in axis.ticks:
        yield _text(axis.x(value), y, f"{value:g}{TIMES}", "dim small", "middle")
    for share in SHARES:
        yield _text(_share_x(share), y, f"{share:g}", "dim small", "middle")


def _group(operator: str, pairs: list[dict[str, Row]], shares: Shares, axis: Axis, top: int) -> Iterator[str]:
    mean = geometric_mean(row.speedup() or 1.0 for pair in pairs for row in pair.values()) or 1.0
    yield _text(0, top + 4, OPERATORS[operator], "group")
    yield _text(BARS[1] + 62, top + 4, f"mean {mean:.1f}{TIMES}", "dim small", "end")
    for number, pair in enumerate(pairs):
        yield from _row(pair, shares, axis, top + 12 + number * ROW)


def _row(pair: dict[str, Row], shares: Shares, axis: Axis, y: int) -> Iterator[str]:
    """Channels-last above, channels-first below, thinner."""
    row = pair["last"]
    yield _text(LABELS, y + 10, NAMES[row.case.name], "small", "end")
    end = axis.x(1)
    for layout, top, height, share in (("last", y, 8, "share"), ("first", y + 9, 4, "share2")):
        if layout not in pair:
            continue
        speedup = pair[layout].speedup() or 1.0
        start, x = sorted((axis.x(1), axis.x(speedup)))
        yield _bar(start, top, x - start, height, layout if speedup >= 1 else "slower")
        end = max(end, x)
        yield _bar(_share_x(0), top, _share_x(1) - _share_x(0), height, "track")
        fraction = shares.get((row.cell, layout), 0.0)
        yield _bar(_share_x(0), top, _share_x(fraction) - _share_x(0), height, share)
    speedup = row.speedup() or 1.0
    text = f"{speedup:.0f}{TIMES}" if speedup >= 9.95 else f"{speedup:.1f}{TIMES}"
    peer = row.best_peer() or ""
    yield f'<text class="small" x="{end + 6:.1f}" y="{y + 10}">{text} <tspan class="dim">{escape(peer)}</tspan></text>'
    yield _text(SHARE[1] + 28, y + 10, f"{shares.get((row.cell, 'last'), 0.0):.2f}", "small")


def _legend(y: int) -> Iterator[str]:
    x = BARS[0]
    for layout, share, label in (("last", "share", "channels-last"), ("first", "share2", "channels-first")):
        yield _bar(x, y - 8, 14, 8, layout)
        yield _bar(x + 17, y - 8, 14, 8, share)
        yield _text(x + 37, y, label, "dim small")
        x += 135
    yield _text(x, y, "beside a bar: channels-last, and the best peer", "dim small")


def _share_x(fraction: float) -> float:
    return round(SHARE[0] + (SHARE[1] - SHARE[0]) * min(fraction, 1.12), 1)


def _bar(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect class="{style}" x="{x:.1f}" y="{y}" width="{max(width, 1):.1f}" height="{height}" rx="1.5"/>'


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    place = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text class="{style}" x="{x}" y="{y}"{place}>{escape(text)}</text>'
