"""Symbolic gradients: new blocks on the page that compute them, of any order.

The derivative of every block is made of blocks, and the pooling operators' comes from the catalog, so gradients can be
differentiated again. An input that outputs do not depend on has zeros for its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument, InvalidType
from .blocktypes import block_types
from .inference import read_attributes
from .ops import add_block
from .scope import Output, Scope
from .values import FLOATING

if TYPE_CHECKING:
    from .page import Block


class Site:
    """A block that is being differentiated, and the scope in which its derivative is built."""

    def __init__(self, scope: Scope, block: Block, wanted: set[str]) -> None:
        self._scope = scope
        self._block = block
        self._wanted = wanted

    def add(self, type: str, **arguments: Any) -> Output:
        """A new block; its only output."""
        made = add_block(self._scope, block_types[type], arguments)
        assert isinstance(made, Output)
        return made

    def input(self, pin: str) -> Output:
        """What is wired to a pin."""
        return self.inputs(pin)[0]

    def inputs(self, pin: str) -> list[Output]:
        """All that is wired to a pin."""
        return [Output(self._scope.page, *source.split(".")) for source in self._block.inputs.get(pin, ())]

    def output(self, name: str) -> Output:
        """An output of the block."""
        return Output(self._scope.page, self._block.name, name)

    def wanted(self, pin: str) -> bool:
        """Whether somebody asks for the gradient of this pin."""
        return pin in self._wanted

    def arguments(self) -> dict[str, Any]:
        """Everything the block was made with: outputs at wired pins, values of attributes and typed pins."""
        values, _ = read_attributes(self._block)
        wired = {
            pin.name: self.inputs(pin.name) if pin.many else self.input(pin.name)
            for pin in self._block.type.inputs
            if self._block.inputs.get(pin.name)
        }
        return values | wired

    def shape_of(self, output: Output) -> Any:
        """The shape of a tensor: as numbers where it is known, otherwise as a block that finds it in the run."""
        shape = output.shape
        if shape is not None and None not in shape:
            return shape
        return self.add("Shape", input=output)

    def summed_to(self, gradient: Output, pin: str) -> Output:
        """The gradient brought back to the shape of an operand that was broadcast."""
        operand = self.input(pin)
        shape = operand.shape
        if shape is not None and None not in shape and gradient.shape == shape:
            return gradient
        return self.add("SumTo", input=gradient, shape=self.shape_of(operand))


def add_symbolic_gradients(
    scope: Scope,
    outputs: Sequence[Output],
    inputs: Sequence[Output],
    grad_inputs: Sequence[Output] | None = None,
    *,
    nested: bool = True,
) -> list[Output]:
    """The gradients of the sum of all outputs with respect to each input, as blocks in a scope called gradients.

    grad_inputs are the gradients that arrive at the outputs; ones, if not given.

    >>> from poolgrad.graph import Scope, ClientSession, ops
    >>> root = Scope.new_root()
    >>> x = ops.Const(root, [3.0, 4.0])
    >>> (gx,) = add_symbolic_gradients(root, [ops.Square(root, x)], [x])
    >>> (gxx,) = add_symbolic_gradients(root, [gx], [x])
    >>> ClientSession(root).run([gx, gxx])
    [array([6., 8.], dtype=float32), array([2., 2.], dtype=float32)]
    """
    for output in (*outputs, *inputs, *(grad_inputs or ())):
        if not isinstance(output, Output):
            raise InvalidType(f"{output!r} is not an Output", argument="outputs", given=output)
        scope.owns(output)
    for output in (*outputs, *inputs):
        if output.dtype is not None and output.dtype not in FLOATING:
            problem = f"{output} has dtype {output.dtype}, which has no gradient"
            raise InvalidType(problem, argument="outputs", given=output.dtype)
    if grad_inputs is not None and len(grad_inputs) != len(outputs):
        problem = f"there are {len(outputs)} outputs, but {len(grad_inputs)} grad_inputs"
        raise InvalidArgument(problem, argument="grad_inputs")
    inner = scope.new_sub_scope("gradients") if nested else scope
    before = set(scope.page.blocks)
    try:
        return _Backward(inner, outputs, inputs).run(grad_inputs)
    except Exception:
        scope.page.remove(*(name for name in list(scope.page.blocks) if name not in before))
        raise


class _Backward:
    """One walk from the outputs back to the inputs."""

    def __init__(self, scope: Scope, outputs: Sequence[Output], inputs: Sequence[Output]) -> None:
        self.scope = scope
        self.page = scope.page
        self.outputs, self.inputs = outputs, inputs
        self.arrived: dict[str, list[Output]] = {}

    def run(self, given: Sequence[Output] | None) -> list[Output]:
        path = self._path()
        for number, output in enumerate(self.outputs):
            gradient = given[number] if given is not None else self._make("OnesLike", x=output)
            self.arrived.setdefault(str(output), []).append(gradient)
        for name in reversed([name for name in self.page.order() if name in path]):
            self._through(self.page[name], path)
        return [self._total(str(x)) or self._make("ZerosLike", x=x) for x in self.inputs]

    def _path(self) -> set[str]:
        """The blocks that lie between the inputs and the outputs; only they are differentiated."""
        order, after = self.page.order(), set[str]()
        wanted = {str(x) for x in self.inputs}
        for name in order:
            block = self.page[name]
            reads = {source for pin in block.type.differentiable for source in block.inputs.get(pin, ())}
            if reads & wanted or any(source.partition(".")[0] in after for source in reads):
                after.add(name)
        return after

    def _through(self, block: Block, path: set[str]) -> None:
        """Hands the gradients at a block's outputs on to its inputs."""
        found = {name: self._total(f"{block.name}.{name}") for name in block.type.outputs}
        gradients = {name: gradient for name, gradient in found.items() if gradient is not None}
        floating = {name: g for name, g in gradients.items() if self._floating(f"{block.name}.{name}")}
        if not floating or block.type.derive is None:
            return
        targets = {str(x) for x in self.inputs}
        wanted = {
            pin
            for pin in block.type.differentiable
            for source in block.inputs.get(pin, ())
            if source in targets or source.partition(".")[0] in path
        }
        derived: Mapping[str, Any] = block.type.derive(Site(self.scope, block, wanted), floating)
        for pin, gradient in derived.items():
            parts = gradient if isinstance(gradient, list) else [gradient]
            for source, part in zip(block.inputs[pin], parts, strict=True):
                if self._floating(source):
                    self.arrived.setdefault(source, []).append(part)

    def _floating(self, output: str) -> bool:
        """Whether gradients flow here: not through integers and truth values."""
        return self.page.spec(output).dtype in (*FLOATING, None)

    def _total(self, output: str) -> Output | None:
        """The sum of all gradients that arrive at an output; added up once, in the order in which they came."""
        parts = self.arrived.get(output)
        if not parts:
            return None
        while len(parts) > 1:
            first, second = parts.pop(0), parts.pop(0)
            parts.insert(0, self._make("Add", x=first, y=second))
        return parts[0]

    def _make(self, type: str, **arguments: Any) -> Output:
        made = add_block(self.scope, block_types[type], arguments)
        assert isinstance(made, Output)
        return made
