"""The device plugin's configuration as the agent follows it: read at the start, read again when the file changes.

At the first start a wrong configuration is an error; later the last good one stays in force and the mistake is told
once. The file is YAML or JSON and is found by `--config-file` or `CONFIG_FILE`, or is one of several by name
(`named_configs`).
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
    """The one document of a file; None for an empty one."""
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
        """`copy` is where the file in force is kept, for the next process of the same agent (`again`)."""
        self._place = location
        self._copy = last_good_copy
        self._again = is_restart
        self._environment = environment
        self._flags = flags
        self._honor_renames = honor_renames
        self._log = log
        self._seen = self._look()
        self.config = self._first()
        self._warn()

    def reload_if_changed(self) -> PluginConfig:
        """The configuration that is in force now."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self.config = self._read()
            except InputError as error:
                self._log(f"the last good configuration stays in force: {error}")
            else:
                self._log(f"the configuration has changed{self._in_words()}")
                self._warn()
        return self.config

    def _first(self) -> PluginConfig:
        """At the start. A process that died leaves its successor the configuration that it had, and an agent, by name,
        the one of those that were named."""
        try:
            return self._read()
        except InputError as error:
            good = self._place.last_good() if isinstance(self._place, NamedConfigs) else None
            if self._again and self._copy is not None and self._copy.exists():
                good = self._copy
            if good is None:
                raise
            config = self._resolve(good)
            self._log(f"the last good configuration ({good}) stays in force: {error}")
            return config

    def _read(self) -> PluginConfig:
        path = self._path()
        config = self._resolve(path)
        self._keep(path)
        return config

    def _keep(self, path: Path | None) -> None:
        """For later processes; without it they have only what the file says then."""
        try:
            if isinstance(self._place, NamedConfigs):
                self._place.record_last_good(path)
            if self._copy is not None:
                write_atomically(self._copy, path.read_bytes() if path is not None else b"")
        except OSError as error:
            self._log(f"the configuration can't be kept for the next start: {error}")

    def _resolve(self, path: Path | None) -> PluginConfig:
        raw = read_yaml(path) if path is not None else None
        try:
            return resolve_config(raw, self._environment, self._flags, honor_renames=self._honor_renames)
        except InputError as error:
            raise error.with_context(file=str(path or "")) from None

    def _path(self) -> Path | None:
        return self._place.choose() if isinstance(self._place, NamedConfigs) else self._place

    def _warn(self) -> None:
        for warning in self.config.warnings:
            self._log(f"warning: {warning}")

    def _in_words(self) -> str:
        if not isinstance(self._place, NamedConfigs):
            return ""
        path = self._path()
        return f": {path.name} is in force" if path is not None else ": none of the named ones is in force"

    def _look(self) -> object:
        """Tells one state of things from the next: which file, and what its content is known by.

        A ConfigMap's file is a link that is turned to another: the target counts.
        """
        try:
            path = self._path()
        except InputError as error:
            return str(error)
        if path is None:
            return None
        try:
            found = path.stat()
        except OSError:
            return str(path)
        return str(path), found.st_mtime_ns, found.st_ino, found.st_size
