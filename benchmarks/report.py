"""Shows a run: a table on the console, and its page in docs/benchmarks with a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import goals, picture
from .cases import OPERATORS, TIMES
from .copying import LEAST_TRAFFIC
from .records import BEYOND_EAGER, LAYOUTS, OURS, Record, Row, geometric_mean, rows

PEERS = ("TF", "TF native", "TF graph", "torch", "torch cl", "JAX", "ONNX RT", "SciPy")
MODES = {
    "default": "everybody's default allocation",
    "reused": "outputs into reused memory for all",
}
WIDEST = ("avx512", "zen5")  # kernel sets that a race on AMD's processors with AVX-512 is run with
MARKS = {True: "reached", False: "not reached", None: "not measured"}


def show(record: Record, console: Console) -> None:
    """Every row, the means, and the goals."""
    every = rows(record)
    console.print(f"[bold]{headline(record)}[/]", highlight=False)
    for mode, title in MODES.items():
        mine = [row for row in every if row.mode == mode]
        if mine:
            console.print(_table(mine, title))
    if not every:
        _show_peers_only(record, console)
    for row in every:
        if row.fault:
            console.print(f"[bold red]wrong answer[/]: {row.name}: {row.fault}", highlight=False)
    for line in summary(every):
        console.print(line, highlight=False)
    outcomes = [outcome for outcome in goals.judge(record) if outcome.reached is not None]
    for outcome in outcomes:
        style = "green" if outcome.reached else "yellow"
        mark, goal = (f"{MARKS[outcome.reached]:<12}", style), f"{outcome.group}: {outcome.goal}\n{'':<12}"
        console.print(Text.assemble(mark, goal, (outcome.found, "dim")))


def write(record: Record, folder: Path) -> Path:
    """Writes the page of a run and the picture beside it; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    name = page_name(record)
    (folder / f"{name}.svg").write_text(picture.draw(rows(record), headline(record)))
    path = folder / f"{name}.md"
    path.write_text(page(record))
    return path


def page_name(record: Record) -> str:
    """`cpu` for AMD's processors with AVX-512; Intel's, and races with other kernels, have pages of their own."""
    machine = record["machine"]
    kernels = machine.get(
        "kernels", "avx512" if "AVX-512" in machine["processor"] else "avx2"
    )  # older records only say what there is
    maker = ["intel"] if "Intel" in machine["processor"] else []
    return "-".join(["cpu", *maker, *([] if kernels in WIDEST else [kernels])])


def headline(record: Record) -> str:
    machine = record["machine"]
    threads = f"{machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"
    model = [machine["model"]] if "model" in machine else []
    return ", ".join([machine["processor"], *model, f"{machine['cores']} processors", f"{threads} · {machine['date']}"])


def summary(every: Sequence[Row]) -> list[str]:
    """Geometric means of the speed-up over the best peer."""
    lines = []
    for mode, title in MODES.items():
        parts = []
        for name, operators in (
            ("forward", ("max_forward", "max_forward_choice", "avg_forward")),
            ("gradient", ("max_grad", "max_grad_choice", "avg_grad")),
            ("second order", ("max_gradgrad", "max_gradgrad_choice")),
        ):
            chosen = [row for row in every if row.mode == mode and row.operator in operators]
            mean = geometric_mean(speedup for row in chosen if (speedup := row.speedup()))
            if mean:
                parts.append(f"{name} {mean:.1f}{TIMES}")
        both = geometric_mean(goals.gradient_speedups(every, mode))
        eager = geometric_mean(goals.gradient_speedups(every, mode, BEYOND_EAGER))
        small = [row for row in every if row.case.group != "large"]
        others = geometric_mean(goals.gradient_speedups(small, mode))
        if both and eager:
            apart = f"; {others:.1f}{TIMES} without the large windows" if others and len(small) < len(every) else ""
            graph = f"{eager:.1f}{TIMES} without TensorFlow's graph mode"
            parts.append(f"gradients of both orders {both:.1f}{TIMES} ({graph}{apart})")
        if parts:
            lines.append(f"geometric mean over the best peer, {title}: {', '.join(parts)}")
    return lines


def duration(seconds: float | None) -> str:
    """Three digits and a unit.

    >>> duration(0.0041), duration(1.7e-6), duration(22.778)
    ('4.10 ms', '1.70 µs', '22.8 s')
    """
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            value = seconds / size
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return f"{value:.{digits}f} {unit}"
    return ""


def _peers_of(mine: Sequence[Row]) -> list[str]:
    return [peer for peer in PEERS if any(peer in row.peers for row in mine)]


