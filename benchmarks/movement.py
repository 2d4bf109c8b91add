"""`python -m benchmarks.movement`: draws docs/benchmarks/movement.svg, what a gradient of max pooling moves, and where.

The bytes in it are computed from the case they are shown for, not written down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .cases import ITEM_BYTES, PLAIN, Case, choice_bytes
from .picture import STYLE

TARGET = Path(__file__).parent.parent / "docs" / "benchmarks" / "movement.svg"
WIDTH, HEIGHT = 868, 372
CELL = 15
MORE_STYLE = """
  .array { fill: #818b98; fill-opacity: .18 } .next { fill: #54aeff; fill-opacity: .35 }
  .now { fill: #0969da; fill-opacity: .55 } .done { fill: #1a7f37; fill-opacity: .55 }
  .flow { stroke: #59636e; stroke-width: 1.5; fill: none; marker-end: url(#tip) } .tip { fill: #59636e }
  .core { fill: none; stroke: #818b98; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) { .flow { stroke: #9198a1 } .tip { fill: #9198a1 } }
"""
LEGEND = (
    "blue: rows being read · light: asked for, an output row ahead · green: done, in ascending order of the windows"
)


def draw(case: Case) -> str:
    """The picture as SVG text."""
    inputs, item = 1.0, ITEM_BYTES[case.dtype]
    outputs = 1.0
    for n, m in zip(case.spatial, case.out_spatial, strict=True):
        outputs *= m / n
    read, given, written = inputs * item, outputs * item, inputs * item
    codes = outputs * choice_bytes(case)
    title = f"One box of a max gradient, {case.title}"
    moved = f"{read + given + written:.2f} bytes per element of x cross the memory bus, however much windows overlap"
    parts = [
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        _text(0, 20, title, "title"),
        _text(0, 40, moved, "dim small"),
        _text(0, 140, "memory", "group"),
        *_array(90, 80, "x, read once", 12, ["now"] * 3 + ["next"] * 2 + ["array"] * 3),
        *_array(345, 80, "gradient, read once", 6, ["now"] * 2 + ["array"] * 2),
        *_array(600, 80, "result, written once", 12, ["done"] * 3 + ["array"] * 5),
        '<rect class="core" x="70" y="246" width="780" height="84" rx="10"/>',
        _text(0, 284, "cache of", "group"),
        _text(0, 300, "one core", "group"),
        *_array(100, 280, f"1  choose: codes, {codes:.2f} B, never leave", 6, ["now"] * 2),
        *_array(510, 280, "2  put: every sum is finished once", 12, ["done"] * 2),
        _arrow(150, 206, 150, 258),
        _text(160, 228, f"{read:.2f} B, asked for ahead", "dim small"),
        _arrow(390, 146, 530, 258),
        _text(410, 228, f"{given:.2f} B", "dim small"),
        _arrow(200, 294, 500, 294),
        _arrow(690, 258, 690, 206),
        _text(700, 228, f"{written:.2f} B, past the caches", "dim small"),
        _text(70, 356, LEGEND, "dim small"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="-8 0 {WIDTH} {HEIGHT}" '
        f'role="img" aria-label="{title}">\n<style>{STYLE}{MORE_STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _array(x: int, y: int, label: str, columns: int, rows: Sequence[str]) -> Iterator[str]:
    """An array as rows of cells; `rows` gives the class of each."""
    yield _text(x, y - 6, label, "small")
    for row, kind in enumerate(rows):
        for column in range(columns):
            at = f'x="{x + column * CELL}" y="{y + row * CELL}" width="{CELL - 2}" height="{CELL - 2}"'
            yield f'<rect class="{kind}" {at}/>'


def _arrow(x0: int, y0: int, x1: int, y1: int) -> str:
    return f'<path class="flow" d="M{x0} {y0} L{x1} {y1}"/>'


def _text(x: int, y: int, words: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{words}</text>'


def main() -> None:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(draw(PLAIN[0]))


if __name__ == "__main__":
    main()
