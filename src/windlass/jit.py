"""Chooses the placement kernels of a decision: compiled ahead of time, compiled now, or the plain functions.

`engine` asks here. Where `kernel_library` has a library of these very sources for this machine, every input gets that:
it loads in milliseconds. Where there is none (another processor or system, a kernel that was just edited), large inputs
get the same functions compiled by numba, if it is installed, and small ones the plain functions, so that they don't
wait for numba to load. Numba caches compiled code on disk. The cache folder is named by a digest of all kernel sources,
since numba itself doesn't notice a change in a kernel that another one calls. Without library and numba, all inputs get
the plain functions, and a warning says so once.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import tempfile
import types
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from windlass import kernel_library

Kernels = types.SimpleNamespace

NOT_INLINED = frozenset(
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
"""All other kernels are inlined into these, since passing arrays on costs more time than most of the functions take."""

ENTRY_POINTS = NOT_INLINED | {"add_pod_to_node", "update_node_for_pod", "choose_random_node"}
"""Kernels that Python calls."""

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

WITHOUT_KERNELS = (
    "there are no compiled kernels for this machine, and numba is not installed: large inputs take many times as long "
    "(pip install 'windlass[numba]')"
)


class InterpretedKernelsWarning(UserWarning):
    """A large input is decided without compiled kernels, since there are none and numba is not installed."""


def kernels(small: bool) -> Kernels:
    """Compiled kernels, unless the input is small and loading them would take longer than deciding."""
    return interpreted() if small and not _is_loaded() and _library() is None else compiled()


def _is_loaded() -> bool:
    return compiled.cache_info().currsize > 0


@cache
def can_compile() -> bool:
    """Whether numba is installed; warns once if it is not."""
    found = find_spec("numba") is not None
    if not found:
        warnings.warn(WITHOUT_KERNELS, InterpretedKernelsWarning, stacklevel=2)
    return found


@cache
def interpreted() -> Kernels:
    """The kernels as plain Python functions."""
    return Kernels(**{name: function for module in _modules() for name, function in _functions(module).items()})


@cache
def compiled() -> Kernels:
    """The entry points compiled: ahead of time if there is a library, else by numba now; plain without either."""
    return _library() or (compiled_now() if can_compile() else interpreted())


@cache
def _library() -> Kernels | None:
    functions = kernel_library.load(sources_digest())
    return None if functions is None else Kernels(**functions)


@cache
def compiled_now() -> Kernels:
    """The same, by numba."""
    import numba

    namespace = numba_namespace(numba, cache=_use_cache_directory(numba))
    return Kernels(**{name: namespace[name] for name in ENTRY_POINTS})


def numba_namespace(numba: Any, **options: Any) -> dict[str, Any]:
    """The kernels as functions of numba's, in one namespace, so that they call each other compiled."""
    modules = _modules()
    namespace: dict[str, Any] = {}
    for module in modules:
        namespace.update(vars(module))
    for module in modules:
        for name, function in _functions(module).items():
            copy = types.FunctionType(function.__code__, namespace, name, function.__defaults__)
            copy.__module__, copy.__qualname__ = module.__name__, name
            decorate = numba.njit(**NUMBA_OPTIONS, **options, forceinline=name not in NOT_INLINED)
            namespace[name] = decorate(copy)
    return namespace


def _modules() -> list[types.ModuleType]:
    return [importlib.import_module(name) for name in KERNEL_MODULES]


def _functions(module: types.ModuleType) -> dict[str, types.FunctionType]:
    """The functions that the module itself defines, in order (not those that it imports)."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__
    }


@cache
def sources_digest() -> str:
    """By which compiled kernels are recognised: of all that goes into them."""
    sources = [Path(inspect.getfile(importlib.import_module(name))) for name in (*KERNEL_MODULES, *CONSTANT_MODULES)]
    sources.append(Path(kernel_library.__file__))
    content = (*(path.read_bytes() for path in sources), repr((NUMBA_OPTIONS, sorted(ENTRY_POINTS))).encode())
    return hashlib.sha256(b"".join(content)).hexdigest()[:16]


def _use_cache_directory(numba: Any) -> bool:
    """Points numba's cache at a folder for these sources; False if no folder is writable."""
    digest = sources_digest()
    packaged = Path(inspect.getfile(_modules()[0])).parent / "__pycache__"
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
        numba.config.CACHE_DIR = str(target)
        return True
    return False


def _is_private(target: Path) -> bool:
    """Compiled code from the cache is executed, so only this user may be able to write there."""
    status = target.stat(follow_symlinks=False)
    return status.st_uid == os.getuid() and not status.st_mode & 0o022
