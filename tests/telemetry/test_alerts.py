"""Every alert fires when it should and is silent when it should be, as the real promtool judges it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from tests.telemetry.real_prometheus import program

from windlass.cli.errors import run_command
from windlass.cli.install_manifests import InstallOptions, manifests
from windlass.cli.install_monitoring import monitoring_objects
from windlass.cli.main import cli
from windlass.node.exporter.counters import read_counters
from windlass.telemetry.alert_rules import all_alerts, rule_groups
from windlass.telemetry.dashboard import PANELS

GPU = 'Hostname="n1",gpu="0",UUID="GPU-1"'
HELD = GPU + ',namespace="a",pod="p",container="c"'
CAPACITY = 'kube_node_status_capacity{node="n1",resource="nvidia_com_gpu"}'
ALLOCATABLE = 'kube_node_status_allocatable{node="n1",resource="nvidia_com_gpu"}'
USED = 'kueue_cluster_queue_resource_usage{cluster_queue="q",resource="nvidia.com/gpu"}'
QUOTA = 'kueue_cluster_queue_nominal_quota{cluster_queue="q",resource="nvidia.com/gpu"}'
PENDING = 'kueue_pending_workloads{cluster_queue="q",status="active"}'
EVICTED = 'kueue_evicted_workloads_total{cluster_queue="q",reason="Preempted"}'
XIDS = "DCGM_EXP_XID_ERRORS_COUNT{" + GPU
REASONS = f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{GPU}}}"
UTIL, SM = f"DCGM_FI_DEV_GPU_UTIL{{{HELD}}}", f"DCGM_FI_PROF_SM_ACTIVE{{{HELD}}}"
MEMORY = f"DCGM_FI_DEV_FB_USED{{{GPU}}}"


class Case(NamedTuple):
    """Series and their values by minute, and the minute at which the alert is looked at."""

    fires: dict[str, str]
    silent: dict[str, str]
    at: int = 60


CASES = {
    "WindlassGPUIdleWhileAllocated": Case({UTIL: "0x200"}, {UTIL: "0x70 40 0x129"}, 130),
    "WindlassGPUSpinning": Case({UTIL: "100x200", SM: "0.0076x200"}, {UTIL: "100x200", SM: "0.5x200"}, 60),
    "WindlassUtilizationLow": Case({UTIL: "30x1600"}, {UTIL: "85x1600"}, 1560),
    "WindlassGPUFatalXid": Case({XIDS + ',xid="79"}': "0x5 1x100"}, {XIDS + ',xid="31"}': "0x5 1x100"}, 20),
    "WindlassGPUUncorrectedECC": Case(
        {f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{GPU}}}": "3x20 4x40"},
        {f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{GPU}}}": "3x60"},
        25,
    ),
    "WindlassGPURowRemapFailed": Case(
        {f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{GPU}}}": "1x60"}, {f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{GPU}}}": "0x60"}
    ),
    "WindlassGPURowRemapPending": Case(
        {f"DCGM_FI_DEV_ROW_REMAP_PENDING{{{GPU}}}": "1x60"}, {f"DCGM_FI_DEV_ROW_REMAP_PENDING{{{GPU}}}": "0x50 1x5"}, 54
    ),
    # 0x40: slowed down by heat; 4: by the power cap, which is how a healthy GPU works.
    "WindlassGPUThrottledByHeat": Case({REASONS: "64x60"}, {REASONS: "4x60"}, 30),
    "WindlassGPUPCIeReplays": Case(
        {f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{GPU}}}": "0+5x60"}, {f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{GPU}}}": "900x60"}
    ),
    "WindlassGPUsWithdrawn": Case(
        {CAPACITY: "8x60", ALLOCATABLE: "7x60"}, {CAPACITY: "8x60", ALLOCATABLE: "8x50 7x5 8x5"}, 54
    ),
    "WindlassExporterMissing": Case(
        {CAPACITY: "8x60", MEMORY.replace("n1", "n2"): "0x60"}, {CAPACITY: "8x60", MEMORY: "0x60"}, 30
    ),
    "WindlassQueueStarves": Case(
        {USED: "2x60", QUOTA: "8x60", PENDING: "1x60"}, {USED: "8x60", QUOTA: "8x60", PENDING: "1x60"}
    ),
    "WindlassWaitsTooLong": Case(
        {'windlass_oldest_waiting_seconds{cluster_queue="q"}': "90000x60"},
        {'windlass_oldest_waiting_seconds{cluster_queue="q"}': "80000x60"},
    ),
    "WindlassGPUsStranded": Case(
        {'windlass_stranded_gpus{model="V100",cause="x"}': "60x60", 'windlass_gpus{model="V100",state="x"}': "100x60"},
        {'windlass_stranded_gpus{model="V100",cause="x"}': "6x60", 'windlass_gpus{model="V100",state="x"}': "100x60"},
    ),
    "WindlassEvictionStorm": Case({EVICTED: "0x1560 0+1x60"}, {EVICTED: "0+1x1700"}, 1610),
    "WindlassLosesWork": Case(
        {'windlass_lost_gpu_seconds_total{cluster_queue="q",reason="r"}': "0+10000x100"},
        {'windlass_lost_gpu_seconds_total{cluster_queue="q",reason="r"}': "0+1000x100"},
        90,
    ),
    "WindlassNobodyDecides": Case(
        {'windlass_leading{instance="a"}': "0x60", 'windlass_leading{instance="b"}': "0x60"},
        {'windlass_leading{instance="a"}': "1x60", 'windlass_leading{instance="b"}': "0x60"},
    ),
    "WindlassTwoDecide": Case(
        {'windlass_leading{instance="a"}': "1x60", 'windlass_leading{instance="b"}': "1x60"},
        {'windlass_leading{instance="a"}': "1x30 0x30", 'windlass_leading{instance="b"}': "0x30 1x30"},
    ),
    "WindlassSeesOldState": Case(
        {'windlass_cache_age_seconds{instance="a"}': "90x60"},
        {'windlass_cache_age_seconds{instance="a"}': "5x50 90x3 5x9"},
    ),
}


def test_every_alert_has_a_case_and_says_what_to_do() -> None:
    alerts = all_alerts()
    assert [rule.alert for rule in alerts] == list(CASES)
    for rule in alerts:
        assert rule.severity in ("info", "warning", "critical")
        assert rule.description.endswith(".")


def test_the_counters_file_has_every_metric_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(cli, ["install", "monitoring", "-o", "counters"], "windlass") == 0
    counters, left_out = read_counters(capsys.readouterr().out)
    assert not left_out
    queries = [rule["expr"] for group in rule_groups() for rule in group["rules"]]
    queries += [query for panel in PANELS for query in panel.queries.values()]
    asked = {name for query in queries for name in re.findall(r"DCGM_[A-Z_]+", query)}
    assert asked <= {counter.field for counter in counters}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": rule_groups()}))
    return path


def test_promtool_accepts_the_rules(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(cli, ["install", "monitoring", "-o", "rules"], "windlass") == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(rules.read_text())
    checked = subprocess.run([program("promtool"), "check", "rules", str(rules)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("is_long", [False, True])
def test_every_alert_fires_and_is_silent(rules: Path, tmp_path: Path, is_long: bool) -> None:
    """Alerts about days are evaluated every ten minutes: promtool evaluates all rules in every case."""
    tests = []
    for alert, case in CASES.items():
        if is_long != (case.at > 600):
            continue
        for series, expected in ((case.fires, [{"labels": "{}", "value": 1}]), (case.silent, [])):
            firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": name, "values": values} for name, values in series.items()],
                    "promql_expr_test": [{"expr": firing, "eval_time": f"{case.at}m", "exp_samples": expected}],
                    "name": f"{alert}: {'fires' if expected else 'silent'}",
                }
            )
    path = tmp_path / "tests.yaml"
    interval = "10m" if is_long else "1m"
    path.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": interval, "tests": tests}))
    judged = subprocess.run([program("promtool"), "test", "rules", str(path)], capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_objects_for_the_operator_carry_the_labels_that_it_selects() -> None:
    rule, monitor, dashboard = monitoring_objects("w", {"release": "stack"})
    assert rule["metadata"]["labels"]["release"] == "stack"
    ports = next(obj for obj in manifests(InstallOptions()) if obj["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == ports["containers"][0]["ports"][0]["name"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
