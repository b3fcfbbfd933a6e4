"""Drops the parts of nvidia-ml-py that the agent does not use.

The binding defines a thousand functions and classes, most of them never used here; they take 14 MiB of every
process that imports it. `nvml` calls this once: what our modules mention stays, with everything that it needs by
name, and the rest is deleted (3 MiB remain). All constants stay.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType

from windlass.node.process_memory import trim_heap


def prune_binding(binding: ModuleType, users: Iterable[ModuleType]) -> None:
    """Deletes every function and class of the binding that the users can't reach."""
    names = vars(binding)
    kept = reachable(names, (root for user in users for root in _names_in_module(user)))
    for name in list(names):
        if name not in kept and isinstance(names[name], FunctionType | type):
            del names[name]
    gc.collect()
    trim_heap()


def reachable(names: dict[str, object], roots: Iterable[str]) -> set[str]:
    """The names that `roots` lead to, since code mentions globals and attributes by name."""
    kept: set[str] = set()
    waiting = [name for name in roots if name in names]
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept.add(name)
            waiting += [mentioned for mentioned in _names_in(names[name]) if mentioned in names]
    return kept


def _names_in_module(module: ModuleType) -> Iterator[str]:
    for value in vars(module).values():
        if getattr(value, "__module__", None) == module.__name__:
            yield from _names_in(value)


def _names_in(value: object) -> Iterator[str]:
    """Every name that a function mentions, or a method of a class or of its bases."""
    if isinstance(value, FunctionType):
        yield from _names_in_code(value.__code__)
        for cell in value.__closure__ or ():
            if isinstance(cell.cell_contents, FunctionType):
                yield from _names_in(cell.cell_contents)
    elif isinstance(value, type):
        for base in value.__mro__:
            for member in vars(base).values():
                inner = getattr(member, "__func__", member)
                if isinstance(inner, FunctionType):
                    yield from _names_in(inner)


def _names_in_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in_code(constant)
