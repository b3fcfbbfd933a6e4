"""The label set of GPU Feature Discovery for one node, from the inventory and the plugin's configuration.

A pure function, called by the sidecar; `sinks` writes the result. On a node with several GPU models the labels
describe the most frequent one, then the one with more memory, then the first, so that they don't change from run to
run as GFD's do. The annotations (`device_annotations`) describe every device; the scheduler reads those.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from windlass.model.device import DeviceGroup, encode_layout
from windlass.model.gpu_models import product_label
from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.node.labels.vgpu import VirtualGpus
from windlass.sharing.advertised_resources import single_strategy_error, unshared_resource_name
from windlass.sharing.inventory import Gpu, Inventory, MigInstance
from windlass.sharing.plugin_config import PluginConfig

_FAMILIES = ((1, "tesla"), (2, "fermi"), (3, "kepler"), (5, "maxwell"), (6, "pascal"), (9, "hopper"))
_LATER_FAMILIES = ((10, "blackwell"), (12, "blackwell"), (13, "rubin"))
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
MAX_VALUE_LENGTH = 63


def node_labels(
    inventory: Inventory,
    config: PluginConfig,
    *,
    machine: str = "",
    timestamp: int | None = None,
    virtual: VirtualGpus | None = None,
) -> dict[str, str]:
    """Every label; empty for a node without GPUs. No timestamp if the configuration says so."""
    if not inventory.gpus:
        return {}
    labels = {**_versions(inventory), **_gpu_labels(inventory, config)}
    labels["gpu.machine"] = _value(machine) or "unknown"
    labels |= {name: _value(value) for name, value in (virtual or VirtualGpus(True)).labels().items()}
    if timestamp is not None and not config.no_timestamp:
        labels["gfd.timestamp"] = str(timestamp)
    return {NVIDIA_PREFIX + name: value for name, value in labels.items()}


def family_of(compute: tuple[int, int]) -> str:
    major, minor = compute
    if major == 7:
        return "turing" if minor >= 5 else "volta"
    if major == 8:
        return "ada-lovelace" if minor >= 9 else "ampere"
    return dict((*_FAMILIES, *_LATER_FAMILIES)).get(major, "undefined")


def device_annotations(inventory: Inventory, unhealthy: frozenset[str] = frozenset()) -> tuple[str, str]:
    """The values of our two annotations: every device with island and NUMA node, and the unhealthy indices."""
    islands = inventory.islands()
    numbers = {island: number for number, island in enumerate(dict.fromkeys(islands))}
    groups = [
        DeviceGroup(
            model=product_label(gpu.name),
            count=1,
            memory=gpu.memory_mib,
            island=numbers[islands[at]],
            numa=max(0, gpu.numa),
            mig="static" if gpu.mig_enabled else "",
        )
        for at, gpu in enumerate(inventory.gpus)
    ]
    bad = [str(at) for at, gpu in enumerate(inventory.gpus) if gpu.uuid in unhealthy or gpu.is_lost]
    return encode_layout(tuple(groups)), ",".join(bad)


def _versions(inventory: Inventory) -> dict[str, str]:
    labels: dict[str, str] = {}
    driver = inventory.driver
    match = _VERSION.fullmatch(driver.version)
    if match:
        major, minor, revision = match[1], match[2], match[3] or ""
        labels |= _version_labels("cuda.driver", major, minor, driver.version)
        labels |= {"cuda.driver.rev": revision, "cuda.driver-version.revision": revision}
    major, minor = map(str, driver.cuda)
    return labels | _version_labels("cuda.runtime", major, minor, f"{major}.{minor}")


def _version_labels(name: str, major: str, minor: str, full: str) -> dict[str, str]:
    """GFD's older names and the ones that replace them."""
    parts = {"major": major, "minor": minor}
    labels = {f"{prefix}.{part}": text for prefix in (name, f"{name}-version") for part, text in parts.items()}
    return labels | {f"{name}-version.full": full}


