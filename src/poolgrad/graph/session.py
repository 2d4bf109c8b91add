"""A session runs pages: only what is asked for and has changed, independent blocks at the same time, errors kept at
their block while everything else goes on.
"""

from __future__ import annotations

import heapq
import inspect
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

from .. import checks
from ..declare import physical_memory
from ..errors import InvalidType, OutOfMemory, PoolgradError
from . import engines
from .blocktypes import BlockType, Call
from .engines import Engine
from .files import Files
from .inference import problem_of, read_attributes
from .page import Block, Page
from .problems import BlockError, Cancelled, EngineError, PageError, Problem
from .results import BlockResult, Cache, Event, Report
from .scope import Output, Scope
from .values import Spec, Values, numpy_dtype, shown_bytes

_run_numbers = count()

MOST_THREADS: Final = 8
"""How many blocks run at a time, at most: each has threads of its own inside."""

LONGEST_LIST: Final = 10**7
"""How many numbers a list that planning reads may have."""


class ClientSession:
    """Runs a page.

    engine      "cpu" (NumPy), "cuda" (PyTorch on a GPU), "torch" (PyTorch on the processor) or "dask" (chunk by chunk)
    max_memory  bytes that results may take together; otherwise what the machine has
    threads     how many blocks run at a time
    overwrite   whether Save blocks may replace files
    allow       further folders that the page may read and write

    >>> from poolgrad.graph import ops
    >>> root = Scope.new_root()
    >>> x = ops.Placeholder(root.with_name("x"), "float32", shape="1,-1,-1,1")
    >>> y = ops.AvgPool(root, x, ksize="1,2,2,1", strides="1,2,2,1", padding="SAME")
    >>> ClientSession(root).run(y, feeds={x: [[[[1], [3]], [[5], [7]]]]})
    array([[[[4.]]]], dtype=float32)
    """

    def __init__(
        self,
        page: Page | Scope,
        engine: str = "cpu",
        *,
        max_memory: int | None = None,
        threads: int | None = None,
        overwrite: bool = False,
        allow: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self.page = page.page if isinstance(page, Scope) else page
        self.engine = engines.engine(engine)
        self.max_memory = physical_memory() if max_memory is None else max_memory
        self.engine.memory = self.max_memory
        self.threads = max(1, threads or min(MOST_THREADS, os.cpu_count() or 1))
        self.overwrite = overwrite
        self.allow = tuple(Path(folder) for folder in allow)
        self.cache = Cache(self.max_memory // 2)

    def run(
        self,
        fetches: Output | str | Sequence[Output | str],
        feeds: Mapping[Output | str, Any] | None = None,
        *,
        on_event: Callable[[Event], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Any:
        """The values of the fetches, as a list; of a single one, the value itself."""
        single = isinstance(fetches, (Output, str))
        listed: Any = fetches if isinstance(fetches, Iterable) and not single else [fetches]
        names = [_output_name(self.page, fetch) for fetch in listed]
        report = self._evaluate(names, feeds, on_event, cancel, keep_all=False)
        for result in report.blocks.values():
            if result.status == "failed" and result.problem is not None:
                raise BlockError(result.problem, result.error) from result.error
        if report.cancelled:
            raise Cancelled("the run was stopped")
        found = [report.result(*name.split(".")) for name in names]
        return found[0] if single else found

    def evaluate(
        self,
        targets: Iterable[Output | str] | None = None,
        feeds: Mapping[Output | str, Any] | None = None,
        on_event: Callable[[Event], None] | None = None,
        cancel: threading.Event | None = None,
        page: Page | None = None,
    ) -> Report:
        """Runs blocks and tells what became of each; a block's fault is in the report, not raised."""
        if page is not None:
            self.page = page
        names = None if targets is None else [str(t) for t in targets]
        return self._evaluate(names, feeds, on_event, cancel, keep_all=True)

    def _evaluate(
        self,
        targets: list[str] | None,
        feeds: Mapping[Output | str, Any] | None,
        on_event: Callable[[Event], None] | None,
        cancel: threading.Event | None,
        keep_all: bool,
    ) -> Report:
        fed = {_output_name(self.page, key): value for key, value in (feeds or {}).items()}
        files = self.engine.files(self.page.folder, self.allow, self.overwrite)
        page = self.page.with_files(files)
        run = _Run(self, page, files, _fed(page, fed, self.engine), on_event, cancel, keep_all)
        wanted = list(page.blocks) if targets is None else [page[t.partition(".")[0]].name for t in targets]
        return run.run(wanted)


def _output_name(page: Page, fetch: Output | str) -> str:
    if isinstance(fetch, Output):
        Scope(page).owns(fetch)
    elif not isinstance(fetch, str):
        raise InvalidType(f"{checks.shown(fetch)} is not an Output or the name of one", argument="fetches", given=fetch)
    name = str(fetch)
    if "." not in name:
        outputs = page[name].type.outputs
        if len(outputs) != 1:
            raise PageError(f"{name} has the outputs {', '.join(outputs) or 'none'}: say which, as {name}.output")
        name = f"{name}.{outputs[0]}"
    page._source(name)
    return name


def _fed(page: Page, feeds: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """The feeds as arrays of the engine; checked against what is known of the outputs that they replace."""
    found: dict[str, Any] = {}
    for name, value in feeds.items():
        spec = page.spec(name)
        foreign = hasattr(value, "dtype")
        given = value if foreign else _numbers(name, value, spec)
        if isinstance(given, np.ndarray) and given.flags.writeable:
            given = given.copy()  # results may be views of it, and live longer than the caller leaves it alone
        array = engine.asarray(given)
        block = page[name.partition(".")[0]]
        _expect_feed(block, name, spec, tuple(array.shape), engine.dtype_name(array))
        found[name] = array
    return found


def _numbers(name: str, value: Any, spec: Spec) -> Any:
    """Numbers or lists of numbers as an array."""
    try:
        return np.asarray(value, None if spec.dtype is None else numpy_dtype(spec.dtype))
    except (TypeError, ValueError, OverflowError) as error:
        block, message = name.partition(".")[0], f"{checks.shown(value)} cannot be fed to {name}: {error}"
        raise BlockError(Problem(block, None, message)) from None


def _expect_feed(block: Block, name: str, spec: Spec, shape: tuple[int, ...], dtype: str) -> None:
    fits = spec.shape is None or (
        len(spec.shape) == len(shape) and all(n is None or n == m for n, m in zip(spec.shape, shape, strict=True))
    )
    if not fits or spec.dtype not in (None, dtype):
        given = Spec(shape, dtype).text()
        raise BlockError(Problem(block.name, None, f"{given} was fed to {name}, which is {spec.text()}"))


# ---------------------------------------------------------------------------------------------------------------------


class _Run:
    """One run: which blocks, in which order, with what result."""

    def __init__(
        self,
        session: ClientSession,
        page: Page,
        files: Files,
        feeds: dict[str, Any],
        on_event: Callable[[Event], None] | None,
        cancel: threading.Event | None,
        keep_all: bool,
    ) -> None:
        self.session, self.page, self.files, self.feeds = session, page, files, feeds
        self.engine = session.engine
        self.on_event, self.cancel, self.keep_all = on_event, cancel, keep_all
        self.values: dict[str, dict[str, Any]] = {}
        self.results: dict[str, BlockResult] = {}
        self.keys: dict[str, str] = {}
        self.at_hand: dict[str, dict[str, Any]] = {}
        self.problems: dict[str, tuple[Problem, ...]] = {}
        self.held = 0
        self.sizes: dict[str, int] = {}
        self.reserved = 0
        self.lock = threading.Lock()

    def run(self, wanted: list[str]) -> Report:
        begin = time.perf_counter()
        order = self.page.order()
        self._find_keys(self._upstream(wanted), order)
        needed = self._needed(wanted)
        self.kept = needed if self.keep_all else set(wanted)
        sessions = [n for n in wanted if self.page[n].type.name == "ClientSession"]
        first = self._upstream(sessions)  # what the page is for comes first
        names = sorted((n for n in order if n in needed), key=lambda n: n not in first)
        self.problems = {n: self.page._inferred(n).problems for n in names if n not in self.at_hand}
        cancelled = self._schedule(names)
        blocks = {name: self.results[name] for name in self.page.blocks if name in self.results}
        return Report(blocks, time.perf_counter() - begin, cancelled)

    # -- what has to run ----------------------------------------------------------------------------------------------

    def _is_fed(self, block: Block) -> bool:
        return bool(block.type.outputs) and all(output in self.feeds for output in self._outputs(block))

    def _outputs(self, block: Block) -> list[str]:
        return [f"{block.name}.{output}" for output in block.type.outputs]

    def _sources(self, block: Block) -> list[str]:
        """The blocks that must run before this one."""
        wires = [] if self._is_fed(block) else [w for ws in block.inputs.values() for w in ws if w not in self.feeds]
        return list(dict.fromkeys(w.partition(".")[0] for w in wires))

    def _upstream(self, wanted: Iterable[str]) -> set[str]:
        found, waiting = set(wanted), list(wanted)
        while waiting:
            new = [s for s in self._sources(self.page[waiting.pop()]) if s not in found]
            found.update(new)
            waiting.extend(new)
        return found

    def _needed(self, wanted: Iterable[str]) -> set[str]:
        """As `_upstream`, but nothing behind a block whose results are at hand. Those are held from now on."""
        found, waiting = set(wanted), list(wanted)
        while waiting:
            name = waiting.pop()
            known = None if self.page[name].type.effect else self.session.cache.get(self.keys[name])
            if known is not None:
                self.at_hand[name] = known
                continue
            new = [s for s in self._sources(self.page[name]) if s not in found]
            found.update(new)
            waiting.extend(new)
        return found

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _find_keys(self, names: set[str], order: list[str]) -> None:
        for name in order:
            if name in names:
                block = self.page[name]
                self.values[name] = self._attribute_values(block)
                self.keys[name] = self._key(block)

    def _attribute_values(self, block: Block) -> dict[str, Any]:
        values, _ = read_attributes(block)
        for rule in ("ties", "nan"):
            if values.get(rule) == "":
                values[rule] = getattr(self.page.policy, rule)
        return values

    def _key(self, block: Block) -> str:
        values = self.values[block.name]
        parts: list[Any] = [self.engine.name, block.type.name]
        parts += [(n, v.identity(values["dtype"]) if isinstance(v, Values) else v) for n, v in sorted(values.items())]
        for pin, wires in block.inputs.items():
            parts.append((pin, [self._wire_key(wire) for wire in wires]))
        parts += [(output, self._wire_key(output)) for output in self._outputs(block) if output in self.feeds]
        if block.type.reads:
            parts.append((str(self.files.folder), self.files.state(str(values.get(block.type.reads, "")))))
        if block.type.volatile(values):
            parts.append(next(_run_numbers))
        return blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    def _wire_key(self, wire: str) -> str:
        if wire not in self.feeds:
            name, _, output = wire.partition(".")
            return f"{self.keys[name]}.{output}"
        key = f"feed {wire}"
        if key not in self.keys:
            self.keys[key] = self.engine.identity(self.feeds[wire])
        return self.keys[key]

    # -- the schedule -------------------------------------------------------------------------------------------------

    def _schedule(self, names: list[str]) -> bool:
        """Runs the blocks, those first that stand first in the order; whether it was cancelled."""
        rank = {name: number for number, name in enumerate(names)}
        waits = {name: self._waits_for(name) for name in names}
        self.readers: dict[str, set[str]] = {name: set() for name in names}
        for name, sources in waits.items():
            for source in sources:
                self.readers[source].add(name)
        self.left = {name: len(readers) for name, readers in self.readers.items()}
        ready = [rank[name] for name in names if not waits[name]]
        heapq.heapify(ready)
        finished: queue.SimpleQueue[tuple[str, BlockResult]] = queue.SimpleQueue()
        running = 0
        self.done, self.total = 0, len(names)
        with ThreadPoolExecutor(self.session.threads, "poolgrad-block") as pool:
            while ready or running:
                while ready and running < self.session.threads and not self._cancelled():
                    name = names[heapq.heappop(ready)]
                    self._tell(Event(name, "started", self.done, self.total))
                    context = copy_context()
                    pool.submit(context.run, self._work, name, finished)
                    running += 1
                if not running:
                    break
                name, result = finished.get()
                running -= 1
                self._finish(name, result)
                for reader in sorted(self.readers[name], key=rank.__getitem__):
                    waits[reader].discard(name)
                    if not waits[reader]:
                        heapq.heappush(ready, rank[reader])
        stopped = self._cancelled() and len(self.results) < len(names)
        for name in names:
            if name not in self.results:
                self._finish(name, BlockResult("cancelled"))
        return stopped

    def _waits_for(self, name: str) -> set[str]:
        return set() if name in self.at_hand else set(self._sources(self.page[name]))

    def _cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_set()

    def _tell(self, event: Event) -> None:
        if self.on_event is not None:
            self.on_event(event)

    def _finish(self, name: str, result: BlockResult) -> None:
        self.results[name] = result
        self.done += 1
        self._tell(Event(name, result.status, self.done, self.total, result.seconds, result.problem, result.outputs))
        for source in self._sources(self.page[name]):
            if source in self.left and name in self.readers[source]:
                self.left[source] -= 1
                if self.left[source] == 0 and source not in self.kept:
                    self.results[source].outputs = {}
                    with self.lock:
                        self.held -= self.sizes.pop(source, 0)

    # -- one block ----------------------------------------------------------------------------------------------------

    def _work(self, name: str, finished: queue.SimpleQueue[tuple[str, BlockResult]]) -> None:
        try:
            result = self._result(self.page[name])
        except BaseException as error:  # whatever happens, the run must hear of it
            result = BlockResult("failed", problem=problem_of(self.page[name], error), error=error)
        finished.put((name, result))

    def _result(self, block: Block) -> BlockResult:
        results = {s: self.results[s] for s in self._sources(block) if s in self.results}
        broken = [s for s, result in results.items() if result.status not in ("done", "cached")]
        known = self.at_hand.get(block.name)
        if known is not None:
            self._hold(block.name, sum(map(self._bytes, known.values())))
            return BlockResult("cached", dict(known))
        if broken:
            problem = Problem(block.name, None, f"waits for {broken[0]}", severity="warning")
            return BlockResult("skipped", problem=problem)
        begin = time.perf_counter()
        try:
            outputs = self._fed_outputs(block) or self._computed(block)
        except Exception as error:
            problem = error.problem if isinstance(error, BlockError) else problem_of(block, _in_words(error))
            return BlockResult("failed", {}, time.perf_counter() - begin, problem, error)
        seconds = time.perf_counter() - begin
        size = sum(map(self._bytes, outputs.values()))
        self._hold(block.name, size)
        self.session.cache.put(self.keys[block.name], outputs, size)
        return BlockResult("done", outputs, seconds)

    def _fed_outputs(self, block: Block) -> dict[str, Any] | None:
        if not self._is_fed(block):
            return None
        return {output: self.feeds[f"{block.name}.{output}"] for output in block.type.outputs}

    def _computed(self, block: Block) -> dict[str, Any]:
        if self.problems[block.name]:
            raise BlockError(self.problems[block.name][0])
        arrays = {pin: [self._value(wire) for wire in wires] for pin, wires in block.inputs.items()}
        specs, arguments = self._arguments(block.type, arrays)
        values = {n: v for n, v in self.values[block.name].items() if n not in arguments or not arrays.get(n)}
        found = block.type.infer(Call(block.type, specs, values, self.files))
        self._reserve(block, (found,) if isinstance(found, Spec) else found)
        if "files" in _parameters(block.type):
            arguments["files"] = self.files
        try:
            with np.errstate(all="ignore"):
                made = block.type.compute(self.engine.xp, **arguments, **values)
        except (NotImplementedError, RuntimeError) as error:  # how array libraries say that something is not there
            problem = (str(error) or type(error).__name__).partition("\n")[0]
            raise EngineError(f"the engine {self.engine.name!r} cannot do this: {problem}") from error
        finally:
            self._release(block.name)
        several = made if len(block.type.outputs) != 1 else (made,)
        outputs = {o: self.engine.asarray(a) for o, a in zip(block.type.outputs, several, strict=True)}
        fed = {o: self.feeds[f"{block.name}.{o}"] for o in outputs if f"{block.name}.{o}" in self.feeds}
        return outputs | fed

    def _value(self, wire: str) -> Any:
        if wire in self.feeds:
            return self.feeds[wire]
        name, _, output = wire.partition(".")
        return self.results[name].outputs[output]

    def _arguments(self, type: BlockType, arrays: Mapping[str, list[Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What inference gets to see of the inputs, and what the computation gets."""
        specs: dict[str, Any] = {}
        arguments: dict[str, Any] = {}
        for pin in type.inputs:
            given = arrays.get(pin.name, [])
            described = tuple(Spec(tuple(a.shape), self.engine.dtype_name(a)) for a in given)
            if pin.many:
                specs[pin.name], arguments[pin.name] = described, given
            elif given and pin.text:
                numbers = self._integers(pin.name, given[0])
                specs[pin.name] = described[0]._replace(value=tuple(numbers.tolist()))
                arguments[pin.name] = numbers if pin.kind.name == "sequence" else tuple(numbers.tolist())
            elif given:
                specs[pin.name], arguments[pin.name] = described[0], given[0]
        return specs, arguments

    def _integers(self, pin: str, array: Any) -> Any:
        numbers = self.engine.to_numpy(array)
        if numbers.dtype.kind not in "iu" or numbers.size > LONGEST_LIST:
            expected = f"at most {LONGEST_LIST} integers"
            raise InvalidType(f"{pin} is {checks.shown(numbers)}, expected {expected}", argument=pin)
        return numbers.reshape(-1)

    # -- memory -------------------------------------------------------------------------------------------------------

    def _reserve(self, block: Block, specs: tuple[Spec, ...]) -> None:
        """Refuses results that do not fit, before anything is allocated for them."""
        in_parts = self._in_parts(block)
        kept = [spec for spec in specs if not (in_parts and self.engine.defers(spec.bytes()))]
        size = sum(spec.bytes() + spec.elements() * block.type.scratch for spec in kept)
        limit = self.session.max_memory
        used = set(self.keys.values())
        with self.lock:
            held = self.held + self.reserved
            if held + self.session.cache.bytes + size > limit:
                self.session.cache.make_room(held + self.session.cache.bytes_beside(used) + size - limit, used)
            if held + size > limit:
                problem = f"this takes {shown_bytes(size)}; {shown_bytes(held)} of {shown_bytes(limit)} are in use"
                raise OutOfMemory(problem)
            self.reserved += size
            self.sizes[block.name] = size

    def _in_parts(self, block: Block) -> bool:
        """Whether its results are made of tensors or of a file, which may both come in parts."""
        if block.type.reads:
            values = self.values[block.name]
            file, key = str(values.get(block.type.reads, "")), str(values.get("key", ""))
            return bool(file) and self.files.in_parts(file, key)
        return any(block.inputs.get(pin.name) for pin in block.type.inputs if not pin.text)

    def _bytes(self, array: Any) -> int:
        """The memory that a result takes."""
        return 0 if self.engine.deferred(array) else int(array.nbytes)

    def _release(self, name: str) -> None:
        with self.lock:
            self.reserved -= self.sizes.pop(name, 0)

    def _hold(self, name: str, size: int) -> None:
        with self.lock:
            self.held += size
            self.sizes[name] = size


def _parameters(type: BlockType) -> Mapping[str, Any]:
    return inspect.signature(type.compute).parameters


def _in_words(error: Exception) -> Exception:
    """The error as a person should read it."""
    if isinstance(error, MemoryError) and not isinstance(error, PoolgradError):
        return OutOfMemory("not enough memory for the result")
    return error
