"""Everything that is imported is declared: by the base, or by the extra of the role that the room belongs to."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.cli.extras import BASE, DISTRIBUTIONS, EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BENCH = tomllib.loads((ROOT / "bench" / "pyproject.toml").read_text())["project"]
EXTRAS_OF_ROOMS = {
    "apply": ("scheduler",),
    "embedded": ("up",),
    "jit.py": ("numba",),
    "node": ("node",),
    "placement": ("exact",),
    "scheduler": ("scheduler",),
    "simulate": ("simulate",),
}
"""Rooms that import more than the base."""
STANDARD = {*sys.stdlib_module_names, "windlass", "windlass_bench"}
MODULES_OF_DISTRIBUTIONS = {
    "grpcio": "grpc",
    "nvidia-ml-py": "pynvml",
    "protobuf": "google",
    "pyyaml": "yaml",
}
"""Where the two names differ by more than a hyphen."""


def imported_by(path: Path) -> Iterator[str]:
    """The top-level modules of all imports in a file, also of those inside functions; not those for types only."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def third_party(path: Path) -> set[str]:
    files = path.rglob("*.py") if path.is_dir() else [path]
    return {name for file in files for name in imported_by(file)} - STANDARD


def modules_of(requirements: list[str], extras: dict[str, list[str]]) -> set[str]:
    """The modules that requirements bring directly; those on extras of our own are followed."""
    found = set()
    for line in requirements:
        own = re.fullmatch(r"windlass\[([a-z,]+)\]", line)
        if own is not None:
            for extra in own[1].split(","):
                found |= modules_of(extras[extra], extras)
        else:
            name = re.split(r"[<>=!~\[; ]", line, maxsplit=1)[0]
            found.add(MODULES_OF_DISTRIBUTIONS.get(name, name.replace("-", "_")))
    return found


def declared(*extras: str) -> set[str]:
    optional = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in optional[extra])]
    return modules_of(lines, optional)


ROOMS = sorted(
    path.name
    for path in (ROOT / "src" / "windlass").iterdir()
    if path.suffix == ".py" or (path / "__init__.py").is_file()
)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_its_role_declares(room: str) -> None:
    allowed = declared(*EXTRAS_OF_ROOMS.get(room, ()))
    assert third_party(ROOT / "src" / "windlass" / room) <= allowed


def test_nothing_is_declared_that_nothing_imports() -> None:
    imported = third_party(ROOT / "src")
    assert declared("all") <= imported


def test_the_benchmarks_declare_what_they_import() -> None:
    optional = PROJECT["optional-dependencies"]
    brought = modules_of(BENCH["dependencies"], optional) | declared()
    assert third_party(ROOT / "bench" / "windlass_bench") <= brought


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_error_names_the_extra_that_brings_the_module(extra: str) -> None:
    modules = {name.partition(".")[0] for name in EXTRAS[extra]}
    assert modules == declared(extra) - declared()


def test_the_error_knows_the_base_and_our_other_distributions() -> None:
    assert set(BASE) == declared()
    assert set(DISTRIBUTIONS.values()) == {BENCH["name"]}


def test_modules_are_those_of_the_distributions() -> None:
    """The table above, compared with what is installed."""
    by_module = importlib.metadata.packages_distributions()
    for name in declared("all") | declared():
        known = {item.lower().replace("_", "-") for item in by_module[name]}
        wanted = next((key for key, module in MODULES_OF_DISTRIBUTIONS.items() if module == name), None)
        assert (wanted or name.replace("_", "-")) in known