def _gpu_labels(inventory: Inventory, config: PluginConfig) -> dict[str, str]:
    gpus = inventory.gpus
    chosen = labelled_gpus(gpus)
    # Prefer a GPU without MIG: only such a GPU can be shared as a whole.
    first = min(chosen, key=lambda gpu: gpu.mig_enabled)
    can_mps = config.sharing_strategy == "mps" and not any(gpu.mig_enabled for gpu in gpus)
    labels = {
        "mig.capable": _bool(any(gpu.mig_capable for gpu in gpus)),
        "mps.capable": _bool(can_mps),
        "gpu.compute.major": str(first.compute[0]),
        "gpu.compute.minor": str(first.compute[1]),
        "gpu.family": family_of(first.compute),
        "gpu.mode": _mode(gpus),
        **_resource_labels("gpu", product_label(first.name), len(chosen), first, None, config),
    }
    if first.memory_mib:  # 0 for a GPU that uses the machine's memory
        labels["gpu.memory"] = str(first.memory_mib)
    cliques = {gpu.clique for gpu in gpus if gpu.clique}
    if len(cliques) == 1:
        labels["gpu.clique"] = cliques.pop()
    if config.mig_strategy != "none":
        labels["mig.strategy"] = config.mig_strategy
    if config.mig_strategy == "single":
        labels |= _single_labels(inventory, config)
    if config.mig_strategy == "mixed":
        labels |= _mixed_labels(inventory, config)
    return labels


def labelled_gpus(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs of the model that the labels describe."""
    counts = Counter(gpu.name for gpu in gpus)
    name = max(gpus, key=lambda gpu: (counts[gpu.name], gpu.memory_mib, -gpu.index)).name
    return [gpu for gpu in gpus if gpu.name == name]


def _single_labels(inventory: Inventory, config: PluginConfig) -> dict[str, str]:
    mig_gpus = [gpu for gpu in inventory.gpus if gpu.mig_enabled]
    if not mig_gpus:
        return {}
    if single_strategy_error(inventory):
        return {
            "gpu.product": f"{product_label(mig_gpus[0].name)}-MIG-INVALID",
            "gpu.count": "0",
            "gpu.replicas": "0",
            "gpu.memory": "0",
            "gpu.sharing-strategy": "",
        }
    pairs = [(gpu, instance) for gpu in mig_gpus for instance in gpu.instances]
    return _instance_labels("gpu", pairs, config)


def _mixed_labels(inventory: Inventory, config: PluginConfig) -> dict[str, str]:
    by_profile: dict[str, list[tuple[Gpu, MigInstance]]] = {}
    for gpu in inventory.gpus:
        for instance in gpu.instances if gpu.mig_enabled else ():
            if instance.has_all_compute_slices:
                by_profile.setdefault(instance.profile, []).append((gpu, instance))
    labels: dict[str, str] = {}
    for profile, pairs in sorted(by_profile.items()):
        name = f"mig-{profile.replace('+', '.')}"
        labels |= _instance_labels(name, pairs, config)
    return labels


def _instance_labels(name: str, pairs: Sequence[tuple[Gpu, MigInstance]], config: PluginConfig) -> dict[str, str]:
    gpu, instance = pairs[0]
    engines = ("copy", "decoder", "encoder", "jpeg", "ofa")
    product = f"{product_label(gpu.name)}-MIG-{_value(instance.profile.replace('+', '.'))}"
    return {
        **_resource_labels(name, product, len(pairs), gpu, instance, config),
        f"{name}.memory": str(instance.memory_mib),
        f"{name}.multiprocessors": str(instance.multiprocessors),
        f"{name}.slices.gi": str(instance.instance_slices),
        f"{name}.slices.ci": str(instance.compute_slices),
        **{f"{name}.engines.{engine}": str(getattr(instance.engines, engine)) for engine in engines},
    }


def _resource_labels(
    name: str, product: str, count: int, gpu: Gpu, instance: MigInstance | None, config: PluginConfig
) -> dict[str, str]:
    resource = unshared_resource_name(gpu, instance, config)
    entry = config.sharing.entry_for(resource, gpu, instance, 0) if config.sharing else None
    # Sharing of whole GPUs does not apply to a GPU in MIG mode; GFD writes 0 replicas then.
    disabled = instance is None and gpu.mig_enabled
    replicas = 0 if disabled else entry.replicas if entry else 1
    renamed = entry is not None and entry.shared_name != resource
    return {
        f"{name}.product": f"{product}-SHARED" if entry and not renamed and not disabled else product,
        f"{name}.count": str(count),
        f"{name}.replicas": str(replicas),
        f"{name}.sharing-strategy": config.sharing_strategy if entry and not disabled else "none",
    }


def _mode(gpus: Sequence[Gpu]) -> str:
    modes = {gpu.pci_class[:6] for gpu in gpus}
    if modes == {"0x0302"}:
        return "compute"
    return "graphics" if modes == {"0x0300"} else "unknown"


def _value(text: str) -> str:
    return product_label(text)[:MAX_VALUE_LENGTH].strip("-_.")


def _bool(value: bool) -> str:
    return "true" if value else "false"
