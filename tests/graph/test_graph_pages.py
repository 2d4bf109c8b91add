"""Editing a page: each change is made completely, or refused with the page as it was."""

import numpy as np
import pytest
from graphs import pages
from hypothesis import given, settings

from poolgrad.graph import ClientSession, Page, PageError, Scope, ops, palette


@pytest.fixture
def page():
    page = Page("a page")
    page.add("Const", "x", {"value": "1,2,3"}, at=(0, 0))
    page.add("Square", "y", at=(200, 0))
    page.add("Add", "z")
    page.wire("x.output", "y.x")
    page.wire("y.output", "z.x")
    page.wire("x.output", "z.y")
    return page


def test_blocks_get_free_names(page):
    assert page.add("Square").name == "Square"
    assert page.add("Square").name == "Square_1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: p.add("Squire"), "no block type 'Squire'; did you mean 'Square'"),
        (lambda p: p.add("Square", "x"), "there is a block 'x' already"),
        (lambda p: p.add("Square", "a b"), "cannot name a block"),
        (lambda p: p.add("Square", "a.b"), "cannot name a block"),
        (lambda p: p.add("Square", "/a"), "cannot name a block"),
        (lambda p: p.add("Square", "a" * 201), "cannot name a block"),
        (lambda p: p.add("Square", "q", {"axis": 1}), "Square has no attribute 'axis'"),
        (lambda p: p.add("Square", "q", at=(0, float("nan"))), "not a place"),
        (lambda p: p.remove("x", "nope"), "there is no block 'nope'"),
        (lambda p: p.rename("x", "y"), "already"),
        (lambda p: p.rename("x", ""), "cannot name"),
        (lambda p: p.set("x", "valeu", 1), "Const has no attribute 'valeu'; did you mean 'value'"),
        (lambda p: p.set("x", "value", object()), "expected numbers"),
        (lambda p: p.wire("z.output", "y.x"), "would make a cycle"),
        (lambda p: p.wire("y.output", "y.x"), "would make a cycle"),
        (lambda p: p.wire("x.out", "y.x"), "no output 'out'; it has output"),
        (lambda p: p.wire("x.output", "y.features"), "no pin 'features'; it has x"),
        (lambda p: p.wire("x", "y.x"), "not an output"),
        (lambda p: p.wire("x.output", "y"), "not a pin"),
        (lambda p: p.wire("x.output", "y.x[0]"), "takes one wire"),
        (lambda p: p.unwire("x.value"), "no pin 'value'"),
        (lambda p: p.move("x", float("inf"), 0), "not a place"),
        (
            lambda p: p.paste({"poolgrad-page": 1, "blocks": [{"name": "a", "type": "Nope"}], "wires": []}),
            "no block type",
        ),
    ],
)
def test_a_refused_change_changes_nothing(page, change, reason):
    before = page.dumps()
    with pytest.raises(PageError, match=None) as raised:
        change(page)
    assert reason in raised.value.reason
    assert page.dumps() == before


def test_removing_takes_wires_layout_and_notes_along(page):
    page.notes.append({"text": "both", "at": [0, 0], "blocks": ["x", "y"]})
    page.remove("y")
    assert page.wires() == ["x.output -> z.y"]
    assert list(page.layout) == ["x"]
    assert page.notes[0]["blocks"] == ["x"]


def test_renaming_keeps_everything(page):
    page.notes.append({"text": "", "at": [0, 0], "blocks": ["x"]})
    page.rename("x", "inputs/image")
    assert page.wires() == ["inputs/image.output -> y.x", "y.output -> z.x", "inputs/image.output -> z.y"]
    assert page.layout["inputs/image"] == (0, 0)
    assert page.notes[0]["blocks"] == ["inputs/image"]
    assert list(page.blocks) == ["inputs/image", "y", "z"]


def test_wires_of_pins_that_take_many(page):
    page.add("Concat", "c", {"axis": 0})
    for source in ("x", "y", "z"):
        page.wire(f"{source}.output", "c.values")
    page.wire("x.output", "c.values[2]")
    assert page["c"].inputs["values"] == ("x.output", "y.output", "x.output")
    page.unwire("c.values[0]")
    assert page["c"].inputs["values"] == ("y.output", "x.output")
    with pytest.raises(PageError, match=r"the next one is values\[2\]"):
        page.wire("x.output", "c.values[5]")
    page.unwire("c.values")
    assert "values" not in page["c"].inputs


def test_half_typed_texts_stay_and_are_problems(page):
    page.add("MaxPool", "pool", {"ksize": "1,2,", "padding": "SAM"})
    problems = {p.place: p for p in page.infer().problems if p.block == "pool"}
    assert problems["ksize"].position == 4
    assert problems["padding"].message == "expected one of SAME, VALID, EXPLICIT"
    assert problems["input"].message == "input must be wired"
    assert problems["strides"].message == "strides must be given"
    assert Page.loads(page.dumps())["pool"].attributes["ksize"] == "1,2,"
    page.set("pool", "ksize", "1,2,2,1")
    assert page["pool"].attributes["ksize"] == (1, 2, 2, 1)
    page.set("pool", "ksize", None)
    assert "ksize" not in page["pool"].attributes


