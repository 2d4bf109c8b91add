"""A tour of four gradient operators on small data: what goes in, what comes out, and a check that it is right.

Run it with `make run`, or `python examples/tour.py`. The exit status is not zero if a check fails.
"""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Any

import numpy as np

import poolgrad as pg

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
TICK, CROSS, LINE = ("✓", "✗", "─") if "utf" in (sys.stdout.encoding or "").lower() else ("ok", "FAILED", "-")
WIDTH = 7  # of a cell
INK, WARM, COOL = 232, (230, 223, 222, 216, 215, 209, 203), (195, 159, 153, 117, 111, 75, 69)
failed: list[str] = []


# ---------------------------------------------------------------------------------------------------------------------
# Printing


def paint(text: str, *codes: int | str) -> str:
    """The text in a terminal style; plain where there is no terminal."""
    return f"\033[{';'.join(map(str, codes))}m{text}\033[0m" if COLOUR else text


def cell(value: float, largest: float) -> str:
    """One number on a background that tells its size: warm for positive, cool for negative, none for zero."""
    text = f"{value:{WIDTH - 1}.4g} "
    if value == 0 or largest == 0:
        return paint(text, 2)
    ramp = WARM if value > 0 else COOL
    shade = ramp[min(len(ramp) - 1, int(abs(value) / largest * len(ramp)))]
    return paint(text, 38, 5, INK, 48, 5, shade)


def grid(array: Any) -> list[str]:
    """A matrix as lines of cells."""
    largest = float(np.abs(array).max(initial=0))
    return ["".join(cell(float(v), largest) for v in row) for row in array]


def side_by_side(*named: tuple[str, Any]) -> None:
    """Prints titled matrices next to each other; a volume is shown slice by slice."""
    blocks = [
        (title if array.ndim == 2 else f"{title} [{i}]", matrix)
        for title, array in named
        for i, matrix in enumerate([array] if array.ndim == 2 else array)
    ]
    widths = [max(WIDTH * matrix.shape[1], len(title)) for title, matrix in blocks]
    titles = [paint(title, 1) + " " * (width - len(title)) for (title, _), width in zip(blocks, widths, strict=True)]
    print("  " + "   ".join(titles).rstrip())
    for row in range(max(len(matrix) for _, matrix in blocks)):
        parts = []
        for (_, matrix), width in zip(blocks, widths, strict=True):
            cells = grid(matrix)[row] if row < len(matrix) else ""
            taken = WIDTH * matrix.shape[1] if cells else 0
            parts.append(cells + " " * (width - taken))
        print("  " + "   ".join(parts).rstrip())


def heading(text: str) -> None:
    """Begins a section."""
    print("\n" + paint(text, 1, 36) + "\n" + paint(LINE * len(text), 36))


def code(text: str) -> None:
    """Shows a call as it is written."""
    print("\n" + textwrap.indent(paint(textwrap.dedent(text).strip(), 35), "  ") + "\n")


def say(text: str) -> None:
    """One sentence on what to see."""
    print("\n" + textwrap.fill(" ".join(text.split()), 100, initial_indent="  ", subsequent_indent="  "))


def check(claim: str, holds: bool) -> None:
    """Prints a claim with a tick, or remembers that it failed."""
    print("  " + (paint(TICK, 1, 32) if holds else paint(CROSS, 1, 31)) + " " + claim)
    if not holds:
        failed.append(claim)


# ---------------------------------------------------------------------------------------------------------------------
# The stops of the tour


