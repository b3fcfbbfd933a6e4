"""Recording and alerting rules for Prometheus, as data. `windlass install monitoring` prints them as a PrometheusRule.

They use names of dcgm-exporter, kube-state-metrics and Kueue where those exist, and Windlass' own where they don't.
`tests/telemetry/test_alerts.py` has a case that fires and a case that must stay silent for each. None alerts on plain
degrees or on a busy GPU: those are a healthy job.
"""

from __future__ import annotations

import msgspec

from windlass.model.unstructured import Unstructured

FATAL_XIDS = (48, 62, 64, 74, 79, 92, 95, 119, 120, 140, 143)
"""After which the GPU or its memory can't be relied on."""
_GPU = "Hostname, hostname, gpu, UUID"
"""dcgm-exporter wrote `Hostname` up to 4.8.2 and `hostname` since; the one that is not there does no harm."""

MORE_COUNTERS = """\
DCGM_EXP_XID_ERRORS_COUNT, gauge, Xids within the last five minutes by number.
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter, Uncorrected memory errors since the driver was loaded.
DCGM_FI_DEV_ROW_REMAP_PENDING, gauge, Whether a row waits for a reset to be remapped.
DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, Why clocks are lower than they could be (bits).
DCGM_FI_PROF_SM_ACTIVE, gauge, Ratio of cycles in which an SM had work.
"""
"""What the rules need beyond dcgm-exporter's default counters, as lines of a counters file."""


class RecordingRule(msgspec.Struct, frozen=True):
    record: str
    expr: str


class AlertRule(msgspec.Struct, frozen=True):
    alert: str
    severity: str
    """`info`, `warning` or `critical`."""
    expr: str
    summary: str
    description: str
    for_: str = ""
    keep_firing_for: str = ""


RECORDING_RULES = (
    RecordingRule("cluster:gpus:count", 'count(max by (UUID) (DCGM_FI_DEV_FB_USED{GPU_I_ID=""}))'),
    RecordingRule("cluster:gpus_allocated:count", 'count(max by (UUID) (DCGM_FI_DEV_FB_USED{pod!=""}))'),
    RecordingRule("cluster:gpu_busy_allocated:avg", 'avg(max by (UUID) (DCGM_FI_DEV_GPU_UTIL{pod!=""})) / 100'),
    RecordingRule(
        "namespace:gpu_busy_allocated:avg",
        'avg by (namespace) (max by (namespace, UUID) (DCGM_FI_DEV_GPU_UTIL{pod!=""})) / 100',
    ),
    RecordingRule(
        "namespace_pod:gpu_busy:max1h", 'max by (namespace, pod) (max_over_time(DCGM_FI_DEV_GPU_UTIL{pod!=""}[1h]))'
    ),
)

USE_ALERTS = (
    AlertRule(
        "WindlassGPUIdleWhileAllocated",
        "info",
        "(namespace_pod:gpu_busy:max1h == 0)"
        ' and on (namespace, pod) (count by (namespace, pod) (DCGM_FI_DEV_GPU_UTIL{pod!=""} offset 1h))',
        "{{ $labels.namespace }}/{{ $labels.pod }} has held GPUs for an hour without using them",
        "None of its GPUs ran a kernel in the last hour. Its owner can end it, or ask for fewer GPUs.",
        "5m",
    ),
    AlertRule(
        "WindlassGPUSpinning",
        "warning",
        'max by (namespace, pod, UUID) (DCGM_FI_DEV_GPU_UTIL{pod!=""}) >= 95'
        ' and max by (namespace, pod, UUID) (DCGM_FI_PROF_SM_ACTIVE{pod!=""}) <= 0.02',
        "{{ $labels.namespace }}/{{ $labels.pod }} keeps a GPU at 100 % and does not compute",
        "A kernel runs all the time on one or two SMs: most often a collective that waits for a peer which is gone.",
        "30m",
    ),
    AlertRule(
        "WindlassUtilizationLow",
        "info",
        "avg_over_time(cluster:gpu_busy_allocated:avg[24h]) < 0.7",
        "Allocated GPUs were busy for {{ $value | humanizePercentage }} of the last day",
        "70 % is what a cluster should reach. `windlass usage --by job` names the jobs that hold idle GPUs.",
        "1h",
    ),
)

