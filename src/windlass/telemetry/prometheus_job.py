"""Curves of a job's GPUs out of a Prometheus: utilisation, memory and power of each, by dcgm-exporter's metrics.

The page's Job view draws them. Which pods are the job's, kube-state-metrics knows (`kube_pod_owner`); where it does not
run, the pods that exist now are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from windlass.telemetry.job_view import Curves, GpuLine
from windlass.telemetry.prometheus import Prometheus, PromSeries
from windlass.telemetry.prometheus_samples import HOST_LABELS
from windlass.telemetry.prometheus_usage import PodLabels
from windlass.telemetry.step_table import Line, step_seconds

METRICS = (
    ("Utilisation", "DCGM_FI_DEV_GPU_UTIL", "%", 100.0),
    ("Memory in use", "DCGM_FI_DEV_FB_USED", "MiB", 0.0),
    ("Power", "DCGM_FI_DEV_POWER_USAGE", "W", 0.0),
)
MAX_GPUS = 16
"""Lines in a chart: more can't be told apart. Those with the least of the first metric are shown."""


def job_selector(prometheus: Prometheus, job: str, living_pods: Iterable[str], start: int, end: int) -> str:
    """Labels of the job's pods in metrics of devices; empty if it has none.

    `job` is `Kind namespace/name`, `living_pods` are the names of its pods that exist now.
    """
    kind, _, path = job.partition(" ")
    namespace, _, name = path.partition("/")
    labels = PodLabels(prometheus, end)
    owner = f"kube_pod_owner{{namespace={_quoted(namespace)},owner_kind={_quoted(kind)},owner_name={_quoted(name)}}}"
    known = prometheus.query(f"count by (pod) (last_over_time({owner}[{end - start}s]))", end - 1)
    pods = {sample.labels.get("pod", "") for sample in known} | set(living_pods) | ({name} if kind == "Pod" else set())
    if not pods:
        return ""
    chosen = _quoted("|".join(re.escape(pod).replace("\\-", "-") for pod in sorted(pods)))
    return f"{labels.namespace}={_quoted(namespace)},{labels.pod}=~{chosen}"


def read_job_curves(prometheus: Prometheus, selector: str, start: int, end: int) -> list[Curves]:
    step = step_seconds(start, end)
    by = ", ".join((*HOST_LABELS, "gpu", "UUID", "GPU_I_ID"))
    found: list[Curves] = []
    shown: list[str] = []
    for words, metric, unit, most in METRICS:
        query = f"max by ({by}) (avg_over_time({metric}{{{selector}}}[{step}s]))"
        lines = {_name(series): series for series in prometheus.query_range(query, start + step, end, step)}
        shown = shown or sorted(lines, key=lambda gpu: (sum(value for _, value in lines[gpu].points), gpu))[:MAX_GPUS]
        curves = [GpuLine(gpu, _line(lines[gpu], start, end, step)) for gpu in sorted(shown) if gpu in lines]
        if curves:
            found.append(Curves(words, unit, most, curves))
    return found


def _name(series: PromSeries) -> str:
    host = next((series.labels[label] for label in HOST_LABELS if series.labels.get(label)), "")
    part = f" instance {series.labels['GPU_I_ID']}" if series.labels.get("GPU_I_ID") else ""
    return f"{host}:{series.labels.get('gpu') or series.labels.get('UUID', '')}{part}"


def _line(series: PromSeries, start: int, end: int, step: int) -> Line:
    line: Line = [None] * -(-(end - start) // step)
    for at, value in series.points:
        place = (round(at) - start) // step - 1
        if 0 <= place < len(line):
            line[place] = round(value, 2)
    return line


def _quoted(text: str) -> str:
    """A PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
