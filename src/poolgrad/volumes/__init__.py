"""Pooling of volumes that lie in Zarr arrays, larger than memory, on this machine or a cluster. Promises:

- a result has the bits of the in-memory result
- memory stays below a limit: a task holds the input of one block, and only so many tasks run at once
- a run that was interrupted goes on where it stopped: finished chunks are neither computed nor written again
- a task that fails is tried again; what fails to the end is named, and everything else is done

`pool` pools one array, `pyramid` makes the coarser levels of an OME-Zarr image.

>>> import numpy as np, zarr, poolgrad.volumes as volumes
>>> x = zarr.create_array(zarr.storage.MemoryStore(), shape=(4, 6), chunks=(2, 2), dtype="uint8")
>>> x[:] = np.arange(24, dtype=np.uint8).reshape(4, 6)
>>> volumes.pool(x, zarr.storage.MemoryStore(), op="max", window=(2, 3))[:]
array([[ 8, 11],
       [20, 23]], dtype=uint8)
"""

try:
    import distributed as _distributed  # noqa: F401
    import zarr as _zarr  # noqa: F401
except ImportError as missing:
    from ..errors import MissingLibrary

    problem = f"volumes need {missing.name}: pip install 'poolgrad[volumes]'"
    raise MissingLibrary(problem, given=missing.name) from None

from .pooling import pool, pyramid

__all__ = ["pool", "pyramid"]
