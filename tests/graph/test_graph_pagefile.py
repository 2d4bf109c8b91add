"""The page file: the same page comes back, what is malformed is refused with its line, saves are all or nothing."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from graphs import pages
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from poolgrad.graph import ClientSession, Page, PageError, Scope, add_symbolic_gradients, ops, pagefile, schema
from poolgrad.graph.values import Values

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.page.json"))

GOOD = """{
  "poolgrad-page": 1,
  "title": "squares",
  "blocks": [
    {"name": "x", "type": "Const", "attributes": {"value": [1, 2, 3]}},
    {"name": "y", "type": "Square"},
    {"name": "c", "type": "Concat", "attributes": {"axis": 0}}
  ],
  "wires": [
    "x.output -> y.x",
    "x.output -> c.values[0]",
    "y.output -> c.values[1]"
  ],
  "layout": {
    "x": [0, 0]
  },
  "notes": [
    {"text": "hello", "at": [0, -50], "size": [100, 40], "blocks": ["x"]}
  ]
}
"""


def test_a_page_is_written_as_it_was_read():
    assert Page.loads(GOOD).dumps() == GOOD


@settings(max_examples=40)
@given(pages())
def test_random_pages_come_back_the_same(made):
    scope, inputs, loss, _ = made
    add_symbolic_gradients(scope, [loss], inputs)
    again = Page.loads(scope.page.dumps())
    assert again == scope.page
    assert again.dumps() == scope.page.dumps()
    assert Page.from_dict(json.loads(json.dumps(scope.page.to_dict()))) == scope.page
    first, second = ClientSession(scope).evaluate(), ClientSession(again).evaluate()
    for name, array in first.results().items():
        assert array.tobytes() == second.results()[name].tobytes(), name


@settings(max_examples=150)
@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64, np.uint64, np.bool_]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    )
)
def test_constants_keep_every_bit(array):
    """Also NaN, infinities, -0.0, subnormals, and integers that a browser's numbers cannot hold."""
    page = Page()
    page.add("Const", "x", {"value": array, "dtype": array.dtype.name})
    again = ClientSession(Page.loads(page.dumps())).run("x.output")
    assert (again.dtype, again.size) == (array.dtype, array.size)
    if 0 not in array.shape:
        assert again.shape == array.shape
    same = again.tobytes() == array.tobytes()
    assert same or (np.isnan(array).any() and np.array_equal(again, array, equal_nan=True))


def test_numbers_that_a_browser_would_change_are_texts():
    numbers = Values(np.array([2**53 + 1, -(2**63), 5], np.int64)).to_json()
    assert numbers == ["9007199254740993", "-9223372036854775808", 5]


def test_large_constants_move_into_files(tmp_path):
    root = Scope.new_root()
    numbers = np.random.default_rng(0).normal(size=(50, 100)).astype(np.float32)
    y = ops.Square(root, ops.Const(root.with_name("layer/x"), numbers))
    root.page.save(tmp_path / "big.page.json")
    (file,) = (tmp_path / "big.data").iterdir()
    assert file.name.startswith("layer.x-")
    assert file.suffix == ".npy"
    assert len((tmp_path / "big.page.json").read_text()) < 1000
    again = Page.load(tmp_path / "big.page.json")
    assert again == root.page
    assert ClientSession(again).run(str(y)).tobytes() == np.square(numbers).tobytes()
    (tmp_path / "elsewhere").mkdir()
    again.save(tmp_path / "elsewhere" / "copy.page.json")
    assert ClientSession(Page.load(tmp_path / "elsewhere" / "copy.page.json")).evaluate().ok


# ---------------------------------------------------------------------------------------------------------------------
# Malformed files


def changed(old, new):
    assert old in GOOD
    return GOOD.replace(old, new, 1)


