"""Labels that dcgm-exporter adds to metrics on request: labels of the pod, and the job of an HPC scheduler.

`agent` makes it from dcgm-exporter's own variables, `exporter` asks it once per collection. Pod labels come from the
API server; jobs from a folder in which a scheduler's prolog writes a file per GPU, named by its index, or per MIG
instance, named `GPU.instance`, with one job a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from windlass.model.errors import InputError
from windlass.node.driver_root import seen_here
from windlass.node.host_root import HostRoot

POD_LABELS_VARIABLE = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"
ALLOWED_VARIABLE = "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"
HPC_VARIABLE = "DCGM_HPC_JOB_MAPPING_DIR"
HPC_JOB = "hpc_job"
_RESERVED = frozenset(
    ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "hostname", "GPU_I_PROFILE", "GPU_I_ID")
) | {
    *("pod", "namespace", "container", HPC_JOB),
    *("dra_claim_name", "dra_claim_namespace", "dra_driver_name", "dra_pool_name", "dra_device_name"),
}
_DEVICE = re.compile(r"[0-9]+(\.[0-9]+)?")
_INVALID = re.compile(r"[^a-zA-Z0-9_]")


class ExtraLabels(msgspec.Struct, frozen=True, kw_only=True):
    with_pod_labels: bool = False
    allowed: tuple[str, ...] = ()
    """Patterns of which a pod label has to match one; empty for all."""
    hpc_folder: Path | None = None

    def of_pod(self, labels: Mapping[str, str]) -> dict[str, str]:
        """A pod's labels under names that Prometheus takes; a metric's own labels are never replaced."""
        if not self.with_pod_labels:
            return {}
        wanted = {name: value for name, value in labels.items() if self._is_allowed(name)}
        found = {_INVALID.sub("_", name): value for name, value in wanted.items()}
        return {name: value for name, value in sorted(found.items()) if name not in _RESERVED and not name[0].isdigit()}

    def hpc_jobs(self) -> dict[str, tuple[str, ...]]:
        """The jobs of each GPU, by index, and of each MIG instance (`0.3`); empty without a folder."""
        found: dict[str, tuple[str, ...]] = {}
        for file in sorted(self.hpc_folder.glob("[0-9]*")) if self.hpc_folder is not None else ():
            if not _DEVICE.fullmatch(file.name):
                continue
            try:
                found[file.name] = tuple(file.read_text().split())
            except (OSError, UnicodeDecodeError):
                continue
        return found

    def _is_allowed(self, name: str) -> bool:
        return not self.allowed or any(re.search(pattern, name) for pattern in self.allowed)


def extra_labels_from_environment(environment: Mapping[str, str], host: HostRoot | None = None) -> ExtraLabels:
    """An `InputError` that names the variable for a pattern that is none.

    The folder of jobs is the host's, unless the agent's pod mounts one there.
    """
    patterns = tuple(filter(None, (part.strip() for part in environment.get(ALLOWED_VARIABLE, "").split(","))))
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(f"{pattern[:64]!r} is not a regular expression: {error}", path=ALLOWED_VARIABLE) from None
    folder = environment.get(HPC_VARIABLE, "")
    return ExtraLabels(
        with_pod_labels=environment.get(POD_LABELS_VARIABLE, "").lower() in ("1", "t", "true"),
        allowed=patterns,
        hpc_folder=seen_here(host or HostRoot(), folder) if folder else None,
    )
