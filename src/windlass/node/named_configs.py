"""Which of several named device plugin configs is in force on this node: NVIDIA's config-manager, built in.

The names are the files of a folder, such as a mounted ConfigMap. The node's label selects one; without a label the
default counts, then the fallback strategies. The sidecar reads the label and writes its value to a file;
`config_source` calls `choose` in both processes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from windlass.model.errors import InputError
from windlass.model.names.nvidia import DEVICE_PLUGIN_CONFIG_LABEL
from windlass.node.atomic_file import write_atomically

NAMED, SINGLE, EMPTY = "named", "single", "empty"
FALLBACKS = (NAMED, SINGLE, EMPTY)
NAMED_FALLBACK = "default"
CONFIG_LABEL_FILE = "device-plugin.config"
"""File in the state folder with the label's value; empty if the node has no such label."""
LAST_GOOD_FILE = "device-plugin.config.good"
"""File in the state folder with the name of the config that was last in force."""


def choose_config_name(label: str, names: Collection[str], default: str, fallbacks: Sequence[str]) -> str:
    """The name in force; empty for no config. Raises an `InputError` if no rule selects one."""
    if not names:
        raise InputError("no configuration files available", remedy="give the ConfigMap at least one key")
    if label or default:
        wanted = label or default
        if wanted not in names:
            remedy = f"there are {', '.join(sorted(names))}"
            raise InputError(f"specified config {wanted} does not exist", remedy=remedy)
        return wanted
    for fallback in fallbacks:
        if fallback == NAMED and NAMED_FALLBACK in names:
            return NAMED_FALLBACK
        if fallback == SINGLE and len(names) == 1:
            return next(iter(names))
        if fallback == EMPTY:
            return ""
    raise InputError(
        "no config was set, no default was provided, and all fallbacks failed",
        remedy=f"name the default with --default-config, or call one of {', '.join(sorted(names))} '{NAMED_FALLBACK}'",
    )


class NamedConfigs:
    def __init__(
        self,
        folder: Path,
        state: Path,
        *,
        label: str = DEVICE_PLUGIN_CONFIG_LABEL,
        default: str = "",
        fallbacks: Sequence[str] = (NAMED, SINGLE),
    ) -> None:
        for strategy in fallbacks:
            if strategy not in FALLBACKS:
                message, remedy = f"unknown fallback strategy: {strategy}", f"use {', '.join(FALLBACKS)}"
                raise InputError(message, path="--fallback-strategies", remedy=remedy)
        self.folder, self.label = folder, label
        self._state, self._default, self._fallbacks = state, default, tuple(fallbacks)

    def names(self) -> frozenset[str]:
        """The files. Names with two dots belong to the ConfigMap volume itself."""
        try:
            found = [path for path in self.folder.iterdir() if not path.name.startswith("..")]
        except OSError as error:
            raise InputError(error.strerror or str(error), file=str(self.folder)) from None
        return frozenset(path.name for path in found if not path.is_dir())

    def choose(self) -> Path | None:
        """The file in force; None for no file. Raises an `InputError` if the label, default or fallback is wrong."""
        label = read_state_file(self._state / CONFIG_LABEL_FILE)
        try:
            name = choose_config_name(label, self.names(), self._default, self._fallbacks)
        except InputError as error:
            source = f"{self.label}={label}" if label else f"without {self.label}"
            raise error.with_context(file=str(self.folder), path=source) from None
        return self.folder / name if name else None

    def last_good(self) -> Path | None:
        """The file of the config that was last in force, also under an earlier agent; None if there is none."""
        name = read_state_file(self._state / LAST_GOOD_FILE)
        return self.folder / name if name and name in self.names() else None

    def record_last_good(self, path: Path | None) -> None:
        """Remembers the config that could be loaded."""
        name = path.name if path is not None else ""
        if name != read_state_file(self._state / LAST_GOOD_FILE):
            write_state_file(self._state / LAST_GOOD_FILE, name)


def read_state_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def write_state_file(path: Path, text: str) -> None:
    write_atomically(path, text.encode())
