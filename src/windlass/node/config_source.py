"""The device plugin's configuration as the agent follows it: read at the start, read again when the file changes.

At the first start a wrong configuration is an error; later the last good one stays in force and the mistake is told
once. The file is YAML or JSON and is found by `--config-file` or `CONFIG_FILE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from windlass.model.errors import InputError
from windlass.sharing.plugin_config import PluginConfig, resolve_config


def read_yaml(path: Path) -> Any:
    """The one document of a file; None for an empty one."""
    from windlass.dump.yamltext import read_documents  # only where there is a file to read

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
        path: Path | None,
        environment: Mapping[str, str],
        flags: Mapping[str, Any],
        *,
        honor_renames: bool = False,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._path = path
        self._environment = environment
        self._flags = flags
        self._honor_renames = honor_renames
        self._log = log
        self._seen: tuple[int, int, int] | None = self._stamp()
        self.config = self._read()
        self._warn()

    def follow(self) -> PluginConfig:
        """The configuration that is in force now."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self.config = self._read()
            except InputError as error:
                self._log(f"the last good configuration stays in force: {error}")
            else:
                self._log("the configuration has changed")
                self._warn()
        return self.config

    def _read(self) -> PluginConfig:
        raw = read_yaml(self._path) if self._path is not None else None
        try:
            return resolve_config(raw, self._environment, self._flags, honor_renames=self._honor_renames)
        except InputError as error:
            raise error.with_context(file=str(self._path or "")) from None

    def _warn(self) -> None:
        for warning in self.config.warnings:
            self._log(f"warning: {warning}")

    def _stamp(self) -> tuple[int, int, int] | None:
        """A ConfigMap's file is a link that is turned to another: the target counts."""
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
