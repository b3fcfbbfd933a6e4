"""Keeps the CDI spec files in step with the hardware: built again, checked, and written only if correct.

The plugin process calls `sync` once per round, before devices are advertised under CDI names. If a spec fails the
check, the last good file stays and the error is logged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from windlass.model.errors import InputError
from windlass.node.cdi import CdiSpec, check_spec, make_spec, write_spec
from windlass.node.cdi_extras import extra_specs
from windlass.node.host_root import HostRoot
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig

CDI_VENDOR = "k8s.device-plugin.nvidia.com"


class CdiWriter:
    def __init__(
        self, folder: Path, root: HostRoot, log: Callable[[str], None], *, without_hooks: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self._root = root
        self._log = log
        self._without_hooks = frozenset(without_hooks)
        self._written: dict[str, CdiSpec] = {}
        self._logged: set[str] = set()

    def sync(self, inventory: Inventory, config: PluginConfig) -> None:
        if not any(strategy.startswith("cdi-") for strategy in config.device_list_strategy):
            return
        errors: set[str] = set()
        try:
            for spec in self._specs(inventory, config):
                errors |= self._write_if_changed(spec)
        except InputError as error:
            errors.add(str(error))
        for line in sorted(errors - self._logged):
            self._log(f"the last good CDI spec stays in force: {line}")
        self._logged = errors

    def _specs(self, inventory: Inventory, config: PluginConfig) -> Iterator[CdiSpec]:
        hook = config.nvidia_ctk_path if self._root.exists(config.nvidia_ctk_path) else ""
        yield make_spec(inventory, self._root, f"{CDI_VENDOR}/gpu", hook=hook, without_hooks=self._without_hooks)
        yield from extra_specs(config, self._root, CDI_VENDOR)

    def _write_if_changed(self, spec: CdiSpec) -> set[str]:
        """Writes a new or changed spec; returns its errors."""
        if spec == self._written.get(spec.kind):
            return set()
        try:
            check_spec(spec, self._root)
        except InputError as error:
            return {f"{spec.kind}: {error}"}
        self._log(f"wrote {write_spec(spec, self._folder)}")
        self._written[spec.kind] = spec
        return set()
