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
from windlass.node.cdi_hooks import HookProgram, find_hook_program
from windlass.node.driver_files import DriverFiles, find_driver, folder_times
from windlass.node.host_root import HostRoot
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig

CDI_VENDOR = "k8s.device-plugin.nvidia.com"


class CdiWriter:
    def __init__(
        self,
        folder: Path,
        root: HostRoot,
        log: Callable[[str], None],
        *,
        hook_folder: Path | None = None,
        without_hooks: Sequence[str] = (),
    ) -> None:
        """`hook_folder` is where our own hook goes, a folder that has the same path on the host."""
        self._folder = folder
        self._hook_folder = hook_folder or folder
        self._root = root
        self._log = log
        self._without_hooks = frozenset(without_hooks)
        self._written: dict[str, CdiSpec] = {}
        self._logged: set[str] = set()
        self._driver: DriverFiles | None = None
        self._hook: HookProgram | None = None
        self._found_for: object = None

    def sync(self, inventory: Inventory, config: PluginConfig) -> None:
        if not any(strategy.startswith("cdi-") for strategy in config.device_list_strategy):
            return
        errors: set[str] = set()
        for specs in (self._gpu_spec, self._extra_specs):
            try:
                for spec in specs(inventory, config):
                    errors |= self._write_if_changed(spec)
            except InputError as error:
                errors.add(str(error))
        for line in sorted(errors - self._logged):
            self._log(f"the last good CDI spec stays in force: {line}")
        self._logged = errors

    @property
    def described(self) -> str:
        """The driver that the specs name, in words; empty without one."""
        if self._driver is None:
            return ""
        driver, program = self._driver, self._hook.path if self._hook is not None else "nothing"
        counts = f"{len(driver.libraries)} libraries, {len(driver.links)} links"
        return f"{counts} of the driver in {driver.root}, hooks by {program}"

    def _extra_specs(self, inventory: Inventory, config: PluginConfig) -> Iterator[CdiSpec]:
        yield from extra_specs(config, self._root, CDI_VENDOR)

    def _gpu_spec(self, inventory: Inventory, config: PluginConfig) -> Iterator[CdiSpec]:
        driver = self._find_driver(inventory.driver.version, config)
        kind, without = f"{CDI_VENDOR}/gpu", self._without_hooks
        yield make_spec(inventory, self._root, kind, driver, hook=self._hook, without_hooks=without)

    def _find_driver(self, version: str, config: PluginConfig) -> DriverFiles:
        """Searched again if the driver, the configuration or one of the folders has changed."""
        roots = {"driver_root": config.nvidia_driver_root, "container_driver_root": config.container_driver_root}
        key = (version, *roots.values(), config.nvidia_ctk_path, folder_times(self._root, **roots))
        if self._driver is None or key != self._found_for:
            self._driver = None
            self._driver = find_driver(self._root, version, **roots)
            self._hook = find_hook_program(self._root, config.nvidia_ctk_path, self._hook_folder)
            self._found_for = key
        return self._driver

    def _write_if_changed(self, spec: CdiSpec) -> set[str]:
        """Writes a new or changed spec; returns its errors."""
        if spec == self._written.get(spec.kind):
            return set()
        try:
            check_spec(spec, self._root, self._driver)
        except InputError as error:
            return {f"{spec.kind}: {error}"}
        self._log(f"wrote {write_spec(spec, self._folder)}{self._summary(spec)}")
        self._written[spec.kind] = spec
        return set()

    def _summary(self, spec: CdiSpec) -> str:
        return f": {self.described}" if self._driver is not None and spec.container_edits.mounts else ""
