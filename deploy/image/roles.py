"""What each image is for, and which libraries that takes: the roles that `__main__` offers and `layers` installs.

Names come from pyproject.toml (the base and the role's extra), versions and hashes later from the lock file.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Role:
    name: str
    """Also the extra of the distribution."""
    image: str
    """The repository's default name, as `windlass install` prints it."""
    decides: bool
    """Whether it needs the compiled kernels that come with the wheel."""
    without: frozenset[str] = frozenset()
    """Libraries of the base that no command of this role imports; tests hold it."""


ROLES = {
    role.name: role
    for role in (
        Role("scheduler", "windlass", decides=True),
        Role(
            "node",
            "windlass-node",
            decides=False,
            without=frozenset({"aiohttp", "multidict", "numpy", "yarl"}),
        ),
    )
}


def distributions_of(role: Role, sources: Path) -> set[str]:
    """Everything that the role needs at run time, Windlass itself not counted."""
    project = tomllib.loads((sources / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    waiting = sorted(_declared(project, role.name) - role.without)
    while waiting:
        name = waiting.pop()
        if name in found or not _is_installed(name):  # not installed: for another platform or Python
            continue
        found.add(name)
        required = (line for line in importlib.metadata.requires(name) or () if "extra ==" not in line)
        waiting += names_of(required)
    return found


def names_of(requirements: Iterable[str]) -> set[str]:
    """The plain names of what is required."""
    return {plain(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0]) for line in requirements}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _declared(project: dict[str, Any], extra: str) -> set[str]:
    extras = project["optional-dependencies"]
    lines = list(project["dependencies"])
    waiting = [extra]
    while waiting:
        for line in extras[waiting.pop()]:
            own = re.fullmatch(rf"{project['name']}\[([a-z,]+)\]", line)
            if own is None:
                lines.append(line)
            else:
                waiting += own[1].split(",")
    return names_of(lines)


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
