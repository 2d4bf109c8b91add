"""Blocks that work element by element: arithmetic, comparison, choice. Both operands have one dtype; shapes broadcast.

Each block stands with its rule for shapes and its derivative, which is made of blocks again. The bodies use only what
the array libraries share (the Python array API standard), so they run on each of them; an exported page has them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import InvalidArgument, InvalidType
from .blocktypes import Bool, Call, Derive, Dtype, Floating, Infer, Number, OneFloat, Tensor, block, expect_dtype
from .values import Dims, Spec

if TYPE_CHECKING:
    from .gradients import Site
    from .scope import Output

Grads: TypeAlias = "Mapping[str, Output]"

# ---------------------------------------------------------------------------------------------------------------------
# Shapes


def broadcast(first: Dims | None, second: Dims | None, names: tuple[str, str] = ("x", "y")) -> Dims | None:
    """The shape of two operands together.

    >>> broadcast((4, 1), (None, 3))
    (4, 3)
    """
    if first is None or second is None:
        return None
    rank = max(len(first), len(second))
    pairs = zip((1,) * (rank - len(first)) + first, (1,) * (rank - len(second)) + second, strict=True)
    shape: list[int | None] = []
    for n, m in pairs:
        if n is not None and m is not None and n != m and 1 not in (n, m):
            problem = f"{names[1]} has shape {_shown(second)}, which does not broadcast with {names[0]} {_shown(first)}"
            raise InvalidArgument(problem, argument=names[1], given=second, expected=first)
        shape.append(n if m == 1 or (m is None and n != 1) else m)
    return tuple(shape)


def _shown(shape: Dims) -> str:
    return f"[{', '.join('?' if n is None else str(n) for n in shape)}]"


def same_dtype(call: Call, *pins: str) -> str | None:
    """The dtype that all these pins share."""
    for pin in pins:
        expect_dtype(call, pin)
    known = {pin: call.spec(pin).dtype for pin in pins if call.spec(pin).dtype is not None}
    for pin, dtype in known.items():
        first = next(iter(known))
        if dtype != known[first]:
            problem = f"{pin} has dtype {dtype}, but {first} has {known[first]}; they must be the same"
            raise InvalidType(problem, argument=pin, given=dtype, expected=known[first])
    return next(iter(known.values()), None)


def _together(call: Call) -> Spec:
    return Spec(broadcast(call.spec("x").shape, call.spec("y").shape), same_dtype(call, "x", "y"))


def _compared(call: Call) -> Spec:
    return _together(call)._replace(dtype="bool")


def like(pin: str, dtype: str | None = None) -> Infer:
    """The rule of blocks whose result has the shape of their input."""

    def infer(call: Call) -> Spec:
        expect_dtype(call, pin)
        return Spec(call.spec(pin).shape, dtype or call.spec(pin).dtype)

    return infer


# ---------------------------------------------------------------------------------------------------------------------
# One operand


def chain(rule: Callable[[Site, Output, Output], Output], pin: str = "x") -> Derive:
    """The derivative of a block with one operand, from the gradient and the operand."""

    def derive(site: Site, gradients: Grads) -> Grads:
        return {pin: rule(site, gradients["output"], site.input(pin))}

    return derive


@block("Data", like("input"), chain(lambda at, g, x: g, "input"), to=["input"])
def Identity(xp: Any, input: Tensor) -> Any:
    """The tensor as it is."""
    return input


def _cast(call: Call) -> Spec:
    expect_dtype(call, "x")
    return Spec(call.spec("x").shape, call["DstT"], call.spec("x").value if "int" in call["DstT"] else None)


def _cast_back(site: Site, g: Output, x: Output) -> Output:
    return site.add("Cast", x=g, DstT=x.dtype or "float32")


@block("Data", _cast, chain(_cast_back), to=["x"])
def Cast(xp: Any, x: Tensor, DstT: Dtype) -> Any:
    """The tensor in another dtype. A fraction loses what an integer cannot hold, toward zero."""
    return cast(xp, x, DstT)


def cast(xp: Any, x: Any, dtype: str) -> Any:
    """x in the dtype of this name; bfloat16 is ml_dtypes' where the array library has none."""
    if hasattr(xp, dtype):
        return xp.astype(x, getattr(xp, dtype), copy=False)
    import ml_dtypes

    # Dask's arrays know float16 by its name alone.
    return xp.astype(x, getattr(ml_dtypes, dtype, dtype), copy=False)


