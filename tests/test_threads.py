"""Threads: processes that fork, programs with threads of their own, and interpreters that end, all with the pool in
use."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from interpreter import run_python
from judge import assert_same_bits

import poolgrad as pg

X = np.random.default_rng(0).normal(size=(4, 64, 64, 64)).astype(np.float32)
POOL = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}


def work():
    y = pg.raw_ops.MaxPool(input=X, **POOL)
    return y, pg.raw_ops.MaxPoolGrad(orig_input=X, orig_output=y, grad=y, **POOL)


BIG = """
    import numpy as np, poolgrad as pg
    x = np.random.default_rng(0).normal(size=(4, 64, 64, 64)).astype(np.float32)
    pool = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
"""


def test_the_number_of_threads_can_be_set(threads):
    for count in (1, 2, 5):
        threads(count)
        assert pg.get_num_threads() == count


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", None, 2**40])
def test_an_impossible_number_of_threads_is_refused(threads, wrong):
    before = pg.get_num_threads()
    with pytest.raises((pg.errors.InvalidArgument, pg.errors.InvalidType), match="threads"):
        threads(wrong)
    assert pg.get_num_threads() == before


def test_the_environment_sets_the_number():
    source = "import poolgrad; print(poolgrad.get_num_threads())"
    assert run_python(source, POOLGRAD_NUM_THREADS="3").strip() == "3"
    assert run_python(source, POOLGRAD_NUM_THREADS="1").strip() == "1"
    assert int(run_python(source)) >= 1


@pytest.mark.parametrize("nonsense", ["0", "-2", "many", "", "1e99", "99999999999999999999"])
def test_nonsense_in_the_environment_is_ignored(nonsense):
    """A bad setting must not break an import."""
    done = subprocess.run(
        [sys.executable, "-c", "import poolgrad; print(poolgrad.get_num_threads())"],
        capture_output=True, text=True, timeout=60, env=os.environ | {"POOLGRAD_NUM_THREADS": nonsense}, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and 1 <= int(done.stdout) < 10000, done.stderr[-500:]


def test_a_forked_child_can_pool(threads):
    """fork() copies no threads: a child that waited for the parent's would hang."""
    threads(4)
    wanted = work()
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)  # ends the child if it hangs
            again = work()
            os._exit(0 if all(np.array_equal(a, b) for a, b in zip(wanted, again)) else 1)
        _, status = os.waitpid(pid, 0)
        assert status == 0, "the child hung or computed something else"
    for a, b in zip(wanted, work()):
        assert_same_bits(a, b)


def test_a_grandchild_can_pool(threads):
    threads(3)
    work()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        work()
        inner = os.fork()
        if inner == 0:
            signal.alarm(20)
            work()
            os._exit(0)
        os._exit(os.waitpid(inner, 0)[1])
    assert os.waitpid(pid, 0)[1] == 0


def test_forking_while_other_threads_pool(threads):
    """The child of a busy parent starts with locks that somebody else held."""
    threads(2)
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            work()

    workers = [threading.Thread(target=busy) for _ in range(2)]
    for w in workers:
        w.start()
    try:
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                work()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        for w in workers:
            w.join()


