"""`poolgrad ops` and `poolgrad show`: the catalog and the blocks, read from their declarations."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer
from rich.markdown import Markdown
from rich.markup import escape
from rich.syntax import Syntax

from ..catalog import operators
from ..graph import BlockType, block_types, palette
from .output import complain, console, table, write_json


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("ops")(ops)
    app.command("show")(show)


def _names(incomplete: str) -> list[str]:
    return [name for name in block_types if name.lower().startswith(incomplete.lower())]


def ops(
    blocks: Annotated[bool, typer.Option("--blocks", help="All blocks of a page.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything about them, for machines.")] = False,
) -> None:
    """List the operators.

    Every pooling operator stands with its derivative, which is an operator too: so there is one of every order.
    """
    entries = [entry for entry in palette() if blocks or entry["pooling"]]
    if as_json:
        write_json(entries)
        return
    shown = table("operator", "inputs", "derivative", "")
    group = ""
    for entry in entries:
        if entry["group"] != group:
            group = entry["group"]
            shown.add_row(f"\n[bold cyan]{group}[/]")
        inputs = ", ".join(pin["name"] for pin in entry["inputs"])
        shown.add_row(entry["type"], inputs, _derivatives(entry["type"]), escape(entry["summary"]))
    console.print(shown)


def _derivatives(name: str) -> str:
    if name not in operators:
        return "yes" if block_types[name].derive else ""
    return ", ".join(dict.fromkeys(d.operator for d in operators[name].derivatives.values()))


def show(
    name: Annotated[str, typer.Argument(help="Such as MaxPoolGradGrad.", autocompletion=_names)],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Explain one operator: what comes out, every input and attribute, an example."""
    type = block_types.get(name) or _meant(name)
    if as_json:
        write_json(type.to_dict())
        return
    summary, _, rest = type.doc.partition("\n")
    console.print(f"[bold]{type.name}[/]  [dim]{type.group}[/]\n{escape(summary)}\n")
    parts = rest.strip().partition(">>>")
    if parts[0].strip():
        console.print(Markdown(parts[0].strip()), "")
    console.print(_parameters(type))
    outputs = ", ".join(type.outputs) or "nothing"
    derivatives = _derivatives(type.name)
    console.print(f"\nOutputs: {outputs}" + (f"\nDerivative: {derivatives}" if derivatives else ""))
    if parts[1]:
        console.print("\nExample", style="bold")
        console.print(Syntax(">>>" + parts[2], "pycon", background_color="default", word_wrap=True))


def _parameters(type: BlockType) -> Any:
    shown = table("argument", "kind", "default", "")
    for pin in type.inputs:
        kind = f"{pin.kind.name}, wired" + (" or typed" if pin.text else "") + (", many" if pin.many else "")
        shown.add_row(pin.name, kind, "" if pin.required else "-", escape(pin.doc))
    for attribute in type.attributes:
        words = f" One of {', '.join(w for w in attribute.choices if w)}." if attribute.choices else ""
        default = "" if attribute.required else repr(attribute.default) if attribute.default != () else "()"
        shown.add_row(attribute.name, attribute.kind.name, default, escape(attribute.doc + words))
    return shown


def _meant(name: str) -> BlockType:
    close = {known.lower(): known for known in block_types}
    if name.lower() in close:
        return block_types[close[name.lower()]]
    similar = difflib.get_close_matches(name.lower(), close, 1)
    hint = f"; did you mean {close[similar[0]]}?" if similar else "; `poolgrad ops --blocks` lists them"
    complain(f"there is no operator {name}{hint}")
    raise typer.Exit(2)
