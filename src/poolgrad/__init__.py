"""poolgrad: every pooling operator with every derivative, exact and deterministic.

`raw_ops`    TensorFlow's pooling operators with their signatures
`max_pool`, `avg_pool`, ...   the same for any number of spatial axes, see `functional`
`maps`       the five maps that all of it is made of: choose, take, put, mean, spread
`windows`, `sequences`        the geometry, as values
`policy`     who wins on ties and NaN

>>> import numpy as np, poolgrad as pg
>>> pg.max_pool(np.array([3, 1, 4, 1, 5, 9]), window=2, layout="X")
array([3, 4, 9])
"""

from . import catalog, cpu, errors, maps, raw_ops, sequences, windows
from .cpu import get_num_threads, set_num_threads
from .functional import (
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    avg_pool_grad,
    fractional_avg_pool,
    fractional_max_pool,
    lp_pool,
    max_pool,
    max_pool_grad,
    max_pool_grad_grad,
    max_unpool,
    min_pool,
    pool,
)
from .policy import policy

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "avg_pool_grad",
    "catalog",
    "cpu",
    "errors",
    "fractional_avg_pool",
    "fractional_max_pool",
    "get_num_threads",
    "lp_pool",
    "maps",
    "max_pool",
    "max_pool_grad",
    "max_pool_grad_grad",
    "max_unpool",
    "min_pool",
    "policy",
    "pool",
    "raw_ops",
    "sequences",
    "set_num_threads",
    "windows",
]
