"""A model's pooling modules exchanged for ours, and back, with everything else left as it was.

Modules are exchanged in place: settings, buffers, hooks, the training flag and the names in the `state_dict` stay. Only
modules that are exactly `torch.nn`'s are touched; a subclass may mean something else by `forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from ..errors import InvalidArgument
from . import nn

_Model = TypeVar("_Model", bound=torch.nn.Module)
_Say = Callable[[str], object]

_OURS: dict[type, type] = {getattr(torch.nn, name): getattr(nn, name) for name in nn.__all__ if hasattr(torch.nn, name)}
_THEIRS = {ours: theirs for theirs, ours in _OURS.items()}
_NEW = {getattr(nn, name) for name in nn.__all__} - _THEIRS.keys()


def convert(model: _Model, report: _Say | None = print) -> _Model:
    """The model with every pooling module of `torch.nn` replaced by ours; `report` is told what changed.

    Calls of `torch.nn.functional` inside a `forward` are not modules and stay as they are.

    >>> model = torch.nn.ModuleDict({"stem": torch.nn.MaxPool3d(2), "head": torch.nn.AdaptiveAvgPool3d(1)})
    >>> model = convert(model)
    stem: MaxPool3d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
    head: AdaptiveAvgPool3d(output_size=1)
    2 modules converted
    """
    return _exchanged(model, _OURS, "converted", report)


def revert(model: _Model, report: _Say | None = print) -> _Model:
    """The model with `torch.nn`'s pooling modules again. A module that uses what they lack is refused.

    >>> revert(convert(torch.nn.MaxPool1d(2), report=None))
    MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
    1 module reverted
    MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
    """
    for path, module in model.named_modules():
        if type(module) in _NEW or (type(module) in _THEIRS and not _plain(module)):
            raise InvalidArgument(
                f"{path or type(module).__name__}: {module} has no equal in torch.nn",
                operator="revert",
                argument="model",
                given=module,
            )
    return _exchanged(model, _THEIRS, "reverted", report)


def _plain(module: Any) -> bool:
    padding = getattr(module, "padding", 0)
    ours = isinstance(padding, str) or any(isinstance(p, (list, tuple)) for p in nn._listed(padding))
    return not ours and not module.extras() and getattr(module, "kernel_size", 1) is not None


def _exchanged(model: _Model, kinds: dict[type, type], done: str, report: _Say | None) -> _Model:
    changed = 0
    for path, module in _modules(model):
        if type(module) in kinds:
            module.__class__ = kinds[type(module)]
            changed += 1
            if report is not None:
                report(f"{path}: {module}" if path else f"{module}")
    if report is not None:
        report(f"{changed} module{'s' * (changed != 1)} {done}")
    return model


def _modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every module once, however often it is used."""
    yield from list(model.named_modules())