@block("Arithmetic", like("x"), chain(lambda at, g, x: at.add("Negate", x=g)), to=["x"])
def Negate(xp: Any, x: Number) -> Any:
    """Every element with the other sign."""
    return xp.negative(x)


def _square(site: Site, g: Output, x: Output) -> Output:
    product = site.add("Multiply", x=g, y=x)
    return site.add("Add", x=product, y=product)


@block("Arithmetic", like("x"), chain(_square), to=["x"])
def Square(xp: Any, x: Number) -> Any:
    """The square of every element."""
    return xp.square(x)


def _sqrt(site: Site, gradients: Grads) -> Grads:
    root = site.output("output")
    return {"x": site.add("Divide", x=gradients["output"], y=site.add("Add", x=root, y=root))}


@block("Arithmetic", like("x"), _sqrt, to=["x"])
def Sqrt(xp: Any, x: Floating) -> Any:
    """The square root of every element."""
    return xp.sqrt(x)


@block("Arithmetic", like("x"), chain(lambda at, g, x: at.add("Multiply", x=g, y=at.add("Sign", x=x))), to=["x"])
def Abs(xp: Any, x: Number) -> Any:
    """Every element without its sign."""
    return xp.abs(x)


@block("Arithmetic", like("x"))
def Sign(xp: Any, x: Number) -> Any:
    """-1, 0 or 1 for every element; NaN stays NaN."""
    return xp.sign(x)


def _relu(site: Site, g: Output, x: Output) -> Output:
    return site.add("ReluGrad", gradients=g, features=x)


@block("Arithmetic", like("features"), chain(_relu, "features"), to=["features"])
def Relu(xp: Any, features: Number) -> Any:
    """Every element, or 0 where it is negative."""
    return xp.maximum(features, xp.zeros_like(features))


def _relu_grad(call: Call) -> Spec:
    shape = broadcast(call.spec("gradients").shape, call.spec("features").shape, ("gradients", "features"))
    return Spec(shape, same_dtype(call, "gradients", "features"))


def _relu_grad_grad(site: Site, gradients: Grads) -> Grads:
    return {"gradients": site.add("ReluGrad", gradients=gradients["output"], features=site.input("features"))}


@block("Arithmetic", _relu_grad, _relu_grad_grad, to=["gradients"])
def ReluGrad(xp: Any, gradients: Number, features: Number) -> Any:
    """The gradient of Relu: it passes where features are positive."""
    return xp.where(features > 0, gradients, xp.zeros_like(gradients))


def _exp(site: Site, gradients: Grads) -> Grads:
    return {"x": site.add("Multiply", x=gradients["output"], y=site.output("output"))}


@block("Arithmetic", like("x"), _exp, to=["x"])
def Exp(xp: Any, x: Floating) -> Any:
    """e to the power of every element."""
    return xp.exp(x)


@block("Arithmetic", like("x"), chain(lambda at, g, x: at.add("Divide", x=g, y=x)), to=["x"])
def Log(xp: Any, x: Floating) -> Any:
    """The natural logarithm of every element."""
    return xp.log(x)


@block("Arithmetic", like("x"))
def ZerosLike(xp: Any, x: Tensor) -> Any:
    """Zeros of the same shape and dtype."""
    return xp.zeros_like(x)


@block("Arithmetic", like("x"))
def OnesLike(xp: Any, x: Tensor) -> Any:
    """Ones of the same shape and dtype."""
    return xp.ones_like(x)


# ---------------------------------------------------------------------------------------------------------------------
# Two operands


def pair(rule: Callable[[Site, Output, Output, Output], tuple[Callable[[], Output], Callable[[], Output]]]) -> Derive:
    """The derivative of a block with two operands: what each would get, brought back to its own shape."""

    def derive(site: Site, gradients: Grads) -> Grads:
        found = rule(site, gradients["output"], site.input("x"), site.input("y"))
        parts = zip(("x", "y"), found, strict=True)
        return {pin: site.summed_to(make(), pin) for pin, make in parts if site.wanted(pin)}

    return derive


@block("Arithmetic", _together, pair(lambda at, g, x, y: (lambda: g, lambda: g)), to=["x", "y"])
def Add(xp: Any, x: Number, y: Number) -> Any:
    """The sum, element by element."""
    return xp.add(x, y)