def max_pool_grad_grad() -> None:
    heading("MaxPoolGradGrad: the second derivative of max pooling is a look-up")
    code("""
        y  = raw_ops.MaxPool(input=x, ksize=[1,3,3,1], strides=[1,2,2,1], padding="SAME")
        gx = raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=g, ...)        # shaped like x
        gg = raw_ops.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=v, ...)    # shaped like y
    """)
    geometry: dict[str, Any] = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    x = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 9], [3, 2, 3, 8, 4]], np.float32).reshape(1, 4, 5, 1)
    v = np.arange(1, 21, dtype=np.float32).reshape(1, 4, 5, 1)
    y = pg.raw_ops.MaxPool(input=x, **geometry)
    g = np.arange(1, 1 + y.size, dtype=np.float32).reshape(y.shape)
    gx = pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=g, **geometry)
    gg = pg.raw_ops.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=v, **geometry)
    side_by_side(("x", x[0, ..., 0]), ("y", y[0, ..., 0]))
    print()
    side_by_side(("g", g[0, ..., 0]), ("gx", gx[0, ..., 0]))
    print()
    side_by_side(("v", v[0, ..., 0]), ("gg", gg[0, ..., 0]))
    say("""gx carries every gradient to the place its window's maximum came from, and where one element won two windows
        their gradients add up (2 + 5, 3 + 6). gg goes the way back and reads v at just those places.""")
    left, right = float((gx * v).sum()), float((g * gg).sum())
    check(f"each is the transpose of the other: <gx, v> = {left:g} = <g, gg>", left == right)


def max_pool_3d_grad() -> None:
    heading("MaxPool3DGrad: one winner per window, in volumes too")
    code("""
        gx = raw_ops.MaxPool3DGrad(orig_input=x, orig_output=y, grad=g,
                                   ksize=[1,2,2,2,1], strides=[1,2,2,2,1], padding="SAME")
        with poolgrad.policy(ties="split"):
            shared = raw_ops.MaxPool3DGrad(...)
    """)
    geometry: dict[str, Any] = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    x = np.array([[[7, 7, 1], [2, 7, 4]], [[7, 0, 4], [1, 3, 2]]], np.float32).reshape(1, 2, 2, 3, 1)
    y = pg.raw_ops.MaxPool3D(input=x, **geometry)
    g = np.array([8, 6], np.float32).reshape(y.shape)
    gx = pg.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=y, grad=g, **geometry)
    with pg.policy(ties="split"):
        shared = pg.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=y, grad=g, **geometry)
    side_by_side(("x", x[0, ..., 0]), ("y", y[0, 0, ..., 0]), ("g", g[0, 0, ..., 0]))
    print()
    side_by_side(("gx", gx[0, ..., 0]), ("shared", shared[0, ..., 0]))
    say("""The 7 is four times in the first window: the first of them in scan order gets the whole gradient, and with
        ties="split" each gets a quarter. No gradient is lost or made up.""")
    check(
        f"the gradient is conserved: {gx.sum():g} = {shared.sum():g} = {g.sum():g}", gx.sum() == shared.sum() == g.sum()
    )
    v = np.arange(x.size, dtype=np.float32).reshape(x.shape)
    gg = pg.raw_ops.MaxPool3DGradGrad(orig_input=x, orig_output=y, grad=v, **geometry)
    left, right = float((gx * v).sum()), float((g * gg).sum())
    check(f"MaxPool3DGradGrad is its transpose, ties and all: {left:g} = {right:g}", left == right)


def avg_pool_3d_grad() -> None:
    heading("AvgPool3DGrad: every window spreads its gradient over its real elements")
    code("""
        gx = raw_ops.AvgPool3DGrad(orig_input_shape=[1,2,3,3,1], grad=g,
                                   ksize=[1,2,2,2,1], strides=[1,2,2,2,1], padding="SAME")
    """)
    geometry: dict[str, Any] = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    g = np.array([[8, 8], [8, -8]], np.float32).reshape(1, 1, 2, 2, 1)
    gx = pg.raw_ops.AvgPool3DGrad(orig_input_shape=[1, 2, 3, 3, 1], grad=g, **geometry)
    side_by_side(("g", g[0, 0, ..., 0]), ("gx", gx[0, ..., 0]))
    say("""A window of eight elements gives an eighth to each. Those that hang over the edge have four or two real
        elements: padding gets nothing, and nothing is divided by it.""")
    x = np.random.default_rng(0).integers(-9, 9, gx.shape).astype(np.float32)
    y = pg.raw_ops.AvgPool3D(input=x, **geometry)
    left, right = float((gx * x).sum()), float((g * y).sum())
    check(f"it is the transpose of AvgPool3D: <gx, x> = {left:g} = <g, AvgPool3D(x)>", abs(left - right) < 1e-4)
    threads = pg.get_num_threads()
    try:
        pg.set_num_threads(1)
        alone = pg.raw_ops.AvgPool3DGrad(orig_input_shape=[1, 2, 3, 3, 1], grad=g, **geometry)
    finally:
        pg.set_num_threads(threads)
    check(f"the same bits on 1 thread and on {threads}", alone.tobytes() == gx.tobytes())


