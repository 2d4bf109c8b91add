"""The front end by itself: its own tests, its size, and what its bundle contains."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from poolgrad_studio.app import STATIC

WEB = Path(__file__).resolve().parents[1] / "web"


@pytest.mark.skipif(shutil.which("npm") is None, reason="the tests of the front end need npm on the PATH")
def test_the_tests_of_the_front_end():
    if not (WEB / "node_modules").exists():
        subprocess.run(["npm", "ci", "--ignore-scripts"], cwd=WEB, check=True)
    done = subprocess.run(["npm", "test"], cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_the_bundle_is_small():
    files = [STATIC / "index.html", *(STATIC / "assets").iterdir()]
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) < 300_000


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere():
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|<script(?![^>]*\ssrc=)|\son\w+=", page)
    assert set(re.findall(r"(?:src|href)=\"([^\"]+)\"", page)) == set(re.findall(r"\"(/assets/[^\"]+)\"", page))


def test_licences_of_what_is_bundled_are_shipped():
    text = (STATIC / "licenses.txt").read_text()
    for name in ("react", "@xyflow/react"):
        assert name in text


def test_the_lock_file_names_no_registry():
    assert "resolved" not in (WEB / "package-lock.json").read_text()