@block("Arithmetic", _together, pair(lambda at, g, x, y: (lambda: g, lambda: at.add("Negate", x=g))), to=["x", "y"])
def Subtract(xp: Any, x: Number, y: Number) -> Any:
    """The difference, element by element."""
    return xp.subtract(x, y)


@block(
    "Arithmetic",
    _together,
    pair(lambda at, g, x, y: (lambda: at.add("Multiply", x=g, y=y), lambda: at.add("Multiply", x=g, y=x))),
    to=["x", "y"],
)
def Multiply(xp: Any, x: Number, y: Number) -> Any:
    """The product, element by element."""
    return xp.multiply(x, y)


def _quotient(site: Site, g: Output, x: Output, y: Output) -> tuple[Callable[[], Output], Callable[[], Output]]:
    def of_y() -> Output:
        quotient = site.add("Divide", x=site.output("output"), y=y)
        return site.add("Negate", x=site.add("Multiply", x=g, y=quotient))

    return lambda: site.add("Divide", x=g, y=y), of_y


@block("Arithmetic", _together, pair(_quotient), to=["x", "y"])
def Divide(xp: Any, x: Floating, y: Floating) -> Any:
    """The quotient, element by element."""
    return xp.divide(x, y)


def _chosen(site: Site, g: Output, second: Output) -> tuple[Callable[[], Output], Callable[[], Output]]:
    """The gradient goes to the second operand where `second` holds, otherwise to the first."""

    def part(first: bool) -> Output:
        zero = site.add("ZerosLike", x=g)
        return site.add("Select", condition=second, x=zero if first else g, y=g if first else zero)

    return lambda: part(True), lambda: part(False)


@block(
    "Arithmetic",
    _together,
    pair(lambda at, g, x, y: _chosen(at, g, at.add("Greater", x=y, y=x))),
    to=["x", "y"],
)
def Maximum(xp: Any, x: Number, y: Number) -> Any:
    """The larger of two, element by element; of equals the first."""
    return xp.maximum(x, y)


@block(
    "Arithmetic",
    _together,
    pair(lambda at, g, x, y: _chosen(at, g, at.add("Less", x=y, y=x))),
    to=["x", "y"],
)
def Minimum(xp: Any, x: Number, y: Number) -> Any:
    """The smaller of two, element by element; of equals the first."""
    return xp.minimum(x, y)


# ---------------------------------------------------------------------------------------------------------------------
# Comparison and choice


@block("Compare", _compared)
def Equal(xp: Any, x: Tensor, y: Tensor) -> Any:
    """Whether elements are equal."""
    return xp.equal(x, y)


@block("Compare", _compared)
def NotEqual(xp: Any, x: Tensor, y: Tensor) -> Any:
    """Whether elements differ."""
    return xp.not_equal(x, y)


@block("Compare", _compared)
def Less(xp: Any, x: Number, y: Number) -> Any:
    """Whether elements of x are less than those of y."""
    return xp.less(x, y)


@block("Compare", _compared)
def Greater(xp: Any, x: Number, y: Number) -> Any:
    """Whether elements of x are greater than those of y."""
    return xp.greater(x, y)


@block("Compare", _compared, scratch=20)
def ApproximateEqual(xp: Any, x: Floating, y: Floating, tolerance: OneFloat = 1e-05) -> Any:
    """Whether elements differ by no more than the tolerance. NaN equals NaN here, and an infinity itself."""
    return xp.equal(x, y) | (xp.abs(x - y) <= tolerance) | (xp.isnan(x) & xp.isnan(y))


def _select(call: Call) -> Spec:
    expect_dtype(call, "condition")
    shape = broadcast(call.spec("x").shape, call.spec("y").shape)
    return Spec(broadcast(call.spec("condition").shape, shape, ("condition", "x")), same_dtype(call, "x", "y"))


def _select_back(site: Site, gradients: Grads) -> Grads:
    first, second = _chosen(site, gradients["output"], site.input("condition"))
    parts = {"x": second, "y": first}
    return {pin: site.summed_to(make(), pin) for pin, make in parts.items() if site.wanted(pin)}


@block("Compare", _select, _select_back, to=["x", "y"])
def Select(xp: Any, condition: Bool, x: Tensor, y: Tensor) -> Any:
    """The elements of x where the condition holds, those of y elsewhere."""
    return xp.where(condition, x, y)