def fractional_max_pool_grad() -> None:
    heading("FractionalMaxPoolGrad: windows of two lengths, drawn from a seed")
    code("""
        r  = raw_ops.FractionalMaxPool(value=x, pooling_ratio=[1,1.5,1.6,1],
                                       overlapping=True, deterministic=True, seed=5, seed2=2)
        gx = raw_ops.FractionalMaxPoolGrad(orig_input=x, orig_output=r.output, out_backprop=g,
                                           row_pooling_sequence=r.row_pooling_sequence,
                                           col_pooling_sequence=r.col_pooling_sequence, overlapping=True)
    """)
    x = np.random.default_rng(1).permutation(48).reshape(1, 6, 8, 1).astype(np.float32)
    r = pg.raw_ops.FractionalMaxPool(
        value=x, pooling_ratio=[1, 1.5, 1.6, 1], overlapping=True, deterministic=True, seed=5, seed2=2
    )
    g = np.ones_like(r.output)
    cells: dict[str, Any] = {"row_pooling_sequence": r[1], "col_pooling_sequence": r[2], "overlapping": True}
    gx = pg.raw_ops.FractionalMaxPoolGrad(orig_input=x, orig_output=r.output, out_backprop=g, **cells)
    print(f"  rows    {r.row_pooling_sequence.tolist()}\n  columns {r.col_pooling_sequence.tolist()}\n")
    side_by_side(("x", x[0, ..., 0]))
    print()
    side_by_side(("output", r.output[0, ..., 0]))
    print()
    side_by_side(("gx, with a gradient of 1 everywhere", gx[0, ..., 0]))
    say("""The sequences say where cells begin; the same seeds give the same cells as TensorFlow. Overlapping
        cells share a border, so one element may win several of them: gx counts how many.""")
    check(f"every cell has one winner: gx adds up to the {g.size} cells", gx.sum() == g.size)
    v = np.arange(x.size, dtype=np.float32).reshape(x.shape)
    gg = pg.raw_ops.FractionalMaxPoolGradGrad(orig_input=x, orig_output=r.output, grad=v, **cells)
    left, right = float((gx * v).sum()), float((g * gg).sum())
    check(f"and there is a second order: <gx, v> = {left:g} = <g, gg>", left == right)


def an_error() -> None:
    heading("And when something is wrong")
    code("""
        raw_ops.MaxPool3DGrad(orig_input=x, orig_output=y, grad=g,
                              ksize=[1,2,2,2,1], strides=[1,2,2,2,1], padding="VALID")
    """)
    x, y = np.zeros((2, 4, 4, 4, 2), np.float32), np.zeros((2, 2, 2, 1, 2), np.float32)
    try:
        pg.raw_ops.MaxPool3DGrad(
            orig_input=x, orig_output=y, grad=y, ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID"
        )
    except ValueError as error:
        told = f"{type(error).__name__}: {error}"
        print(paint(textwrap.fill(told, 100, initial_indent="  ", subsequent_indent="    "), 31))
        say("An error names the operator and the argument, says what was given and what would fit.")
        check("it is a ValueError and names orig_output", getattr(error, "argument", None) == "orig_output")
    else:
        check("a wrong shape is refused", False)


def main() -> int:
    print(
        paint(f"poolgrad {pg.__version__}", 1)
        + f" on {pg.get_num_threads()} threads, {pg.cpu.instruction_set()} kernels"
    )
    for stop in (max_pool_grad_grad, max_pool_3d_grad, avg_pool_3d_grad, fractional_max_pool_grad, an_error):
        stop()
    print()
    if failed:
        print(f"{len(failed)} checks failed: " + "; ".join(failed), file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
