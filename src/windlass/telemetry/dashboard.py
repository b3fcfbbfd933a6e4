"""The Grafana dashboard, made from a list of panels. `windlass install monitoring` prints it.

The classic JSON model, with the data source as a variable, so that it imports anywhere. Every query is answered by a
real Prometheus in `tests/telemetry/test_dashboard.py`.
"""

from __future__ import annotations

import msgspec

from windlass.model.unstructured import Unstructured

TITLE, UID = "Windlass: GPUs", "windlass-gpus"
WIDTH, HALF, HEIGHT = 24, 12, 8
_QUEUE, _OF_GPUS = "kueue_cluster_queue", '{resource="nvidia.com/gpu"}'
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(msgspec.Struct, frozen=True):
    title: str
    description: str
    queries: dict[str, str]
    """Legend → expression."""
    type: str = "timeseries"
    unit: str = "short"
    is_stacked: bool = False
    line_at: float | None = None
    """A line across the chart: what should be reached, or not."""


PANELS = (
    Panel(
        "GPUs by state",
        "Every GPU is in one state, so the height is all GPUs. Stranded: free, and nothing that waits could use it.",
        {"{{state}}": "sum by (state) (windlass_gpus)"},
        is_stacked=True,
    ),
    Panel(
        "Use against allocation",
        "Allocated GPUs of all, and for how much of the time the allocated ones ran anything. Below the line at 70 %, "
        "the cluster is short of use and not of GPUs.",
        {"allocated": "cluster:gpus_allocated:count / cluster:gpus:count", "busy": "cluster:gpu_busy_allocated:avg"},
        unit="percentunit",
        line_at=0.7,
    ),
    Panel(
        "GPUs that are waited for, by cause",
        "The bottleneck, in GPUs: the cause that binds each waiting workload, as `windlass why` names it.",
        {"{{cause}}": "sum by (cause) (windlass_waiting_gpus)"},
        is_stacked=True,
    ),
    Panel(
        "Stranded GPUs, by model and what excludes them",
        "Free GPUs that nothing which waits could use.",
        {"{{model}} {{cause}}": "sum by (model, cause) (windlass_stranded_gpus)"},
        is_stacked=True,
    ),
    Panel(
        "Longest wait by queue",
        "For how long the workload that has waited longest waits.",
        {"{{cluster_queue}}": "max by (cluster_queue) (windlass_oldest_waiting_seconds)"},
        unit="s",
    ),
    Panel(
        "From creation to binding",
        "Of pods that were bound: median and 95th percentile.",
        {
            f"p{percent}": f"histogram_quantile(0.{percent}, sum by (le) "
            "(rate(scheduler_pod_scheduling_sli_duration_seconds_bucket[$__rate_interval])))"
            for percent in (50, 95)
        },
        unit="s",
    ),
    Panel(
        "GPUs in use against quota, by queue",
        "Above 1 is borrowed.",
        {
            "{{cluster_queue}}": f"sum by (cluster_queue) ({_QUEUE}_resource_usage{_OF_GPUS})"
            f" / sum by (cluster_queue) ({_QUEUE}_nominal_quota{_OF_GPUS})"
        },
        unit="percentunit",
        line_at=1.0,
    ),
    Panel(
        "GPU-hours lost by evictions",
        "Work since the last checkpoint, and the restart, within the hour before.",
        {"{{cluster_queue}}": "sum by (cluster_queue) (increase(windlass_lost_gpu_seconds_total[1h])) / 3600"},
        unit="h",
    ),
    Panel(
        "Use by namespace",
        "For how much of the time the GPUs of its pods ran anything.",
        {"{{namespace}}": "namespace:gpu_busy_allocated:avg"},
        unit="percentunit",
        line_at=0.7,
    ),
    Panel(
        "Evicted pods",
        "To make room for others, a second.",
        {"evicted": "sum(rate(windlass_evicted_pods_total[$__rate_interval]))"},
        unit="cps",
    ),
    Panel(
        "Temperature",
        "Median, 95th percentile and hottest GPU. Degrees alone are no alarm: see the throttling below.",
        {
            "median": "quantile(0.5, max by (UUID) (DCGM_FI_DEV_GPU_TEMP))",
            "95 %": "quantile(0.95, max by (UUID) (DCGM_FI_DEV_GPU_TEMP))",
            "hottest": "max(DCGM_FI_DEV_GPU_TEMP)",
        },
        unit="celsius",
    ),
    Panel("Power", "Of all GPUs.", {"all GPUs": "sum(max by (UUID) (DCGM_FI_DEV_POWER_USAGE))"}, unit="watt"),
    Panel(
        "Faults",
        "Xids within five minutes, GPUs that are given to nobody, and PCIe replays an hour.",
        {
            "Xids": "sum(DCGM_EXP_XID_ERRORS_COUNT) or vector(0)",
            "withdrawn GPUs": "count(windlass_device_unhealthy) or vector(0)",
            "PCIe replays": "sum(increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[1h]))",
        },
    ),
    Panel(
        "Time of a decision",
        "On everything that waits: median and 99th percentile.",
        {
            f"p{percent}": f"histogram_quantile(0.{percent}, sum by (le) "
            "(rate(scheduler_scheduling_algorithm_duration_seconds_bucket[$__rate_interval])))"
            for percent in (50, 99)
        },
        unit="s",
    ),
)


def dashboard() -> Unstructured:
    panels = [_panel(number, panel) for number, panel in enumerate(PANELS)]
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return {
        "title": TITLE,
        "uid": UID,
        "tags": ["gpu", "windlass"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [variable]},
        "panels": panels,
    }


def _panel(number: int, panel: Panel) -> Unstructured:
    row, column = divmod(number, WIDTH // HALF)
    return {
        "id": number + 1,
        "type": panel.type,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": {"x": column * HALF, "y": row * HEIGHT, "w": HALF, "h": HEIGHT},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend, "datasource": _DATASOURCE}
            for place, (legend, expr) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }


def _defaults(panel: Panel) -> Unstructured:
    custom: Unstructured = {"fillOpacity": 60 if panel.is_stacked else 10}
    if panel.is_stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    steps: list[Unstructured] = [{"color": "green", "value": None}]
    if panel.line_at is not None:
        steps.append({"color": "orange", "value": panel.line_at})
        custom["thresholdsStyle"] = {"mode": "line"}
    return {"unit": panel.unit, "min": 0, "custom": custom, "thresholds": {"mode": "absolute", "steps": steps}}
