"""Which tile a GPU program owns: in whatever order programs are counted, each tile is owned once, and every kernel asks
for the tiles that there are."""

import math

import numpy as np
import pytest
import torch
import triton.language as tl

from poolgrad.gpu import Gpu, launch
from poolgrad.gpu.frame import frame_of
from poolgrad.gpu.tiles import kernel, place
from poolgrad.windows import Pool, regular

GPU = Gpu()
FIRST, OTHERS = 2**31 - 1, 65535  # how long the dimensions of a grid may be in CUDA


def volumes(images, sizes, channels, window=2, strides=(1, 2, 2), dilation=1):
    """Volumes with their channels last. Places differ from axis to axis, and so do elements and windows."""
    windows = tuple(regular(n, window, stride, "VALID", dilation) for n, stride in zip(sizes, strides))
    return Pool((images, *sizes, channels), 1, windows, images)


@kernel
def owned(
    out, outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, IDX: tl.constexpr,
):  # fmt: skip
    """Counts how often each tile is owned."""
    block, at_d, at_h, wb, ib = place(ni, nw, ph, pd, ORDER, ONE_W, ONE_I)
    tl.atomic_add(out + ((((block * pd + at_d) * ph + at_h) * nw + wb) * ni + ib), 1)


@pytest.mark.parametrize("order", ["across", "down", "flat"])
@pytest.mark.parametrize(
    ("images", "columns", "channels", "blocks"),
    [(1, 4, 2, (1, 1, 1)), (11, 4, 2, (3, 1, 1)), (2, 36, 2, (2, 3, 1)), (2, 4, 200, (2, 2, 2))],
)
def test_each_tile_is_owned_once(images, columns, channels, blocks, order, device, monkeypatch):
    if order == "flat":
        monkeypatch.setattr(launch, "LONGEST_GRID", 1)
    frame = frame_of(volumes(images, (3, 6, columns), channels), device)
    tile, places = launch.Tile(16, 1, down=order == "down"), [2, 3, columns // 2]
    start = launch.start(owned, frame, tile, places, pd=places[0], ph=places[1])
    assert start.arguments["ORDER"] == order
    counts = torch.zeros(blocks[0], *places[:2], *blocks[1:], dtype=torch.int32, device=device)
    assert math.prod(start.grid) == counts.numel()
    start(counts)
    assert torch.equal(counts, torch.ones_like(counts))


@pytest.mark.parametrize(
    ("images", "sizes", "channels"),
    [
        (2, (4, 140000, 2), 3),
        (2, (70000, 4, 2), 3),
        (1, (40000, 140000, 2), 2),
        (1000000, (400, 4, 2), 200),
        (300000, (4, 4, 2), 200),
        (1, (4, 4, 300000), 200),
        (1, (4, 4, 2), 10**7),
    ],
    ids=str,
)
def test_no_grid_is_too_long(images, sizes, channels, device):
    """However long an axis is."""
    pool = volumes(images, sizes, channels)
    for start in (
        launch.scan(pool, device, torch.float32, "propagate", False, True, False, False),
        launch.mean_rows(pool, device, torch.float32),
        launch.put_regular(pool, device, torch.float32, averages=False),
        launch.put_listed(pool, device, torch.float32, averages=False),
    ):
        assert start.grid[0] <= FIRST
        assert max(start.grid[1:]) <= OTHERS


# Pools, the kernels that some of their maps are, and those maps.
POOLS = {
    "overlapping": (
        volumes(2, (6, 6, 4), 3),
        {"scan_rows": "maximum_and_choice", "mean_rows": "mean", "put": "put"},
    ),
    "apart": (
        volumes(2, (4, 2, 4), 3, strides=(2, 2, 2)),
        {
            "scan": "maximum_and_choice", "take": "take", "mean": "mean", "members": "members",
            "max_put": "max_put", "put_any": "assign",
        },
    ),
    "far apart": (volumes(2, (5, 6, 4), 3, strides=(3, 4, 3)), {"put_listed": "put"}),
}  # fmt: skip


def result_of(name, pool, x, g):
    """What a map makes of it."""
    choice = torch.full(pool.out_shape, 3, dtype=torch.uint8, device=x.device)
    return {
        "maximum_and_choice": lambda: torch.stack(GPU.maximum_and_choice(pool, x, "propagate")),
        "mean": lambda: GPU.mean(pool, x),
        "take": lambda: GPU.take(pool, x, choice),
        "put": lambda: GPU.put(pool, g, choice),
        "assign": lambda: GPU.put(pool, g, choice, assign=True),
        "max_put": lambda: GPU.max_put(pool, x, g, "first", "propagate"),
        "members": lambda: GPU.max_take(pool, x, x, "all", "propagate"),
    }[name]()


@pytest.fixture
def started(monkeypatch):
    """The kernels that were started, each with the order of its programs; and how to forget them."""
    seen, call = set(), launch.Start.__call__

    def remember(self, *arrays):
        seen.add((self.kernel.fn.__name__, self.arguments["ORDER"]))
        call(self, *arrays)

    def forget():
        seen.clear()
        for kept in vars(launch).values():
            if hasattr(kept, "cache_clear") and kept is not frame_of:
                kept.cache_clear()

    monkeypatch.setattr(launch.Start, "__call__", remember)
    forget()
    yield seen, forget
    forget()


@pytest.mark.parametrize("name", POOLS)
def test_every_kernel_asks_for_the_tiles_that_there_are(name, device, monkeypatch, started):
    """With channels first the grid itself says which tile is meant. Other orders give the same."""
    last, kernels = POOLS[name]
    (seen, forget), rng = started, np.random.default_rng(len(name))
    first = Pool((last.shape[0], last.shape[-1], *last.shape[1:-1]), 2, last.windows, last.batch)
    x, g = (
        torch.from_numpy(rng.integers(-9, 10, shape)).to(device, torch.float16)
        for shape in (first.shape, first.out_shape)
    )
    want = {who: result_of(its, first, x, g).movedim(-4, -1) for who, its in kernels.items()}
    assert {order for _, order in seen} == {"down"}
    for order, longest in (("across", launch.LONGEST_GRID), ("flat", 0)):
        forget()
        monkeypatch.setattr(launch, "LONGEST_GRID", longest)
        for who, its in kernels.items():
            got = result_of(its, last, *(array.movedim(1, -1).contiguous() for array in (x, g)))
            np.testing.assert_array_equal(got.cpu().numpy(), want[who].cpu().numpy())
        assert seen == {(who, order) for who in kernels}
