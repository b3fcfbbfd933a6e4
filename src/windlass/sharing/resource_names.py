"""Names for kinds of devices: the `resources` section of the device plugin's config.

Read from decoded YAML by `plugin_config`, used by `advertised_resources` and the labels. An entry gives devices whose
model (or MIG profile) matches a pattern another resource name. NVIDIA's plugin checks the section and then ignores it
with a warning; here `honor_renames` enables it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.sharing.inventory import Gpu, MigInstance
from windlass.sharing.sharing_config import parse_resource_name, require_mapping

_SECTIONS = ("gpus", "mig")
_FIELDS = ("pattern", "name")


class NamePattern(msgspec.Struct, frozen=True):
    """One entry: devices like this are called that."""

    pattern: str
    """A star stands for anything; everything else for itself, from beginning to end."""
    name: str

    def matches(self, text: str) -> bool:
        return re.fullmatch(".*".join(map(re.escape, self.pattern.split("*"))), text) is not None


class ResourceNames(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[NamePattern, ...] = ()
    mig: tuple[NamePattern, ...] = ()

    def name_for(self, gpu: Gpu, instance: MigInstance | None, usual: str) -> str:
        """The first name whose pattern matches the model, or the profile of an instance; `usual` where none does."""
        kinds, text = (self.gpus, gpu.name) if instance is None else (self.mig, instance.profile)
        return next((kind.name for kind in kinds if kind.matches(text)), usual)


def read_names(raw: Any, path: str = "resources") -> ResourceNames:
    """An `InputError` with the field's path for an entry that lacks something."""
    if raw is None:
        return ResourceNames()
    section = require_mapping(raw, path, _SECTIONS)
    found = {name: _kinds(section.get(name), f"{path}.{name}") for name in _SECTIONS}
    return ResourceNames(**found)


def _kinds(raw: Any, path: str) -> tuple[NamePattern, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise InputError("must be a list", path=path, remedy="begin each entry with a dash")
    return tuple(_kind(item, f"{path}[{at}]") for at, item in enumerate(raw))


def _kind(raw: Any, path: str) -> NamePattern:
    entry = require_mapping(raw, path, _FIELDS)
    pattern = entry.get("pattern")
    if not isinstance(pattern, str) or not pattern:
        raise InputError("is required", path=f"{path}.pattern", remedy='write a model or profile, "*" for every one')
    return NamePattern(pattern, parse_resource_name(entry.get("name"), f"{path}.name"))
