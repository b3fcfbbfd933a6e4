"""Reads a GPU's counters through NVML, under dcgm-exporter's names.

Called by `nvml.NvmlBackend` for the exporter and for health. `_SOURCES` lists one function per group of counters;
what the device does not answer is left out. Profiling metrics need GPM (Hopper and later) and two samples: the
first reading has none, later ones cover the time since the previous reading.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pynvml as nv

from windlass.node.backend import protocol

_MIB = 1 << 20
_ALL_LINKS = 0xFFFFFFFF
_PERCENT = {
    1: "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    2: "DCGM_FI_PROF_SM_ACTIVE",
    3: "DCGM_FI_PROF_SM_OCCUPANCY",
    5: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    10: "DCGM_FI_PROF_DRAM_ACTIVE",
    11: "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
    12: "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
    13: "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
}
_MIB_PER_SECOND = {
    20: "DCGM_FI_PROF_PCIE_TX_BYTES",
    21: "DCGM_FI_PROF_PCIE_RX_BYTES",
    60: "DCGM_FI_PROF_NVLINK_RX_BYTES",
    61: "DCGM_FI_PROF_NVLINK_TX_BYTES",
}
_FIELDS = {
    nv.NVML_FI_DEV_MEMORY_TEMP: "DCGM_FI_DEV_MEMORY_TEMP",
    nv.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: protocol.RECOVERY_ACTION,
    nv.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL: "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    nv.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL: "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    nv.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL: "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    nv.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL: "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    nv.NVML_FI_DEV_RETIRED_SBE: "DCGM_FI_DEV_RETIRED_SBE",
    nv.NVML_FI_DEV_RETIRED_DBE: "DCGM_FI_DEV_RETIRED_DBE",
    nv.NVML_FI_DEV_RETIRED_PENDING: "DCGM_FI_DEV_RETIRED_PENDING",
}
_POLICIES = {
    0: "DCGM_FI_DEV_POWER_VIOLATION",
    1: "DCGM_FI_DEV_THERMAL_VIOLATION",
    2: "DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
    3: "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
    4: "DCGM_FI_DEV_LOW_UTIL_VIOLATION",
    5: "DCGM_FI_DEV_RELIABILITY_VIOLATION",
}
_VALUE_OF_TYPE = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}

Pairs = Iterable[tuple[str, float]]


def _clocks(handle: Any) -> Pairs:
    yield "DCGM_FI_DEV_SM_CLOCK", nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_SM)
    yield "DCGM_FI_DEV_MEM_CLOCK", nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_MEM)


def _utilization(handle: Any) -> Pairs:
    rates = nv.nvmlDeviceGetUtilizationRates(handle)
    yield "DCGM_FI_DEV_GPU_UTIL", rates.gpu
    yield "DCGM_FI_DEV_MEM_COPY_UTIL", rates.memory


def _memory(handle: Any) -> Pairs:
    memory = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
    yield "DCGM_FI_DEV_FB_TOTAL", memory.total // _MIB
    yield "DCGM_FI_DEV_FB_FREE", memory.free // _MIB
    yield "DCGM_FI_DEV_FB_USED", memory.used // _MIB
    yield "DCGM_FI_DEV_FB_RESERVED", memory.reserved // _MIB


def _rows(handle: Any) -> Pairs:
    correctable, uncorrectable, pending, failure = nv.nvmlDeviceGetRemappedRows(handle)
    yield "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", correctable
    yield "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", uncorrectable
    yield protocol.ROW_REMAP_PENDING, pending
    yield protocol.ROW_REMAP_FAILURE, failure


def _ecc(handle: Any) -> Pairs:
    for kind, error_type in (
        (nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, "SBE"),
        (nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, "DBE"),
    ):
        for counter, span in ((nv.NVML_VOLATILE_ECC, "VOL"), (nv.NVML_AGGREGATE_ECC, "AGG")):
            yield (
                f"DCGM_FI_DEV_ECC_{error_type}_{span}_TOTAL",
                nv.nvmlDeviceGetTotalEccErrors(handle, kind, counter),
            )


def _violations(handle: Any) -> Pairs:
    for policy, name in _POLICIES.items():
        yield name, nv.nvmlDeviceGetViolationStatus(handle, policy).violationTime


def _fields(handle: Any) -> Pairs:
    wanted = list(_FIELDS)
    for value in nv.nvmlDeviceGetFieldValues(handle, wanted):
        if value.nvmlReturn == nv.NVML_SUCCESS:
            yield _FIELDS[value.fieldId], _field_value(value)


def _all_link_traffic(handle: Any) -> Pairs:
    total = _traffic(handle, _ALL_LINKS)
    if total is not None:
        yield "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", total


def link_traffic(handle: Any) -> dict[str, float]:
    """Of each link that is there, as `backend.link_traffic` promises."""
    found = {}
    for link, name in enumerate(protocol.LINK_TRAFFIC):
        with contextlib.suppress(nv.NVMLError):
            traffic = _traffic(handle, link)
            if traffic is not None:
                found[name] = traffic
    return found


def _traffic(handle: Any, scope: int) -> float | None:
    """Both directions of a link, or of all of them; None if the driver doesn't count them."""
    fields = [
        (nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scope),
        (nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scope),
    ]
    values = nv.nvmlDeviceGetFieldValues(handle, fields)
    counted = [_field_value(value) for value in values if value.nvmlReturn == nv.NVML_SUCCESS]
    return sum(counted) if len(counted) == len(fields) else None


