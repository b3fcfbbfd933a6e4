"""Compiles the placement kernels with numba once the input is large enough.

`engine` asks here for the kernels of a decision. Small inputs get the plain Python functions, so that a small cluster
doesn't wait for numba to load; large ones get the same functions compiled. Numba caches compiled code on disk. The
cache folder is named by a digest of all kernel sources, since numba itself doesn't notice a change in a kernel that
another one calls. Where numba is not installed, all inputs get the plain functions, and a warning says so once.
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
"""Kernels that Python calls. All others are inlined into these, since passing arrays on costs more time than most of
the functions take."""

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
"""Modules whose constants are compiled into the kernels."""

NUMBA_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}
"""`nogil`: the live scheduler decides in a thread, and must renew its lease while a kernel runs."""

WITHOUT_NUMBA = "numba is not installed, so large inputs take many times as long (pip install 'windlass[scheduler]')"


class InterpretedKernelsWarning(UserWarning):
    """A large input is decided without compiled kernels, since numba is not installed."""


def kernels(small: bool) -> Kernels:
    """Compiled kernels, unless the input is small and they are not loaded yet."""
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
    return Kernels(**{name: function for module in _modules() for name, function in _functions(module).items()})


@cache
def compiled() -> Kernels:
    """The same functions compiled, in one namespace, so that they call each other compiled; plain without numba."""
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
            copy = types.FunctionType(function.__code__, namespace, name, function.__defaults__)
            copy.__module__, copy.__qualname__ = module.__name__, name
            kernels[name] = namespace[name] = numba.njit(
                **NUMBA_OPTIONS, cache=cached, forceinline=name not in ENTRY_POINTS
            )(copy)
    return Kernels(**kernels)


def _modules() -> list[types.ModuleType]:
    return [importlib.import_module(name) for name in KERNEL_MODULES]


def _functions(module: types.ModuleType) -> dict[str, types.FunctionType]:
    """The functions that the module itself defines, in order (not those that it imports)."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__
    }


def _use_cache_directory(numba: Any, modules: list[types.ModuleType]) -> bool:
    """Points numba's cache at a folder for these sources; False if no folder is writable."""
    constants = map(importlib.import_module, CONSTANT_MODULES)
    sources = [inspect.getsource(module) for module in (*modules, *constants)]
    digest = hashlib.sha256("".join((*sources, repr(NUMBA_OPTIONS))).encode()).hexdigest()[:16]
    packaged = Path(inspect.getfile(modules[0])).parent / "__pycache__"
    temporary = Path(tempfile.gettempdir()) / f"windlass-kernels-{os.getuid()}"
    for target in (packaged / digest, temporary / digest):
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if target.parent == temporary and not _is_private(temporary):
                continue
            target.mkdir(exist_ok=True)
            (target / ".writable").touch()
        except OSError:
            continue
        if target.parent == temporary:
            _copy_cache(packaged / digest, target)
        numba.config.CACHE_DIR = str(target)
        return True
    return False


def _is_private(target: Path) -> bool:
    """Compiled code from the cache is executed, so only this user may be able to write there."""
    status = target.stat(follow_symlinks=False)
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _copy_cache(source: Path, target: Path) -> None:
    """Copies what was compiled when the image was built: numba reads only a cache folder that it can write."""
    for file in source.glob("*.nb?"):
        partial = target / f".{file.name}.{os.getpid()}"
        if not (target / file.name).exists():
            partial.write_bytes(file.read_bytes())
            partial.replace(target / file.name)
