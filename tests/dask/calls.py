"""Random calls of every operator of the catalog, and the same call on Dask arrays in random chunks."""

import dask.array as da
import generate
import numpy as np

import poolgrad as pg

WITH_GRID = [name for name, op in pg.catalog.operators.items() if any(a.name == "ksize" for a in op.parameters)]
WITH_CELLS = [name for name, op in pg.catalog.operators.items() if any(i.kind.name == "sequence" for i in op.inputs)]
DRAWN = [name for name in pg.catalog.operators if name not in WITH_GRID + WITH_CELLS]


def arguments(rng, name, dtype, kind="ties", largest=13):
    """A good call of the operator with random geometry and data."""
    if name in DRAWN:
        x = data(rng, (2, int(rng.integers(3, largest)), int(rng.integers(3, largest)), 2), dtype, kind)
        flags = {flag: bool(rng.integers(2)) for flag in ("pseudo_random", "overlapping")}
        ratio = [1, *(float(r) for r in rng.uniform(1, 2.5, 2)), 1]
        return {"value": x, "pooling_ratio": ratio, "deterministic": True, "seed": int(rng.integers(1, 99)), **flags}
    if name in WITH_CELLS:
        return with_cells(rng, name, dtype, kind, largest)
    return on_grid(rng, name, dtype, kind, largest)


def with_cells(rng, name, dtype, kind, largest):
    shape = (2, int(rng.integers(2, largest)), int(rng.integers(2, largest)), 2)
    rows, columns = (generate.sequence(rng, n) for n in shape[1:3])
    overlapping = bool(rng.integers(2))
    cells = {"row_pooling_sequence": rows, "col_pooling_sequence": columns, "overlapping": overlapping}
    x = data(rng, shape, dtype, kind)
    y = pg.fractional_max_pool(x, sequences=[rows, columns], overlapping=overlapping)
    return inputs(rng, name, x, y, None, kind) | cells


def on_grid(rng, name, dtype, kind, largest):
    spatial = 3 if "3D" in name else 2
    layout = str(rng.choice(["channels_last", "channels_first"]))
    paddings = ("SAME", "VALID", "EXPLICIT")
    shape, grid = generate.pooling(rng, spatial, largest if spatial == 2 else 7, paddings, layout)
    grid["data_format"] = {"channels_last": ("NHWC", "NDHWC"), "channels_first": ("NCHW", "NCDHW")}[layout][spatial - 2]
    x = data(rng, shape, dtype, kind)
    forward = "MaxPool3D" if spatial == 3 else "MaxPoolWithArgmax"
    if "Argmax" in name:
        grid["include_batch_in_index"] = bool(rng.integers(2))
    found = getattr(pg.raw_ops, forward)(input=x, **grid)
    y, argmax = (found, None) if spatial == 3 else found
    if any(i.name == "ksize" for i in pg.catalog.operators[name].inputs):
        grid |= {key: np.array(grid[key], np.int32) for key in ("ksize", "strides")}
    return inputs(rng, name, x, y, argmax, kind) | grid


def inputs(rng, name, x, y, argmax, kind):
    """The inputs of the operator, by their names."""
    like_input = "GradGrad" in name
    gradient = data(rng, x.shape if like_input else y.shape, x.dtype, kind)
    spoiled = y.copy()
    if name.startswith(("MaxPool3DGrad", "MaxPoolGradGrad")) and y.size:  # a value that no element has
        spoiled.reshape(-1)[int(rng.integers(y.size))] = 3 if x.dtype.kind == "u" else -3
    values = {
        **dict.fromkeys(("input", "value", "orig_input"), x),
        **dict.fromkeys(("grad", "out_backprop"), gradient),
        **dict.fromkeys(("orig_input_shape", "orig_input_tensor_shape"), x.shape),
        "orig_output": spoiled,
        "argmax": argmax,
    }
    if name == "FractionalAvgPoolGradGrad":
        values["value"] = gradient
    return {i.name: values[i.name] for i in pg.catalog.operators[name].inputs if i.name in values}


def data(rng, shape, dtype, kind):
    x = generate.array_of(rng, shape, dtype, "ties" if kind == "special" else kind)
    return generate.with_specials(rng, x) if kind == "special" and x.dtype.kind not in "iu" else x


def cut(rng, n):
    """A random way to cut an axis into chunks; now and then one of them is empty."""
    style = rng.integers(4)
    if n == 0 or style == 0:
        return (n,)
    if style == 1:
        size = int(rng.integers(1, n + 1))
        return (size,) * (n // size) + ((n % size,) if n % size else ())
    cuts = np.sort(rng.integers(0, n + 1, int(rng.integers(0, 4))))
    return tuple(np.diff([0, *cuts, n]).tolist())


def chunked(rng, array):
    """The array as a Dask array in random chunks."""
    return da.from_array(array, chunks=tuple(cut(rng, n) for n in array.shape))


def on_dask(rng, name, given):
    """The same arguments with every array of data in random chunks."""
    host = {i.name for i in pg.catalog.operators[name].inputs if i.host}
    return {
        key: chunked(rng, value) if isinstance(value, np.ndarray) and key not in host else value
        for key, value in given.items()
    }


def results(found):
    """The outputs of an operator as a tuple of arrays."""
    return found if isinstance(found, tuple) else (found,)
