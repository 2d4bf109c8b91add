"""The folder: no name leads out of it, and nothing outside appears in it."""

from __future__ import annotations

import os

import pytest

from poolgrad_studio.folder import Folder
from poolgrad_studio.problems import Refused


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "pages"
    inside.mkdir()
    (tmp_path / "secret.page.json").write_text("{}")
    return Folder(inside)


@pytest.mark.parametrize(
    "name",
    [
        "../secret.page.json",
        "sub/../../secret.page.json",
        "/etc/passwd.page.json",
        "//host/share.page.json",
        "..\\secret.page.json",
        "C:\\secret.page.json",
        "C:secret.page.json",
        "a\0b.page.json",
        "a\nb.page.json",
        ".hidden.page.json",
        ".poolgrad/history/a.page.json",
        "sub/.git/a.page.json",
        "sub//a.page.json",
        "./a.page.json",
        "con.page.json",
        "x" * 300 + ".page.json",
        "secret.txt",
        "secret.page.json/",
        "",
        None,
        7,
        ["a.page.json"],
    ],
)
def test_a_name_that_is_no_page_is_refused(folder, name):
    with pytest.raises(Refused):
        folder.path(name)


@pytest.mark.parametrize("name", ["a.page.json", "sub/b.page.json", "Übung 1.page.json", "a.b.page.json"])
def test_a_page_has_its_file_in_the_folder(folder, name):
    assert folder.path(name) == folder.root / name
    assert folder.name_of(folder.path(name)) == name


def test_links_that_lead_out_are_refused_and_not_listed(folder, tmp_path):
    (folder.root / "link.page.json").symlink_to(tmp_path / "secret.page.json")
    (folder.root / "out").symlink_to(tmp_path)
    (folder.root / "fine.page.json").write_text("{}")
    for name in ("link.page.json", "out/secret.page.json", "out/new.page.json"):
        with pytest.raises(Refused, match="leads out"):
            folder.path(name)
    assert [path.name for path in folder.pages()] == ["fine.page.json"]


@pytest.mark.parametrize("name", ["../x.npy", "x.py", "x.pkl", ".x.npy", "/x.npy"])
def test_only_arrays_and_pictures_are_data(folder, name):
    with pytest.raises(Refused):
        folder.data_path(name)


def test_free_names_are_plain_and_never_taken(folder):
    assert folder.free_name("Änderung!") == "änderung.page.json"
    (folder.root / "a.page.json").write_text("{}")
    assert folder.free_name("a") == "a-2.page.json"
    assert folder.free_name("...") == "page.page.json"


def test_hidden_folders_are_not_searched(folder):
    for name in (".poolgrad", "node_modules", "sub"):
        os.makedirs(folder.root / name)
        (folder.root / name / "p.page.json").write_text("{}")
    assert [folder.name_of(path) for path in folder.pages()] == ["sub/p.page.json"]


def test_a_large_tree_is_not_searched_to_its_end(folder, monkeypatch):
    """The nearest pages are found, whatever lies deep below the first folder."""
    monkeypatch.setattr("poolgrad_studio.folder.MOST_FOLDERS", 10)
    os.makedirs(folder.root / "a" / "/".join("deep" for _ in range(30)))
    (folder.root / "z").mkdir()
    for name in ("z/near", "a/" + "deep/" * 30 + "far"):
        (folder.root / f"{name}.page.json").write_text("{}")
    assert [folder.name_of(path) for path in folder.pages()] == ["z/near.page.json"]
