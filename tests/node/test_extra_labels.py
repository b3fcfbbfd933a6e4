"""Labels on request, as dcgm-exporter gives them: labels of pods, and jobs of an HPC scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import machine

from windlass.model.errors import InputError
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.exporter.counters import read_counters
from windlass.node.exporter.exporter import Exporter
from windlass.node.exporter.extra_labels import ExtraLabels, extra_labels_from_environment
from windlass.node.host_root import HostRoot

LABELS = {"app.kubernetes.io/name": "train", "team": "vision", "pod": "forged", "0bad": "x"}


class Given:
    def __init__(self, held: dict[str, list[DeviceHolder]]) -> None:
        self.held = held

    def holders(self, uids: object = None) -> dict[str, list[DeviceHolder]]:
        return self.held


def exported(environment: dict[str, str]) -> list[str]:
    backend = machine(count=2)
    first = backend.inventory().gpus[0].uuid
    pods: Any = Given({first: [DeviceHolder("train-0", "lab", "main")]})
    exporter = Exporter(
        backend,
        read_counters("DCGM_FI_DEV_GPU_TEMP, gauge, t")[0],
        hostname="n1",
        root=HostRoot("/nowhere"),
        pods=pods,
        extra_labels=extra_labels_from_environment(environment),
    )
    exporter.pod_labels = lambda: {("lab", "train-0"): LABELS, ("lab", "other"): {"team": "speech"}}
    exporter.collect()
    return [line for line in exporter.metrics_text.decode().splitlines() if line.startswith("DCGM_FI_DEV_GPU_TEMP{")]


def test_pod_labels_come_only_on_request() -> None:
    assert "vision" not in exported({})[0]
    first, second = exported({"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true"})
    assert 'team="vision"' in first
    assert 'app_kubernetes_io_name="train"' in first
    assert 'pod="train-0"' in first, "a metric's own labels are not replaced"
    assert "bad" not in first
    assert "team" not in second


def test_patterns_choose_pod_labels() -> None:
    variables = {
        "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true",
        "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": "^app, ^nothing",
    }
    first, _ = exported(variables)
    assert 'app_kubernetes_io_name="train"' in first
    assert "vision" not in first


def test_a_wrong_pattern_is_refused_by_its_variable() -> None:
    with pytest.raises(InputError) as refused:
        extra_labels_from_environment({"DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": "("})
    assert refused.value.path == "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"


def test_jobs_are_read_by_gpu(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("4711\n4712\n")
    (tmp_path / "note").write_text("x")
    first, *second = exported({"DCGM_HPC_JOB_MAPPING_DIR": str(tmp_path)})
    assert "hpc_job" not in first
    assert ['hpc_job="4711"' in second[0], 'hpc_job="4712"' in second[1]] == [True, True]
    assert ExtraLabels(hpc_folder=tmp_path / "missing").hpc_jobs() == {}


def test_jobs_are_read_where_the_host_has_them(tmp_path: Path) -> None:
    """The agent's pod doesn't mount the folder; /var/run is a link to /run of the host, not of the agent's image."""
    host = tmp_path / "host"
    (host / "run/slurm").mkdir(parents=True)
    (host / "run/slurm/0").write_text("4711\n")
    (host / "var").mkdir()
    (host / "var/run").symlink_to("/run")
    labels = extra_labels_from_environment(
        {"DCGM_HPC_JOB_MAPPING_DIR": "/var/run/slurm"}, HostRoot(tmp_path, files=host)
    )
    assert labels.hpc_jobs() == {"0": ("4711",)}


def test_jobs_of_a_mounted_folder_go_first(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    variables = {"DCGM_HPC_JOB_MAPPING_DIR": str(tmp_path / "jobs")}
    host = HostRoot(tmp_path, files=tmp_path / "host")
    assert extra_labels_from_environment(variables, host).hpc_folder == tmp_path / "jobs"