MALFORMED = {
    "nothing": ("", 1, "not JSON"),
    "not JSON": ("{", 1, "not JSON"),
    "a list": ("[]", 1, "a page is a JSON object"),
    "another JSON": ('{"a": 1}', 1, "not a poolgrad page"),
    "no version": (changed('"poolgrad-page": 1,', ""), 1, "not a poolgrad page"),
    "version of a wrong kind": (changed('page": 1', 'page": "1"'), 2, "not a poolgrad page"),
    "a newer version": (changed('page": 1', 'page": 2'), 2, "install a newer poolgrad"),
    "unknown key": (changed('"title"', '"tittle"'), 1, "tittle"),
    "key twice": (changed('"layout"', '"title": "",\n  "layout"'), 14, "the key 'title' is there twice"),
    "missing comma": (changed('"squares",', '"squares"'), 4, "not JSON"),
    "NaN": (changed("[1, 2, 3]", "[1, NaN, 3]"), 5, 'NaN is not JSON; in the value of a constant, write "nan"'),
    "infinity": (changed("[1, 2, 3]", "[1, -Infinity, 3]"), 5, "-Infinity is not JSON"),
    "a huge number": (changed("[0, 0]", "[0, 1e999]"), 15, "1e999 is larger than any number here"),
    "a huge integer": (changed("[0, 0]", "[0, 1" + "0" * 5000 + "]"), 15, "limit"),
    "deep nesting": (changed("[1, 2, 3]", "[" * 70 + "]" * 70), 5, "nested too deeply"),
    "very deep nesting": (changed("[1, 2, 3]", "[" * 100_000 + "]" * 100_000), None, "nested too deeply"),
    "null": (changed("[1, 2, 3]", "null"), 5, "None is not of type"),
    "name twice": (changed('"name": "y"', '"name": "x"'), 6, "there is a block 'x' already"),
    "a bad name": (changed('"name": "y"', '"name": "a b"'), 6, "cannot name a block"),
    "a block without a type": (changed(', "type": "Square"', ""), 6, "'type' is a required property"),
    "unknown type": (changed('"Square"', '"Squre"'), 6, "no block type 'Squre'; did you mean 'Square'"),
    "unknown attribute": (changed('"axis": 0', '"axes": 0'), 7, "Concat has no attribute 'axes'"),
    "a block that is no object": (changed('{"name": "y", "type": "Square"}', "5"), 6, "5 is not of type 'object'"),
    "a wire that is none": (changed("x.output -> y.x", "x.output to y.x"), 10, "is not a wire"),
    "a wire from nowhere": (changed("x.output -> y.x", "q.output -> y.x"), 10, "there is no block 'q'"),
    "a wire to nowhere": (changed("x.output -> y.x", "x.output -> q.x"), 10, "there is no block 'q'"),
    "a wire from no output": (changed("x.output -> y.x", "x.result -> y.x"), 10, "has no output 'result'"),
    "a wire to no pin": (changed("x.output -> y.x", "x.output -> y.z"), 10, "has no pin 'z'"),
    "two wires at one pin": (changed("x.output -> c.values[0]", "x.output -> y.x"), 11, "y.x is wired twice"),
    "no index": (changed("c.values[0]", "c.values"), 11, "takes many wires"),
    "an index too much": (changed("y.x", "y.x[0]"), 10, "takes one wire"),
    "a gap": (changed("c.values[1]", "c.values[2]"), 12, "c.values[1] is not wired"),
    "a cycle": (changed("x.output -> y.x", "y.output -> y.x"), 10, "cycle: y <- y"),
    "a place for nothing": (changed('"x": [0, 0]', '"q": [0, 0]'), 15, "there is no block 'q'"),
    "a note about nothing": (changed('"blocks": ["x"]', '"blocks": ["q"]'), 18, "there is no block 'q'"),
    "a place of texts": (changed("[0, 0]", '["a", 0]'), 15, "'a' is not of type 'number'"),
    "a policy that is none": (changed('"title"', '"policy": {"ties": "last"},\n"title"'), 3, "'last' is not one of"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_refused_with_line_and_reason(name):
    text, line, reason = MALFORMED[name]
    with pytest.raises(PageError) as raised:
        Page.loads(text)
    assert reason in raised.value.reason
    assert raised.value.line == line
    assert len(raised.value.reason) < 500


@pytest.mark.parametrize("text", [r"a\ud800", r"\uDC00b", "\ud800"])
def test_halves_of_characters_are_refused(text, tmp_path):
    path = tmp_path / "p.page.json"
    Page.loads(GOOD).save(path)
    before = path.read_bytes()
    with pytest.raises(PageError, match="half of a character") as raised:
        Page.loads(changed('"title": "', f'"title": "{text}'))
    assert raised.value.line == 3
    page = Page.loads(GOOD)
    page.title = "\ud800"
    with pytest.raises(PageError, match="half of a character"):
        page.save(path)
    assert path.read_bytes() == before
    assert Page.loads(changed('"title": "', r'"title": "\ud83d\ude00')).title.startswith("\U0001f600")


def test_a_longer_cycle_is_named():
    text = changed("x.output -> y.x", "c.output -> y.x")
    with pytest.raises(PageError, match="the wires make a cycle: y <- c <- y") as raised:
        Page.loads(text)
    assert raised.value.line == 12


def test_other_bytes_than_text():
    for content in (b"\xff\xfe{}", GOOD.encode("utf-16"), b'{"title": "\xe9"}'):
        with pytest.raises(PageError, match="not UTF-8"):
            Page.loads(content)
    assert Page.loads(b"\xef\xbb\xbf" + GOOD.encode()) == Page.loads(GOOD)


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "nothing.json", tmp_path):
        with pytest.raises(PageError, match="cannot be read"):
            Page.load(path)
    bad = tmp_path / "bad.page.json"
    bad.write_text(changed('"Square"', '"Squre"'))
    with pytest.raises(PageError, match=r"^bad.page.json, line 6: there is no block type"):
        Page.load(bad)


def test_a_file_that_is_too_large(monkeypatch):
    monkeypatch.setattr(pagefile, "LARGEST", 100)
    with pytest.raises(PageError, match="more than 0 MiB"):
        Page.loads(GOOD)


def opened(text):
    """Reads, infers and runs a page from an untrusted source; anything but our own errors comes through."""
    try:
        page = Page.loads(text)
    except PageError:
        return None
    page.infer()
    ClientSession(page, max_memory=2**24, threads=1).evaluate()
    return page


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_files_are_opened_or_refused(seed):
    """Examples with pieces changed, swapped, doubled and cut: never anything but a page or a PageError."""
    rng = random.Random(seed)
    texts = [path.read_text() for path in EXAMPLES if path.stat().st_size < 6000] + [GOOD]
    pieces = [
        "null",
        "-1",
        "1e308",
        '"',
        "{",
        "[",
        "]",
        "}",
        ",",
        ":",
        "0",
        '"nan"',
        "->",
        "\\",
        "\u0000",
        "true",
        "x",
        "9" * 30,
    ]
    for _ in range(150):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 4)):
            at, length = rng.randrange(len(text)), rng.choice([0, 1, 1, 2, 8, 40])
            middle = rng.choice([*pieces, text[at : at + length] * 2, rng.choice(texts)[at : at + 20]])
            text = text[:at] + middle + text[at + length :]
        opened(text)


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_values_are_opened_or_refused(seed):
    """Well-formed JSON with absurd values in it."""
    rng = random.Random(seed)
    odd = [
        None,
        True,
        -1,
        0,
        2**31,
        2**63,
        2**64,
        1e308,
        -0.0,
        "",
        "x",
        "1,2",
        "../../etc/passwd",
        [],
        [[]],
        [1, [2]],
        {},
        ["a"],
    ]
    for _ in range(150):
        data = json.loads(rng.choice(EXAMPLES[:6]).read_text())
        for _ in range(rng.randint(1, 3)):
            place = data
            while isinstance(place, (dict, list)) and place:
                keys = list(place) if isinstance(place, dict) else list(range(len(place)))
                key = rng.choice(keys)
                if not isinstance(place[key], (dict, list)) or not place[key] or rng.random() < 0.15:
                    place[key] = rng.choice(odd)
                    break
                place = place[key]
        opened(json.dumps(data))


