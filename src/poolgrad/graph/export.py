"""A page as plain Python: NumPy and poolgrad's raw operators, no page and no session, and the same bits.

The code of a block is the body of its declaration with the block's inputs and attributes put in, simplified where they
are known; functions that such a body calls are written out in front.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import re
import sys
import unicodedata
from collections.abc import Mapping
from textwrap import indent
from typing import Any

import numpy as np

from ..catalog import operators
from ..policy import Policy
from .blocktypes import BlockType, block_types
from .inference import read_attributes
from .page import Block, Page
from .problems import PageError
from .values import Values


def to_python(page: Page) -> str:
    """Code with a function `run` that returns the results of all blocks by "block.output".

    >>> page = Page("squares")
    >>> _ = page.add("Const", "x", {"value": [1, 2, 3]}), page.add("Square", "y")
    >>> page.wire("x.output", "y.x")
    >>> print(page.to_python())
    \"\"\"squares\"\"\"
    <BLANKLINE>
    import numpy as np
    <BLANKLINE>
    <BLANKLINE>
    def run():
        x = np.array([1, 2, 3], np.float32)
        y = np.square(x)
        return {"x.output": x, "y.output": y}
    <BLANKLINE>
    <BLANKLINE>
    if __name__ == "__main__":
        for name, value in run().items():
            print(name, value, sep=" =\\n")
    <BLANKLINE>
    """
    problems = [p for p in page.infer().problems if p.severity == "error"]
    if problems:
        raise PageError(f"the page cannot be exported yet: {problems[0]}")
    return _Writer(page).text()


class _Writer:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.names = _variables(page)
        self.functions: dict[str, str] = {}
        self.uses: set[str] = set()

    def text(self) -> str:
        order = self.page.order()
        body = "\n".join(self._statement(self.page[name]) for name in order if self.page[name].type.outputs)
        feeds = [self.names[n] for n in order if self.page[n].type.name == "Placeholder"]
        outputs = [
            f'"{name}.{output}": {self._reference(f"{name}.{output}")}'
            for name in order
            for output in self.page[name].type.outputs
        ]
        returned = f"return {{{', '.join(outputs)}}}"
        if len(returned) > 110:
            returned = "return {\n" + "".join(f"    {o},\n" for o in outputs) + "}"
        function = f"def run({', '.join(feeds)}):\n" + indent(f"{body}\n{returned}" if body else returned, "    ")
        main = self._main(feeds)
        parts = [self._head(), *self.functions.values(), function, main]
        return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"

    def _head(self) -> str:
        title = self.page.title or "A page of blocks."
        plain = title.isprintable() and not set(title) & set('"\\')
        first = f'"""{title}"""' if plain else repr(title)  # a title is never code
        imports = ["import sys"] * ("sys" in self.uses) + ["from math import prod"] * ("prod" in self.uses)
        imports += ["from pathlib import Path"] * ("files" in self.uses)
        third = ["import ml_dtypes"] * ("ml_dtypes" in self.uses) + ["import numpy as np"]
        third += ["import poolgrad as pg"] * ("pg" in self.uses)
        third += ["from poolgrad.graph.files import Files"] * ("files" in self.uses)
        lines = [first, "", *imports, *([""] if imports else []), *third]
        if "files" in self.uses:
            lines += ["", "files = Files(Path(__file__).resolve().parent)"]
        return "\n".join(lines)

    def _main(self, feeds: list[str]) -> str:
        if not feeds:
            call = "run()"
        else:
            self.uses.add("sys")
            call = "run(**{name: np.load(file) for name, _, file in (word.partition('=') for word in sys.argv[1:])})"
        loop = f"    for name, value in {call}.items():\n        print(name, value, sep=" + r'" =\n")'
        return f'if __name__ == "__main__":\n{loop}'

    # -- one block ----------------------------------------------------------------------------------------------------

    def _statement(self, block: Block) -> str:
        name = self.names[block.name]
        if block.type.name == "Placeholder":
            return f"# {name} is given"
        values, _ = read_attributes(block)
        if block.type.name == "Const" and not values["file"]:
            return f"{name} = {self._constant(values)}"
        if block.type.pooling:
            return self._operator_call(block, name, values)
        return f"{name} = {self._body(block, values)}"

    def _constant(self, values: Mapping[str, Any]) -> str:
        numbers = values["value"]
        dtype = self._dtype(values["dtype"])
        shape = values["shape"]
        if shape and numbers.array.size == 1:
            return f"np.full({shape}, {_literal(numbers.cast(values['dtype']).reshape(()))}, {dtype})"
        return f"np.array({_literal(numbers.cast(values['dtype'], shape))}, {dtype})" + _empty_shape(numbers, shape)

    def _dtype(self, name: str) -> str:
        if name == "bfloat16":
            self.uses.add("ml_dtypes")
            return "ml_dtypes.bfloat16"
        return "np.bool_" if name == "bool" else f"np.{name}"

    def _operator_call(self, block: Block, name: str, values: Mapping[str, Any]) -> str:
        self.uses.add("pg")
        arguments = []
        for parameter in operators[block.type.name].parameters:
            if block.inputs.get(parameter.name):
                arguments.append(f"{parameter.name}={self._reference(block.inputs[parameter.name][0])}")
            elif parameter.name in block.attributes:
                arguments.append(f"{parameter.name}={_shown(values[parameter.name])}")
        call = f"{name} = pg.raw_ops.{block.type.name}({', '.join(arguments)})"
        given = {rule: values.get(rule) or getattr(self.page.policy, rule) for rule in ("ties", "nan")}
        rules = {k: v for k, v in given.items() if k in block.type.settings and v != getattr(Policy(), k)}
        if not rules:
            return call
        return f"with pg.policy({', '.join(f'{k}={v!r}' for k, v in rules.items())}):\n    {call}"

    def _body(self, block: Block, values: Mapping[str, Any]) -> str:
        arguments: dict[str, ast.expr] = {"xp": ast.Name("np")}
        for name in inspect.signature(block.type.compute).parameters:
            if block.type.name == "Const" and name == "value":
                continue
            if block.inputs.get(name):
                arguments[name] = self._wires(block, name)
            elif name in values:
                value = values[name] or (getattr(self.page.policy, name) if name in ("ties", "nan") else values[name])
                arguments[name] = _expression(repr(value))
            elif name == "files":
                self.uses.add("files")
                arguments[name] = ast.Name("files")
        found = _Simplified(arguments).visit(_returned(block.type))
        self._add_functions(found, sys.modules[block.type.compute.__module__])
        return ast.unparse(ast.fix_missing_locations(found))

    def _wires(self, block: Block, pin: str) -> ast.expr:
        parts = [_expression(self._reference(wire)) for wire in block.inputs[pin]]
        if block.type.pins[pin].many:
            return ast.List(parts)
        return _listed(parts[0]) if block.type.pins[pin].text else parts[0]

    def _add_functions(self, tree: ast.AST, module: Any) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                if node.id in ("ml_dtypes", "prod"):
                    self.uses.add(node.id)
                if inspect.isfunction(getattr(module, node.id, None)):
                    self._add_function(node.id, module)

    def _add_function(self, name: str, module: Any) -> None:
        if name in self.functions:
            return
        function = getattr(module, name)
        tree = ast.parse(inspect.getsource(function)).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self.functions[name] = ""  # so that functions that call each other are written once
        self._add_functions(tree, sys.modules[function.__module__])
        del self.functions[name]
        self.functions[name] = ast.unparse(_bare(tree))

    def _reference(self, output: str) -> str:
        name, _, out = output.partition(".")
        several = len(self.page[name].type.outputs) > 1
        return f"{self.names[name]}.{out}" if several else self.names[name]


# ---------------------------------------------------------------------------------------------------------------------


def _variables(page: Page) -> dict[str, str]:
    """A Python name for every block."""
    found: dict[str, str] = {}
    taken = _reserved()
    for name in page.blocks:
        word = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name))  # as Python reads names
        word = f"b_{word}" if not word.isidentifier() else word
        while word in taken or keyword.iskeyword(word):
            word += "_"
        found[name] = word
        taken.add(word)
    return found


def _reserved() -> set[str]:
    """Names that mean something in exported code: modules, builtins, and the functions that bodies may call."""
    modules = {sys.modules[t.compute.__module__] for t in block_types.values()}
    functions = {name for m in modules for name in vars(m) if inspect.isfunction(getattr(m, name))}
    return {"np", "pg", "files", "run", "Path", "Files", "sys", "ml_dtypes", "prod"} | functions | set(dir(builtins))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _literal(numbers: Any) -> str:
    """Numbers as Python writes them; what has no literal is spelled out."""
    return re.sub(r"'([^']*)'", _spelled, repr(Values(np.asarray(numbers)).to_json()))


def _spelled(found: re.Match[str]) -> str:
    word = found.group(1)
    return {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf", "-0": "-0.0"}.get(word, word)


def _empty_shape(numbers: Values, shape: tuple[int, ...]) -> str:
    """An empty list has lost the axes behind the empty one."""
    full = shape or numbers.array.shape
    return f".reshape({full})" if 0 in full and len(full) > 1 else ""


def _shown(value: Any) -> str:
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


def _returned(type: BlockType) -> ast.expr:
    """The expression that a declaration returns: every body is a single one."""
    tree = ast.parse(inspect.getsource(type.compute)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    last = tree.body[-1]
    assert len(tree.body) == 2
    assert isinstance(last, ast.Return)
    assert last.value is not None
    return last.value


def _listed(array: ast.expr) -> ast.expr:
    """A wired list of integers as the tuple that the body expects."""
    listed = ast.Call(ast.Attribute(array, "tolist"), [], [])
    return ast.Call(ast.Name("tuple"), [listed], [])


def _bare(tree: ast.FunctionDef) -> ast.FunctionDef:
    """The function without its decorators and annotations."""
    tree.decorator_list, tree.returns = [], None
    for argument in tree.args.args:
        argument.annotation = None
    return tree


class _Simplified(ast.NodeTransformer):
    """Puts arguments in, and works out what they decide."""

    def __init__(self, arguments: Mapping[str, ast.expr]) -> None:
        self.arguments = arguments

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.arguments.get(node.id, node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        known = _constant(node.values[0])
        if isinstance(node.op, ast.Or) and known is not None:
            return node.values[0] if known[0] else node.values[1]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        known = _constant(node.test)
        return node if known is None else node.body if known[0] else node.orelse

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("tuple", "list") and len(node.args) == 1:
            inner = node.args[0]
            if isinstance(inner, ast.Tuple if name == "tuple" else ast.List) or _is_call(inner, name):
                return inner
        if name == "getattr" and isinstance(node.args[1], ast.Constant):
            return ast.Attribute(node.args[0], str(node.args[1].value))
        if name == "numpy_dtype" and isinstance(node.args[0], ast.Constant):
            dtype = str(node.args[0].value)
            return ast.Attribute(ast.Name("ml_dtypes" if dtype == "bfloat16" else "np"), dtype)
        return node


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _constant(node: ast.expr) -> tuple[Any] | None:
    try:
        return (ast.literal_eval(node),)
    except (ValueError, TypeError):
        return None