HEALTH_ALERTS = (
    AlertRule(
        "WindlassGPUFatalXid",
        "critical",
        f'sum by ({_GPU}, xid) (DCGM_EXP_XID_ERRORS_COUNT{{xid=~"{"|".join(map(str, FATAL_XIDS))}"}}) > 0',
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}{{ $labels.hostname }} reports Xid {{ $labels.xid }}",
        "What runs on it is lost or will be. `windlass doctor` and the node's health journal say what to do.",
        keep_firing_for="15m",
    ),
    AlertRule(
        "WindlassGPUUncorrectedECC",
        "critical",
        f"sum by ({_GPU}) (increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[10m])) > 0",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}{{ $labels.hostname }} has uncorrected memory errors",
        "Results of the job on it may be wrong. Reset the GPU; if it happens again, replace it.",
        keep_firing_for="15m",
    ),
    AlertRule(
        "WindlassGPURowRemapFailed",
        "critical",
        f"max by ({_GPU}) (DCGM_FI_DEV_ROW_REMAP_FAILURE) == 1",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}{{ $labels.hostname }} can't repair its memory any more",
        "Remapping a row has failed: the GPU has to be replaced.",
    ),
    AlertRule(
        "WindlassGPURowRemapPending",
        "warning",
        f"max by ({_GPU}) (DCGM_FI_DEV_ROW_REMAP_PENDING) == 1",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}{{ $labels.hostname }} waits for a reset to repair its memory",
        "Drain the node and reset the GPU, when its jobs can be spared.",
        "10m",
    ),
    AlertRule(
        "WindlassGPUThrottledByHeat",
        "warning",
        f"max by ({_GPU}) (avg_over_time((floor(DCGM_FI_DEV_CLOCKS_EVENT_REASONS / 32) % 2 > bool 0)[10m:])"
        " + avg_over_time((floor(DCGM_FI_DEV_CLOCKS_EVENT_REASONS / 64) % 2 > bool 0)[10m:])) > 0.2",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}{{ $labels.hostname }} is slowed down by heat",
        "For {{ $value | humanizePercentage }} of the last ten minutes. `windlass node trends` tells a GPU that cools "
        "badly from a rack without air.",
        "5m",
    ),
    AlertRule(
        "WindlassGPUPCIeReplays",
        "warning",
        f"sum by ({_GPU}) (increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[10m])) > 10",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}{{ $labels.hostname }} has trouble on the PCIe bus",
        "{{ $value | humanize }} replays in ten minutes: a riser, cable or slot.",
        "10m",
    ),
    AlertRule(
        "WindlassGPUsWithdrawn",
        "warning",
        'sum by (node) (kube_node_status_capacity{resource="nvidia_com_gpu"})'
        ' - sum by (node) (kube_node_status_allocatable{resource="nvidia_com_gpu"}) > 0',
        "{{ $value }} GPUs of {{ $labels.node }} are given to nobody",
        "Its device plugin reports them as unhealthy; `windlass doctor node` says why.",
        "10m",
    ),
    AlertRule(
        "WindlassExporterMissing",
        "warning",
        '(sum by (node) (kube_node_status_capacity{resource="nvidia_com_gpu"}) > 0) unless on (node) (label_replace('
        'count by (Hostname) (DCGM_FI_DEV_FB_USED{Hostname!=""}), "node", "$1", "Hostname", "(.+)") or label_replace('
        'count by (hostname) (DCGM_FI_DEV_FB_USED{hostname!=""}), "node", "$1", "hostname", "(.+)"))',
        "The GPUs of {{ $labels.node }} are not measured",
        "No exporter reports them: their use is unknown, and so are their faults. `windlass install node` has one.",
        "15m",
    ),
)

