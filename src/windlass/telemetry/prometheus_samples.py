"""The newest measurement of every GPU, as a Prometheus has it: dcgm-exporter's metrics, or those of our own exporter.

`windlass status` and `top` give them to the ledger. Several series of one GPU (its pods, its MIG instances) become one
sample: the GPU is as busy as the busiest of them.
"""

from __future__ import annotations

from windlass.model.digits import is_digits
from windlass.telemetry.activity import GpuSample
from windlass.telemetry.ledger import GpuKey
from windlass.telemetry.prometheus import Prometheus

FIELDS = {
    "DCGM_FI_DEV_GPU_UTIL": "busy_percent",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "engine_active",
    "DCGM_FI_PROF_SM_ACTIVE": "sm_active",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_active",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram_active",
    "DCGM_FI_DEV_POWER_USAGE": "power_watts",
    "DCGM_FI_DEV_FB_USED": "memory_mib",
}
HOST_LABELS = ("Hostname", "hostname", "node", "kubernetes_node")
"""dcgm-exporter wrote `Hostname` up to 4.8.2 and `hostname` since; the others are what relabelling adds."""


def read_samples(prometheus: Prometheus, at: float | None = None) -> dict[GpuKey, GpuSample]:
    names = "|".join(FIELDS)
    by = ", ".join((*HOST_LABELS, "gpu", "UUID", "__name__"))
    values: dict[GpuKey, dict[str, float]] = {}
    uuids: dict[GpuKey, str] = {}
    times: dict[GpuKey, float] = {}
    for sample in prometheus.query(f'max by ({by}) ({{__name__=~"{names}"}})', at):
        host = next((sample.labels[label] for label in HOST_LABELS if sample.labels.get(label)), "")
        index = sample.labels.get("gpu", "")
        if not host or not is_digits(index):
            continue
        key = (host, int(index))
        values.setdefault(key, {})[FIELDS[sample.labels["__name__"]]] = sample.value
        uuids[key], times[key] = sample.labels.get("UUID", ""), sample.at
    return {key: GpuSample(int(times[key]), uuid=uuids[key], **found) for key, found in values.items()}
