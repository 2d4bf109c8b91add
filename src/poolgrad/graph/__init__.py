"""Pages: programs of blocks and wires over the catalog. Build, save, run, differentiate, export them.

>>> from poolgrad.graph import Scope, ClientSession, add_symbolic_gradients, ops
>>> root = Scope.new_root()
>>> x = ops.Const(root.with_name("x"), [[[[1.0], [5.0]], [[3.0], [2.0]]]])
>>> y = ops.MaxPool(root, x, ksize="1,2,2,1", strides="1,2,2,1", padding="SAME", attrs="data_format_ = NHWC;")
>>> (gx,) = add_symbolic_gradients(root, [ops.Sum(root, ops.Square(root, y))], [x])
>>> [array.ravel() for array in ClientSession(root).run([y, gx])]
[array([5.], dtype=float32), array([ 0., 10.,  0.,  0.], dtype=float32)]
"""

from typing import Any

from . import ops
from .blocktypes import BlockType, block_types, palette
from .gradients import add_symbolic_gradients
from .inference import Inference
from .page import Block, Page
from .pagefile import schema
from .problems import BlockError, Cancelled, EngineError, PageError, Problem, TextError
from .results import BlockResult, Event, Report
from .scope import Output, Scope
from .session import ClientSession
from .text import written
from .values import Spec

__all__ = [
    "Block",
    "BlockError",
    "BlockResult",
    "BlockType",
    "Cancelled",
    "ClientSession",
    "EngineError",
    "Event",
    "Inference",
    "Output",
    "Page",
    "PageError",
    "Problem",
    "Report",
    "Scope",
    "Spec",
    "TextError",
    "add_symbolic_gradients",
    "attribute_text",
    "block_types",
    "ops",
    "palette",
    "parse_attribute",
    "schema",
]


def parse_attribute(type: str, attribute: str, text: str) -> Any:
    """The value that a text means for an attribute of a block type; a TextError points at what cannot be read.

    >>> parse_attribute("MaxPool", "ksize", "1,2,2,1")
    (1, 2, 2, 1)
    """
    return block_types[type].parse(attribute, text)


def attribute_text(type: str, attribute: str, value: Any) -> str:
    """The text of an attribute's value, as its block shows it.

    >>> attribute_text("MaxPool", "ksize", [1, 2, 2, 1])
    '1,2,2,1'
    """
    return written(block_types[type].parse(attribute, value))
