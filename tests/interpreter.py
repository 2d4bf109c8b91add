"""A fresh interpreter for tests of what a process does once: settings from the environment, threads, its end."""

import os
import subprocess
import sys
import textwrap


def run_python(source, seconds=60, **env):
    """What the source prints; its exit status must be clean."""
    env = {k: v for k, v in os.environ.items() if k != "POOLGRAD_NUM_THREADS"} | env
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=env,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr[-2000:])
    return done.stdout
