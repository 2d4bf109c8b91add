"""The CPU kernels: C++ compiled per instruction set, chosen when the package is loaded.

`plan_of` makes a pool ready for them. Threads: `set_num_threads`, or the environment variable POOLGRAD_NUM_THREADS
before the first use. The results do not depend on either.

Where the compiled module is missing (a checkout that was not built, used for its GPU kernels), everything can still be
imported, and the first use of a CPU kernel says what is missing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import InvalidArgument, InvalidType, OutOfMemory
from ..windows import Pool

try:
    import_module("._kernels", __name__)
except ModuleNotFoundError:
    from . import missing

    sys.modules[f"{__name__}._kernels"] = missing

from . import _kernels
from ._kernels import (
    Block,
    Plan,
    Program,
    get_num_threads,
    instruction_set,
    instruction_sets,
    new_array,
    release_memory,
    remembering,
)

__all__ = [
    "Block", "Plan", "Program", "dtype_codes", "get_num_threads", "instruction_set", "instruction_sets", "new_array",
    "plan_of", "release_memory", "remembering", "set_num_threads", "type_codes", "use_instruction_set",
]  # fmt: skip

_NAMES = (
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip


class _DtypeCodes(dict[Any, int]):
    """From a dtype to the kernels' number for it. bfloat16 is known by its name, whoever defines it."""

    def __missing__(self, dtype: Any) -> int:
        if getattr(dtype, "name", "") == "bfloat16" and dtype.itemsize == 2:
            return self.setdefault(dtype, _NAMES.index("bfloat16"))
        raise KeyError(dtype)


type_codes = {name: code for code, name in enumerate(_NAMES)}
"""From the name of a dtype to the kernels' number for it."""

dtype_codes = _DtypeCodes({np.dtype(name): code for code, name in enumerate(_NAMES) if name != "bfloat16"})


def plan_of(pool: Pool) -> Plan:
    """The kernels' plan of a pool, made once."""
    plan: Plan | None = pool._native
    if plan is None:
        plan = pool._native = _plan(pool)
    return plan


def _plan(pool: Pool) -> Plan:
    axes = [
        (w.size, w.count, w.window, w.stride, w.before, w.dilation, w.extent)
        + (([], []) if w.regular else (w.start.tolist(), w.stop.tolist()))
        + ([] if pool.divisors is None else pool.divisors[i].tolist(),)
        for i, w in enumerate(pool.windows)
    ]
    try:
        return Plan(list(pool.shape), list(pool.out_shape), pool.axis, pool.batch, axes)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"the kernels cannot work on {pool}: {error}", argument="pool", given=pool) from None
    except MemoryError:
        raise OutOfMemory(f"not enough memory for the windows of {pool}") from None


def set_num_threads(n: int) -> None:
    """How many threads a kernel may use from now on, in this process.

    >>> before = get_num_threads()
    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(before)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise InvalidType(f"set_num_threads: n must be an integer, got {n!r}", argument="n", given=n)
    if not 1 <= n <= 1024:
        raise InvalidArgument(f"set_num_threads: n must be from 1 to 1024, got {n}", argument="n", given=n)
    _kernels.set_num_threads(int(n))


def use_instruction_set(name: str) -> None:
    """Uses the kernels of one of `instruction_sets()`; by default the last one is used. For tests and measurements."""
    if not isinstance(name, str) or not _kernels.use_instruction_set(name):
        known = ", ".join(instruction_sets())
        raise InvalidArgument(f"use_instruction_set: {name!r} is not one of {known}", argument="name", given=name)
