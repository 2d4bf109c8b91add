"""Results larger than any screen: browsed slice by slice, each in a moment, and never sent whole."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tab import Server, patience


def browse(folder, n):
    """A volume of n**3: how long slices along every axis take, in seconds."""
    server = Server(folder)
    tab = server.tab()
    blocks = [["block", "x", {"type": "RandomUniform", "attributes": {"shape": [n, n, n], "dtype": "float32"}}]]
    tab.open(tab.ask("new", title="large")["page"])
    tab.edit(*blocks)
    assert tab.run()["state"] == "done"
    header, picture = tab.results["x.output"]
    assert header["dims"] == [n, n, n]
    assert picture.shape == (64, 64)
    seconds = []
    for axes in ([1, 2], [0, 2], [0, 1]):
        (fixed,) = {0, 1, 2} - set(axes)
        for at in range(0, n, n // 16):
            index = [0, 0, 0]
            index[fixed] = at
            begun = time.monotonic()
            answer, values = tab.ask_array("slice", key="x.output", axes=axes, index=index, max=[512, 512])
            seconds.append(time.monotonic() - begun)
            assert values.shape == (min(n, 512), min(n, 512))
            assert answer["payload"].nbytes <= 512 * 512 * 4
    tab.close()
    server.stop()
    return seconds


def test_a_volume_is_browsed_in_a_moment(tmp_path):
    assert np.median(browse(tmp_path, 128)) < 0.1 * patience()


@pytest.mark.full
def test_half_a_gigabyte_is_browsed_with_every_slice_under_a_tenth_of_a_second(tmp_path):
    seconds = browse(tmp_path, 512)
    print(f"slices of 512^3: median {1000 * np.median(seconds):.1f} ms, slowest {1000 * max(seconds):.1f} ms")
    assert max(seconds) < 0.1 * patience()
