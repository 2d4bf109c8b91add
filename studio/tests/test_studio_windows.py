"""The window view shows what the operators do: planes, shares and sums agree with the operator on the whole array."""

from __future__ import annotations

import numpy as np
import pytest

import poolgrad
from poolgrad import raw_ops
from poolgrad.policy import Policy
from poolgrad_studio import window_view
from poolgrad_studio.problems import Refused
from poolgrad_studio.window_view import Pooling

POLICIES = [Policy(ties, nan) for ties in ("first", "all", "split") for nan in ("propagate", "ignore")]
RNG = np.random.default_rng(5)


def picture(*shape, dtype=np.float32):
    """Few different values, so that there are ties."""
    return RNG.integers(0, 4, shape).astype(dtype)


IMAGE = picture(2, 7, 8, 3)
VOLUME = picture(1, 5, 6, 7, 2)
FLAT = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
CUBE = {"ksize": [1, 3, 2, 3, 1], "strides": [1, 2, 1, 2, 1], "padding": "SAME"}
FIRST = {"ksize": [1, 1, 3, 2], "strides": [1, 1, 2, 2], "padding": "VALID", "data_format": "NCHW"}
EXPLICIT = FLAT | {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 1, 0, 0, 0]}
RATIOS = {"pooling_ratio": [1, 1.44, 1.73, 1], "deterministic": True, "seed": 3, "seed2": 4}


def forward(name, data, attributes, policy):
    operator = poolgrad.catalog.operators[name]
    given = {operator.inputs[0].name: data, **attributes}
    with poolgrad.policy(*policy):
        found = getattr(raw_ops, name)(**given)
    outputs = found._asdict() if isinstance(found, tuple) else {"output": found}
    return Pooling.of(name, given, outputs, policy), outputs


CASES = [
    pytest.param("MaxPool", IMAGE, FLAT, id="max"),
    pytest.param("MaxPool", IMAGE, EXPLICIT, id="explicit"),
    pytest.param("MaxPool", np.moveaxis(IMAGE, 3, 1).copy(), FIRST, id="channels first"),
    pytest.param("MaxPool", IMAGE.astype(np.int32), FLAT, id="integers"),
    pytest.param("MaxPoolV2", IMAGE, FLAT, id="v2"),
    pytest.param("MaxPoolWithArgmax", IMAGE, FLAT, id="argmax"),
    pytest.param("AvgPool", IMAGE, FLAT, id="average"),
    pytest.param("MaxPool3D", VOLUME, CUBE, id="max 3-D"),
    pytest.param("AvgPool3D", VOLUME, CUBE, id="average 3-D"),
    pytest.param("FractionalMaxPool", IMAGE, RATIOS, id="fractional max"),
    pytest.param("FractionalMaxPool", IMAGE, RATIOS | {"overlapping": True}, id="overlapping"),
    pytest.param("FractionalAvgPool", IMAGE, RATIOS | {"overlapping": True}, id="fractional average"),
    pytest.param("MaxPool", IMAGE[..., :2], {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2], "padding": "VALID"},
                 id="along the channels"),
]  # fmt: skip


def derived(operator, given, outputs, arriving):
    """The operator of the derivative and its arguments."""
    derivative = next(iter(operator.derivatives.values()))
    gradients = dict.fromkeys(outputs, arriving)
    return poolgrad.catalog.operators[derivative.operator], derivative.arguments(given, outputs, gradients)


def gradients_of(pooling, data, attributes, outputs):
    """The whole gradient, and the gradient of that, for ones that arrive."""
    given = {pooling.operator.inputs[0].name: data, **attributes}
    ones = np.ones_like(outputs["output"])
    with poolgrad.policy(*pooling.policy):
        first, arguments = derived(pooling.operator, given, outputs, ones)
        gx = getattr(raw_ops, first.name)(**arguments)
        second, arguments = derived(first, arguments, {"output": gx}, np.ones_like(data))
        return gx, getattr(raw_ops, second.name)(**arguments)


def read_planes(header, payload):
    found = {}
    for plane in header["planes"]:
        count = int(np.prod(plane["shape"]))
        found[plane["name"]] = np.frombuffer(payload, np.float32, count, plane["offset"]).reshape(plane["shape"])
    return found


def at_plane(array, fixed, spatial):
    """The plane of the last two spatial axes."""
    index = tuple(slice(None) if axis in spatial[-2:] else i for axis, i in enumerate(fixed))
    plane = array[index]
    return plane if plane.ndim == 2 else plane[None]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{p.ties}-{p.nan}")
@pytest.mark.parametrize(("name", "data", "attributes"), CASES)
def test_planes_are_parts_of_the_whole(name, data, attributes, policy):
    pooling, outputs = forward(name, data, attributes, policy)
    gx, second = gradients_of(pooling, data, attributes, outputs)
    spatial = list(pooling.spatial)
    fixed = [n - 1 for n in data.shape]
    header, payload = window_view.planes(pooling, {"index": fixed})
    planes = read_planes(header, payload)
    behind = list(fixed)
    for axis, o in zip(spatial, header["windows"], strict=False):
        behind[axis] = o
    assert np.array_equal(planes["input"], at_plane(data, fixed, spatial))
    assert np.array_equal(planes["output"], at_plane(outputs["output"], behind, spatial).astype(np.float32))
    assert np.array_equal(planes["grad_out"], at_plane(gx, fixed, spatial))
    assert np.array_equal(planes["second_out"], at_plane(second, behind, spatial))


