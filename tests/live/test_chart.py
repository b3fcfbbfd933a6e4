"""The Helm chart says the same as `windlass install`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.real_cluster.api import until
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane

from windlass import __version__
from windlass.cli.install_crds import crds
from windlass.cli.install_manifests import InstallOptions, manifests
from windlass.cli.install_node_manifests import NodeInstallOptions, node_manifests

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart" / "windlass"


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_chart", DEPLOY / "write_chart.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["write_chart"] = module
    spec.loader.exec_module(module)
    return module


def test_the_chart_is_written_from_the_manifests() -> None:
    expected: dict[str, str] = writer().chart_files()
    found = {
        str(path.relative_to(CHART)): path.read_text()
        for folder in ("crds", "templates")
        for path in (CHART / folder).iterdir()
    }
    assert found == expected, "run `python deploy/write_chart.py`"
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["appVersion"] == __version__


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects if one}


def test_helm_renders_what_install_prints(binaries: Binaries) -> None:
    values = "--set=replicas=3,schedulerNames={a,b},nodeSelector=pool=gpu,takeOver={x/y},image.tag=7"
    command = [
        str(binaries.path("helm")),
        "template",
        "windlass",
        str(CHART),
        "--namespace=elsewhere",
        values,
    ]
    done = subprocess.run(
        [*command, "--include-crds", "--kube-version=v1.36.0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    choices = InstallOptions(
        namespace="elsewhere",
        image="windlass:7",
        replicas=3,
        scheduler_names=("a", "b"),
        node_selector="pool=gpu",
        take_over=("x/y",),
    )
    rendered = by_name(list(yaml.safe_load_all(done.stdout)))
    printed = by_name([*crds(), *manifests(choices)[1:]])
    helms = yaml.safe_dump_all(printed.values()).replace("managed-by: windlass", "managed-by: Helm")
    expected = by_name(list(yaml.safe_load_all(helms)))
    for key, one in printed.items():
        if one["kind"] == "CustomResourceDefinition":
            expected[key] = one  # taken as they are, never rendered
    assert rendered == expected


NODE_VALUES = {
    "parts": ["plugin", "exporter"],
    "labelSink": "node-feature",
    "runtimeClass": "nvidia",
    "config": "version: v1\nflags: {migStrategy: mixed}\n",
    "nodeSelector": {"pool": "gpu", "tier": "one"},
}
NODE_CHOICES = NodeInstallOptions(
    parts=("plugin", "exporter"),
    label_sink="node-feature",
    runtime_class="nvidia",
    config=NODE_VALUES["config"],
    node_selector=(("pool", "gpu"), ("tier", "one")),
)


NAMED = {"default": "version: v1\n", "shared": "version: v1\nflags: {migStrategy: single}\n"}
NAMED_VALUES = {"configs": NAMED, "defaultConfig": "shared", "args": ["--honor-renames", "--interval=5"]}
NAMED_CHOICES = NodeInstallOptions(
    configs=tuple(NAMED.items()), default_config="shared", arguments=("--honor-renames", "--interval=5")
)


@pytest.mark.parametrize(
    ("values", "choices"),
    [({}, NodeInstallOptions()), (NODE_VALUES, NODE_CHOICES), (NAMED_VALUES, NAMED_CHOICES)],
    ids=["as-is", "one-config", "named-configs"],
)
def test_helm_renders_the_node_agent_that_install_prints(
    binaries: Binaries, tmp_path: Path, values: dict[str, Any], choices: NodeInstallOptions
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"node": {"enabled": True, **values}}))
    command = [str(binaries.path("helm")), "template", "windlass", str(CHART), f"--values={file}"]
    done = subprocess.run([*command, "--kube-version=v1.36.0"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rendered = by_name(list(yaml.safe_load_all(done.stdout)))
    helms = yaml.safe_dump_all(node_manifests(choices)).replace("managed-by: windlass", "managed-by: Helm")
    expected = by_name(list(yaml.safe_load_all(helms)))
    agents = {key: one for key, one in rendered.items() if key[1] == "windlass-node"}
    assert agents == expected


def test_helm_puts_it_into_a_real_cluster_and_takes_it_out(binaries: Binaries, control_plane: ControlPlane) -> None:
    helm = [
        str(binaries.path("helm")),
        f"--kubeconfig={control_plane.kubeconfig}",
        "--namespace=windlass-system",
    ]

    def run(*arguments: str) -> None:
        done = subprocess.run([*helm, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    deployment = "/apis/apps/v1/namespaces/windlass-system/deployments/windlass-scheduler"
    api = control_plane.api
    run("install", "windlass", str(CHART), "--create-namespace")
    assert api.get(deployment)["spec"]["replicas"] == 2
    daemon = "/apis/apps/v1/namespaces/windlass-node/daemonsets/windlass-node"
    assert not api.exists(daemon)
    run("upgrade", "windlass", str(CHART), "--set=replicas=3,node.enabled=true")
    assert api.get(deployment)["spec"]["replicas"] == 3
    assert api.get(daemon)["spec"]["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]
    run("uninstall", "windlass")
    assert not api.exists(deployment)
    until(lambda: not api.exists(daemon))
    assert api.exists("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io")