def test_several_python_threads_at_once(threads):
    threads(3)
    wanted, failures = work(), []

    def same():
        for _ in range(15):
            for a, b in zip(wanted, work()):
                if not np.array_equal(a, b):
                    failures.append("different")

    workers = [threading.Thread(target=same) for _ in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures


def test_the_number_changes_while_others_work():
    before = pg.get_num_threads()
    wanted, stop, failures = work(), threading.Event(), []

    def same():
        while not stop.is_set():
            for a, b in zip(wanted, work()):
                if not np.array_equal(a, b):
                    failures.append("different")

    worker = threading.Thread(target=same)
    worker.start()
    for count in [1, 4, 2, 8, 1, 3] * 5:
        pg.set_num_threads(count)
        work()
    stop.set()
    worker.join()
    pg.set_num_threads(before)
    assert not failures


def test_other_threads_run_meanwhile():
    """The GIL is released: a Python thread makes progress during one long call."""
    run_python(
        """
        import threading, numpy as np, poolgrad as pg
        pg.set_num_threads(1)
        x = np.zeros((1, 4096, 4096, 8), np.float32)
        done = threading.Event()
        ticks_inside = 0
        def call():
            pg.raw_ops.MaxPool(input=x, ksize=[1, 5, 5, 1], strides=[1, 1, 1, 1], padding="SAME")
            done.set()
        worker = threading.Thread(target=call)
        worker.start()
        while not done.wait(0.001):
            ticks_inside += 1
        worker.join()
        assert ticks_inside >= 3, ticks_inside
        """
    )


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two processors to choose from"
)
def test_workers_keep_off_the_processor_of_the_caller():
    """Woken where the caller runs they would wait behind it, and two threads would take as long as one."""
    run_python(
        """
        import os, threading, numpy as np, poolgrad as pg
        allowed = os.sched_getaffinity(0)
        pg.set_num_threads(2)
        x = np.zeros((8, 64, 64, 64), np.float32)
        def masks():
            return {int(task): os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")}
        before = masks()
        pg.raw_ops.MaxPool(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
        after = masks()
        workers = after.keys() - before.keys()
        assert len(workers) == 1, workers
        assert all(after[worker] < allowed and len(after[worker]) == len(allowed) - 1 for worker in workers), after
        assert all(after[task] == before[task] for task in before)
        """,
        OPENBLAS_NUM_THREADS="1",
    )


@pytest.mark.parametrize(
    "ending",
    [
        "",  # the pool's threads sleep while the interpreter ends
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "del pg; import gc; gc.collect()",
        "import threading; threading.Thread(target=lambda: pg.raw_ops.MaxPool(input=x, **pool)).start()",
        "import atexit; atexit.register(lambda: pg.raw_ops.MaxPool(input=x, **pool))",
    ],
)
def test_the_interpreter_ends_cleanly(ending):
    run_python(BIG + "    pg.set_num_threads(4)\n    pg.raw_ops.MaxPool(input=x, **pool)\n    " + ending)


def test_a_daemon_thread_in_a_kernel_does_not_stop_the_exit():
    run_python(
        BIG
        + """
    import threading
    def forever():
        while True:
            pg.raw_ops.MaxPool(input=x, **pool)
    for _ in range(2):
        threading.Thread(target=forever, daemon=True).start()
    pg.raw_ops.MaxPool(input=x, **pool)
    """
    )


def test_multiprocessing_with_fork():
    out = run_python(
        BIG
        + """
    import multiprocessing as mp
    pg.set_num_threads(4)
    wanted = float(pg.raw_ops.MaxPool(input=x, **pool).sum(dtype=float))
    def job(i):
        return float(pg.raw_ops.MaxPool(input=x, **pool).sum(dtype=float))
    with mp.get_context("fork").Pool(3) as workers:
        assert set(workers.map(job, range(9))) == {wanted}
    print("same")
    """
    )
    assert out.strip() == "same"


@pytest.mark.skipif(
    sys.platform != "linux" or "POOLGRAD_SANITIZED" in os.environ, reason="needs the limit on a process's memory"
)
def test_fewer_threads_than_wanted_do_the_work():
    """Every thread takes some MB of the address space; where that ends, those that could be started do."""
    out = run_python(
        BIG
        + """
    import os, resource
    pg.set_num_threads(1)
    wanted = pg.raw_ops.MaxPool(input=x, **pool)
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (24 << 20),) * 2)
    pg.set_num_threads(16)
    for _ in range(3):
        assert (pg.raw_ops.MaxPool(input=x, **pool) == wanted).all()
    print(len(os.listdir("/proc/self/task")))
    """,
        OPENBLAS_NUM_THREADS="1",
    )
    assert 1 < int(out) < 16
