"""Trends of jobs, out of a Prometheus with dcgm-exporter's metrics: idle and spinning gangs, leaks, slow GPUs.

`windlass trends` calls it. A job is what owns the pods (`kube_pod_owner` of kube-state-metrics), else the pod. Nothing
is stopped: a finding names the job, so that its owner can be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from windlass.model.times import format_duration, format_timestamp
from windlass.telemetry.activity import Activity, GpuSample, activity_of
from windlass.telemetry.history import gpu_metrics
from windlass.telemetry.prometheus import Prometheus
from windlass.telemetry.prometheus_usage import PodLabels
from windlass.telemetry.trends.idleness import Idleness, Moment, find_idleness
from windlass.telemetry.trends.memory_leak import find_leak
from windlass.telemetry.trends.robust import Series
from windlass.telemetry.trends.straggler import GpuWindow, find_straggler

STEP = 60
LOOK_BACK = 5 * 3600
"""The longest that a rule looks back, and a little."""
WINDOW = 600
"""Of the rule for slow GPUs."""
SERVICE_OWNERS = frozenset({"ReplicaSet", "StatefulSet", "LeaderWorkerSet", "Deployment"})
"""Serving holds memory at 0 %: that is what it is for."""
JobKey = tuple[str, str]
"""Namespace, and `Kind name`."""
GpuSeries = dict[str, Series]
"""UUID of a GPU → its series."""


class JobTrend(msgspec.Struct, frozen=True):
    namespace: str
    job: str
    kind: str
    """`idle`, `spinning`, `partly idle`, `leak` or `slow GPU`."""
    text: str
    gpus: int


def find_job_trends(prometheus: Prometheus, now: int, namespace: str = "") -> list[JobTrend]:
    reader = _JobSeries(prometheus, now, namespace)
    found: list[JobTrend] = []
    for key in sorted(reader.gpus):
        found += _idleness(reader, key)
        found += _leaks(reader, key)
        found += _straggler(reader, key)
    return found


class _JobSeries:
    """The series of the GPUs of every job."""

    def __init__(self, prometheus: Prometheus, now: int, namespace: str) -> None:
        self.now, self._prometheus = now, prometheus
        self._labels = PodLabels(prometheus, now)
        self._filter = f'{self._labels.namespace}="{namespace}"' if namespace else f'{self._labels.pod}!=""'
        self._owners = self._read_owners()
        self.gpus: dict[JobKey, set[str]] = {}
        self.busy = self._read(gpu_metrics.UTILISATION)
        self.engine = self._read(gpu_metrics.ENGINE_ACTIVE)
        self.sm = self._read(gpu_metrics.SM_ACTIVE)
        self.clock = self._read(gpu_metrics.SM_CLOCK)
        self.power = self._read(gpu_metrics.POWER)
        self.memory = self._read(gpu_metrics.MEMORY_USED)
        self.total = {
            sample.labels.get("UUID", ""): sample.value
            for sample in prometheus.query("max by (UUID) (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)", now)
        }

    def of(self, series: Mapping[tuple[JobKey, str], Series], key: JobKey) -> GpuSeries:
        return {gpu: series[key, gpu] for gpu in sorted(self.gpus[key]) if (key, gpu) in series}

    def _read(self, field: str) -> dict[tuple[JobKey, str], Series]:
        by = f"UUID, {self._labels.namespace}, {self._labels.pod}"
        query = f"max by ({by}) ({field}{{{self._filter}}})"
        found: dict[tuple[JobKey, str], Series] = {}
        for series in self._prometheus.query_range(query, self.now - LOOK_BACK, self.now, STEP):
            namespace, pod = series.labels.get(self._labels.namespace, ""), series.labels.get(self._labels.pod, "")
            if not pod or series.points[-1][0] < self.now - 5 * STEP:
                continue  # it has ended
            key = (namespace, self._owners.get((namespace, pod), f"Pod {pod}"))
            self.gpus.setdefault(key, set()).add(series.labels.get("UUID", ""))
            found[key, series.labels.get("UUID", "")] = series.points
        return found

    def _read_owners(self) -> dict[tuple[str, str], str]:
        query = "max by (namespace, pod, owner_kind, owner_name) (kube_pod_owner)"
        return {
            (labels.get("namespace", ""), labels.get("pod", "")): f"{labels['owner_kind']} {labels['owner_name']}"
            for labels, _, _ in self._prometheus.query(query, self.now)
            if labels.get("owner_name", "<none>") != "<none>" and labels.get("owner_kind")
        }


def _idleness(reader: _JobSeries, key: JobKey) -> Iterator[JobTrend]:
    moments = _moments(reader, key)
    if not moments:
        return
    is_service = _is_service(key)
    found = find_idleness(moments, moments[0][0], is_service=is_service)
    if found is not None and not (is_service and found.kind != "spinning"):
        yield JobTrend(*key, found.kind, _idle_text(found), found.gpus)


def _moments(reader: _JobSeries, key: JobKey) -> list[Moment]:
    """What every GPU of the job did, step by step."""
    parts = {"busy_percent": reader.busy, "engine_active": reader.engine, "sm_active": reader.sm}
    values: dict[float, dict[str, dict[str, float]]] = {}
    for name, series in parts.items():
        for gpu, points in reader.of(series, key).items():
            for at, value in points:
                values.setdefault(at, {}).setdefault(gpu, {})[name] = value
    moments: list[Moment] = []
    for at, gpus in sorted(values.items()):
        moments.append((at, {gpu: _activity(int(at), gpus.get(gpu, {})) for gpu in reader.gpus[key]}))
    return moments


def _activity(at: int, values: Mapping[str, float]) -> Activity:
    busy, engine, sm = (values.get(name) for name in ("busy_percent", "engine_active", "sm_active"))
    return activity_of(GpuSample(at, busy, engine, sm), at)


def _idle_text(found: Idleness) -> str:
    long = format_duration(int(found.seconds) // 60 * 60)
    if found.kind == "spinning":
        return f"at 100 % on one or two SMs for {long} without computing: most often it waits for a peer that is gone"
    if found.kind == "partly idle":
        return f"{found.idle_gpus} of {found.gpus} GPUs did nothing for {long}: it may need fewer"
    return f"no GPU did anything for {long}"


def _is_service(key: JobKey) -> bool:
    return key[1].partition(" ")[0] in SERVICE_OWNERS


def _leaks(reader: _JobSeries, key: JobKey) -> Iterator[JobTrend]:
    if _is_service(key):
        return  # their memory follows the day, which this rule takes for a leak
    for gpu, series in reader.of(reader.memory, key).items():
        total = reader.total.get(gpu, 0.0)
        leak = find_leak(series, total, reader.now) if total else None
        if leak is not None:
            full = format_timestamp(int(leak.full_at))
            text = f"memory of {gpu} grows by {leak.mib_per_hour:,.0f} MiB an hour, and is full at about {full}"
            yield JobTrend(*key, "leak", f"{text} if it goes on", 1)


def _straggler(reader: _JobSeries, key: JobKey) -> Iterator[JobTrend]:
    series = {name: reader.of(getattr(reader, name), key) for name in ("busy", "clock", "power")}
    windows: dict[int, dict[str, GpuWindow]] = {}
    for gpu in reader.gpus[key]:
        means = {name: _means(found.get(gpu, ())) for name, found in series.items()}
        for place in means["busy"].keys() & means["clock"].keys() & means["power"].keys():
            values = (means[name][place] for name in ("busy", "clock", "power"))
            windows.setdefault(place, {})[gpu] = GpuWindow(*values)
    found = find_straggler([windows[place] for place in sorted(windows)])
    if found is not None:
        text = (
            f"the other GPUs wait for {found.gpu}: {found.clock_share:.0%} of their clock, "
            f"{found.power_share:.0%} of their power, and as busy as they are"
        )
        yield JobTrend(*key, "slow GPU", text, len(reader.gpus[key]))


def _means(series: Series) -> dict[int, float]:
    sums: dict[int, list[float]] = {}
    for at, value in series:
        sums.setdefault(int(at // WINDOW), []).append(value)
    return {place: sum(values) / len(values) for place, values in sums.items()}
