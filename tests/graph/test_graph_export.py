"""An exported page is plain Python that gives the same bits."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import pages
from hypothesis import given, settings
from malformed import GOOD
from test_graph_gradients import CALLS, const

from poolgrad.catalog import operators
from poolgrad.graph import ClientSession, Output, Page, PageError, Scope, add_symbolic_gradients, block_types, ops

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.page.json"))


def exported(page, feeds=None, folder=None):
    code = page.to_python()
    scope = {"__name__": "exported", "__file__": str((folder or Path()) / "exported.py")}
    exec(compile(code, "exported", "exec"), scope)
    return scope["run"](**(feeds or {}))


def same(page, feeds=None):
    found = exported(page, feeds, page.folder)
    report = ClientSession(page).evaluate(feeds=feeds)
    assert report.ok, report.problems
    results = {f"{n}.{o}": a for n, r in report.blocks.items() for o, a in r.outputs.items()}
    assert found.keys() == results.keys()
    for name, array in results.items():
        value = np.asarray(found[name])
        assert (value.dtype, value.shape) == (array.dtype, array.shape), name
        assert value.tobytes() == array.tobytes(), name


@settings(max_examples=40)
@given(pages())
def test_python_to_file_to_python_to_exported_python(made):
    scope, inputs, loss, _ = made
    add_symbolic_gradients(scope, [loss], inputs)
    same(Page.loads(scope.page.dumps()))


@settings(max_examples=20)
@given(pages(open_shapes=True))
def test_placeholders_are_arguments(made):
    scope, inputs, loss, numbers = made
    add_symbolic_gradients(scope, [loss], inputs)
    same(scope.page, {x.block: n for x, n in zip(inputs, numbers)})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples(path):
    same(Page.load(path))


@pytest.mark.parametrize("name", sorted(operators))
def test_every_operator(name):
    scope = Scope.new_root()
    given_ = {k: v for k, v in GOOD[name]().items() if v is not None}
    if "deterministic" in {a.name for a in operators[name].attributes}:
        given_ |= {"deterministic": True, "seed": 3}
    wired = {k: ops.Const(scope, v) for k, v in given_.items() if isinstance(v, np.ndarray)}
    getattr(ops, name)(scope, **given_ | wired)
    same(scope.page)


OTHERS = {
    "ConcatPart": lambda s, x, y: ops.ConcatPart(s, ops.Concat(s, [x, y], 1), [x, y], 1, 1),
    "Sign": lambda s, x, y: ops.Sign(s, x),
    "Equal": lambda s, x, y: ops.Equal(s, x, y),
    "NotEqual": lambda s, x, y: ops.NotEqual(s, x, y),
    "Less": lambda s, x, y: ops.Less(s, x, y),
    "Greater": lambda s, x, y: ops.Greater(s, x, y),
    "ApproximateEqual": lambda s, x, y: ops.ApproximateEqual(s, x, y, tolerance=0.5),
    "All": lambda s, x, y: ops.All(s, ops.Less(s, x, y), [0]),
    "Winners": lambda s, x, y: ops.Winners(s, x, [1], ties="split"),
    "ZerosLike": lambda s, x, y: ops.ZerosLike(s, x),
    "OnesLike": lambda s, x, y: ops.OnesLike(s, x),
    "Shape": lambda s, x, y: ops.Shape(s, x, "out_type_ = int64;"),
    "RandomNormal": lambda s, x, y: ops.RandomNormal(s, "2,3", "float16", seed=5, mean=2.5),
    "RandomUniform": lambda s, x, y: ops.RandomUniform(s, ops.Shape(s, x), "bfloat16", minval=-1.0),
    "RandomUniformInt": lambda s, x, y: ops.RandomUniformInt(s, "5", -3, 100, dtype="int8"),
}


@pytest.mark.parametrize("name", [*CALLS, *OTHERS])
def test_every_other_block(name):
    scope = Scope.new_root()
    if name in CALLS:
        arguments, named = CALLS[name]
        getattr(ops, name)(scope, *(const(scope, a) for a in arguments), **named)
    else:
        x, y = (ops.Const(scope, np.random.default_rng(i).normal(size=(2, 3))) for i in (1, 2))
        OTHERS[name](scope, x, y)
    same(scope.page)


def test_no_block_is_forgotten_here():
    covered = {*CALLS, *OTHERS, *operators, "Const", "Placeholder", "Concat", "Load", "Save", "ClientSession"}
    assert covered == set(block_types)


def test_policies_and_awkward_names():
    page = Page('it\'s "quoted" \\ and more')
    for name in ("np", "class", "total", "1st", "été", "a-b", "a_b", "run"):
        page.add("Const", name, {"value": ["nan", "-inf", "-0", 1.5]})
        page.add("Sum", f"sum/{name}")
        page.wire(f"{name}.output", f"sum/{name}.input")
    page.add("Const", "big", {"value": [str(2**63)], "dtype": "uint64"})
    page.add("Const", "filled", {"value": 7, "shape": "2,3"})
    page.add("Const", "empty", {"value": np.zeros((0, 3))})
    page.policy = page.policy._replace(nan="ignore")
    page.add("Max", "max")
    page.wire("np.output", "max.input")
    same(page)


@pytest.mark.parametrize(
    "title",
    [
        'ends with a "quote"',
        'x"""\nimport os\nos.mkdir("pwned")\n"""',
        "\\",
        "'",
        "\x00\u2028",
        "\\N{DIGIT ONE}",
        "été",
    ],
)
def test_a_title_is_never_code(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Page(title)
    page.add("Const", "x", {"value": 1})
    assert exported(page)["x.output"] == 1
    assert ast.get_docstring(ast.parse(page.to_python()), clean=False) == title
    assert not list(tmp_path.iterdir())


def test_files_are_read_beside_the_code(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(5.0))
    page = Page(folder=tmp_path)
    page.add("Load", "x", {"file": "x.npy"})
    page.add("Save", "s", {"file": "y.npy"})
    page.wire("x.output", "s.input")
    same(page)
    assert np.load(tmp_path / "y.npy").tolist() == [0, 1, 2, 3, 4]


def test_the_code_is_a_program(tmp_path):
    root = Scope.new_root()
    x = ops.Placeholder(root.with_name("x"), "float64", shape="-1")
    ops.Square(root.with_name("y"), x)
    np.save(tmp_path / "in.npy", np.array([3.0]))
    (tmp_path / "page.py").write_text(root.page.to_python())
    done = subprocess.run(
        [sys.executable, "page.py", "x=in.npy"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert "y.output =\n[9.]" in done.stdout


def test_simple_blocks_are_one_plain_line():
    root = Scope.new_root("plain")
    x = ops.Const(root.with_name("x"), [1.0, 4.0])
    ops.Reshape(root.with_name("r"), ops.Sqrt(root.with_name("s"), x), "2,1")
    code = root.page.to_python()
    assert "    s = np.sqrt(x)\n    r = np.reshape(s, (2, 1))\n" in code
    ast.parse(code)


def test_a_page_with_problems_is_not_exported():
    page = Page()
    page.add("Square", "y")
    with pytest.raises(PageError, match=r"cannot be exported yet: y\.x: x must be wired"):
        page.to_python()


def test_outputs_are_named_tuples():
    root = Scope.new_root()
    r = ops.FractionalMaxPool(root, np.ones((1, 4, 4, 1), np.float32), "1,1.5,1.5,1")
    assert r._fields == ("output", "row_pooling_sequence", "col_pooling_sequence")
    assert all(isinstance(o, Output) for o in r)
