"""Keeps the CDI specs in force in step with the hardware: made anew, checked, and written only if they are right.

Called by the plugin process once per round, before devices are advertised under CDI names. A spec that doesn't hold
leaves the last good one where it is, and is told once.
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
        self._told: set[str] = set()

    def sync(self, inventory: Inventory, config: PluginConfig) -> None:
        if not any(strategy.startswith("cdi-") for strategy in config.device_list_strategy):
            return
        wrong: set[str] = set()
        try:
            for spec in self._specs(inventory, config):
                wrong |= self._put(spec)
        except InputError as error:
            wrong.add(str(error))
        for line in sorted(wrong - self._told):
            self._log(f"the last good CDI spec stays in force: {line}")
        self._told = wrong

    def _specs(self, inventory: Inventory, config: PluginConfig) -> Iterator[CdiSpec]:
        hook = config.nvidia_ctk_path if self._root.exists(config.nvidia_ctk_path) else ""
        yield make_spec(
            inventory, self._root, f"{CDI_VENDOR}/gpu", hook=hook, without_hooks=self._without_hooks
        )
        yield from extra_specs(config, self._root, CDI_VENDOR)

    def _put(self, spec: CdiSpec) -> set[str]:
        """Writes what is new; what is wrong with it, if anything."""
        if spec == self._written.get(spec.kind):
            return set()
        try:
            check_spec(spec, self._root)
        except InputError as error:
            return {f"{spec.kind}: {error}"}
        self._log(f"wrote {write_spec(spec, self._folder)}")
        self._written[spec.kind] = spec
        return set()