def _license(handle: Any) -> Pairs:
    """Only virtual GPUs need one."""
    found = nv.nvmlDeviceGetGridLicensableFeatures_v4(handle)
    if found.isGridLicenseSupported:
        features = found.gridLicensableFeatures[: found.licensableFeaturesCount]
        yield "DCGM_FI_DEV_VGPU_LICENSE_STATUS", any(feature.featureState for feature in features)


def _calls() -> dict[str, Callable[[Any], float]]:
    """Values of one call each; a call that a GPU does not support leaves only its own value out."""
    # A function, since `nvml_prune` sees names in functions and not in tables.
    return {
        "DCGM_FI_DEV_GPU_TEMP": lambda handle: nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU),
        "DCGM_FI_DEV_POWER_USAGE": lambda handle: nv.nvmlDeviceGetPowerUsage(handle) / 1000,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": nv.nvmlDeviceGetTotalEnergyConsumption,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": nv.nvmlDeviceGetPcieReplayCounter,
        "DCGM_FI_DEV_ENC_UTIL": lambda handle: nv.nvmlDeviceGetEncoderUtilization(handle)[0],
        "DCGM_FI_DEV_DEC_UTIL": lambda handle: nv.nvmlDeviceGetDecoderUtilization(handle)[0],
        protocol.THROTTLE_REASONS: nv.nvmlDeviceGetCurrentClocksEventReasons,
    }


_SOURCES: tuple[Callable[[Any], Pairs], ...] = (
    *(_clocks, _utilization, _memory, _rows, _ecc, _violations, _fields, _all_link_traffic, _license),
)


class NvmlReader:
    """Keeps the state between two readings: GPM samples, and up to when processes were read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # two threads must not free one sample
        self._samples: dict[str, Any] = {}
        self._read_until: dict[str, int] = {}

    def read(self, handle: Any, uuid: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, call in _calls().items():
            with contextlib.suppress(nv.NVMLError):
                found[name] = float(call(handle))
        for source in _SOURCES:
            pairs = iter(source(handle))
            while True:
                try:
                    name, value = next(pairs)
                except (StopIteration, nv.NVMLError):
                    break
                found[name] = float(value)
        with self._lock:
            found.update(self._profiling(handle, uuid))
        return found

    def forget(self) -> None:
        """Frees the samples, before NVML is closed: they belong to it, and to devices that may be others afterwards."""
        with self._lock:
            for sample in self._samples.values():
                with contextlib.suppress(nv.NVMLError):
                    nv.nvmlGpmSampleFree(sample)
            self._samples.clear()

    def process_utilization(self, handle: Any, uuid: str) -> dict[int, int] | None:
        """SM percent by process, from the driver's samples since the last call; None if it takes none.

        An idle process has no sample, and if all are idle, NVML reports the empty result as an error.
        """
        since = self._read_until.get(uuid, 0) or int((time.time() - 2) * 1e6)
        try:
            samples = nv.nvmlDeviceGetProcessUtilization(handle, since)
        except nv.NVMLError as error:
            return {} if error.value in (nv.NVML_SUCCESS, nv.NVML_ERROR_NOT_FOUND) else None
        sums: dict[int, list[int]] = {}
        for sample in samples:
            if sample.pid:
                sums.setdefault(sample.pid, []).append(sample.smUtil)
            self._read_until[uuid] = max(self._read_until.get(uuid, 0), sample.timeStamp)
        return {pid: round(sum(values) / len(values)) for pid, values in sums.items()}

    def _profiling(self, handle: Any, uuid: str) -> dict[str, float]:
        try:
            device, instance = handle, None
            if uuid.startswith("MIG-"):
                instance = nv.nvmlDeviceGetGpuInstanceId(handle)
                device = nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            if not nv.nvmlGpmQueryDeviceSupport(device).isSupportedDevice:
                return {}
            sample = nv.nvmlGpmSampleAlloc()
        except nv.NVMLError:
            return {}
        try:
            if instance is None:
                nv.nvmlGpmSampleGet(device, sample)
            else:
                nv.nvmlGpmMigSampleGet(device, instance, sample)
        except nv.NVMLError:
            nv.nvmlGpmSampleFree(sample)
            return {}
        previous = self._samples.get(uuid)
        self._samples[uuid] = sample
        if previous is None:
            return {}
        try:
            return dict(_gpm_values(previous, sample))
        except nv.NVMLError:
            return {}
        finally:
            nv.nvmlGpmSampleFree(previous)


def _gpm_values(before: Any, after: Any) -> Iterator[tuple[str, float]]:
    wanted = [*_PERCENT, *_MIB_PER_SECOND]
    request = nv.c_nvmlGpmMetricsGet_t()
    request.version = nv.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(wanted)
    request.sample1, request.sample2 = before, after
    for index, number in enumerate(wanted):
        request.metrics[index].metricId = number
    nv.nvmlGpmMetricsGet(request)
    for metric in request.metrics[: len(wanted)]:
        if metric.nvmlReturn != nv.NVML_SUCCESS or metric.value != metric.value:
            continue
        if metric.metricId in _PERCENT:
            yield _PERCENT[metric.metricId], metric.value / 100
        else:
            yield _MIB_PER_SECOND[metric.metricId], metric.value * _MIB


def _field_value(field: Any) -> float:
    name = _VALUE_OF_TYPE.get(field.valueType, "ullVal")
    return float(getattr(field.value, name, 0))
