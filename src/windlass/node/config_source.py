"""The device plugin's configuration: read at the start, and again when the file changes.

Both agent processes call `reload_if_changed` each round. A wrong configuration is an error at the first start;
later the last good one stays in force and the error is logged once. The file is YAML or JSON, given by
`--config-file` or `CONFIG_FILE`, or one of several by name (`named_configs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from windlass.model.errors import InputError
from windlass.node.atomic_file import write_atomically
from windlass.node.named_configs import NamedConfigs
from windlass.sharing.plugin_config import PluginConfig, resolve_config


def read_yaml(path: Path) -> Any:
    """The only document of a file; None for an empty file."""
    from windlass.dump.yaml_documents import read_documents  # only where there is a file to read

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(error.strerror or str(error), file=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=str(path)) from None
    documents = list(read_documents(text, str(path)))
    if len(documents) > 1:
        raise InputError("has several documents", file=str(path), remedy="keep one")
    return documents[0].value if documents else None


class ConfigSource:
    def __init__(
        self,
        location: Path | NamedConfigs | None,
        environment: Mapping[str, str],
        flags: Mapping[str, Any],
        *,
        honor_renames: bool = False,
        log: Callable[[str], None] = lambda line: None,
        last_good_copy: Path | None = None,
        is_restart: bool = False,
    ) -> None:
        """`last_good_copy`: where the file in force is kept for the agent's next process (`is_restart`)."""
        self._location = location
        self._last_good_copy = last_good_copy
        self._is_restart = is_restart
        self._environment = environment
        self._flags = flags
        self._honor_renames = honor_renames
        self._log = log
        self._version = self._current_version()
        self.config = self._read_at_start()
        self._warn()

    def reload_if_changed(self) -> PluginConfig:
        """The configuration in force now."""
        version = self._current_version()
        if version != self._version:
            self._version = version
            try:
                self.config = self._read()
            except InputError as error:
                self._log(f"the last good configuration stays in force: {error}")
            else:
                self._log(f"the configuration has changed{self._describe_choice()}")
                self._warn()
        return self.config

    def _read_at_start(self) -> PluginConfig:
        """Falls back to the predecessor's copy after a restart, or to the named config that was last in force."""
        try:
            return self._read()
        except InputError as error:
            last_good = self._location.last_good() if isinstance(self._location, NamedConfigs) else None
            if self._is_restart and self._last_good_copy is not None and self._last_good_copy.exists():
                last_good = self._last_good_copy
            if last_good is None:
                raise
            config = self._resolve(last_good)
            self._log(f"the last good configuration ({last_good}) stays in force: {error}")
            return config

    def _read(self) -> PluginConfig:
        path = self._path()
        config = self._resolve(path)
        self._record_last_good(path)
        return config

    def _record_last_good(self, path: Path | None) -> None:
        """For later processes; without it they can only read the file as it is then."""
        try:
            if isinstance(self._location, NamedConfigs):
                self._location.record_last_good(path)
            if self._last_good_copy is not None:
                write_atomically(self._last_good_copy, path.read_bytes() if path is not None else b"")
        except OSError as error:
            self._log(f"the configuration can't be saved for the next start: {error}")

    def _resolve(self, path: Path | None) -> PluginConfig:
        raw = read_yaml(path) if path is not None else None
        try:
            return resolve_config(raw, self._environment, self._flags, honor_renames=self._honor_renames)
        except InputError as error:
            raise error.with_context(file=str(path or "")) from None

    def _path(self) -> Path | None:
        return self._location.choose() if isinstance(self._location, NamedConfigs) else self._location

    def _warn(self) -> None:
        for warning in self.config.warnings:
            self._log(f"warning: {warning}")

    def _describe_choice(self) -> str:
        if not isinstance(self._location, NamedConfigs):
            return ""
        path = self._path()
        return f": {path.name} is in force" if path is not None else ": no named config is in force"

    def _current_version(self) -> object:
        """Identifies the file and its content. A ConfigMap's file is a symlink, so the target's stat counts."""
        try:
            path = self._path()
        except InputError as error:
            return str(error)
        if path is None:
            return None
        try:
            status = path.stat()
        except OSError:
            return str(path)
        return str(path), status.st_mtime_ns, status.st_ino, status.st_size
