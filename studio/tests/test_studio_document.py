"""Documents and edits: what an edit changes, when two edits collide, and which results an edit makes stale."""

from __future__ import annotations

import pytest

from poolgrad_studio import document
from poolgrad_studio.problems import Refused

X = {"type": "Const", "attributes": {"value": [1, 2]}}
SQUARE = {"type": "Square", "attributes": {}}
CHAIN = [
    ("block", "x", X),
    ("block", "y", SQUARE),
    ("block", "z", SQUARE),
    ("wire", "y.x", "x.output"),
    ("wire", "z.x", "y.output"),
    ("position", "x", [0, 0]),
    ("note", "n1", {"text": "hello", "at": [0, 0], "size": [10, 10], "blocks": ["x", "y"]}),
]


@pytest.fixture
def chain():
    return document.applied(document.empty(), CHAIN)


def test_the_difference_leads_from_one_document_to_the_other(chain):
    other = document.applied(chain, [("block", "x", None), ("page", "title", "T"), ("wire", "z.x", "x.output")])
    for before, after in ((chain, other), (other, chain), (chain, chain)):
        assert document.applied(before, document.difference(before, after)) == after
    assert document.difference(chain, chain) == []


def test_a_document_is_never_changed_in_place(chain):
    before = {kind: dict(entries) for kind, entries in chain.items()}
    document.applied(chain, [("block", "x", None), ("position", "z", [1, 1])])
    assert chain == before


def test_removing_a_block_leaves_nothing_of_it_behind(chain):
    without = document.applied(chain, [("block", "y", None)])
    tidy = document.applied(without, document.orphans(without))
    assert tidy["wire"] == {}
    assert tidy["note"]["n1"]["blocks"] == ["x"]
    assert document.orphans(tidy) == []


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        pytest.param([("position", "x", [1, 1])], [("position", "y", [2, 2])], [], id="other blocks"),
        pytest.param([("position", "x", [1, 1])], [("position", "x", [2, 2])], [("position", "x")], id="same block"),
        pytest.param([("position", "x", [1, 1])], [("position", "x", [1, 1])], [], id="same change"),
        pytest.param([("position", "x", [1, 1])], [("block", "x", SQUARE)], [], id="moved and changed"),
        pytest.param([("block", "x", SQUARE)], [("block", "x", None)], [("block", "x")], id="changed what is gone"),
        pytest.param([("wire", "y.x", "x.output")], [("block", "x", None)], [("block", "x")], id="wired what is gone"),
        pytest.param(
            [("block", "x", None)], [("wire", "y.x", "x.output")], [("wire", "y.x")], id="removed what was wired"
        ),
        pytest.param(
            [("block", "x", None), ("position", "x", None)], [("position", "x", [3, 3])], [], id="removed what moved"
        ),
        pytest.param(
            [("wire", "y.x", None)], [("wire", "y.x", "z.output")], [("wire", "y.x")], id="unwired what was rewired"
        ),
    ],
)
def test_two_edits_collide_when_one_would_undo_the_other(mine, theirs, expected):
    assert document.clashes(mine, theirs) == expected


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        (("position", "x", [9, 9]), set()),
        (("note", "n1", None), set()),
        (("page", "title", "T"), set()),
        (("page", "policy", {"ties": "all"}), {"x", "y", "z"}),
        (("block", "x", {"type": "Const", "attributes": {"value": [3]}}), {"x", "y", "z"}),
        (("block", "y", {"type": "Abs", "attributes": {}}), {"y", "z"}),
        (("wire", "z.x", "x.output"), {"z"}),
    ],
)
def test_signatures_tell_which_results_still_hold(chain, change, stale):
    before, after = document.signatures(chain), document.signatures(document.applied(chain, [change]))
    assert {name for name in before if before[name] != after[name]} == stale


@pytest.mark.parametrize(
    "changes",
    [
        None,
        "x",
        [["block", "x"]],
        [["block", 1, {}]],
        [["blocks", "x", {}]],
        [["block", "x", "Const"]],
        [["wire", "y.x", {"from": "x"}]],
        [["page", "poolgrad-page", 99]],
        [["position", "x", "here"]],
        [["block", "x", {}]] * 50_001,
    ],
)
def test_what_is_no_list_of_changes_is_refused(changes):
    with pytest.raises(Refused):
        document.read_changes(changes)
