"""PyTorch tensors on the CPU and GPU kernels. Every map is an operator of PyTorch (see `ops`), so whatever is computed
here can be differentiated to any order, forward and backward, traced and compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...errors import InvalidType
from ...policy import current
from ...windows import Pool
from . import ops
from .geometry import encoded
from .kernels import Tensor, place, torch_dtype

__all__ = ["Torch", "ops"]


class Torch:
    """The maps and their fusions on tensors."""

    name = "torch"

    # -- arrays -------------------------------------------------------------------------------------------------------

    def asarray(self, value: Any, dtype_hint: Any = None) -> Tensor:
        """The value as a tensor of numbers."""
        if isinstance(value, Tensor):
            if value.layout is not torch.strided or value.is_quantized or value.is_complex():
                raise InvalidType(f"expected a dense tensor of numbers, got {value.dtype}, {value.layout}")
            return value
        dtype = dtype_hint if dtype_hint is None or isinstance(dtype_hint, torch.dtype) else _named(dtype_hint)
        try:
            return torch.as_tensor(value, dtype=dtype)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidType(f"expected an array of numbers ({error})") from None

    def host(self, value: Any) -> Any:
        """A tensor as a NumPy array; anything else of PyTorch, such as a shape, as it is."""
        return value.detach().cpu().numpy() if isinstance(value, Tensor) else value

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        """A new tensor with undefined contents."""
        return torch.empty(shape, dtype=_named(dtype))

    # -- choose, take, put --------------------------------------------------------------------------------------------

    def maximum(self, pool: Pool, x: Tensor, nan: str, out: None = None, ties: str | None = None) -> Tensor:
        """take(x, choose(x)). Who gets the gradient is said by `ties`, or by the policy in force."""
        return ops.maximum(x, encoded(pool), ties or current().ties, nan)

    def choose(self, pool: Pool, x: Tensor, nan: str, out: None = None) -> Tensor:
        """Which element of each window wins."""
        return ops.maximum_and_choice(x, encoded(pool), nan)[1]

    def maximum_and_choice(self, pool: Pool, x: Tensor, nan: str, out: None = None) -> tuple[Tensor, Tensor]:
        """Both in one pass."""
        return ops.maximum_and_choice(x, encoded(pool), nan)

    def take(self, pool: Pool, v: Tensor, choice: Tensor, out: None = None) -> Tensor:
        """The chosen element of each window."""
        return ops.take(v, choice, encoded(pool))

    def put(self, pool: Pool, g: Tensor, choice: Tensor, out: None = None, assign: bool = False) -> Tensor:
        """The transpose of take; with `assign` the last window that chose an element sets it."""
        return ops.put_last(g, choice, encoded(pool)) if assign else ops.put(g, choice, encoded(pool))

    # -- mean, spread -------------------------------------------------------------------------------------------------

    def mean(self, pool: Pool, x: Tensor, out: None = None) -> Tensor:
        """The average of each window."""
        return ops.mean(x, encoded(pool))

    def spread(self, pool: Pool, g: Tensor, out: None = None) -> Tensor:
        """The transpose of mean."""
        return ops.spread(g, encoded(pool))

    # -- fusions ------------------------------------------------------------------------------------------------------

    def max_put(
        self,
        pool: Pool,
        x: Tensor,
        g: Tensor,
        ties: str,
        nan: str,
        equal_to: Tensor | None = None,
        out: None = None,
    ) -> Tensor:
        """put(g, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives nothing."""
        return ops.max_put(g, x, equal_to, encoded(pool), ties, nan)

    def max_take(
        self,
        pool: Pool,
        x: Tensor,
        v: Tensor,
        ties: str,
        nan: str,
        equal_to: Tensor | None = None,
        out: None = None,
    ) -> Tensor:
        """take(v, choose(x)); with `equal_to`, the first element equal to it is chosen, and none gives zero."""
        return ops.max_take(v, x, equal_to, encoded(pool), ties, nan)

    # -- flat indices -------------------------------------------------------------------------------------------------

    def choice_to_index(self, pool: Pool, choice: Tensor, dtype: Any, scope: str) -> Tensor:
        """The flat index of every chosen element."""
        geometry, scope = _scoped(pool, scope)
        return ops.choice_to_index(choice, geometry, scope).to(_named(dtype))

    def index_put(self, pool: Pool, g: Tensor, index: Tensor, scope: str, out: None = None) -> Tensor:
        """Adds g where the indices say. They may name any element of their image."""
        return ops.index_put(g, index, *_scoped(pool, scope))

    def index_take(self, pool: Pool, v: Tensor, index: Tensor, scope: str, out: None = None) -> Tensor:
        """The elements of v that the indices name."""
        return ops.index_take(v, index, *_scoped(pool, scope))

    def index_fault(self, pool: Pool, index: Tensor, scope: str) -> tuple[tuple[int, ...], int] | None:
        """Where the first index outside its own image is, and what it is."""
        geometry, scope = _scoped(pool, scope)
        placed, _ = place(geometry, index, pooled=True, keep_order=True)
        fault: tuple[tuple[int, ...], int] | None = placed.on.index_fault(placed.pool, placed.seen(index), scope)
        return fault

    def choice_fault(self, pool: Pool, choice: Tensor) -> tuple[tuple[int, ...], int] | None:
        """Where the first code that names no element of its window is, and what it is."""
        placed, _ = place(encoded(pool), choice, pooled=True, keep_order=True)
        fault: tuple[tuple[int, ...], int] | None = placed.on.choice_fault(placed.pool, placed.seen(choice))
        return fault


def _named(dtype: Any) -> torch.dtype:
    return dtype if isinstance(dtype, torch.dtype) else torch_dtype(np.dtype(dtype))


def _scoped(pool: Pool, scope: str) -> tuple[list[int], str]:
    """Counting through the whole batch is counting through one image that holds all of it."""
    if scope == "batch":
        return encoded(pool, lead=0), "image"
    return encoded(pool, lead=1 if pool.batch > 1 else 0), scope
