"""Rules about configuration files of the device plugin and of mig-parted, on their own or in a ConfigMap.

They are parsed by the node agent's own readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from windlass.diagnose.check.manifest import Manifest
from windlass.diagnose.check.rule import ERROR, WARNING, CheckContext, RuleFinding, rule
from windlass.diagnose.unstructured import nested_map
from windlass.model.errors import InputError
from windlass.sharing.mig_config import read_mig_configs
from windlass.sharing.plugin_config import resolve_config


def _configs(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """(path, parsed content) of everything in the manifest that looks like such a configuration."""
    if not manifest.kind and manifest.data:
        yield "", manifest.data
    if manifest.kind != "ConfigMap":
        return
    for key, text in nested_map(manifest.data, "data").items():
        if isinstance(text, str) and ("sharing:" in text or "mig-configs:" in text or "migStrategy" in text):
            try:
                yield f"data.{key}", yaml.load(text, Loader=yaml.CSafeLoader)
            except yaml.YAMLError as error:
                yield f"data.{key}", InputError(f"is not valid YAML: {error}")


def _is_plugin_config(config: object) -> bool:
    return isinstance(config, dict) and bool({"flags", "sharing", "resources", "imex"} & set(config))


@rule("plugin-config", ERROR, "A device plugin configuration is valid and takes effect")
def plugin_config(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for path, config in _configs(manifest):
        if isinstance(config, InputError):
            yield RuleFinding(config.message, path)
            continue
        if not _is_plugin_config(config):
            continue
        try:
            resolved = resolve_config(config)
        except InputError as error:
            yield RuleFinding(error.message, f"{path}.{error.path}".strip("."), error.remedy)
            continue
        for warning in resolved.warnings:
            yield RuleFinding(warning, path, level=WARNING)


@rule("mig-config", ERROR, "A mig-parted configuration is valid")
def mig_config(manifest: Manifest, context: CheckContext) -> Iterator[RuleFinding]:
    for path, config in _configs(manifest):
        if not isinstance(config, dict) or "mig-configs" not in config:
            continue
        try:
            read_mig_configs(config)
        except InputError as error:
            yield RuleFinding(error.message, f"{path}.{error.path}".strip("."), error.remedy)
