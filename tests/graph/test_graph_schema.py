"""Long pages are read quickly: the schema is asked only about what is not plainly right. Nothing gets past it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolgrad.graph import Page, PageError
from poolgrad.graph.pagefile import _validator, _without_plain

SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.sampled_from(["", "x", "x.y -> z.w", "a" * 201])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner))
BLOCK = {"name": "x", "type": "Const", "attributes": {"value": [1, 2]}}
BLOCKS = (
    st.just(BLOCK) | VALUES | st.fixed_dictionaries({"name": SCALARS, "type": SCALARS}, optional={"attributes": VALUES})
)
WIRES = st.sampled_from(["a.b -> c.d", "a.b -> c.d[3]", "a.b -> c.d\n", "a -> b", "a.b -> c.d[1234567]"]) | VALUES
PLACES = st.lists(st.integers() | st.booleans() | st.floats(), max_size=3) | VALUES


@given(
    blocks=st.lists(BLOCKS, max_size=3) | VALUES,
    wires=st.lists(WIRES, max_size=3) | VALUES,
    layout=st.dictionaries(st.sampled_from(["x", "y"]), PLACES) | VALUES,
)
def test_what_is_left_out_is_what_the_schema_takes(blocks, wires, layout):
    page = {"poolgrad-page": 1, "blocks": blocks, "wires": wires, "layout": layout}
    assert _validator().is_valid(_without_plain(page)) == _validator().is_valid(page)


@pytest.mark.parametrize(
    "wrong", [{"name": "y"}, {**BLOCK, "name": ""}, {**BLOCK, "attributes": {"value": None}}, {**BLOCK, "more": 1}, 7]
)
def test_a_wrong_block_among_right_ones_is_named_by_its_number(wrong):
    blocks = [{**BLOCK, "name": f"x{n}"} for n in range(5)]
    with pytest.raises(PageError, match=r"blocks\[5\]"):
        Page.from_dict({"poolgrad-page": 1, "blocks": [*blocks, wrong], "wires": []})
