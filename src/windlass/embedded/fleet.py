"""Reads the Fleet that `windlass up` simulates: from a file, or the default fleet."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from windlass.dump.files import read_objects
from windlass.model.errors import InputError
from windlass.model.fleet_spec import Fleet, check_fleet

DEFAULT_FLEET_FILE = "fleet.yaml"


def default_fleet() -> Fleet:
    with resources.as_file(resources.files("windlass.embedded").joinpath(DEFAULT_FLEET_FILE)) as path:
        return read_fleet(path)


def read_fleet(path: Path) -> Fleet:
    """Raises an `InputError` with file, line and field if the file is not a valid Fleet."""
    found: list[Fleet] = []
    for source in read_objects(path):
        if not isinstance(source.value, Fleet):
            raise InputError(
                f"a {source.kind} is not a Fleet", file=str(path), remedy="write one Fleet and nothing else"
            )
        try:
            check_fleet(source.value)
        except InputError as error:
            raise source.locate_error(error) from None
        found.append(source.value)
    if len(found) != 1:
        remedy = "write one, with apiVersion: windlass.dev/v1, kind: Fleet"
        raise InputError(f"contains {len(found)} Fleets", file=str(path), remedy=remedy)
    return found[0]
