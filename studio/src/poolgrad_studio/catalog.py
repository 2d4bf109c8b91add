"""The palette as the front end gets it: every output says which dtypes it may have, so that a wire that is drawn into
the empty canvas is offered what fits it, with no question to the server and without one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from poolgrad.graph import Page, palette


@cache
def catalog() -> list[dict[str, Any]]:
    """The palette, with `dtypes` at every output; none means any. An output that is wired to pins of a kind has it too.

    >>> entries = {entry["type"]: {o["name"]: o["dtypes"] for o in entry["outputs"]} for entry in catalog()}
    >>> entries["Equal"], entries["RandomNormal"], entries["Load"]
    ({'output': ['bool']}, {'output': ['float16', 'bfloat16', 'float32', 'float64']}, {'output': []})
    >>> entries["MaxPoolWithArgmax"]["argmax"], "float16" in entries["MaxPoolWithArgmax"]["output"]
    (['int32', 'int64'], True)
    """
    entries = palette()
    # One name means one thing everywhere: the argmax that comes out is the argmax that goes in.
    named = {pin["name"]: pin for entry in entries for pin in entry["inputs"] if pin["kind"] != "tensor"}
    return [entry | {"outputs": [_output(entry, out, named) for out in entry["outputs"]]} for entry in entries]


def _output(entry: Mapping[str, Any], output: dict[str, Any], named: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    pin = named.get(output["name"])
    if pin is not None:
        return output | {"kind": pin["kind"], "dtypes": pin["dtypes"]}
    return output | {"dtypes": _dtypes(entry, output["name"])}


def _dtypes(entry: Mapping[str, Any], output: str) -> list[str]:
    tensors = [pin for pin in entry["inputs"] if pin["kind"] == "tensor"]
    if not tensors:
        return next((a["choices"] for a in entry["attributes"] if a["kind"] == "type" and a["choices"]), [])
    fixed = _inferred(entry["type"], output, tensors)
    if fixed is not None and fixed != tensors[-1]["dtypes"][0]:
        return [fixed]
    chosen = any(a["kind"] == "type" and a["required"] for a in entry["attributes"])
    return [] if chosen else list(tensors[-1]["dtypes"])


def _inferred(type_name: str, output: str, tensors: list[dict[str, Any]]) -> str | None:
    """The dtype of an output if every tensor that comes in has the first dtype that it may have."""
    page = Page()
    page.add(type_name, "block")
    for pin in tensors:
        source = str(pin["dtypes"][0])
        if source not in page.blocks:
            page.add("Placeholder", source, {"dtype": source})
        page.wire(f"{source}.output", f"block.{pin['name']}")
    return page.infer().outputs[f"block.{output}"].dtype