# ---------------------------------------------------------------------------------------------------------------------
# Schema, versions


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_follow_the_published_schema(path):
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(path.read_text()), schema())
    assert Page.load(path).dumps() == path.read_text(), "examples are in the standard form"


@settings(max_examples=20)
@given(pages())
def test_what_is_written_follows_the_schema(made):
    jsonschema.validate(made[0].page.to_dict(), schema())


def test_old_files_are_brought_up_to_date(monkeypatch):
    """Each step leads from one version to the next; here one that a later version might need."""

    def step(data):
        data["title"] = data.pop("name")
        return data

    monkeypatch.setattr(pagefile, "VERSION", 2)
    monkeypatch.setitem(pagefile.MIGRATIONS, 1, step)
    monkeypatch.setattr(pagefile, "_expect_schema", lambda data: None)
    old = json.dumps({"poolgrad-page": 1, "name": "old", "blocks": [], "wires": []})
    assert Page.loads(old).title == "old"
    assert json.loads(Page.loads(old).dumps())["poolgrad-page"] == 2


# ---------------------------------------------------------------------------------------------------------------------
# Saving


def test_a_save_keeps_the_mode_and_follows_links(tmp_path):
    page, path = Page.loads(GOOD), tmp_path / "p.page.json"
    page.save(path)
    path.chmod(0o640)
    (tmp_path / "link.page.json").symlink_to(path)
    page.title = "changed"
    page.save(tmp_path / "link.page.json")
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link.page.json").is_symlink()
    assert Page.load(path).title == "changed"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.page.json", "p.page.json"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    page, path = Page.loads(GOOD), tmp_path / "p.page.json"
    page.save(path)
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    page.title = "lost"
    with pytest.raises(PageError, match="No space left"):
        page.save(path)
    assert path.read_text() == GOOD
    assert [p.name for p in tmp_path.iterdir()] == ["p.page.json"]


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    page, path = Page.loads(GOOD), tmp_path / "p.page.json"
    page.save(path)
    for notes in ([{"text": "no place"}], [{"text": object(), "at": [0, 0]}], [{"text": "", "at": [0, float("nan")]}]):
        page.notes = notes
        with pytest.raises(PageError):
            page.save(path)
    page.notes, page.title = [], "t" * 2000
    with pytest.raises(PageError, match="title"):
        page.save(path)
    assert path.read_text() == GOOD


