"""Runs cases of the malformed corpus, each in a process of its own. Reads names from stdin, answers one JSON line each.

NumPy and poolgrad are imported once; a case costs one fork. The child may use one gibibyte more than the import took.
"""

import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from malformed import CORPUS, Error, Result

import poolgrad

SANITIZED = "POOLGRAD_SANITIZED" in os.environ
HEADROOM, SECONDS = 1 << 30, 120 if SANITIZED else 20


def outcome(name):
    """Runs one case here and says what happened."""
    case = CORPUS[name]
    a = case.build()
    try:
        result = getattr(poolgrad.raw_ops, case.op)(**{k: v for k, v in a.items() if k != "_op"})
    except poolgrad.errors.PoolgradError as error:
        said = {"class": type(error).__name__, "message": str(error), "operator": getattr(error, "operator", None)}
        if isinstance(case.expect, Result):
            return {"bad": "an error where a result was due", **said}
        if case.op not in str(error):
            return {"bad": f"the message does not name {case.op}", **said}
        known = case.expect.arguments if isinstance(case.expect, Error) else tuple(a)
        out_of_memory = isinstance(error, poolgrad.errors.OutOfMemory) and not isinstance(case.expect, Error)
        if not any(argument in str(error) for argument in known) and not out_of_memory:
            return {"bad": f"the message names none of {known}", **said}
        if not isinstance(error, (ValueError, TypeError, MemoryError)):
            return {"bad": "not a ValueError, TypeError or MemoryError", **said}
        return {"bad": None, **said}
    except BaseException as error:
        return {"bad": f"{type(error).__module__}.{type(error).__name__} escaped", "message": str(error)[:500]}
    if isinstance(case.expect, Error):
        shape = [np.shape(r) for r in result] if isinstance(result, tuple) else np.shape(result)
        return {"bad": f"a result of shape {shape} where an error naming one of {case.expect.arguments} was due"}
    if isinstance(case.expect, Result):
        try:
            case.expect.check(result, a)
        except AssertionError as error:
            return {"bad": f"wrong result: {str(error)[:500]}"}
    return {"bad": None, "class": None}


def in_child(name):
    """The same in a forked process under a memory limit and a time-out."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        footprint = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        if not SANITIZED:  # sanitizers reserve terabytes of address space; tools/sanitize.sh limits allocations instead
            resource.setrlimit(resource.RLIMIT_AS, (footprint + HEADROOM,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with np.errstate(all="ignore"):
            try:
                said = outcome(name)
            except BaseException as error:
                said = {"bad": f"the case could not be run: {error!r}"}
        os.write(writing, json.dumps(said)[:60000].encode())
        os._exit(0)
    os.close(writing)
    answer, deadline = b"", time.monotonic() + SECONDS
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(reading, 65536) if ready else None
        if not piece:
            break
        answer += piece
    os.close(reading)
    if piece is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return {"bad": f"no answer within {SECONDS} seconds"}
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return {"bad": f"killed by signal {signal.Signals(os.WTERMSIG(status)).name}"}
    return json.loads(answer)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(in_child(line.strip())), flush=True)
