"""Keeps the CDI spec files in step with the hardware: built again, checked, and written only if correct.

The plugin process calls `sync` once per round, before devices are advertised under CDI names. If a spec fails the
check, the last good file stays and the error is logged once. Without a good one `problem` says why: a runtime refuses
every container with a name that no spec has, so nobody is to get the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from windlass.model.errors import InputError
from windlass.node.cdi import CdiSpec, check_spec, make_spec, write_spec
from windlass.node.cdi_extras import extra_specs
from windlass.node.cdi_hooks import HookProgram, find_hook_program
from windlass.node.container_runtime import NOTHING_CARRIES_OUT
from windlass.node.driver_files import DriverFiles, find_driver, folder_times
from windlass.node.host_root import HostRoot
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig

CDI_VENDOR = "k8s.device-plugin.nvidia.com"
GPU_KIND = f"{CDI_VENDOR}/gpu"


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
        self.problem = ""
        """Why the GPUs have no spec, so that no container could start; empty if they have one or need none."""
        self._driver: DriverFiles | None = None
        self._hook: HookProgram | None = None
        self._found_for: object = None

    def sync(self, inventory: Inventory, config: PluginConfig) -> None:
        self.problem = ""
        if not any(strategy.startswith("cdi-") for strategy in config.device_list_strategy):
            return
        errors: dict[str, str] = {}
        for kind, specs in ((GPU_KIND, self._gpu_spec), (f"{CDI_VENDOR}/imex-channel", self._extra_specs)):
            try:
                for spec in specs(inventory, config):
                    errors |= self._write_if_changed(spec)
            except InputError as error:
                errors[kind] = str(error)
        if GPU_KIND in errors and GPU_KIND not in self._written:
            strategy = ", ".join(config.device_list_strategy)
            self.problem = f"{NOTHING_CARRIES_OUT} deviceListStrategy {strategy}: {errors[GPU_KIND]}"
        lines = {self._line(kind, error) for kind, error in errors.items()}
        for line in sorted(lines - self._logged):
            self._log(line)
        self._logged = lines

    def _line(self, kind: str, error: str) -> str:
        begin = "the last good CDI spec stays in force" if kind in self._written else "no CDI spec is written"
        return f"{begin}: {kind}: {error}"

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
        yield make_spec(inventory, self._root, GPU_KIND, driver, hook=self._hook, without_hooks=self._without_hooks)

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

    def _write_if_changed(self, spec: CdiSpec) -> dict[str, str]:
        """Writes a new or changed spec; returns its error by kind, if there is one."""
        if spec == self._written.get(spec.kind):
            return {}
        try:
            check_spec(spec, self._root, self._driver)
        except InputError as error:
            return {spec.kind: str(error)}
        self._log(f"wrote {write_spec(spec, self._folder)}{self._summary(spec)}")
        self._written[spec.kind] = spec
        return {}

    def _summary(self, spec: CdiSpec) -> str:
        return f": {self.described}" if self._driver is not None and spec.container_edits.mounts else ""
