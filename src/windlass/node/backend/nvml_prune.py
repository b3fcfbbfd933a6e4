"""Lets go of what the agent doesn't use of nvidia-ml-py.

The binding defines a thousand functions and classes, most of them for structures that are never asked for here;
together they are 14 MiB of every process that imports it, on every node. `nvml` calls this once: what our modules
mention stays, with everything that it needs by name, and the rest is dropped (3 MiB are left). Constants all stay.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType

from windlass.node.process_memory import trim_heap


def prune_binding(binding: ModuleType, users: Iterable[ModuleType]) -> None:
    """Drops every function and class of the binding that the users can't reach."""
    names = vars(binding)
    kept = reachable(names, (word for user in users for word in _words_of(user)))
    for name in list(names):
        if name not in kept and isinstance(names[name], FunctionType | type):
            del names[name]
    gc.collect()
    trim_heap()


def reachable(names: dict[str, object], roots: Iterable[str]) -> set[str]:
    """The names among `names` that `first` leads to: code mentions globals and attributes by name."""
    kept: set[str] = set()
    waiting = [name for name in roots if name in names]
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept.add(name)
            waiting += [word for word in _words(names[name]) if word in names]
    return kept


def _words_of(module: ModuleType) -> Iterator[str]:
    for value in vars(module).values():
        if getattr(value, "__module__", None) == module.__name__:
            yield from _words(value)


def _words(value: object) -> Iterator[str]:
    """Every name that a function mentions, or a method of a class or of its bases."""
    if isinstance(value, FunctionType):
        yield from _in_code(value.__code__)
        for cell in value.__closure__ or ():
            if isinstance(cell.cell_contents, FunctionType):
                yield from _words(cell.cell_contents)
    elif isinstance(value, type):
        for base in value.__mro__:
            for member in vars(base).values():
                inner = getattr(member, "__func__", member)
                if isinstance(inner, FunctionType):
                    yield from _words(inner)


def _in_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _in_code(constant)
