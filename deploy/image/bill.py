"""The bill of materials of an image, as CycloneDX 1.6: libraries with version, hashes and licence, Debian packages.

`__main__` writes it beside the image. Libraries, versions and hashes are those of the lock file, by which `layers`
installs them; licences are what the installed distributions say. Debian's packages are those that `apt-get` resolves
and verifies.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from layers import DebianPackage, pinned
from roles import Role, distributions_of, plain

UNKNOWN_LICENCE = "NOASSERTION"


class Library(NamedTuple):
    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of every file that the lock file allows."""
    licence: str


def libraries_of(role: Role, sources: Path) -> list[Library]:
    names = distributions_of(role, sources)
    lock = pinned((sources / "requirements.lock").read_text(), names)
    entries = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)
    return [_library(entry) for entry in entries if entry.strip()]


def _library(entry: str) -> Library:
    found = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", entry)
    assert found is not None, entry[:80]
    hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
    return Library(plain(found[1]), found[2], hashes, licence_of(found[1]))


def licence_of(distribution: str) -> str:
    """What its metadata says: the expression, else the classifiers, else the first line of the field."""
    metadata = importlib.metadata.metadata(distribution)
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or () if "License ::" in line]
    if classifiers:
        return " AND ".join(sorted(set(classifiers)))
    return str(metadata.get("License") or UNKNOWN_LICENCE).strip().splitlines()[0][:100]


def bill_of_materials(
    image: str, version: str, libraries: Iterable[Library], packages: Iterable[DebianPackage] = ()
) -> dict[str, Any]:
    """The same input gives the same bill: no time and no serial number."""
    components = [_python_component(library) for library in libraries]
    components += [_debian_component(package) for package in packages]
    subject = {"type": "container", "name": image, "version": version, "licenses": _licences("Apache-2.0")}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject},
        "components": sorted(components, key=lambda component: str(component["purl"])),
    }


def _python_component(library: Library) -> dict[str, Any]:
    return {
        "type": "library",
        "name": library.name,
        "version": library.version,
        "purl": f"pkg:pypi/{library.name}@{library.version}",
        "hashes": [{"alg": "SHA-256", "content": found} for found in library.hashes],
        "licenses": _licences(library.licence),
    }


def _debian_component(package: DebianPackage) -> dict[str, Any]:
    return {
        "type": "library",
        "name": package.name,
        "version": package.version,
        "purl": f"pkg:deb/debian/{package.name}@{package.version}?arch={package.architecture}",
        "hashes": [{"alg": package.algorithm, "content": package.hash}] if package.hash else [],
    }


def _licences(licence: str) -> list[dict[str, Any]]:
    is_expression = re.fullmatch(r"[A-Za-z0-9.+-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+-]+)*", licence) is not None
    return [{"expression": licence}] if is_expression else [{"license": {"name": licence}}]
