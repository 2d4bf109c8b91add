"""Where a page is computed: one small class per engine. It has an array library and moves arrays in and out of it.

>>> sorted(ENGINES)
['cpu', 'cuda', 'dask', 'torch']
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from ..checks import INT64_MAX
from .files import Files
from .problems import EngineError
from .values import Array, digest_of, numpy_dtype, read_only


class Engine(Protocol):
    """What a session asks of an engine."""

    name: str
    xp: Any
    """The array library, with the functions of the Python array API standard."""
    memory: int
    """Bytes that results may take together."""

    def files(self, folder: Path | None, allow: Sequence[Path] = (), overwrite: bool = False) -> Files:
        """How this engine reads and writes files."""
        ...

    def defers(self, size: int) -> bool:
        """Whether a result of so many bytes is not kept, but computed in parts whenever it is needed."""
        ...

    def deferred(self, array: Any) -> bool:
        """Whether this result is such a one."""
        ...

    def asarray(self, value: Any) -> Any:
        """A result or a feed as an array of this engine."""
        ...

    def to_numpy(self, array: Any) -> Array:
        """An array of this engine as one of NumPy."""
        ...

    def dtype_name(self, array: Any) -> str:
        """The name of an array's dtype."""
        ...

    def identity(self, array: Any) -> str:
        """A text that tells arrays with different contents apart."""
        ...


class InMemory:
    """What engines have in common that keep every result."""

    memory: int = INT64_MAX

    def files(self, folder: Path | None, allow: Sequence[Path] = (), overwrite: bool = False) -> Files:
        """Files are read as a whole."""
        return Files(folder, allow, overwrite, self.memory)

    def defers(self, size: int) -> bool:
        """Everything is kept."""
        return False

    def deferred(self, array: Any) -> bool:
        """Everything is kept."""
        return False


class Cpu(InMemory):
    """NumPy, and the kernels that poolgrad brings along. Results cannot be written to: they may be used again."""

    name = "cpu"
    xp: Any = np

    def asarray(self, value: Any) -> Array:
        """As a NumPy array that is not written to."""
        return read_only(np.asarray(value))

    def to_numpy(self, array: Array) -> Array:
        """The array itself."""
        return array

    def dtype_name(self, array: Array) -> str:
        """The name of its dtype."""
        return str(array.dtype.name)

    def identity(self, array: Array) -> str:
        """A digest of its contents."""
        return digest_of(array)


class Torch(InMemory):
    """PyTorch on the processor; on a GPU as `Cuda`."""

    name = "torch"
    device = "cpu"

    def __init__(self) -> None:
        try:
            import torch
        except ImportError:
            raise EngineError(f"the engine {self.name!r} needs PyTorch: pip install torch") from None
        try:
            import array_api_compat.torch
        except ImportError:
            needed = "the package array-api-compat: pip install 'poolgrad[graph]'"
            raise EngineError(f"the engine {self.name!r} needs {needed}") from None
        self.torch: Any = torch
        self.xp: Any = array_api_compat.torch

    def asarray(self, value: Any) -> Any:
        """As a tensor on the device."""
        if isinstance(value, self.torch.Tensor):
            return value.to(self.device)
        numbers = np.asarray(value)
        if numbers.dtype.name == "bfloat16":
            bits = self.torch.from_numpy(np.array(numbers).view(np.int16))
            return bits.view(self.torch.bfloat16).to(self.device)
        if any(step < 0 for step in numbers.strides) or not numbers.flags.writeable:
            numbers = np.array(numbers)
        return self.torch.from_numpy(numbers).to(self.device)

    def to_numpy(self, array: Any) -> Array:
        """A NumPy array with the same numbers."""
        host = array.detach().cpu()
        if host.dtype == self.torch.bfloat16:
            bits: Array = host.contiguous().view(self.torch.int16).numpy()
            return bits.view(numpy_dtype("bfloat16"))
        found: Array = host.numpy()
        return found

    def dtype_name(self, array: Any) -> str:
        """The name of its dtype."""
        return str(array.dtype).removeprefix("torch.")

    def identity(self, array: Any) -> str:
        """A digest of its contents."""
        return digest_of(self.to_numpy(array))


class Cuda(Torch):
    """PyTorch on an NVIDIA GPU."""

    name = "cuda"
    device = "cuda"

    def __init__(self) -> None:
        super().__init__()
        if not self.torch.cuda.is_available():
            raise EngineError("the engine 'cuda' needs a GPU that PyTorch can use; there is none here")


class Dask:
    """Dask arrays: chunk by chunk on the threads of this process, or on the cluster whose client is the current one.

    A block is computed when it is run, and its chunks stay where they were computed; unless that would take more than a
    quarter of the memory: then its chunks are computed, and files read, whenever something is made of them.
    """

    name = "dask"
    memory: int = INT64_MAX

    def __init__(self) -> None:
        try:
            import array_api_compat.dask.array
            import dask.array
        except ImportError as missing:
            raise EngineError(f"the engine 'dask' needs {missing.name}: pip install 'poolgrad[graph,dask]'") from None
        self.da: Any = dask.array
        self.xp: Any = array_api_compat.dask.array
        self._deferred: set[str] = set()

    def files(self, folder: Path | None, allow: Sequence[Path] = (), overwrite: bool = False) -> Files:
        """Large files are read and written in parts."""
        from .parted import PartedFiles

        return PartedFiles(folder, allow, overwrite, self.memory)

    def defers(self, size: int) -> bool:
        """What takes more than a quarter of the memory is computed in parts whenever it is needed."""
        return size > self.memory // 4

    def deferred(self, array: Any) -> bool:
        """Whether it is computed when it is needed."""
        return array.name in self._deferred

    def asarray(self, value: Any) -> Any:
        """As a Dask array whose chunks are computed, if they are kept."""
        if isinstance(value, self.da.Array) and self.defers(value.nbytes):
            self._deferred.add(value.name)
            return value
        array = value if isinstance(value, self.da.Array) else self.da.from_array(np.asarray(value))
        computed = array.persist()
        if "distributed" in sys.modules:
            _raise_faults(computed)
        return computed

    def to_numpy(self, array: Any) -> Array:
        """All chunks in one NumPy array, if there is memory for it."""
        from .parted import in_memory

        return in_memory(array, self.memory)

    def dtype_name(self, array: Any) -> str:
        """The name of its dtype."""
        return str(array.dtype.name)

    def identity(self, array: Any) -> str:
        """Its name, which Dask makes from what it computes: nothing is read for it."""
        return str(array.name)


def _raise_faults(computed: Any) -> None:
    """On a cluster: waits for the chunks, and raises what went wrong with them."""
    from distributed import futures_of, wait

    futures = futures_of(computed)
    if futures:
        wait(futures)
    for future in futures:
        if future.status == "error":
            future.result()


ENGINES: Final[dict[str, type[Any]]] = {"cpu": Cpu, "cuda": Cuda, "dask": Dask, "torch": Torch}
"""The engines by name."""


def engine(name: str) -> Engine:
    """The engine of this name."""
    if name not in ENGINES:
        raise EngineError(f"there is no engine {name!r}; there are {', '.join(sorted(ENGINES))}")
    made: Engine = ENGINES[name]()
    return made
