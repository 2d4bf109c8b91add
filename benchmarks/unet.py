"""A training step of a small 3-D U-Net with PyTorch's pooling and with ours: peak memory and time.

    python -m benchmarks.unet                                  # on the CPU, small
    python -m benchmarks.unet --device cuda --size 128 --batch 2 --dtype bfloat16

The two networks are the same but for their pooling modules, which `poolgrad.torch.convert` exchanges: the same weights
and data, and the losses are compared. Each runs in a process of its own. Time is the median of the steps after a
warm-up; memory is the allocator's peak on a GPU, and on the CPU (a rough measure) what the process had at most in
addition to what it had before the first step.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

POOLINGS = {
    "max2": "MaxPool3d(2)",
    "max3": "MaxPool3d(3, 2, 1)",
    "avg2": "AvgPool3d(2)",
    "adaptive": "AdaptiveMaxPool3d, half the size",
    "fractional": "FractionalMaxPool3d(2, ratio 0.5)",
}
LIBRARIES = ("torch", "poolgrad")


def pooling(kind: str, size: int) -> Any:
    """PyTorch's module of this kind for cubes of this size; all halve them."""
    from torch import nn

    made: dict[str, Callable[[], nn.Module]] = {
        "max2": lambda: nn.MaxPool3d(2),
        "max3": lambda: nn.MaxPool3d(3, 2, 1),
        "avg2": lambda: nn.AvgPool3d(2),
        "adaptive": lambda: nn.AdaptiveMaxPool3d(size // 2),
        "fractional": lambda: nn.FractionalMaxPool3d(2, output_size=size // 2),
    }
    return made[kind]()


def network(kind: str, size: int, width: int, depth: int) -> Any:
    """A U-Net: two convolutions a level, pooling down, interpolation up, skips across."""
    import torch
    from torch import nn

    def convolutions(before: int, after: int) -> nn.Module:
        layers = []
        for channels in (before, after):
            layers += [nn.Conv3d(channels, after, 3, padding=1), nn.InstanceNorm3d(after), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [width * 2**level for level in range(depth + 1)]
            self.down = nn.ModuleList(convolutions(*pair) for pair in zip([1, *widths], widths, strict=False))
            self.pools = nn.ModuleList(pooling(kind, size // 2**level) for level in range(depth))
            self.up = nn.ModuleList(convolutions(a + b, a) for a, b in pairwise(widths))
            self.head = nn.Conv3d(width, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            skips = []
            for convolve, pool in zip(self.down, self.pools, strict=False):
                skips.append(convolve(x))
                x = pool(skips[-1])
            x = self.down[-1](x)
            for convolve, skip in zip(reversed(self.up), reversed(skips), strict=True):
                raised = nn.functional.interpolate(x, size=skip.shape[2:])
                x = convolve(torch.cat([raised, skip], 1))
            return self.head(x)

    return UNet()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One library: the median time of a step, the peak of the memory, and the losses."""
    import torch

    torch.manual_seed(0)
    device = torch.device(options.device)
    model = network(options.pooling, options.size, options.width, options.depth)
    if options.library == "poolgrad":
        import poolgrad.torch as pt

        model = pt.convert(model, report=None)
    layout = torch.channels_last_3d if options.channels_last else torch.contiguous_format
    model = model.to(device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x = torch.randn(options.batch, 1, *[options.size] * 3, device=device).contiguous(memory_format=layout)
    target = (x[:, 0] > 0).long()
    dtype = getattr(torch, options.dtype)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            loss = torch.nn.functional.cross_entropy(model(x).float(), target)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    before = _memory(device)
    losses = [step() for _ in range(options.warmup)]
    seconds = []
    for _ in range(options.steps):
        _finish(device)
        start = time.perf_counter()
        losses.append(step())
        _finish(device)
        seconds.append(time.perf_counter() - start)
    return {"seconds": statistics.median(seconds), "bytes": _memory(device) - before, "losses": losses}


def _finish(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _memory(device: Any) -> int:
    """The most memory so far."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def compare(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Runs both libraries and prints a row of a table for each pooling."""
    print(f"| pooling | {' | '.join(f'{library}: step, peak memory' for library in LIBRARIES)} | time | memory |")
    print("|---|---|---|---|---|")
    for kind in POOLINGS if options.pooling == "all" else [options.pooling]:
        found = {}
        for library in LIBRARIES:
            command = [sys.executable, "-m", "benchmarks.unet", *arguments, "--pooling", kind, "--library", library]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr)
            found[library] = json.loads(done.stdout)
        theirs, ours = (found[library] for library in LIBRARIES)
        drift = max(abs(a - b) for a, b in zip(theirs["losses"], ours["losses"], strict=True))
        if drift > options.tolerance:
            raise SystemExit(f"{kind}: the losses differ by {drift}: {theirs['losses']} {ours['losses']}")
        cells = [f"{r['seconds'] * 1e3:.1f} ms, {r['bytes'] / 2**20:.0f} MiB" for r in (theirs, ours)]
        ratios = [f"{ours[key] / theirs[key]:.3f}" for key in ("seconds", "bytes")]
        print(f"| {POOLINGS[kind]} | {' | '.join(cells + ratios)} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--size", type=int, default=32, help="length of the cubes, a multiple of 2 ** depth")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--width", type=int, default=8, help="channels of the first level")
    parser.add_argument("--depth", type=int, default=3, help="how often the cubes are halved")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--pooling", default="max2", choices=[*POOLINGS, "all"])
    parser.add_argument("--tolerance", type=float, default=0.02, help="how far the losses may drift apart")
    parser.add_argument("--library", choices=LIBRARIES, help="measure one library and print it as JSON")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    if options.library:
        print(json.dumps(measure(options)))
    else:
        compare(options, given)


if __name__ == "__main__":
    main()