SAVER = """
import sys
from poolgrad.graph import Page
page = Page.load(sys.argv[1])
number = 0
print("ready", flush=True)
while True:
    number += 1
    page.title = f"version {number} " + "x" * 500
    for i in range(300):
        page.layout = {"x": (number, i)}
    page.save(sys.argv[1])
"""


def test_kill_9_during_a_save_leaves_a_whole_page(tmp_path):
    """A process that saves without pause is killed at arbitrary moments; every time the file is a whole page."""
    path = tmp_path / "p.page.json"
    page = Page.loads(GOOD)
    for number in range(200):
        page.add("Const", f"c{number}", {"value": list(range(20))})
    page.save(path)
    titles = set()
    for moment in range(6):
        process = subprocess.Popen([sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.03 + 0.017 * moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = Page.load(path)
        assert len(found.blocks) == 203
        assert ClientSession(found).run("y.output").tolist() == [1, 4, 9]
        titles.add(found.title)
    assert len(titles) > 1, "the process did save"


@pytest.mark.parametrize("seed", range(2))
def test_the_reader_and_the_schema_agree(seed):
    """What the schema refuses is refused, although the reader looks at long lists of numbers by itself."""
    rng = random.Random(seed)
    odd = [None, True, -1, 1.5, "", "x", [], [[]], [1, [2, "3"]], [1, None], [[{}]], {}, {"a": 1}]
    validator, accepted = jsonschema.Draft202012Validator(schema()), 0
    for _ in range(200):
        data = json.loads(GOOD)
        place = data
        while True:
            key = rng.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
            if not isinstance(place[key], (dict, list)) or not place[key] or rng.random() < 0.2:
                place[key] = rng.choice(odd)
                break
            place = place[key]
        if validator.is_valid(data):
            accepted += 1
            with contextlib.suppress(PageError):  # names and wires are checked beyond the schema
                Page.from_dict(data)
        else:
            with pytest.raises(PageError):
                Page.from_dict(data)
    assert 5 < accepted < 180


def test_long_constants_are_read_quickly():
    numbers = ", ".join(["0.25"] * 300_000)
    begin = time.process_time()
    page = Page.loads(GOOD.replace("[1, 2, 3]", f"[{numbers}]"))
    assert page.infer().outputs["x.output"].shape == (300_000,)
    assert time.process_time() - begin < 2
