"""Whatever the arguments: a result or one of our errors, naming the operator and the argument. Never a crash, a
hang or garbage.

Every case runs in a process of its own under a memory limit and a time-out (tests/forkserver.py); the corpus is
tests/malformed.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from malformed import CORPUS


@pytest.fixture(scope="module")
def server():
    command = [sys.executable, str(Path(__file__).with_name("forkserver.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.mark.parametrize("name", CORPUS)
def test_clean_outcome(server, name):
    server.stdin.write(name + "\n")
    server.stdin.flush()
    said = json.loads(server.stdout.readline())
    assert said["bad"] is None, said
