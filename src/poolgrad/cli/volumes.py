"""`poolgrad pool` and `poolgrad pyramid`: volumes in Zarr arrays that are larger than memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from .output import bytes_of, console, messages

if TYPE_CHECKING:
    from ..volumes.engine import Progress as Done

SECONDS_BETWEEN_LINES: Final = 30
"""How often progress is told where there is no terminal."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("pool")(pool)
    app.command("pyramid")(pyramid)


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def _integers(text: str) -> Any:
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of integers such as 1,2,2") from None
    return values if len(values) > 1 else values[0]


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers such as 1,0.5,0.5") from None


def _padding(text: str) -> Any:
    return text if text.isalpha() else _integers(text)


def _size(text: str) -> int:
    try:
        return bytes_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _op(name: str) -> str:
    if name not in ("max", "min", "avg"):
        raise typer.BadParameter(f"{name!r} is not one of max, min, avg")
    return name


Source = Annotated[str, typer.Argument(help="A Zarr array or an OME-Zarr image: a folder or an address.")]
Op = Annotated[str, typer.Option(help="What becomes of a window: max, min or avg.", callback=_op)]
Window = Annotated[
    Any,
    typer.Option(
        help="Window length: one for all axes, or one per axis (the last ones).", parser=_integers, metavar="N,..."
    ),
]
Chunks = Annotated[
    Any, typer.Option(help="Chunks of the result; the source's unless given.", parser=_integers, metavar="N,...")
]
Shards = Annotated[Any, typer.Option(help="Shards of the result (Zarr 3).", parser=_integers, metavar="N,...")]
Compression = Annotated[str, typer.Option(help="keep, none, zstd:LEVEL, gzip:LEVEL or blosc:NAME:LEVEL.")]
NaN = Annotated[str | None, typer.Option(help="propagate: a NaN wins its window; ignore: it never does.")]
Cluster = Annotated[
    str | None,
    typer.Option(help="Address of a Dask scheduler, such as tcp://host:8786; otherwise threads of this one."),
]
Threads = Annotated[int | None, typer.Option(help="How many threads; one per core unless given.", min=1)]
Memory = Annotated[
    Any,
    typer.Option(
        help="What this process may take, such as 2GiB (with a cluster: each worker).", parser=_size, metavar="SIZE"
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run has stopped.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Retries = Annotated[int, typer.Option(help="How often a task that fails is tried again.", min=0)]


# ---------------------------------------------------------------------------------------------------------------------
# Commands


def pool(
    source: Source,
    target: Annotated[str, typer.Argument(help="Where the result goes.")],
    op: Op = "max",
    window: Window = "2",
    strides: Annotated[
        Any, typer.Option(help="Distance of windows; their length unless given.", parser=_integers, metavar="N,...")
    ] = None,
    padding: Annotated[
        Any, typer.Option(help="valid, same, ceil, or integers.", parser=_padding, metavar="WORD|N,...")
    ] = "valid",
    nan: NaN = None,
    chunks: Chunks = None,
    shards: Shards = None,
    compression: Compression = "keep",
    zarr_format: Annotated[int | None, typer.Option(help="2 or 3; the source's unless given.", min=2, max=3)] = None,
    cluster: Cluster = None,
    threads: Threads = None,
    memory: Memory = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    retries: Retries = 3,
) -> None:
    """Pool a Zarr array into a new one, block by block.

    Memory stays bounded, whatever the size. An interrupted run goes on with `--resume`; finished chunks are not done
    again.

    `poolgrad pool in.zarr out.zarr --op avg --window 1,3,3 --strides 1,2,2 --cluster tcp://scheduler:8786`
    """
    from .. import volumes

    with _Bars() as bars:
        result = volumes.pool(
            source, target, op, window, strides, padding, nan=nan, chunks=chunks, shards=shards,
            compression=compression, zarr_format=zarr_format, cluster=cluster, threads=threads, memory=memory,
            resume=resume, overwrite=overwrite, retries=retries, watch=bars.bar(target),
        )  # fmt: skip
    console.print(Text(f"{target}: {_described(result)}"))


def pyramid(
    source: Source,
    op: Op = "max",
    window: Window = "2",
    levels: Annotated[int | None, typer.Option(help="Coarser levels; until one chunk unless given.", min=1)] = None,
    output: Annotated[str | None, typer.Option(help="Where to make the image, if the source is a lone array.")] = None,
    axes: Annotated[str | None, typer.Option(help="Letters of the axes, such as zyx or tczyx.")] = None,
    scale: Annotated[
        Any, typer.Option(help="Size of an element per axis, such as 1,0.5,0.5.", parser=_numbers, metavar="S,...")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of the scale, such as micrometer.")] = None,
    nan: NaN = None,
    chunks: Chunks = None,
    shards: Shards = None,
    compression: Compression = "keep",
    cluster: Cluster = None,
    threads: Threads = None,
    memory: Memory = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    retries: Retries = 3,
) -> None:
    """Make the coarser levels of an OME-Zarr image, each pooled from the one before.

    `poolgrad pyramid image.zarr --op max --window 2,2,2 --levels 6`
    """
    from .. import volumes

    with _Bars() as bars:
        group = volumes.pyramid(
            source, op, window, levels, output=output, axes=axes, scale=scale, unit=unit, nan=nan, chunks=chunks,
            shards=shards, compression=compression, cluster=cluster, threads=threads, memory=memory, resume=resume,
            overwrite=overwrite, retries=retries, watch=lambda name: bars.bar(f"level {name}"),
        )  # fmt: skip
    for name, level in sorted(group.arrays(), key=lambda item: -item[1].size):
        console.print(Text(f"{output or source}/{name}: {_described(level)}"))


def _described(array: Any) -> str:
    shards = f", shards {array.shards}" if array.shards else ""
    return f"{array.dtype} {tuple(array.shape)}, chunks {array.chunks}{shards}"


class _Bars(Progress):
    """A progress bar per array, with the rate of the input and the time left; in a log file a line now and then."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        super().__init__(*columns, console=messages, disable=not messages.is_terminal)

    def bar(self, name: str) -> Callable[[Done], None]:
        """What is told of the progress of one array."""
        task, begun = self.add_task(name, total=None, rate=""), time.monotonic()
        told = [begun]

        def watch(now: Done) -> None:
            spent = max(time.monotonic() - begun, 1e-6)
            rate = f"{now.bytes / 2**20 / spent:.0f} MiB/s"
            self.update(task, completed=now.done, total=now.total, rate=rate)
            if self.disable and time.monotonic() - told[0] > SECONDS_BETWEEN_LINES:
                told[0] = time.monotonic()
                messages.print(Text(f"{name}: {now.done} of {now.total} blocks, {rate}, {spent:.0f} s"))

        return watch