def test_typed_and_wired_pins(page):
    page.add("Reshape", "r", {"shape": "3,1"})
    page.wire("x.output", "r.tensor")
    assert page.infer().outputs["r.output"].shape == (3, 1)
    page.add("Const", "s", {"value": "1,3", "dtype": "int32"})
    page.wire("s.output", "r.shape")
    assert "shape" not in page["r"].attributes
    assert page.infer().outputs["r.output"].shape == (1, 3)
    page.set("r", "shape", "3,1")
    assert [p.message for p in page.infer().problems] == ["shape is wired and typed: remove one of the two"]


def test_refusal_says_why_a_wire_cannot_be_drawn(page):
    page.add("Const", "flag", {"value": True, "dtype": "bool"})
    page.add("MaxPool", "pool", {"ksize": "1,2,2,1", "strides": "1,2,2,1", "padding": "SAME"})
    assert page.refusal("x.output", "z.x") is None
    assert "cycle" in page.refusal("z.output", "y.x")
    assert "dtype bool" in page.refusal("flag.output", "z.x")
    assert "expected 4 dimensions" in page.refusal("x.output", "pool.input")
    assert page["pool"].inputs == {}


def test_copies_are_independent(page):
    copy = page.copy()
    copy.set("x", "value", "7")
    copy.remove("z")
    copy.move("x", 9, 9)
    assert len(page.blocks) == 3
    assert page.layout["x"] == (0, 0)
    assert ClientSession(page).run("y.output").tolist() == [1, 4, 9]
    assert ClientSession(copy).run("y.output").tolist() == 49


def test_copy_and_paste(page):
    names = page.paste(page.fragment(["y", "z"]))
    assert names == {"y": "y_1", "z": "z_1"}
    assert page.wires()[-1] == "y_1.output -> z_1.x"
    assert page.layout["y_1"] == (220, 20)
    other = Page()
    assert other.paste(page.fragment(["x", "y"]), offset=(0, 0)) == {"x": "x", "y": "y"}
    assert ClientSession(other).run("y.output").tolist() == [1, 4, 9]


def test_order_and_readers(page):
    page.add("Const", "late", {"value": 1})
    page.wire("late.output", "z.y")
    order = page.order()
    assert all(order.index(source) < order.index(name) for name in order for source in page[name].sources())
    assert page.readers() == {"x": ["y"], "y": ["z"], "z": [], "late": ["z"]}


@settings(max_examples=20)
@given(pages())
def test_inference_after_edits_is_that_of_a_fresh_page(made):
    """What is remembered from before an edit never shows."""
    page = made[0].page
    page.infer()
    first = made[1][0].block
    page.set(first, "value", np.ones((3,)))
    page.rename(first, "renamed")
    assert page.infer() == Page.loads(page.dumps()).infer()


def test_the_palette_tells_everything_an_editor_needs():
    for entry in palette():
        page = Page()
        block = page.add(entry["type"])
        assert {p.place for p in page.infer().problems} >= {
            pin["name"] for pin in entry["inputs"] if pin["required"]
        } | {a["name"] for a in entry["attributes"] if a["required"]}
        assert entry["doc"].startswith(entry["summary"])
        assert all(pin["doc"] for pin in entry["inputs"])
        assert all(a["doc"] for a in entry["attributes"])
        for attribute in entry["attributes"]:
            if not attribute["required"] and attribute["kind"] != "array":
                page.set(block.name, attribute["name"], attribute["text"])
                assert attribute["name"] not in page[block.name].attributes, "the default's text means the default"


def test_arrays_bring_their_dtype_along():
    page = Page()
    page.add("Const", "x", {"value": np.arange(3, dtype=np.int16)})
    assert page.infer().outputs["x.output"].dtype == "int16"
    page.set("x", "value", np.ones(2, ">f8"))
    assert page.infer().outputs["x.output"].text() == "float64 [2]"
    page.set("x", "value", "1,2")
    assert page.infer().outputs["x.output"].dtype == "float64", "numbers without a dtype leave it"
    for wrong in (np.ones(2, complex), np.array(["a"]), np.array([object()])):
        with pytest.raises(PageError):
            page.set("x", "value", wrong)


def test_numbers_that_a_dtype_cannot_hold_are_problems():
    page = Page()
    for value, dtype in (
        ("300", "uint8"),
        ("-1", "uint64"),
        ("1.5", "int32"),
        ("2", "bool"),
        ("9223372036854775808", "int64"),
    ):
        block = page.add("Const", None, {"value": value, "dtype": dtype})
        (problem,) = [p for p in page.infer().problems if p.block == block.name]
        assert (problem.place, "cannot hold" in problem.message) == ("value", True)


def test_names_are_written_in_one_way():
    page = Page()
    page.add("Const", "caf\u00e9", {"value": 1})
    with pytest.raises(PageError, match="cannot name"):
        page.add("Const", "cafe\u0301", {"value": 1})


def test_a_widget_needs_the_editor(monkeypatch):
    from importlib import metadata

    monkeypatch.setattr(metadata, "entry_points", lambda **_: [])
    with pytest.raises(PageError, match="poolgrad-studio"):
        Page().widget()


def test_outputs_of_another_page_are_refused():
    first, second = Scope.new_root(), Scope.new_root()
    x = ops.Const(first, [1.0])
    with pytest.raises(PageError, match="another page"):
        ops.Square(second, x)