QUEUE_ALERTS = (
    AlertRule(
        "WindlassQueueStarves",
        "warning",
        '(sum by (cluster_queue) (kueue_cluster_queue_resource_usage{resource="nvidia.com/gpu"})'
        ' < sum by (cluster_queue) (kueue_cluster_queue_nominal_quota{resource="nvidia.com/gpu"}))'
        " and on (cluster_queue) (sum by (cluster_queue) (kueue_pending_workloads) > 0)",
        "{{ $labels.cluster_queue }} is below its quota, and its work waits",
        "`windlass status` names the cause in GPUs, `windlass why` that of one workload.",
        "30m",
    ),
    AlertRule(
        "WindlassWaitsTooLong",
        "warning",
        "max by (cluster_queue) (windlass_oldest_waiting_seconds) > 86400",
        "Work of {{ $labels.cluster_queue }} has waited for {{ $value | humanizeDuration }}",
        "`windlass why` says what it waits for, and the smallest change that would help.",
        "15m",
    ),
    AlertRule(
        "WindlassGPUsStranded",
        "warning",
        "sum(windlass_stranded_gpus) / sum(windlass_gpus) > 0.1",
        "{{ $value | humanizePercentage }} of all GPUs are free, and nothing that waits can use them",
        "`windlass status` says why: another model, too few on one node, no CPU beside them, a taint.",
        "30m",
    ),
    AlertRule(
        "WindlassEvictionStorm",
        "warning",
        'sum(increase(kueue_evicted_workloads_total{reason="Preempted"}[1h])) > 10 and'
        ' sum(increase(kueue_evicted_workloads_total{reason="Preempted"}[1h]))'
        ' > 3 * sum(increase(kueue_evicted_workloads_total{reason="Preempted"}[1d] offset 1h)) / 24'
        ' and sum(kueue_evicted_workloads_total{reason="Preempted"} offset 1d)',
        "{{ $value | humanize }} workloads were preempted within an hour",
        "Three times as many as on the day before. `windlass audit` says which, and for which work.",
    ),
    AlertRule(
        "WindlassLosesWork",
        "info",
        "sum by (cluster_queue) (increase(windlass_lost_gpu_seconds_total[1d])) / 3600 > 100",
        "Evictions have lost {{ $value | humanize }} GPU-hours of {{ $labels.cluster_queue }} within a day",
        "Checkpoints, or windlass.dev/last-checkpoint where they are made, would make them cheaper.",
    ),
)

SCHEDULER_ALERTS = (
    AlertRule(
        "WindlassNobodyDecides",
        "critical",
        "sum(windlass_leading) == 0 or absent(windlass_leading)",
        "No replica of the scheduler decides",
        "Pods that name it stay pending. See the log of windlass-scheduler, and its lease.",
        "2m",
    ),
    AlertRule(
        "WindlassTwoDecide",
        "critical",
        "sum(windlass_leading) > 1",
        "{{ $value }} replicas of the scheduler decide at once",
        "Two installations with different leases? `windlass freeze` stops all writes.",
        "30s",
    ),
    AlertRule(
        "WindlassSeesOldState",
        "warning",
        "max by (instance) (windlass_cache_age_seconds) > 60",
        "The scheduler sees the cluster as it was {{ $value | humanizeDuration }} ago",
        "The API server does not answer its watches.",
        "5m",
    ),
)
GROUPS = {
    "windlass-gpu-use": USE_ALERTS,
    "windlass-gpu-health": HEALTH_ALERTS,
    "windlass-queues": QUEUE_ALERTS,
    "windlass-scheduler": SCHEDULER_ALERTS,
}


def rule_groups() -> list[Unstructured]:
    """As a rules file of Prometheus and a PrometheusRule have them under `groups`."""
    recording = {"name": "windlass-gpu-recording", "interval": "1m"}
    groups: list[Unstructured] = [
        {**recording, "rules": [{"record": rule.record, "expr": rule.expr} for rule in RECORDING_RULES]}
    ]
    groups += [{"name": name, "rules": [_alert(rule) for rule in rules]} for name, rules in GROUPS.items()]
    return groups


def all_alerts() -> list[AlertRule]:
    return [rule for rules in GROUPS.values() for rule in rules]


def _alert(rule: AlertRule) -> Unstructured:
    times = {"for": rule.for_, "keep_firing_for": rule.keep_firing_for}
    notes = {"summary": rule.summary, "description": rule.description}
    return {
        "alert": rule.alert,
        "expr": rule.expr,
        **{name: value for name, value in times.items() if value},
        "labels": {"severity": rule.severity},
        "annotations": notes,
    }
