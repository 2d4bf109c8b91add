"""Nothing that was acknowledged is lost, whenever the server is killed; and tabs go on where they were."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace

import pytest
from tab import Server

from poolgrad_studio import document
from poolgrad_studio.folder import Folder
from poolgrad_studio.storage import ChangedOnDisk, Step, Store, as_page

PAGE = {
    "poolgrad-page": 1,
    "title": "T",
    "blocks": [{"name": "x", "type": "Const", "attributes": {"value": [1, 2]}}],
    "wires": [],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.page.json").write_text(json.dumps(PAGE))
    return Folder(tmp_path)


def edited(store, opened, version, *changes):
    """The page after an edit that is in the journal."""
    step = Step(version, list(changes), edit=f"e{version}")
    store.append(step)
    doc = document.applied(opened.doc, changes)
    return replace(
        opened, doc=doc, version=version, steps=[*opened.steps, step], edits=opened.edits | {step.edit: version}
    )


def test_edits_that_never_reached_the_file_are_found_again(folder):
    store = Store(folder, "a.page.json")
    first = edited(store, store.open(), 2, ("position", "x", [1, 1]))
    edited(store, first, 3, ("page", "title", "Later"))
    again = Store(folder, "a.page.json").open()
    assert (again.version, again.token) == (3, first.token)
    assert again.doc["position"] == {"x": [1, 1]}
    assert again.doc["page"]["title"] == "Later"
    assert again.edits == {"e2": 2, "e3": 3}
    assert [step.version for step in again.steps] == [2, 3]


def test_opening_twice_without_edits_changes_nothing(folder):
    store = Store(folder, "a.page.json")
    saved = store.save(edited(store, store.open(), 2, ("position", "x", [1, 1])))
    for _ in range(2):
        again = Store(folder, "a.page.json").open()
        assert (again.version, again.token, again.steps) == (2, saved.token, [])


def test_a_kill_between_the_file_and_the_journal_does_no_edit_twice(folder):
    store = Store(folder, "a.page.json")
    opened = edited(store, store.open(), 2, ("page", "title", "Two"))
    store.begin_save(2)
    store.write(as_page(opened.doc, folder.root))
    edited(store, opened, 3, ("position", "x", [3, 3]))
    again = Store(folder, "a.page.json").open()
    assert again.version == 3
    assert [step.version for step in again.steps] == [3], "the file has version 2 already"
    assert again.doc["position"] == {"x": [3, 3]}


def test_a_torn_last_line_is_left_out(folder):
    store = Store(folder, "a.page.json")
    edited(store, store.open(), 2, ("page", "title", "Two"))
    journal = folder.private / "journal" / "a.page.jsonl"
    with journal.open("a") as file:
        file.write('{"version": 3, "chan')
    again = Store(folder, "a.page.json").open()
    assert (again.version, again.doc["page"]["title"]) == (2, "Two")


@pytest.mark.parametrize("damage", ["", "nonsense", "{}\n", '{"doc": 7}\n', "\x00" * 100])
def test_a_damaged_journal_does_not_hide_the_page(folder, damage):
    store = Store(folder, "a.page.json")
    store.open()
    (folder.private / "journal" / "a.page.jsonl").write_text(damage)
    assert Store(folder, "a.page.json").open().doc["page"]["title"] == "T"


def test_a_file_that_was_changed_elsewhere_wins_and_our_edits_go_into_the_history(folder):
    store = Store(folder, "a.page.json")
    edited(store, store.open(), 2, ("page", "title", "Mine"))
    (folder.root / "a.page.json").write_text(json.dumps(PAGE | {"title": "Elsewhere"}))
    again = Store(folder, "a.page.json")
    assert again.open().doc["page"]["title"] == "Elsewhere"
    (entry,) = again.history()
    assert again.entry(entry["entry"])["page"]["title"] == "Mine"


def test_a_changed_file_is_not_overwritten(folder):
    store = Store(folder, "a.page.json")
    opened = edited(store, store.open(), 2, ("page", "title", "Mine"))
    (folder.root / "a.page.json").write_text(json.dumps(PAGE | {"title": "Elsewhere"}))
    with pytest.raises(ChangedOnDisk):
        store.save(opened)
    os.utime(folder.root / "a.page.json")


def test_a_file_that_was_only_touched_is_the_same_file(folder):
    store = Store(folder, "a.page.json")
    store.open()
    os.utime(folder.root / "a.page.json", (1, 1))
    assert not store.changed_on_disk()


def test_what_the_studio_keeps_is_no_business_of_git(folder):
    Store(folder, "a.page.json").open()
    Store(folder, "a.page.json").snapshot(Store(folder, "a.page.json").open().doc, "S")
    assert (folder.private / ".gitignore").read_text() == "*\n"


# -- with a server that is killed -------------------------------------------------------------------------------------


def test_killed_at_any_moment_the_server_has_every_edit_it_accepted(tmp_path):
    """Edits stream in, the server dies in the middle, and the next one has all that were acknowledged."""
    (tmp_path / "a.page.json").write_text(json.dumps(PAGE))
    for delay in (0.05, 0.35, 0.6):
        server = Server(tmp_path)
        tab = server.tab()
        tab.open("a.page.json")
        threading.Timer(delay, server.kill).start()
        accepted = None
        try:
            for n in range(10_000):
                tab.edit(["page", "title", f"{delay} {n}"])
                accepted = f"{delay} {n}"
        except Exception:  # the connection breaks in one of many ways
            pass
        server.process.wait()
        again = Server(tmp_path)
        title = again.tab().open("a.page.json")["doc"]["page"]["title"]
        again.stop()
        assert accepted is not None
        assert title.startswith(f"{delay} ")
        assert int(title.split()[1]) - int(accepted.split()[1]) in (0, 1), "at most one more, not yet acknowledged"


def test_a_tab_goes_on_with_the_server_that_comes_after(tmp_path):
    """Same cookie, same version, and an edit that was sent twice counts once."""
    folder, state = tmp_path / "pages", tmp_path / "state"
    folder.mkdir()
    (folder / "a.page.json").write_text(json.dumps(PAGE))
    server = Server(folder, state=state)
    cookie = server.cookie()
    tab = server.tab(cookie, client="the-same-tab")
    opened = tab.open("a.page.json")
    tab.edit(["page", "title", "Before"], edit="sent-before")
    server.kill()
    time.sleep(0.1)
    after = Server(folder, state=state, port=server.port)
    back = after.tab(cookie, client="the-same-tab")
    again = back.open("a.page.json", have={"version": opened["version"], "token": opened["token"]})
    assert [step["edit"] for step in again["since"]] == ["sent-before"]
    assert back.edit(["page", "title", "Before"], edit="sent-before", base=1)["version"] == 2
    assert back.edit(["page", "title", "After"])["version"] == 3
    after.stop()
    assert json.loads((folder / "a.page.json").read_text())["title"] == "After", "saved on the way out"
