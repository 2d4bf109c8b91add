"""Random pages for the laws: floating-point blocks wired at random, and what PyTorch makes of the same page."""

import numpy as np
import torch
from hypothesis import strategies as st

from poolgrad.graph import Output, Scope, ops
from poolgrad.graph.inference import read_attributes

POOL = {"ksize": "1,2,2,1", "strides": "1,2,2,1", "padding": "SAME"}


def _unary(scope, x, draw):
    name = draw(st.sampled_from(["Square", "Abs", "Relu", "Negate", "Identity", "Exp", "Log", "Sqrt"]))
    if name == "Exp":
        x = ops.Divide(scope, ops.Square(scope, x), ops.Add(scope, ops.Square(scope, x), 1.0))
    if name in ("Log", "Sqrt"):
        x = ops.Add(scope, ops.Square(scope, x), 0.5)
    return getattr(ops, name)(scope, x)


def _binary(scope, x, draw, others):
    name = draw(st.sampled_from(["Add", "Subtract", "Multiply", "Maximum", "Minimum"]))
    same = [o for o in others if o.shape == x.shape and (None not in x.shape or o is x)]
    other = draw(st.sampled_from(same)) if draw(st.booleans()) else _scalar(scope, draw, x)
    pair = (x, other) if draw(st.booleans()) else (other, x)
    return getattr(ops, name)(scope, *pair)


def _scalar(scope, draw, x):
    """Something that broadcasts: a number, a row, or the tensor reduced along an axis."""
    if draw(st.booleans()):
        return ops.Const(scope, np.float64(draw(st.sampled_from([-1.5, 0.25, 2.0]))))
    return ops.Mean(scope, x, [draw(st.integers(0, len(x.shape) - 1))], keep_dims=True) if x.shape else x


def _pooled(scope, x, draw, others):
    if len(x.shape) != 4:
        return ops.Reshape(scope, x, [1, -1, 1, 1])
    if draw(st.booleans()):
        return ops.MaxPool(scope, x, **POOL)
    return ops.AvgPool(scope, x, **POOL)


def _shaped(scope, x, draw, others):
    rank = len(x.shape)
    kind = draw(st.sampled_from(["Reshape", "Transpose", "Pad", "Slice", "Concat"]))
    if rank == 0 or kind == "Reshape":
        return ops.Reshape(scope, x, [-1])
    if kind == "Transpose":
        return ops.Transpose(scope, x, draw(st.permutations(range(rank))))
    if kind == "Pad":
        return ops.Pad(scope, x, draw(st.lists(st.integers(0, 1), min_size=2 * rank, max_size=2 * rank)))
    if kind == "Slice":
        begin = [draw(st.integers(0, (n or 1) - 1)) for n in x.shape]
        return ops.Slice(scope, x, begin, [draw(st.sampled_from([-1, 1])) for _ in begin])
    return ops.Concat(scope, [x, x], draw(st.integers(-rank, rank - 1)))


def _reduced(scope, x, draw, others):
    name = draw(st.sampled_from(["Sum", "Mean", "Max", "Min"]))
    axes = draw(st.lists(st.integers(0, len(x.shape) - 1), unique=True, max_size=2)) if x.shape else []
    return getattr(ops, name)(scope, x, axes, keep_dims=draw(st.booleans()))


_STEPS = [lambda s, x, d, o: _unary(s, x, d), _binary, _pooled, _shaped, _reduced]


@st.composite
def pages(draw, most=8, open_shapes=False):
    """A page with some inputs, and a scalar loss: (scope, inputs, loss, the numbers of the inputs)."""
    scope = Scope.new_root("random")
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    inputs, numbers = [], []
    for i in range(draw(st.integers(1, 2))):
        shape = draw(st.sampled_from([(1, 3, 4, 2), (2, 4, 4, 1), (1, 5, 3, 1)]))
        numbers.append(rng.normal(size=shape))
        inner = scope.with_name(f"x{i}")
        if open_shapes:
            given = ",".join(str(-1 if draw(st.booleans()) else n) for n in shape)
            inputs.append(ops.Placeholder(inner, "float64", shape=given))
        else:
            inputs.append(ops.Const(inner, numbers[-1]))
    tensors = list(inputs)
    for _ in range(draw(st.integers(1, most))):
        x = draw(st.sampled_from(tensors[-3:]))
        tensors.append(draw(st.sampled_from(_STEPS))(scope, x, draw, tensors))
    loss = ops.Sum(scope.with_name("loss"), ops.Multiply(scope, tensors[-1], tensors[-1]))
    return scope, inputs, loss, numbers


# ---------------------------------------------------------------------------------------------------------------------
# The same page in PyTorch


