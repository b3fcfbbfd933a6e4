"""Compiles the kernels, once they are worth it.

`placement.score_table` asks here for a set of kernels. Small inputs get the plain Python functions, so that a
question about a small cluster doesn't wait for numba to load; large ones get the same functions compiled. Compiled
code is cached on disk by numba, under a digest of all kernel sources: numba by itself would not notice a change in a
kernel that another one calls. Where numba is not installed, all inputs get the plain functions, and a warning says so
once.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import tempfile
import types
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Kernels = types.SimpleNamespace

ENTRY_POINTS = frozenset(
    {
        "place_queue",
        "refresh_row",
        "refresh_node",
        "refresh_all_nodes",
        "write_verdict",
        "cluster_fragments",
        "count_fits",
        "count_beside_leader",
    }
)
"""What Python calls with heavy work; everything else is inlined into these, since passing arrays on costs more than
most of the functions do."""

KERNEL_MODULES = (
    "windlass.placement.kernels.devices",
    "windlass.placement.kernels.windlass_scorer",
    "windlass.placement.kernels.scores",
    "windlass.placement.kernels.placement_loop",
    "windlass.placement.kernels.fit_counts",
    "windlass.placement.kernels.fragmentation",
)


CONSTANT_MODULES = (
    "windlass.cluster.resource_columns",
    "windlass.cluster.node_state",
    "windlass.model.reasons",
    "windlass.placement.kernel_arrays",
)
"""Whose constants are compiled into the kernels."""

NUMBA_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}
"""Others go on while a kernel runs: the live scheduler decides in a thread, and renews its lease meanwhile."""

WITHOUT_NUMBA = (
    "numba is not installed, so large inputs take many times as long (pip install 'windlass[scheduler]')"
)


class InterpretedKernelsWarning(UserWarning):
    """A large input is decided without compiled kernels, since numba is not installed."""


def kernels(small: bool) -> Kernels:
    """The kernels that will be done first: compiled ones, unless the work is small and they are not loaded yet."""
    return interpreted() if small and not compiled.cache_info().currsize else compiled()


@cache
def can_compile() -> bool:
    """Whether numba is installed; warns once if it is not."""
    found = find_spec("numba") is not None
    if not found:
        warnings.warn(WITHOUT_NUMBA, InterpretedKernelsWarning, stacklevel=2)
    return found


@cache
def interpreted() -> Kernels:
    """The kernels as plain Python functions."""
    return Kernels(
        **{name: function for module in _modules() for name, function in _functions(module).items()}
    )


@cache
def compiled() -> Kernels:
    """The kernels as machine code: the same functions, in a namespace in which they call each other compiled.

    Without numba, the interpreted ones.
    """
    if not can_compile():
        return interpreted()
    import numba

    modules = _modules()
    cached = _use_cache_directory(numba, modules)
    namespace: dict[str, Any] = {}
    for module in modules:
        namespace.update(vars(module))
    kernels: dict[str, Callable[..., Any]] = {}
    for module in modules:
        for name, function in _functions(module).items():
            twin = types.FunctionType(function.__code__, namespace, name, function.__defaults__)
            twin.__module__, twin.__qualname__ = module.__name__, name
            kernels[name] = namespace[name] = numba.njit(
                **NUMBA_OPTIONS, cache=cached, forceinline=name not in ENTRY_POINTS
            )(twin)
    return Kernels(**kernels)


def _modules() -> list[types.ModuleType]:
    return [importlib.import_module(name) for name in KERNEL_MODULES]


def _functions(module: types.ModuleType) -> dict[str, types.FunctionType]:
    """The functions that the module itself defines, in order."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__
    }


def _use_cache_directory(numba: Any, modules: list[types.ModuleType]) -> bool:
    """Point numba's cache at a folder of these very sources; False if there is no place to write one."""
    sources = [inspect.getsource(m) for m in (*modules, *map(importlib.import_module, CONSTANT_MODULES))]
    digest = hashlib.sha256("".join((*sources, repr(NUMBA_OPTIONS))).encode()).hexdigest()[:16]
    beside = Path(inspect.getfile(modules[0])).parent / "__pycache__"
    aside = Path(tempfile.gettempdir()) / f"windlass-kernels-{os.getuid()}"
    for folder in (beside / digest, aside / digest):
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.parent == aside and not _ours_alone(aside):
                continue
            folder.mkdir(exist_ok=True)
            (folder / ".writable").touch()
        except OSError:
            continue
        if folder.parent == aside:
            _take_along(beside / digest, folder)
        numba.config.CACHE_DIR = str(folder)
        return True
    return False


def _ours_alone(folder: Path) -> bool:
    """Compiled code is run as it is read: nobody else may have put it there."""
    about = folder.stat(follow_symlinks=False)
    return about.st_uid == os.getuid() and not about.st_mode & 0o022


def _take_along(filled: Path, folder: Path) -> None:
    """What was compiled when an image was made, to where it can be used: numba takes only a cache that it may write."""
    for file in filled.glob("*.nb?"):
        unfinished = folder / f".{file.name}.{os.getpid()}"
        if not (folder / file.name).exists():
            unfinished.write_bytes(file.read_bytes())
            unfinished.replace(folder / file.name)