@pytest.mark.parametrize("policy", POLICIES[::2], ids=lambda p: p.ties)
@pytest.mark.parametrize(("name", "data", "attributes"), CASES)
def test_what_windows_send_adds_up_to_the_gradient(name, data, attributes, policy):
    pooling, outputs = forward(name, data, attributes, policy)
    gx, _ = gradients_of(pooling, data, attributes, outputs)
    for index in list(np.ndindex(data.shape))[:: data.size // 40]:
        cell = window_view.cell(pooling, {"side": "input", "index": list(index)})
        assert float(cell["total"]) == gx[index], index
        if gx.dtype.kind == "f":
            assert sum(float(w["sends"]) for w in cell["windows"]) == pytest.approx(gx[index], abs=1e-6)


@pytest.mark.parametrize("policy", POLICIES[::2], ids=lambda p: p.ties)
@pytest.mark.parametrize(("name", "data", "attributes"), CASES)
def test_a_window_gives_away_all_it_has_and_shows_what_it_took(name, data, attributes, policy):
    pooling, outputs = forward(name, data, attributes, policy)
    y = outputs["output"]
    for index in list(np.ndindex(y.shape))[:: max(1, y.size // 20)]:
        cell = window_view.cell(pooling, {"side": "output", "index": list(index)})
        chosen = [e for e in cell["elements"] if e["chosen"]]
        whole = len(chosen) if policy.ties == "all" and pooling.selects and "argmax" not in outputs else 1
        assert sum(e["share"] for e in cell["elements"]) == pytest.approx(whole, rel=1e-6)
        assert cell["value"] == str(y[index])
        assert cell["count"] == len(cell["elements"])
        for element in chosen:
            assert float(element["value"]) == y[index]
        if pooling.selects:
            equal = sum(float(e["value"]) == y[index] for e in cell["elements"])
            assert sum(e["tie"] for e in cell["elements"]) == (equal if equal > 1 else 0)


def test_padding_is_counted_and_takes_no_part():
    pooling, _ = forward("MaxPool", IMAGE, FLAT, Policy())
    corner = window_view.cell(pooling, {"side": "output", "index": [0, 0, 0, 0]})
    assert corner["window"]["origin"] == [-1, 0]
    assert corner["count"] + corner["padding"] == 6
    assert "2 cells of padding" in corner["explain"]


@pytest.mark.parametrize("nan", ["propagate", "ignore"])
def test_a_nan_is_chosen_or_passed_over(nan):
    x = np.array([1, np.nan, 3, 2], np.float32).reshape(1, 2, 2, 1)
    pooling, _ = forward(
        "MaxPool", x, {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}, Policy(nan=nan)
    )
    cell = window_view.cell(pooling, {"side": "output", "index": [0, 0, 0, 0]})
    assert [e["index"] for e in cell["elements"] if e["chosen"]] == [[0, 1] if nan == "propagate" else [1, 0]]


def test_a_gradient_block_shows_the_gradient_that_arrives():
    y = raw_ops.MaxPool3D(input=VOLUME, **CUBE)
    g = RNG.normal(size=y.shape).astype(np.float32)
    given = {"orig_input": VOLUME, "orig_output": y, "grad": g, **CUBE}
    gx = raw_ops.MaxPool3DGrad(**given)
    pooling = Pooling.of("MaxPool3DGrad", given, {"output": gx}, Policy())
    assert window_view.describe(pooling, {})["upstream"] == "page"
    cell = window_view.cell(pooling, {"side": "output", "index": [0, 1, 1, 1, 1]})
    assert cell["grad"] == str(g[0, 1, 1, 1, 1])
    planes = read_planes(*window_view.planes(pooling, {"batch": 0, "channel": 1, "at": [2]}))
    assert np.array_equal(planes["grad_out"], gx[0, 2, :, :, 1])


def test_a_pooling_takes_the_gradient_of_the_block_beside_it():
    pooling, outputs = forward("MaxPool", IMAGE, FLAT, Policy())
    g = RNG.normal(size=outputs["output"].shape).astype(np.float32)
    given = {"orig_input": IMAGE, "orig_output": outputs["output"], "grad": g, **FLAT}
    beside = Pooling.of("MaxPoolGrad", given, {"output": raw_ops.MaxPoolGrad(**given)}, Policy())
    other = Pooling.of(
        "MaxPoolGrad", given | {"strides": [1, 1, 1, 1], "orig_output": IMAGE, "grad": IMAGE}, {}, Policy()
    )
    assert pooling.beside([other]).g is None
    assert pooling.beside([other, beside]).g is g


@pytest.mark.parametrize(
    "ask",
    [
        {"side": "output", "index": [0, 0, 0]},
        {"side": "output", "index": [0, 99, 0, 0]},
        {"side": "output", "index": [0, -1, 0, 0]},
        {"side": "output", "index": None},
        {"side": "nowhere", "index": [0, 0, 0, 0]},
        {"side": "input", "index": [0, 0, 0, "0"]},
    ],
)
def test_a_cell_that_does_not_exist_is_refused(ask):
    pooling, _ = forward("MaxPool", IMAGE, FLAT, Policy())
    with pytest.raises(Refused):
        window_view.cell(pooling, ask)


def test_every_pooling_operator_has_a_window_view():
    """Whoever adds an operator to the catalog gets its view, or this test."""
    for operator in poolgrad.catalog.operators.values():
        assert window_view._order(operator) in (0, 1, 2)
        assert window_view._next(operator).name in poolgrad.catalog.operators