def _table(mine: Sequence[Row], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    peers = _peers_of(mine)
    for column in ("case", "operator", "layout"):
        table.add_column(column)
    for column in ("poolgrad", *peers, "vs best peer", "of limit"):
        table.add_column(column, justify="right")
    previous = None
    for row in mine:
        if previous and previous.case != row.case:
            table.add_section()
        table.add_row(*_cells(row, peers, previous))
        previous = row
    return table


def _cells(row: Row, peers: list[str], previous: Row | None) -> list[Text]:
    same_case = previous is not None and previous.case == row.case
    same_cell = same_case and previous is not None and previous.operator == row.operator
    best, speedup = row.best_peer(), row.speedup()
    ratio = Text(f"{speedup:.1f}", "green" if speedup > 1 else "bold red") if speedup else Text("")
    return [
        Text("" if same_case else row.case.label),
        Text("" if same_cell else row.operator),
        Text(row.layout),
        Text("WRONG" if row.fault else duration(row.seconds), "bold red" if row.fault else "bold"),
        *(Text(duration(row.peers.get(peer)), "underline" if peer == best else "") for peer in peers),
        ratio,
        Text(f"{row.fraction:.2f}"),
    ]


def _show_peers_only(record: Record, console: Console) -> None:
    """Without poolgrad there are no rows: the peers' times and the limit alone."""
    for mode, cells in record["modes"].items():
        table = Table("cell", "limit", *PEERS, title=mode)
        for cell in cells:
            times = {name: best for name, (best, _) in cell["times"].items()}
            table.add_row(
                f"{cell['case']} {cell['operator']}",
                duration(cell["limit"][0]),
                *(duration(times.get(peer)) for peer in PEERS),
            )
        console.print(table)


def _neighbours(record: Record) -> str:
    """How much others computed on the same cores, if the run tells."""
    busy = record.get("extras", {}).get("busy")
    if not busy:
        return ""
    factors = " and ".join(f"{factor:.2f}{TIMES}" for factor in busy)
    shared = "in the median (above 1.1: cores shared with others)"
    return f"  \nA loop in the nearest cache took {factors} its best time {shared}"


def _memory(record: Record) -> str:
    """How fast memory was, and how steadily."""
    large = [cell for cells in record["modes"].values() for cell in cells if cell["bytes"] >= LEAST_TRAFFIC]
    if not large:
        return ""
    mostly = sorted(cell["bytes"] / cell["limit"][1] * 1e-9 for cell in large)
    best = max(cell["bytes"] / cell["limit"][0] * 1e-9 for cell in large)
    low, middle, high = mostly[len(mostly) // 10], mostly[len(mostly) // 2], mostly[-1 - len(mostly) // 10]
    spread = f"{low:.0f} to {high:.0f} in four of five cells, {best:.0f} at best"
    return f"  \nA copy of 16 MiB and more moved {middle:.0f} GB/s in the median ({spread})"


def page(record: Record) -> str:
    """The Markdown page: what was measured, means, goals, every row."""
    every = rows(record)
    machine = record["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    parts = [
        "# CPU benchmarks",
        "Written by `make bench`; do not edit. How to read it: [Reading the tables](#reading-the-tables).",
        "".join(
            (
                f"{headline(record)}  \n{machine['system']}{_commit(record)}  \n{versions}",
                _neighbours(record),
                _memory(record),
                _older(record),
            )
        ),
        f"![Speed-up over the best peer, and fraction of the memory limit]({page_name(record)}.svg)",
        "\n".join(f"* {line[0].upper()}{line[1:]}" for line in summary(every)),
        "## Goals",
        _goal_table(record),
    ]
    for mode, title in MODES.items():
        mine = [row for row in every if row.mode == mode]
        if not mine:
            continue
        parts.append(f"## {title[0].upper()}{title[1:]}")
        for group in dict.fromkeys(row.case.group for row in mine):
            parts += _group(group, [row for row in mine if row.case.group == group])
    parts += _absent(record)
    parts.append(READING)
    return "\n\n".join(parts) + "\n"


def _commit(record: Record) -> str:
    commit = record["machine"].get("commit")
    return f", commit {commit}" if commit else ""


def _older(record: Record) -> str:
    """How an older run was measured where that is not what the page explains."""
    if record.get("method", 1) >= 3:
        return ""
    return (
        "  \nAn older run: in rotating order, without ONNX Runtime's maxima with indices, and with the slow one of "
        "its two kernels for averages (operator set 19)"
    )


def _absent(record: Record) -> list[str]:
    """Who has an operator but raised something for a case: so that nobody is missing without a word."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for cells in record["modes"].values():
        for cell in cells:
            for peer, raised in cell.get("absent", {}).items():
                found.setdefault((peer, raised), {})[f"{cell['case']} {cell['operator']}"] = None
    if not found:
        return []
    lines = [f"| {peer} | {', '.join(names)} | `{raised}` |" for (peer, raised), names in found.items()]
    return ["## Who could not take part", "\n".join(["| peer | cells | raised |", "|---|---|---|", *lines])]


def _goal_table(record: Record) -> str:
    lines = ["| class | goal | | found |", "|---|---|---|---|"]
    previous = ""
    for outcome in goals.judge(record):
        group = "" if outcome.group == previous else outcome.group
        previous = outcome.group
        lines.append(f"| {group} | {outcome.goal} | {MARKS[outcome.reached]} | {outcome.found} |")
    return "\n".join(lines)


def _group(group: str, mine: list[Row]) -> list[str]:
    """The table of one group of cases, folded away."""
    peers = _peers_of(mine)
    head = [
        "case",
        "operator",
        "layout",
        OURS.strip(),
        *peers,
        "vs best peer",
        "by rounds",
        "of limit",
        "at best",
        "of traffic",
    ]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    previous: Row | None = None
    for row in mine:
        same_case = previous is not None and previous.case == row.case
        same_cell = same_case and previous is not None and previous.operator == row.operator
        best, speedup = row.best_peer(), row.speedup()
        times = [duration(row.peers.get(peer)) for peer in peers]
        cells = [
            "" if same_case else f"{row.case.title} {row.case.dtype}",
            "" if same_cell else OPERATORS[row.operator],
            LAYOUTS[row.layout],
            f"wrong: {row.fault}" if row.fault else f"**{duration(row.seconds)}**",
            *(f"*{time}*" if peer == best else time for peer, time in zip(peers, times, strict=True)),
            f"{speedup:.1f}" if speedup else "",
            f"{row.speedup_by_rounds:.1f}" if row.speedup_by_rounds else "",
            f"{row.fraction:.2f}",
            f"{row.fraction_at_best:.2f}",
            f"{row.of_traffic:.2f}" if row.of_traffic else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
        previous = row
    return [f"<details><summary>{group}: {len(mine)} rows</summary>", "\n".join(lines), "</details>"]


READING = """## Reading the tables

* Times are the best of several rounds. In a round every contender runs once, in an order of the round's own, on the
  same values and with the same number of threads; short calls are repeated until a sample lasts 1.5 ms. Who is slow
  uses up its share of the time sooner and has fewer samples, down to three, or one if a call takes a second.
* *vs best peer*: time of the best peer (in italics) over poolgrad's. Like stands against like: "input given" starts
  from the original input for everybody (PyTorch: forward with indices, then backward or gather), "choice given" from
  what the forward stored (PyTorch's int64 indices, TensorFlow's argmax, poolgrad's choice of 1 byte). Peers hold the
  data in the layout they like best, whatever poolgrad's layout in that row. *by rounds*: the same as the median of
  the ratios within each round, which does not depend on who had how many samples.
* *of limit*: time of a copy that moves the same number of bytes over poolgrad's time. The bytes are those of every
  array the rule has to read and of the output, once each. The copy is the quickest of several (memmove, PyTorch's, a
  streaming one), with all threads, between warm buffers. Each round has its own copy and its own call; the figure is
  the median of their ratios. *at best* is the best copy over the best call, whenever they were: where memory is quick
  at one moment and slow at another, that compares two moments.
* *of traffic*: the same, by rounds, against the quickest of three loops that read and write as many bytes as the
  operator, write past the caches, and do nothing else. Where memory writes more slowly than it reads, a copy moves
  more bytes a second than anybody who mostly writes. Near 1 memory is the limit, whatever *of limit* says. From 16 MiB
  on. It can pass 1: the loops make no use of what the caches still hold.
* *TF*: TensorFlow, eager, oneDNN on. *TF native*: oneDNN off, in a process of its own whose samples fall into the
  same rounds; shown where oneDNN has a kernel, elsewhere both run the same code. *TF graph*: forward and gradient in
  one `tf.function`, the only way to TensorFlow's oneDNN max gradient. *torch*: contiguous, *torch cl*: channels_last,
  aten operators called directly. *JAX*: jitted, the quicker of the two layouts. *ONNX RT*: one-node sessions with
  bound input (operator set 18: from 19 on its averages go element by element). *SciPy*: `scipy.ndimage` filters.
* Default allocation: plain calls of raw operators; what starts from a choice, or makes one, are poolgrad's maps, which
  no raw operator has. Reused memory: `out` arguments where a library has them (PyTorch,
  ONNX Runtime, SciPy; poolgrad's maps, which its raw operators call and which have checked nothing but the arrays);
  for all others the process's allocator keeps and reuses freed blocks, in huge pages where the system gives them, so
  that no fresh page is touched either.
* Each of poolgrad's answers is compared with a peer's before it is timed, where a peer has the operator.
* The picture shows float32: speed-ups of plain calls, and fractions of the limit with memory reused."""
