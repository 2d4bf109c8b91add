"""Where and with what a run was made, and the settings that must be in place before any library is imported."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

# Freed blocks stay in the process and are handed out again, in huge pages where the kernel gives them, so that
# a library without an `out` argument writes into memory it has already touched.
REUSED_TUNABLES = ":".join(
    (
        "glibc.malloc.mmap_max=0",
        "glibc.malloc.trim_threshold=68719476736",
        "glibc.malloc.top_pad=268435456",
        "glibc.malloc.arena_max=1",
        "glibc.malloc.hugetlb=1",
    )
)

PACKAGES = ("poolgrad", "tensorflow", "tensorflow-cpu", "torch", "jax", "onnxruntime", "scipy", "numpy")


def environment(allocation: str, threads: int, onednn: bool = True) -> dict[str, str]:
    """The environment of a measuring process."""
    settings = {
        "TF_ENABLE_ONEDNN_OPTS": str(int(onednn)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": str(threads),
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}",
    }
    if allocation == "reused":
        settings["GLIBC_TUNABLES"] = REUSED_TUNABLES
    return {**os.environ, **settings}


def bind(threads: int) -> None:
    """Keeps this process on `threads` processors; libraries that count processors then start that many threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps what libraries write to the error stream while they are imported off the console."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(threads: int) -> dict[str, object]:
    """Processor, threads, versions, commit and date, for the record."""
    return {
        "commit": _commit(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        **_processor(),
        "kernels": _kernels(),
        "cores": os.cpu_count(),
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package.removesuffix("-cpu")] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """The commit that is measured, `-dirty` where files differ from it; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip()


def _kernels() -> str:
    """The instruction set of the kernels that run, which the build may have left behind the processor's."""
    try:
        from poolgrad import cpu

        return cpu.instruction_set()
    except ImportError:
        return "none"


def _processor() -> dict[str, str]:
    """Name and widest instruction set; family and model, since rented machines do not say which generation they are."""
    facts: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                facts.setdefault(key.strip(), value.strip())
    except OSError:
        return {"processor": platform.processor() or platform.machine()}
    name = facts.get("model name", platform.machine())
    sets = [flag for flag in ("avx512f", "avx2") if flag in facts.get("flags", "").split()]
    found = {"processor": f"{name} ({sets[0].upper().replace('512F', '-512')})" if sets else name}
    if {"cpu family", "model"} <= facts.keys():
        found["model"] = f"family {facts['cpu family']} model {facts['model']}"
    return found
