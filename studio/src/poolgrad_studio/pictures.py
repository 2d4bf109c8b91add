"""A plane as a .png file, in the colours of the front end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from .tensors import LARGEST_PLANE, finite_range, pooled

# Anchors of perceptually even colour maps, dark to light; between them colours are blended.
COLORMAPS: Final[dict[str, tuple[str, ...]]] = {
    "viridis": ("440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725"),
    "gray": ("000000", "ffffff"),
    "diverging": ("2166ac", "67a9cf", "d1e5f0", "f7f7f7", "fddbc7", "ef8a62", "b2182b"),
}
_NOTHING: Final = (0x9E, 0x9E, 0x9E)
"""The colour of NaN."""
_SMALLEST_SIDE: Final = 256


def write_png(path: Path, plane: npt.NDArray[Any], colormap: object = None) -> None:
    """Writes the plane; cells of a small one become squares that can be seen."""
    values, _ = pooled(plane, (LARGEST_PLANE * 4, LARGEST_PLANE * 4))
    name = colormap if isinstance(colormap, str) and colormap in COLORMAPS else "viridis"
    image = Image.fromarray(colored(values, name))
    factor = max(1, _SMALLEST_SIDE // max(image.size))
    image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST).save(path)


def colored(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.uint8]:
    """RGB of every cell.

    >>> colored(np.array([[0, 1, np.nan]], np.float32), "gray").tolist()
    [[[0, 0, 0], [255, 255, 255], [158, 158, 158]]]
    """
    low, high = finite_range(values) or (0.0, 1.0)
    if name == "diverging":
        high = max(abs(float(low)), abs(float(high)))
        low = -high
    anchors = np.array([[int(c[i : i + 2], 16) for i in (0, 2, 4)] for c in COLORMAPS[name]], np.float64)
    with np.errstate(invalid="ignore"):
        span = float(high) - float(low)
        at = np.clip((values - float(low)) / span if span else np.full(values.shape, 0.5), 0, 1) * (len(anchors) - 1)
    odd = np.isnan(at)
    at = np.where(odd, 0, at)
    channels = [np.interp(at, np.arange(len(anchors)), anchors[:, c]) for c in range(3)]
    rgb: npt.NDArray[np.uint8] = np.stack(channels, axis=-1).round().astype(np.uint8)
    rgb[odd] = _NOTHING
    return rgb
