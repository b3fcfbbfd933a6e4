"""The placement kernels as plain functions on arrays that refuse every index which compiled code must not follow.

Compiled kernels look at no bounds, and numpy takes -1 for the last row; so both are found here. `engine_targets` plays
the same cluster with these and with the compiled ones.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from windlass import jit


class Guarded(np.ndarray[Any, Any]):
    def __getitem__(self, index: Any) -> Any:
        self._check(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index)
        super().__setitem__(index, value)

    def _check(self, index: Any) -> None:
        for position, size in zip(index if isinstance(index, tuple) else (index,), self.shape, strict=False):
            if not isinstance(position, slice) and not 0 <= position < size:
                raise IndexError(f"{position} is not within an axis of {size}")


def guarded_kernels() -> SimpleNamespace:
    return SimpleNamespace(**{name: _guarded(getattr(jit.interpreted(), name)) for name in jit.ENTRY_POINTS})


def _guarded(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return kernel(*map(_guard, arguments))

    return call


def _guard(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.view(Guarded)
    if isinstance(argument, tuple) and any(isinstance(member, np.ndarray) for member in argument):
        return type(argument)(*map(_guard, argument))
    return argument
