# Written by tools/stubs.py from the catalog.
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = Any
Ints: TypeAlias = Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]
Floats: TypeAlias = Sequence[float] | npt.NDArray[Any]

def MaxPool(
    *,
    input: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    explicit_paddings: Ints = [],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> Array: ...
def MaxPoolV2(
    *,
    input: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...
def MaxPoolGrad(
    *,
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    explicit_paddings: Ints = [],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> Array: ...
def MaxPoolGradV2(
    *,
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...
def MaxPoolGradGrad(
    *,
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...
def MaxPoolGradGradV2(
    *,
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...

class _MaxPoolWithArgmax(NamedTuple):
    output: Array
    argmax: Array

def MaxPoolWithArgmax(
    *,
    input: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    Targmax: npt.DTypeLike = "int64",
    include_batch_in_index: bool = False,
    explicit_paddings: Ints = [],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> _MaxPoolWithArgmax: ...
def MaxPoolGradWithArgmax(
    *,
    input: Array,
    grad: Array,
    argmax: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    include_batch_in_index: bool = False,
    explicit_paddings: Ints = [],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> Array: ...
def MaxPoolGradGradWithArgmax(
    *,
    input: Array,
    grad: Array,
    argmax: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    include_batch_in_index: bool = False,
    explicit_paddings: Ints = [],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> Array: ...
def AvgPool(
    *,
    value: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...
def AvgPoolGrad(
    *,
    orig_input_shape: Ints,
    grad: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...
def MaxPool3D(
    *,
    input: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NDHWC", "NCDHW"] = "NDHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...
def MaxPool3DGrad(
    *,
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NDHWC", "NCDHW"] = "NDHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...
def MaxPool3DGradGrad(
    *,
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NDHWC", "NCDHW"] = "NDHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...
def AvgPool3D(
    *,
    input: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NDHWC", "NCDHW"] = "NDHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...
def AvgPool3DGrad(
    *,
    orig_input_shape: Ints,
    grad: Array,
    ksize: Ints,
    strides: Ints,
    padding: Literal["SAME", "VALID", "EXPLICIT"],
    data_format: Literal["NDHWC", "NCDHW"] = "NDHWC",
    explicit_paddings: Ints = [],
    name: str | None = None,
) -> Array: ...

class _FractionalMaxPool(NamedTuple):
    output: Array
    row_pooling_sequence: Array
    col_pooling_sequence: Array

def FractionalMaxPool(
    *,
    value: Array,
    pooling_ratio: Floats,
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: SupportsIndex = 0,
    seed2: SupportsIndex = 0,
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> _FractionalMaxPool: ...
def FractionalMaxPoolGrad(
    *,
    orig_input: Array,
    orig_output: Array,
    out_backprop: Array,
    row_pooling_sequence: Ints,
    col_pooling_sequence: Ints,
    overlapping: bool = False,
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> Array: ...
def FractionalMaxPoolGradGrad(
    *,
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    row_pooling_sequence: Ints,
    col_pooling_sequence: Ints,
    overlapping: bool = False,
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> Array: ...

class _FractionalAvgPool(NamedTuple):
    output: Array
    row_pooling_sequence: Array
    col_pooling_sequence: Array

def FractionalAvgPool(
    *,
    value: Array,
    pooling_ratio: Floats,
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: SupportsIndex = 0,
    seed2: SupportsIndex = 0,
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> _FractionalAvgPool: ...
def FractionalAvgPoolGrad(
    *,
    orig_input_tensor_shape: Ints,
    out_backprop: Array,
    row_pooling_sequence: Ints,
    col_pooling_sequence: Ints,
    overlapping: bool = False,
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> Array: ...
def FractionalAvgPoolGradGrad(
    *,
    grad: Array,
    row_pooling_sequence: Ints,
    col_pooling_sequence: Ints,
    overlapping: bool = False,
    data_format: Literal["NHWC", "NCHW"] = "NHWC",
    name: str | None = None,
) -> Array: ...
