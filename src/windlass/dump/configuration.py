"""Loads the configuration that a command decides with: from a file, as published by the scheduler, or the defaults.

Called by `cli.config_option` for `--config`. `scheduler.configuration_publisher` writes what `published_configurations`
reads: a ConfigMap in the namespace of the scheduler's Lease. The Lease has the hash of the configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.dump.files import SourceObject, parse_documents, raw_objects, read_objects
from windlass.model.codec import decode_object
from windlass.model.configuration import (
    KueueConfiguration,
    SchedulerConfiguration,
    Settings,
    ignored_fields,
    kueue_settings,
    scheduler_settings,
)
from windlass.model.configuration_document import settings_hash
from windlass.model.errors import InputError

CONFIG_MAP_SUFFIX = "-configuration"
"""The name of the ConfigMap is the Lease's with this suffix."""
CONFIG_MAP_KEY = "config.yaml"
PUBLISHED_LABEL = "windlass.dev/published"
"""On the ConfigMap: `configuration`."""
HASH_ANNOTATION = "windlass.dev/configuration-hash"
"""On the Lease."""
Tree = Mapping[str, Any]


class UsedConfiguration(msgspec.Struct, frozen=True):
    """The configuration that the engine used for an answer, as reports show it."""

    source: str = "default"
    """`default`, `file` (`--config`), or `published` (by the scheduler, in the cluster or the dump)."""
    hash: str = ""
    """Equal for equal settings; as in the annotation `windlass.dev/configuration-hash` of the scheduler's Lease."""
    origin: str = ""
    """The file, or the ConfigMap as `namespace/name`."""
    notes: tuple[str, ...] = ()
    """Remarks for the user, such as that the scheduler has another configuration by now."""

    @property
    def document(self) -> dict[str, Any]:
        """For JSON output."""
        return {"source": self.source, "hash": self.hash, "origin": self.origin, "notes": list(self.notes)}

    @property
    def lines(self) -> list[str]:
        """For people: where it comes from, unless it is the defaults, and the notes."""
        how = "as published in ConfigMap" if self.source == "published" else "of"
        title = [] if self.source == "default" else [f"configuration {how} {self.origin} (hash {self.hash})"]
        return [*title, *self.notes]


class Configuration(msgspec.Struct, frozen=True):
    """Settings, and where they come from."""

    settings: Settings = Settings()
    source: str = "default"
    origin: str = ""
    notes: tuple[str, ...] = ()

    @property
    def used(self) -> UsedConfiguration:
        return UsedConfiguration(self.source, settings_hash(self.settings), self.origin, self.notes)


def load_configuration_file(path: Path) -> Configuration:
    """The one configuration in the file, ours or Kueue's."""
    found: list[Configuration] = []
    for source in read_objects(path):
        settings = _settings_of(source.value)
        if settings is None:
            wrong = InputError(
                f"a {source.kind} is not a configuration",
                remedy="use a SchedulerConfiguration (windlass.dev/v1) or Kueue's Configuration",
            )
            raise source.locate_error(wrong)
        found.append(Configuration(settings, "file", str(path), _ignored(source)))
    if len(found) != 1:
        raise InputError(f"holds {len(found)} configurations", file=str(path), remedy="give one")
    return found[0]


def published_configurations(objects: Iterable[Tree]) -> list[Configuration]:
    """The published configurations, by ConfigMap. One that can't be read becomes the defaults with a note, so that no
    command fails for it."""
    maps: list[Tree] = []
    hashes: dict[str, str] = {}
    for tree in objects:
        metadata = tree.get("metadata") or {}
        if tree.get("kind") == "ConfigMap" and (metadata.get("labels") or {}).get(PUBLISHED_LABEL):
            maps.append(tree)
        if tree.get("kind") == "Lease" and (metadata.get("annotations") or {}).get(HASH_ANNOTATION):
            hashes[f"{_key(tree)}{CONFIG_MAP_SUFFIX}"] = metadata["annotations"][HASH_ANNOTATION]
    found = [_published(tree, hashes.get(_key(tree), "")) for tree in maps]
    return sorted(found, key=lambda configuration: configuration.origin)


def choose_configuration(published: Sequence[Configuration], names: Collection[str]) -> Configuration:
    """The configuration of the scheduler that most pods name (`names` has one entry per pod), or the only one."""
    if not published:
        return Configuration()
    counts = [sum(name in configuration.settings.scheduler_names for name in names) for configuration in published]
    best = published[counts.index(max(counts))]
    if len(published) == 1 and (max(counts) or not names):
        return best
    if len(published) == 1:
        named = ", ".join(sorted(set(names)))
        note = f"the configuration in ConfigMap {best.origin} is of another scheduler than these pods name ({named}); "
        note += "choose another with --config"
        return msgspec.structs.replace(best, notes=(*best.notes, note))
    listed = ", ".join(configuration.origin for configuration in published)
    note = f"{len(published)} schedulers publish a configuration ({listed}); --config chooses another"
    if not max(counts):
        note = f"{len(published)} schedulers publish a configuration ({listed}), none of them for these pods"
        return Configuration(notes=(f"{note}: the defaults are used (give --config)",))
    return msgspec.structs.replace(best, notes=(*best.notes, note))


def _published(tree: Tree, promised: str) -> Configuration:
    """`promised` is the hash on the scheduler's Lease; empty where there is none."""
    origin = _key(tree)
    try:
        settings = _read(
            str((tree.get("data") or {}).get(CONFIG_MAP_KEY, "")),
            f"ConfigMap {origin}: data.{CONFIG_MAP_KEY}",
        )
    except InputError as error:
        return Configuration(notes=(f"warning: the published configuration is not used: {error}",), origin=origin)
    found = Configuration(settings, "published", origin)
    if promised and promised != found.used.hash:
        note = (
            f"warning: ConfigMap {origin} (hash {found.used.hash}) is not what the scheduler decides with: "
            f"its Lease says hash {promised} (wait for the scheduler to publish it, or give --config)"
        )
        return msgspec.structs.replace(found, notes=(note,))
    return found


def _read(text: str, place: str) -> Settings:
    objects = [tree for document in parse_documents(text, place) for _, tree in raw_objects(document, place)]
    if len(objects) != 1:
        raise InputError(f"holds {len(objects)} configurations", file=place)
    settings = _settings_of(decode_object(objects[0], place))
    if settings is None:
        raise InputError(f"a {objects[0].get('kind')} is not a configuration", file=place)
    return settings


def _settings_of(obj: object) -> Settings | None:
    match obj:
        case SchedulerConfiguration():
            return scheduler_settings(obj)
        case KueueConfiguration():
            return kueue_settings(obj)
    return None


def _ignored(source: SourceObject) -> tuple[str, ...]:
    if not isinstance(source.value, KueueConfiguration) or not isinstance(source.raw, dict):
        return ()
    ignored = ignored_fields(source.raw)
    return (f"ignored fields of Kueue's configuration: {', '.join(ignored)}",) if ignored else ()


def _key(tree: Tree) -> str:
    metadata = tree.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
