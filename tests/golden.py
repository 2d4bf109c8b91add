"""The recorded TensorFlow cases (tests/data): loading, nothing else."""

import json
from functools import lru_cache
from pathlib import Path

import ml_dtypes
import numpy as np

DATA = Path(__file__).parent / "data"


@lru_cache
def cases():
    return json.loads((DATA / "golden.json").read_text())["cases"]


@lru_cache
def arrays():
    with np.load(DATA / "golden.npz") as file:
        return {name: file[name] for name in file.files}


def array(case, name):
    """A stored array in its real type (bfloat16 is stored as its 16 bits)."""
    x = arrays()[name]
    return x.view(ml_dtypes.bfloat16) if case["dtypes"][name] == "bfloat16" else x


def arguments(case):
    """The keyword arguments of the call."""
    return {**{k: array(case, v) for k, v in case["inputs"].items()}, **case["attrs"]}


def outputs(case):
    return [array(case, name) for name in case.get("outputs", [])]


def cves():
    return json.loads((DATA / "cves.json").read_text())
