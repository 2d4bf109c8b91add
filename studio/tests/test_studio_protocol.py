"""What tabs ask and are told, against a running server: open, edit, collide, run, look, differentiate, keep."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
from tab import Refusal, patience

import poolgrad

POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
VALUES = [[[[3], [1], [4], [1]], [[5], [9], [2], [6]], [[5], [3], [5], [8]], [[9], [7], [9], [3]]]]
CONST = {"type": "Const", "attributes": {"value": VALUES, "dtype": "float32"}}
SQUARE = {"type": "Square", "attributes": {}}
SMALL = ([{"name": "x", **CONST}, {"name": "pool", "type": "MaxPool", "attributes": POOL}], ["x.output -> pool.input"])


@pytest.fixture
def page(write_page):
    return write_page(*SMALL)


@pytest.fixture
def other(server):
    opened = server.tab()
    yield opened
    opened.close()


# -- opening ----------------------------------------------------------------------------------------------------------


def test_the_palette_and_the_limits_come_first(tab):
    assert {entry["type"] for entry in tab.welcome["catalog"]} >= set(poolgrad.catalog.operators)
    assert tab.welcome["limits"]["upload"] > 0
    assert "cpu" in tab.welcome["engines"]


def test_a_page_opens_with_its_entries_and_what_can_be_inferred(tab, page):
    opened = tab.open(page)
    assert opened["doc"]["wire"] == {"pool.input": "x.output"}
    assert opened["inference"]["outputs"]["pool.output"]["text"] == "float32 [1, 2, 2, 1]"
    assert opened["inference"]["problems"] == []
    assert opened["run"]["state"] == "idle"


def test_the_gallery_shows_pages_with_small_drawings(tab, page):
    cards = {card["page"]: card for card in tab.ask("gallery")["pages"]}
    assert cards[page]["blocks"] == 2
    assert len(cards[page]["miniature"]["blocks"]) == 2
    assert len(cards[page]["miniature"]["wires"]) == 1


def test_a_page_that_cannot_be_read_says_so_in_the_gallery(tab, server):
    (server.folder / "broken.page.json").write_text('{"poolgrad-page": 1,')
    card = next(card for card in tab.ask("gallery")["pages"] if card["page"] == "broken.page.json")
    assert card["problem"]
    with pytest.raises(Refusal):
        tab.open("broken.page.json")


def test_a_new_page_gets_a_name_of_its_own(tab):
    first, second = (tab.ask("new", title="My page")["page"] for _ in range(2))
    assert (first, second) == ("my-page.page.json", "my-page-2.page.json")
    assert tab.open(second)["doc"]["page"]["title"] == "My page"


def test_a_deleted_page_comes_back_whatever_it_holds(tab, server):
    """Also one that cannot be read, byte for byte."""
    name = "sub/odd.page.json"
    (server.folder / "sub").mkdir(exist_ok=True)
    (server.folder / name).write_bytes(b"not a page \xff")
    tab.ask("delete", page=name)
    assert not (server.folder / name).exists()
    assert name in [card["page"] for card in tab.ask("gallery")["deleted"]]
    assert tab.ask("undelete", page=name)["page"] == name
    assert (server.folder / name).read_bytes() == b"not a page \xff"
    assert name not in [card["page"] for card in tab.ask("gallery")["deleted"]]
    for again in (name, "never.page.json", "../out.page.json", None):
        with pytest.raises(Refusal):
            tab.ask("undelete", page=again)


def test_a_renamed_page_keeps_its_history_and_is_not_deleted(tab, page):
    tab.open(page)
    tab.edit(["page", "title", "Changed"])
    tab.event("saved", lambda m: m["state"] == "saved")
    entries = tab.ask("history")["entries"]
    assert entries
    tab.ask("close")
    tab.ask("rename", page=page, to="elsewhere.page.json")
    assert page not in [card["page"] for card in tab.ask("gallery")["deleted"]]
    tab.open("elsewhere.page.json")
    assert [entry["entry"] for entry in tab.ask("history")["entries"]] == [entry["entry"] for entry in entries]
    tab.ask("close")
    tab.ask("delete", page="elsewhere.page.json")


def test_save_as_and_rename_and_delete(tab, other, page):
    tab.open(page)
    assert tab.ask("copy", **{"from": page, "page": "copied.page.json"})["page"] == "copied.page.json"
    with pytest.raises(Refusal) as refused:
        tab.ask("copy", **{"from": page, "page": "copied.page.json"})
    assert refused.value.code == "exists"
    other.ask("rename", page="copied.page.json", to="sub/renamed.page.json")
    assert other.open("sub/renamed.page.json")["doc"]["block"]["x"] == tab.doc["block"]["x"]
    with pytest.raises(Refusal) as refused:
        tab.ask("delete", page="sub/renamed.page.json")
    assert refused.value.code == "busy", "a page that somebody looks at stays"
    other.ask("close")
    tab.ask("delete", page="sub/renamed.page.json")
    with pytest.raises(Refusal) as refused:
        tab.open("sub/renamed.page.json")
    assert refused.value.code == "not_found"


def test_examples_open_as_copies(tab, server):
    examples = tab.ask("gallery")["examples"]
    assert examples, "the examples of the source tree"
    made = tab.ask("copy", **{"from": examples[0]["page"]})["page"]
    assert (server.folder / made).exists()
    assert tab.ask("copy", **{"from": examples[0]["page"]})["page"] == made, "an unchanged copy is used again"


# -- editing ----------------------------------------------------------------------------------------------------------


def test_an_edit_is_told_to_others_and_infers_shapes(tab, other, page):
    tab.open(page)
    other.open(page)
    reply = tab.edit(["block", "y", SQUARE], ["wire", "y.x", "pool.output"], ["position", "y", [1, 2]], label="Add y")
    told = other.event("changed")
    assert (told["version"], told["label"]) == (reply["version"], "Add y")
    assert told["changes"][0] == ["block", "y", SQUARE]
    assert told["by"]["client"] == tab.welcome["client"]
    for each in (tab, other):
        outputs = each.event("inference")["inference"]["outputs"]
        assert outputs["y.output"]["shape"] == [1, 2, 2, 1]


def test_edits_to_different_blocks_from_one_version_both_count(tab, other, page):
    tab.open(page)
    other.open(page)
    tab.edit(["position", "x", [10, 10]])
    other.edit(["position", "pool", [20, 20]], base=1)
    doc = tab.open(page)["doc"]
    assert doc["position"] == {"x": [10, 10], "pool": [20, 20]}


def test_edits_to_one_block_collide_and_nothing_is_overwritten(tab, other, page):
    tab.open(page)
    other.open(page)
    tab.edit(["position", "x", [10, 10]], label="Move x")
    reply = other.ask("edit", edit="e1", base=1, changes=[["position", "x", [99, 99]]])
    assert reply["type"] == "conflict"
    assert reply["entries"] == [{"kind": "position", "key": "x", "theirs": [10, 10]}]
    assert [step["label"] for step in reply["changes"]] == ["Move x"]
    assert other.open(page)["doc"]["position"]["x"] == [10, 10]
    kept = other.ask("edit", edit="e2", base=reply["version"], changes=[["position", "x", [99, 99]]])
    assert kept["type"] == "accepted", "mine after all, knowingly"


def test_a_tab_does_not_collide_with_itself(tab, page):
    tab.open(page)
    for x in range(3):
        assert tab.edit(["position", "x", [x, x]], base=1)["type"] == "accepted"


def test_sending_an_edit_again_does_it_once(tab, page):
    tab.open(page)
    first = tab.edit(["position", "x", [1, 1]], edit="same")
    assert tab.edit(["position", "x", [1, 1]], edit="same", base=1)["version"] == first["version"]


def test_a_tab_that_was_away_gets_what_it_missed(tab, other, page):
    have = tab.open(page)
    other.open(page)
    other.edit(["position", "x", [5, 5]])
    back = tab.open(page, have={"version": have["version"], "token": have["token"]})
    assert "doc" not in back or back["doc"] is None
    assert [step["changes"] for step in back["since"]] == [[["position", "x", [5, 5]]]]
    unknown = tab.open(page, have={"version": 1, "token": "of another server"})
    assert unknown["doc"]["position"] == {"x": [5, 5]}


def test_a_deleted_block_takes_its_wires_along(tab, page):
    tab.open(page)
    reply = tab.edit(["block", "x", None])
    assert reply["also"] == [["wire", "pool.input", None]]
    assert tab.open(page)["doc"]["wire"] == {}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([["block", "x", {"type": "NoSuchBlock", "attributes": {}}]], id="unknown type"),
        pytest.param([["block", "x", {"type": "Const", "attributes": {"evil": 1}}]], id="unknown attribute"),
        pytest.param([["block", "x", {"type": "Const", "attributes": {}, "evil": 1}]], id="unknown field"),
        pytest.param([["block", "a b", SQUARE]], id="bad name"),
        pytest.param([["wire", "pool.nothing", "x.output"]], id="unknown pin"),
        pytest.param([["wire", "pool.input", "x.nothing"]], id="unknown output"),
        pytest.param([["wire", "pool", "x"]], id="no wire"),
        pytest.param(
            [["block", "y", SQUARE], ["block", "z", SQUARE], ["wire", "y.x", "z.output"], ["wire", "z.x", "y.output"]],
            id="cycle",
        ),
        pytest.param([["position", "x", [1, 2, 3]]], id="three coordinates"),
        pytest.param([["position", "x", [1, "1e999"]]], id="infinite coordinate"),
        pytest.param([["note", "n", {"evil": True}]], id="bad note"),
        pytest.param([["page", "policy", {"ties": "last"}]], id="bad policy"),
        pytest.param([["page", "title", 7]], id="bad title"),
    ],
)
def test_an_edit_that_makes_no_page_is_refused_whole(tab, page, changes):
    before = tab.open(page)["doc"]
    edit = {"type": "edit", "id": 1000, "edit": "bad", "base": 1, "changes": [*changes, ["position", "pool", [7, 7]]]}
    tab.socket.send(json.dumps(edit).replace('"1e999"', "1e999"))
    with pytest.raises(Refusal):
        tab.reply(1000)
    assert tab.open(page)["doc"] == before


def test_texts_are_checked_while_they_are_typed(tab):
    good = tab.ask("check", block_type="MaxPool", attribute="ksize", text="1, 2,2,1")
    assert (good["ok"], good["text"]) == (True, "1,2,2,1")
    bad = tab.ask("check", block_type="MaxPool", attribute="ksize", text="1,2,x")
    assert bad["ok"] is False
    assert bad["position"] == 4
    assert tab.ask("check", block_type="Nothing", attribute="ksize", text="1")["ok"] is False


def test_a_half_typed_attribute_is_kept_and_is_a_problem(tab, page):
    tab.open(page)
    tab.edit(["block", "pool", {"type": "MaxPool", "attributes": POOL | {"ksize": "1,2,"}}])
    problems = tab.event("inference")["inference"]["problems"]
    assert [(p["block"], p["place"]) for p in problems] == [("pool", "ksize")]
    assert tab.open(page)["doc"]["block"]["pool"]["attributes"]["ksize"] == "1,2,"


def test_the_catalog_says_what_every_pin_takes_and_every_output_may_be(tab):
    """With it the front end offers at the end of a loose wire what fits, and nothing else."""
    types = {entry["type"]: entry for entry in tab.welcome["catalog"]}
    assert types["FractionalMaxPool"]["outputs"][1]["dtypes"] == ["int32", "int64"]
    assert types["Less"]["outputs"][0]["dtypes"] == ["bool"]
    assert "bool" not in types["MaxPool"]["inputs"][0]["dtypes"]
    assert set(types["Square"]["outputs"][0]["dtypes"]) == set(types["Square"]["inputs"][0]["dtypes"])


def test_people_see_each_other(tab, other, page):
    tab.open(page)
    other.open(page)
    other.send({"type": "presence", "selection": ["pool"]})
    seen = tab.event("peers", lambda m: any(p["selection"] for p in m["peers"]))
    assert [(p["client"], p["selection"]) for p in seen["peers"]] == [(other.welcome["client"], ["pool"])]


# -- running ----------------------------------------------------------------------------------------------------------


def test_a_run_sends_progress_and_small_pictures(tab, other, page):
    tab.open(page)
    other.open(page)
    ended = tab.run()
    assert ended["state"] == "done"
    header, picture = tab.results["pool.output"]
    assert picture.tolist() == [[9, 6], [9, 9]]
    assert (header["dims"], header["dtype_of"]) == ([1, 2, 2, 1], "float32")
    assert (header["stats"]["min"], header["stats"]["max"]) == (6, 9)
    progress = [e["blocks"] for e in tab.events if e["type"] == "progress"]
    assert {name for blocks in progress for name in blocks} == {"x", "pool"}
    other.event("run", lambda m: m["state"] == "done")
    assert other.results.keys() == tab.results.keys(), "everybody sees the results"


def test_a_large_result_is_measured_even_if_the_next_run_has_begun(tab, write_page):
    """Its picture comes first and its figures later; a second run that keeps the result must not lose them."""
    attributes = {"shape": [2**23], "dtype": "float32"}
    tab.open(write_page([{"name": "x", "type": "RandomUniform", "attributes": attributes}]))
    tab.run()
    tab.run()
    if tab.results["x.output"][0]["stats"] is None:
        tab.event("result", lambda m: m["stats"] is not None)
    assert tab.results["x.output"][0]["stats"]["count"] == 2**23


def test_a_tab_that_comes_later_gets_the_results(tab, server, page):
    tab.open(page)
    tab.run()
    later = server.tab()
    opened = later.open(page)
    assert {header["key"] for header in opened["results"]} == {"x.output", "pool.output"}
    later.ask("gallery")
    assert later.results["pool.output"][1].tolist() == [[9, 6], [9, 9]]
    later.close()


def test_only_what_changed_runs_again(tab, page):
    tab.open(page)
    tab.run()
    tab.edit(["block", "y", SQUARE], ["wire", "y.x", "pool.output"])
    tab.events.clear()
    tab.results.clear()
    tab.run()
    states = {name: b["state"] for e in tab.events if e["type"] == "progress" for name, b in e["blocks"].items()}
    assert states["y"] == "done"
    assert states.get("pool", "cached") == "cached"
    assert set(tab.results) == {"y.output"}, "pictures that are known are not sent again"


def test_results_that_no_longer_belong_to_the_page_are_called_stale(tab, page):
    tab.open(page)
    tab.run()
    tab.event("stale", lambda m: m["keys"] == [])
    tab.edit(["block", "pool", {"type": "MaxPool", "attributes": POOL | {"padding": "VALID"}}])
    assert tab.event("stale")["keys"] == ["pool.output"]
    tab.edit(["block", "pool", {"type": "MaxPool", "attributes": POOL}], label="Undo")
    assert tab.event("stale")["keys"] == [], "undone: they belong to it again"


def test_run_to_here_runs_no_more(tab, page):
    tab.open(page)
    tab.edit(["block", "y", SQUARE], ["wire", "y.x", "pool.output"])
    tab.run(fetch=["pool"])
    assert set(tab.results) == {"x.output", "pool.output"}


def test_an_error_is_at_its_block_and_the_rest_is_kept(tab, write_page):
    blocks = [
        *SMALL[0],
        {"name": "bad", "type": "Reshape", "attributes": {"shape": [7]}},
        {"name": "after", "type": "Square"},
    ]
    tab.open(write_page(blocks, [*SMALL[1], "x.output -> bad.tensor", "bad.output -> after.x"]))
    ended = tab.run()
    assert ended["state"] == "failed"
    states = {name: b for e in tab.events if e["type"] == "progress" for name, b in e["blocks"].items()}
    assert states["bad"]["state"] == "failed"
    assert states["bad"]["problem"]["block"] == "bad"
    assert states["after"]["state"] == "skipped"
    assert "pool.output" in tab.results


def test_pictures_come_while_the_page_still_runs(tab, write_page):
    overlapping = {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
    image = {"shape": [1, 1500, 1500, 1], "dtype": "float32"}
    blocks = [{"name": "x", "type": "RandomNormal", "attributes": image}]
    blocks += [{"name": f"p{n}", "type": "MaxPool", "attributes": overlapping} for n in range(300)]
    wires = ["x.output -> p0.input", *(f"p{n}.output -> p{n + 1}.input" for n in range(299))]
    tab.open(write_page(blocks, wires))
    tab.ask("run")
    tab.wait(lambda m: m["type"] == "result")
    assert not [e for e in tab.events if e["type"] == "run" and e["state"] != "running"]
    tab.ask("stop")
    assert tab.event("run", lambda m: m["state"] != "running")["state"] == "stopped"


def test_live_runs_after_every_edit(tab, page):
    tab.open(page)
    tab.ask("live", on=True)
    tab.event("run", lambda m: m["state"] == "done")
    doubled = [[[[2 * v[0]] for v in row] for row in VALUES[0]]]
    tab.edit(["block", "x", {"type": "Const", "attributes": {"value": doubled, "dtype": "float32"}}])
    tab.event("run", lambda m: m["state"] == "done" and m["version"] == tab.version)
    assert tab.results["pool.output"][1].tolist() == [[18, 12], [18, 18]]
    tab.ask("live", on=False)


# -- looking ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ran(tab, page):
    tab.open(page)
    tab.run()
    return tab


def test_slices_cells_tables_and_statistics(ran):
    header, values = ran.ask_array("slice", key="x.output", axes=[1, 2], index=[0, 0, 0, 0])
    assert np.array_equal(values, np.array(VALUES, np.float32)[0, :, :, 0])
    assert header["range"] == [1, 9]
    cells = ran.ask("cells", key="x.output", axes=[1, 2], index=[0, 0, 0, 0], rows=[1, 2], columns=[0, 3])
    assert cells["values"] == [["5.0", "9.0", "2.0"]]
    assert ran.ask("table", key="x.output", start=2, count=2)["values"] == ["4.0", "1.0"]
    assert ran.ask("statistics", key="x.output")["argmax"] == [0, 1, 1, 0]
    assert sum(ran.ask("histogram", key="x.output", bins=4)["counts"]) == 16
    assert ran.ask("copy_text", key="pool.output")["text"].startswith("result_output[0][0][0][0]\t9.0")


def test_what_has_no_result_says_so(tab, page):
    tab.open(page)
    for question in ("slice", "cells", "table", "histogram", "statistics", "download", "window_view"):
        with pytest.raises(Refusal) as refused:
            tab.ask(question, key="x.output", block="pool", format="npy")
        assert refused.value.code == "no_result"


def test_a_download_is_a_file_that_can_be_fetched_once(ran, server):
    file = ran.ask("download", key="x.output", format="npy")
    cookie = server.cookie()
    assert server.request("GET", file["url"]).status == 401, "not without a session"
    answer = server.request("GET", file["url"], Cookie=cookie)
    assert answer.status == 200
    assert file["name"] in str(answer.getheader("Content-Disposition"))
    assert answer.read()[:6] == b"\x93NUMPY"
    assert server.request("GET", file["url"], Cookie=cookie).status == 404


def test_the_window_view(ran):
    view = ran.ask("window_view", block="pool")
    assert (view["kind"], view["order"], view["rank"], view["fractional"]) == ("max", 0, 2, False)
    assert view["axes"][0]["start"] == [0, 2]
    assert view["tensors"]["input"]["key"] == "x.output"
    planes = ran.ask("window_planes", block="pool", batch=0, channel=0, at=[])
    assert [plane["name"] for plane in planes["planes"]] == [
        "input", "output", "grad", "grad_out", "second_in", "second_out",
    ]  # fmt: skip
    cell = ran.ask("window_cell", block="pool", side="output", index=[0, 0, 0, 0])
    assert [e["index"] for e in cell["elements"] if e["chosen"]] == [[1, 1]]
    back = ran.ask("window_cell", block="pool", side="input", index=[0, 1, 1, 0])
    assert (back["total"], len(back["windows"])) == ("1.0", 1)


def test_the_window_view_of_a_fractional_page(tab, write_page):
    image = np.random.default_rng(1).random((1, 9, 10, 1)).round(2).tolist()
    blocks = [
        {"name": "x", "type": "Const", "attributes": {"value": image, "dtype": "float32"}},
        {"name": "f", "type": "FractionalMaxPool", "attributes": {"pooling_ratio": [1.0, 1.44, 1.73, 1.0]}},
    ]
    tab.open(write_page(blocks, ["x.output -> f.value"]))
    assert tab.run()["state"] == "done"
    view = tab.ask("window_view", block="f")
    assert view["fractional"]
    assert view["sequences"]["row"][-1] == 9
    assert view["axes"][1]["start"] == view["sequences"]["col"][:-1]


# -- differentiating and keeping --------------------------------------------------------------------------------------


def test_gradients_appear_as_blocks_that_run(tab, other, page):
    tab.open(page)
    other.open(page)
    made = tab.ask("gradients", outputs=["pool.output"], inputs=["x.output"], base=1)
    told = tab.event("changed")
    assert told["label"] == "Add gradients"
    assert other.event("changed")["changes"] == told["changes"]
    doc = tab.open(page)["doc"]
    assert set(made["blocks"]) <= set(doc["block"])
    assert set(made["blocks"]) <= set(doc["position"]), "laid out"
    assert "MaxPoolGrad" in {doc["block"][name]["type"] for name in made["blocks"]}
    tab.run()
    assert tab.results[made["keys"][0]][1].sum() == 4, "four windows, a one from each"


def test_gradients_leave_what_is_there_as_it_was_typed(tab, page):
    """So its results are still those of the page."""
    tab.open(page)
    pool = {"type": "MaxPool", "attributes": {"ksize": "1, 2,2,1", "strides": "1,2,2,1", "padding": "SAME"}}
    tab.edit(["block", "pool", pool])
    assert tab.run()["state"] == "done"
    tab.ask("gradients", outputs=["pool.output"], inputs=["x.output"])
    again = tab.open(page)
    assert again["doc"]["block"]["pool"] == pool
    assert again["stale"] == []


def test_a_gradient_that_does_not_exist_is_refused(tab, page):
    tab.open(page)
    with pytest.raises(Refusal):
        tab.ask("gradients", outputs=["pool.output"], inputs=["nowhere.output"])
    with pytest.raises(Refusal):
        tab.ask("gradients", outputs="pool.output", inputs=[])


def test_the_page_is_exported_as_a_program_that_gives_the_same(ran):
    exported = ran.ask("export", to="python")
    names: dict[str, Any] = {"__name__": "exported"}
    exec(compile(exported["text"], exported["name"], "exec"), names)
    assert names["run"]()["pool.output"].ravel().tolist() == [9, 6, 9, 9]


def test_the_page_is_written_to_its_file_in_a_moment(tab, server, page):
    tab.open(page)
    tab.edit(["position", "x", [3, 4]])
    tab.event("saved", lambda m: m["state"] == "saved")
    assert json.loads((server.folder / page).read_text())["layout"] == {"x": [3, 4]}
    assert json.loads(tab.ask("page_text")["text"]) == json.loads((server.folder / page).read_text())


def test_history_goes_back_as_a_step(tab, page):
    tab.open(page)
    tab.edit(["block", "pool", None])
    tab.event("saved", lambda m: m["state"] == "saved")
    entry = tab.ask("history")["entries"][-1]
    assert "pool" in tab.ask("history_page", entry=entry["entry"])["doc"]["block"]
    tab.ask("restore", entry=entry["entry"], base=tab.version)
    assert tab.event("changed")["label"] == "Go back in history"
    assert set(tab.open(page)["doc"]["block"]) == {"x", "pool"}
    with pytest.raises(Refusal):
        tab.ask("restore", entry="../../a.page.json")


def test_a_file_that_changes_on_disk_is_taken_over(tab, server, page):
    tab.open(page)
    text = json.loads((server.folder / page).read_text())
    text["title"] = "Changed elsewhere"
    (server.folder / page).write_text(json.dumps(text))
    told = tab.event("changed")
    assert (told["label"], told["changes"]) == ("Changed on disk", [["page", "title", "Changed elsewhere"]])


@pytest.mark.parametrize("keep", ["mine", "disk"])
def test_a_file_that_changes_under_unsaved_edits_is_a_conflict(tab, server, page, keep):
    tab.open(page)
    tab.edit(["page", "title", "Mine"])
    text = json.loads((server.folder / page).read_text())
    text["title"] = "Elsewhere"
    (server.folder / page).write_text(json.dumps(text))
    assert "outside" in tab.event("saved", lambda m: m["state"] == "conflict")["message"]
    assert json.loads((server.folder / page).read_text())["title"] == "Elsewhere", "not overwritten"
    tab.ask("resolve_disk", keep=keep)
    tab.event("saved", lambda m: m["state"] == "saved")
    title = "Mine" if keep == "mine" else "Elsewhere"
    assert json.loads((server.folder / page).read_text())["title"] == title
    assert tab.open(page)["doc"]["page"]["title"] == title
    labels = [entry["label"] for entry in tab.ask("history")["entries"]]
    assert ("The file as it was on disk" if keep == "mine" else "Before a change on disk") in labels


def test_uploads(tab, server, page):
    text = (server.folder / page).read_bytes()
    made = tab.upload(text, name="C:\\fakepath\\My Upload.page.json", kind="page")["page"]
    assert made == "my-upload.page.json"
    tab.open(made)
    array = np.arange(4, dtype=np.float32)
    (server.folder / "made.npy").unlink(missing_ok=True)
    np.save(server.folder / "made.npy", array)
    data = (server.folder / "made.npy").read_bytes()
    uploaded = tab.upload(data, name="photo.npy", kind="data", page=made)
    tab.edit(["block", "l", {"type": "Load", "attributes": {"file": uploaded["path"]}}])
    tab.run(fetch=["l"])
    assert tab.results["l.output"][1].ravel().tolist() == [0, 1, 2, 3]
    assert tab.upload(b"other" + data, name="photo.npy", kind="data", page=made)["path"] == "photo-2.npy"


# -- speed ------------------------------------------------------------------------------------------------------------


def test_two_hundred_blocks_load_and_run_in_a_moment(tab, write_page):
    blocks = [{"name": "x", **CONST}]
    wires = []
    for n in range(199):
        blocks.append({"name": f"b{n}", "type": "Square" if n % 2 else "MaxPool", "attributes": {} if n % 2 else POOL})
        wires.append(f"x.output -> b{n}.{'x' if n % 2 else 'input'}")
    page = write_page(blocks, wires, name="many.page.json")
    begun = time.monotonic()
    tab.open(page)
    opened = time.monotonic()
    tab.run()
    ended = time.monotonic()
    assert len(tab.results) == 200
    assert opened - begun < 1.5 * patience()
    assert ended - opened < 1.5 * patience()
