"""`import poolgrad` needs NumPy only and stays small."""

import json
import subprocess
import sys

import poolgrad


def imported_by(statement):
    """Names of the top-level packages that one statement brings into a fresh interpreter."""
    source = f"""
import sys, json
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert not done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_only_numpy_and_the_standard_library():
    foreign = imported_by("import poolgrad") - set(sys.stdlib_module_names) - {"poolgrad", "numpy"}
    # NumPy itself may bring in its own helpers; whatever they are, poolgrad adds nothing to them.
    foreign -= imported_by("import numpy")
    # Files that an editable installation puts in the way of the import.
    foreign = {
        name
        for name in foreign
        if not name.startswith(("_editable", "__editable", "_poolgrad_editable", "_scikit_build", "_virtualenv"))
    }
    assert not foreign


def test_heavy_libraries_stay_asleep():
    for name in ("torch", "tensorflow", "jax", "dask", "ml_dtypes", "asyncio", "multiprocessing"):
        assert name not in imported_by("import poolgrad"), name


def test_no_thread_is_started_by_the_import():
    """Threads begin with the first large call: an import must not make a later fork unsafe."""
    source = """
import os, numpy
before = len(os.listdir("/proc/self/task"))
import poolgrad
print(len(os.listdir("/proc/self/task")) - before)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "0"


def test_the_public_names():
    for name in (
        "raw_ops",
        "policy",
        "errors",
        "windows",
        "set_num_threads",
        "get_num_threads",
        "max_pool",
        "avg_pool",
    ):
        assert hasattr(poolgrad, name), name
    assert isinstance(poolgrad.__version__, str)


def test_the_import_is_small():
    """What makes an import slow is how much it loads: beyond NumPy's own modules, a handful."""
    source = "import sys, numpy; before = len(sys.modules); import poolgrad; print(len(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 60
