"""`poolgrad run`, `check` and `export`: pages from the command line, the same files that the editor opens."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from ..errors import PoolgradError
from ..graph import ClientSession, Event, Page, PageError, Problem, Report, TextError
from ..graph.engines import ENGINES, Engine
from ..graph.files import FORMATS, write_array
from ..graph.text import parse
from ..graph.values import Array, numpy_dtype, read_only
from .output import (
    bytes_of,
    complain,
    console,
    described,
    glance,
    harmless,
    messages,
    progress,
    seconds,
    table,
    write_json,
)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("run")(run)
    app.command("check")(check)
    app.command("export")(export)


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def _outputs(context: typer.Context, incomplete: str) -> list[str]:
    """Completion: the blocks of the page."""
    page = context.params.get("page") or next(iter(context.args), None)
    try:
        names = list(Page.load(page).blocks) if page else []
    except PoolgradError:
        names = []
    return [name for name in names if name.startswith(incomplete)]


def _size(text: str) -> int:
    try:
        return bytes_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _engine(name: str) -> str:
    if name not in ENGINES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(sorted(ENGINES))}")
    return name


PageFile = Annotated[Path, typer.Argument(help="A page file.", exists=True, dir_okay=False, show_default=False)]
Feeds = Annotated[
    list[str] | None,
    typer.Option("--feed", help="NAME=FILE or NAME=NUMBERS: what a placeholder gets.", show_default=False),
]
Fetches = Annotated[
    list[str] | None,
    typer.Option("--fetch", help="Run only what this block needs. Several times for several.", autocompletion=_outputs),
]
Size = Annotated[
    Any, typer.Option("--max-memory", help="What results may take, such as 4GiB.", parser=_size, metavar="SIZE")
]


def run(
    page: PageFile,
    feed: Feeds = None,
    fetch: Fetches = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the results to this folder, one .npy file each.", file_okay=False)
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help=f"Where to compute: {', '.join(ENGINES)}.", callback=_engine, autocompletion=lambda: list(ENGINES)
        ),
    ] = "cpu",
    cluster: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, such as tcp://host:8786, to compute on.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Run again whenever the page or its data changes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Results for machines, on stdout.")] = False,
    max_memory: Size = None,
    threads: Annotated[int | None, typer.Option(help="How many blocks run at a time.", min=1)] = None,
    allow: Annotated[
        list[Path] | None, typer.Option(help="A further folder that the page may read and write.", file_okay=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Save blocks may replace files.")] = False,
) -> None:
    """Run a page and show every block's results.

    A block that fails says why; all others keep their results, and the exit code is 1.

    Examples:

        poolgrad run page.json
        poolgrad run page.json --feed x=volume.npy --fetch gx --save out/
        poolgrad run page.json --device cuda --watch
        poolgrad run page.json --cluster tcp://scheduler:8786
    """
    with _client_of(cluster):
        session = ClientSession(
            Page(),
            device if cluster is None else "dask",
            max_memory=max_memory,
            threads=threads,
            overwrite=overwrite,
            allow=tuple(allow or ()),
        )
        runner = _Runner(session, page, feed or [], fetch, save, as_json)
        code = runner.watch() if watch else runner.run()
    raise typer.Exit(code)


def _client_of(cluster: str | None) -> AbstractContextManager[Any]:
    if cluster is None:
        return nullcontext()
    from ..volumes.engine import connected

    client: AbstractContextManager[Any] = connected(cluster, current=True)
    return client


class _Runner:
    """One page, run once or again and again with the same session."""

    def __init__(
        self,
        session: ClientSession,
        path: Path,
        feeds: list[str],
        fetch: list[str] | None,
        save: Path | None,
        as_json: bool,
    ) -> None:
        self.session, self.path, self.feeds, self.fetch = session, path, feeds, fetch
        self.save, self.as_json = save, as_json
        self.cancel = threading.Event()

    def run(self) -> int:
        page = Page.load(self.path)
        feeds: dict[Any, Any] = dict(_feed(page, text, self.session.engine) for text in self.feeds)
        with progress() as bar, _stopping(self.cancel):
            task = bar.add_task("running", total=len(page.blocks))

            def show(event: Event) -> None:
                bar.update(task, completed=event.done, total=event.total, description=event.block)

            report = self.session.evaluate(self.fetch, feeds, show, self.cancel, page)
        self._write(page, report)
        (_print_json if self.as_json else _print_table)(page, report, self.session, self.fetch)
        if report.cancelled:
            return 130
        return 0 if report.ok else 1

    def watch(self) -> int:
        try:
            from watchfiles import watch
        except ImportError:
            raise PageError("--watch needs the package watchfiles: pip install 'poolgrad[cli]'") from None
        seen = self._state()
        self._run_once()
        messages.print(Text(f"watching {self.path.parent.resolve()}, Ctrl-C ends", "dim"))
        mine = self.save.resolve() if self.save else None
        folders = (self.path.resolve().parent, *self._fed_files())
        # It wakes up twice a second even without a change, for those that came before it was listening.
        for changes in watch(*folders, raise_interrupt=False, yield_on_timeout=True, rust_timeout=500):
            if self.cancel.is_set():  # Ctrl-C came during a run
                return 130
            now = self._state()
            if now != seen or any(_counts(Path(name), mine) for _, name in changes):
                seen = now
                self._run_once()
        return 0

    def _state(self) -> list[tuple[int, int] | None]:
        """How the page and what is fed look on the disk."""
        return [_stamp(path) for path in (self.path, *self._fed_files())]

    def _run_once(self) -> None:
        try:
            self.run()
        except PoolgradError as error:
            complain(str(error))

    def _fed_files(self) -> list[Path]:
        return [path for text in self.feeds if (path := Path(text.partition("=")[2])).exists()]

    def _write(self, page: Page, report: Report) -> None:
        if self.save is None:
            return
        self.save.mkdir(parents=True, exist_ok=True)
        wanted = _wanted(page, self.fetch)
        for name, result in report.blocks.items():
            for output, array in result.outputs.items():
                if f"{name}.{output}" in wanted:
                    self._write_one(self.save / f"{name.replace('/', '.')}.{output}.npy", array)

    def _write_one(self, file: Path, array: Any) -> None:
        engine = self.session.engine
        if engine.deferred(array):
            engine.files(file.parent, overwrite=True).write(file.name, array)
        else:
            write_array(file, engine.to_numpy(array))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _counts(path: Path, saved: Path | None) -> bool:
    """Whether a change of this file is a reason to run: not what the run itself wrote."""
    if saved is not None and path.is_relative_to(saved):
        return False
    hidden = path.name.startswith(".") or ".writing-" in str(path)
    return not hidden and path.name.endswith((*FORMATS, ".json"))


def _wanted(page: Page, fetch: list[str] | None) -> set[str]:
    every = {f"{name}.{output}" for name, block in page.blocks.items() for output in block.type.outputs}
    return every if not fetch else {o for o in every if o in fetch or o.partition(".")[0] in fetch}


def _feed(page: Page, text: str, engine: Engine) -> tuple[str, Any]:
    name, equals, source = text.partition("=")
    if not equals or not name or not source:
        raise typer.BadParameter(f"{text!r}: expected NAME=FILE or NAME=NUMBERS", param_hint="--feed")
    path = Path(source.partition(":")[0] if ".npz:" in source or ".zarr:" in source else source)
    if path.exists():
        folder = path.resolve().parent
        key = source[len(str(path)) :]
        array = engine.files(folder).read(path.resolve().name + key)
        return name, read_only(array) if isinstance(array, np.ndarray) else array
    return name, _numbers(page, name, source)


def _numbers(page: Page, name: str, source: str) -> Array:
    output = name if "." in name else f"{name}.output"
    dtype = page.spec(output).dtype or "float32"
    try:
        found: Array = parse("array", source).cast(dtype)
    except TextError as error:
        raise typer.BadParameter(f"{source!r} is neither a file nor numbers: {error}", param_hint="--feed") from None
    return found.astype(numpy_dtype(dtype))


@contextmanager
def _stopping(cancel: threading.Event) -> Iterator[None]:
    """Ctrl-C lets the blocks that run finish and starts no other; a second one ends the process."""

    def stop(number: int, frame: object) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()
        messages.print("[yellow]stopping after the blocks that run now; Ctrl-C again ends at once[/]")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------------------------------------------------------------
# What is shown


_MARKS = {"done": "green", "cached": "cyan", "failed": "bold red", "skipped": "yellow", "cancelled": "yellow"}


def _print_table(page: Page, report: Report, session: ClientSession, fetch: list[str] | None) -> None:
    shown = table("block", "type", "result", "dtype", "shape", "values", "", title=page.title or None)
    for name, result in report.blocks.items():
        state = Text(seconds(result.seconds) if result.status == "done" else result.status, _MARKS[result.status])
        type = page[name].type
        if not result.outputs:
            message = result.problem.message.partition("\n")[0] if result.problem else ""
            shown.add_row(name, type.name, "", "", "", Text(harmless(message), _MARKS.get(result.status, "")), state)
        for number, (output, array) in enumerate(result.outputs.items()):
            first = (name, type.name) if number == 0 else ("", "")
            shape = ", ".join(map(str, array.shape))
            cells = (f"result_{output}", session.engine.dtype_name(array), f"[{shape}]")
            values = "computed in parts" if session.engine.deferred(array) else glance(session.engine.to_numpy(array))
            shown.add_row(*first, *map(Text, cells), Text(values), state if number == 0 else "")
    console.print(shown)
    for problem in report.problems:
        complain(f"{problem}")
    if report.ok:
        messages.print(f"[dim]{len(report.blocks)} blocks in {seconds(report.seconds)}[/]")


def _print_json(page: Page, report: Report, session: ClientSession, fetch: list[str] | None) -> None:
    data = report.to_dict()
    for name, result in report.blocks.items():
        found = {o: _described(session.engine, a) for o, a in result.outputs.items()}
        data["blocks"][name] |= {"type": page[name].type.name, "outputs": found}
    write_json(data)


def _described(engine: Engine, array: Any) -> dict[str, Any]:
    if engine.deferred(array):
        return {"dtype": engine.dtype_name(array), "shape": list(array.shape), "computed": "in parts"}
    return described(np.asarray(engine.to_numpy(array)))


def check(
    page: PageFile,
    as_json: Annotated[bool, typer.Option("--json", help="Shapes, dtypes and problems for machines.")] = False,
) -> None:
    """Show shapes, dtypes and problems of a page without running it."""
    opened = Page.load(page)
    found = opened.infer()
    if as_json:
        write_json(found.to_dict())
        raise typer.Exit(1 if found.problems else 0)
    shown = table("block", "type", "output", "tensor", title=opened.title or None)
    for name, spec in found.outputs.items():
        block, _, output = name.partition(".")
        shown.add_row(block, opened[block].type.name, output, Text(spec.text()))
    console.print(shown)
    for problem in found.problems:
        complain(_with_text(opened, problem))
    raise typer.Exit(1 if found.problems else 0)


def _with_text(page: Page, problem: Problem) -> str:
    """The problem, and where in the text it is."""
    text = page[problem.block].attributes.get(problem.place or "")
    if problem.position is None or not isinstance(text, str):
        return str(problem)
    return f"{problem}\n    {text}\n    {' ' * problem.position}^"


def export(
    page: PageFile,
    to: Annotated[str, typer.Option(help="python, or page: the file in its standard form.")] = "python",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file, instead of stdout.")] = None,
) -> None:
    """Write a page as plain Python that gives the same results."""
    forms = {"python": Page.to_python, "page": Page.dumps}
    if to not in forms:
        raise typer.BadParameter(f"{to!r} is not one of {', '.join(forms)}", param_hint="--to")
    text = forms[to](Page.load(page))
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, "utf-8")