def _axes(x, a):
    return tuple(a["axis"]) or tuple(range(x.ndim))


def _reduce(function):
    return lambda v, a: (
        function(v["input"], dim=_axes(v["input"], a), keepdim=a["keep_dims"]) if v["input"].ndim else v["input"]
    )


def _first_extreme(sign):
    """The first of equals wins; the gradient of PyTorch's own amax is shared among them."""

    def function(v, a):
        x = v["input"]
        axes = sorted({i % x.ndim for i in a["axis"]} or range(x.ndim))
        kept = [i for i in range(x.ndim) if i not in axes]
        rows = (sign * x).permute(*kept, *axes).reshape(*[x.shape[i] for i in kept], -1)
        where = torch.from_numpy(np.asarray(np.argmax(rows.detach().numpy(), -1)))  # the first of equals
        best = sign * rows.gather(-1, where.unsqueeze(-1)).squeeze(-1)
        return best.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if a["keep_dims"] else best

    return function


def _pool(kind):
    def function(v, a):
        x = next(iter(v.values())).permute(0, 3, 1, 2)
        h, w = x.shape[2:]
        if kind == "avg":
            pad = torch.nn.functional.pad
            ones = pad(torch.ones_like(x), (0, w % 2, 0, h % 2))
            mean = torch.nn.functional.avg_pool2d
            y = mean(pad(x, (0, w % 2, 0, h % 2)), 2) / mean(ones, 2)
        else:
            y = torch.nn.functional.max_pool2d(x, 2, ceil_mode=True)
        return y.permute(0, 2, 3, 1)

    return function


def _slice(v, a):
    return v["input"][tuple(slice(b, None if n == -1 else b + n) for b, n in zip(a["begin"], a["size"]))]


def _pad(v, a):
    amounts = [a["paddings"][2 * i + j] for i in reversed(range(v["input"].ndim)) for j in (0, 1)]
    return torch.nn.functional.pad(v["input"], amounts, value=a["constant_values"])


def _maximum(swap):
    """Of equals the first: PyTorch's own halves the gradient there."""
    return lambda v, a: torch.where((v["y"] > v["x"]) ^ swap & (v["y"] != v["x"]), v["y"], v["x"])


IN_TORCH = {
    "Square": lambda v, a: v["x"] ** 2,
    "Abs": lambda v, a: v["x"].abs(),
    "Relu": lambda v, a: torch.relu(v["features"]),
    "Negate": lambda v, a: -v["x"],
    "Identity": lambda v, a: v["input"],
    "Exp": lambda v, a: v["x"].exp(),
    "Log": lambda v, a: v["x"].log(),
    "Sqrt": lambda v, a: v["x"].sqrt(),
    "Add": lambda v, a: v["x"] + v["y"],
    "Subtract": lambda v, a: v["x"] - v["y"],
    "Multiply": lambda v, a: v["x"] * v["y"],
    "Divide": lambda v, a: v["x"] / v["y"],
    "Maximum": _maximum(False),
    "Minimum": _maximum(True),
    "MaxPool": _pool("max"),
    "AvgPool": _pool("avg"),
    "Reshape": lambda v, a: v["tensor"].reshape(tuple(a["shape"])),
    "Transpose": lambda v, a: v["x"].permute(tuple(a["perm"]) or tuple(reversed(range(v["x"].ndim)))),
    "Pad": _pad,
    "Slice": _slice,
    "Concat": lambda v, a: torch.cat(v["values"], a["axis"]),
    "Sum": _reduce(torch.sum),
    "Mean": _reduce(torch.mean),
    "Max": _first_extreme(1),
    "Min": _first_extreme(-1),
}


def in_torch(page, leaves):
    """The value of every block, as PyTorch computes it; `leaves` are the tensors to differentiate by."""
    found = dict(leaves)
    for name in page.order():
        block = page[name]
        if name in found:
            continue
        values, _ = read_attributes(block)
        if block.type.name == "Const":
            found[name] = torch.tensor(values["value"].cast(values["dtype"], values["shape"]).copy())
            continue
        wires = {
            pin: [found[w.partition(".")[0]] for w in ws]
            if block.type.pins[pin].many
            else found[ws[0].partition(".")[0]]
            for pin, ws in block.inputs.items()
        }
        found[name] = IN_TORCH[block.type.name](wires, values)
    return found


def gradients_in_torch(page, loss: Output, inputs, numbers):
    leaves = {x.block: torch.tensor(n, requires_grad=True) for x, n in zip(inputs, numbers)}
    value = in_torch(page, leaves)[loss.block]
    if not value.requires_grad:
        return value, [torch.zeros_like(leaf) for leaf in leaves.values()]
    found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
    return value, [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves.values())]
