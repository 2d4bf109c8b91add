"""What a run leaves behind: results per block, and the memory of results that later runs use again.

A result is found by what it was made of: the block's type, its attributes, and the keys of its inputs, down to the
contents of constants, feeds and files. Names do not matter, so a renamed block is not computed again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from .problems import PageError, Problem


class Event(NamedTuple):
    """Something happened to a block: "started", "done", "cached", "failed", "skipped" or "cancelled".

    `outputs` has the arrays as soon as the block has them.
    """

    block: str
    status: str
    done: int
    total: int
    seconds: float = 0.0
    problem: Problem | None = None
    outputs: Mapping[str, Any] = MappingProxyType({})

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, without the arrays."""
        plain = {name: value for name, value in self._asdict().items() if name != "outputs"}
        return plain | {"problem": self.problem and self.problem.to_dict()}


@dataclass
class BlockResult:
    """What became of one block; `outputs` by name, `error` as it was raised."""

    status: str
    outputs: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    problem: Problem | None = None
    error: BaseException | None = None


@dataclass
class Report:
    """What became of every block that a run needed."""

    blocks: dict[str, BlockResult]
    seconds: float = 0.0
    cancelled: bool = False

    @property
    def problems(self) -> list[Problem]:
        """Everything that went wrong, in the order of the page."""
        return [r.problem for r in self.blocks.values() if r.problem is not None and r.status == "failed"]

    @property
    def ok(self) -> bool:
        """Whether every block has its results."""
        return all(r.status in ("done", "cached") for r in self.blocks.values())

    def result(self, block: str, output: str = "output") -> Any:
        """The result of one output."""
        found = self.blocks.get(block)
        if found is None or output not in found.outputs:
            state = found.status if found else "not part of this run"
            raise PageError(f"{block}.{output} has no result: it is {state}")
        return found.outputs[output]

    def results(self) -> dict[str, Any]:
        """All results, as "block.result_output"."""
        return {
            f"{name}.result_{output}": array
            for name, result in self.blocks.items()
            for output, array in result.outputs.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, without the arrays."""
        return {
            "ok": self.ok,
            "cancelled": self.cancelled,
            "seconds": self.seconds,
            "blocks": {
                name: {
                    "status": r.status,
                    "seconds": r.seconds,
                    "outputs": list(r.outputs),
                    "problem": r.problem and r.problem.to_dict(),
                }
                for name, r in self.blocks.items()
            },
        }


class Cache:
    """Results by key, up to a number of bytes; those that were not used for longest are forgotten first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._kept: OrderedDict[str, tuple[dict[str, Any], int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> dict[str, Any] | None:
        """The outputs under a key."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return dict(found[0])

    def put(self, key: str, outputs: dict[str, Any], size: int) -> None:
        """Keeps outputs, if there is room for them at all."""
        with self._lock:
            if key in self._kept or size > self.limit:
                return
            self._kept[key] = (dict(outputs), size)
            self.bytes += size
            while self.bytes > self.limit:
                self._forget(next(iter(self._kept)))

    def make_room(self, size: int, keep: set[str]) -> None:
        """Forgets results until so many bytes are free, but none under the keys to keep."""
        with self._lock:
            for key in [k for k in self._kept if k not in keep]:
                if size <= 0:
                    return
                size -= self._forget(key)

    def bytes_beside(self, keys: set[str]) -> int:
        """The memory of what is kept under other keys."""
        with self._lock:
            return sum(size for key, (_, size) in self._kept.items() if key not in keys)

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._kept.clear()
            self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def _forget(self, key: str) -> int:
        _, size = self._kept.pop(key)
        self.bytes -= size
        return size
