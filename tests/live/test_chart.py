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
from windlass.cli.install_crds import KUEUE, crds
from windlass.cli.install_manifests import InstallOptions, manifests
from windlass.cli.install_node_manifests import NodeInstallOptions, node_manifests
from windlass.cli.install_observe import ObserveInstallOptions, observe_manifests
from windlass.cli.install_operator import OperatorInstallOptions, operator_manifests
from windlass.cli.install_operator_crds import operator_crds
from windlass.cli.install_platforms import PLATFORMS

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
        for folder in ("templates",)
        for path in (CHART / folder).iterdir()
    }
    assert not (CHART / "crds").exists(), "Helm never upgrades what is there"
    assert found == expected, "run `python deploy/write_chart.py`"
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["appVersion"] == __version__


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects if one}


@pytest.mark.parametrize("with_queue_api", [True, False])
def test_helm_renders_what_install_prints(binaries: Binaries, with_queue_api: bool) -> None:
    values = "--set=replicas=3,schedulerNames={a,b},nodeSelector=pool=gpu,takeOver={x/y},image.tag=7,"
    values += f"queueAPI.install={str(with_queue_api).lower()}"
    command = [
        str(binaries.path("helm")),
        "template",
        "windlass",
        str(CHART),
        "--namespace=elsewhere",
        values,
    ]
    done = subprocess.run([*command, "--kube-version=v1.36.0"], capture_output=True, text=True, check=False)
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
    wanted = [crd for crd in crds() if with_queue_api or crd["spec"]["group"] != KUEUE]
    for crd in wanted:
        crd["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "keep"
    printed = by_name([*wanted, *manifests(choices)[1:]])
    helms = yaml.safe_dump_all(printed.values()).replace("managed-by: windlass", "managed-by: Helm")
    expected = by_name(list(yaml.safe_load_all(helms)))
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


SELECTED_VALUES = {"platform": "eks", "nodeSelector": {"pool": "gpu"}, "mountHostRoot": True, "history": True}
SELECTED_CHOICES = NodeInstallOptions(
    platform="eks", node_selector=(("pool", "gpu"),), mount_host_root=True, history=True
)
WITHOUT_PLUGIN = NodeInstallOptions(parts=("exporter",))
CASES: dict[str, tuple[dict[str, Any], NodeInstallOptions]] = {
    "as-is": ({}, NodeInstallOptions()),
    "one-config": (NODE_VALUES, NODE_CHOICES),
    "named-configs": (NAMED_VALUES, NAMED_CHOICES),
    "selected": (SELECTED_VALUES, SELECTED_CHOICES),
    "no-plugin": ({"parts": ["exporter"]}, WITHOUT_PLUGIN),
    **{f"for-{name}": ({"platform": name}, NodeInstallOptions(platform=name)) for name in PLATFORMS if name},
}


def test_the_chart_refuses_a_platform_that_it_does_not_know(binaries: Binaries) -> None:
    values = "--set=node.enabled=true,node.platform=gkee"
    command = [str(binaries.path("helm")), "template", "windlass", str(CHART), values, "--kube-version=v1.36.0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "node.platform: gkee is not one of aks, eks, gke" in done.stderr


@pytest.mark.parametrize(("values", "choices"), CASES.values(), ids=CASES)
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
    agents = {key: one for key, one in rendered.items() if key[1].startswith("windlass-node")}
    assert agents == expected


OBSERVE_CASES: dict[str, tuple[dict[str, Any], ObserveInstallOptions]] = {
    "as-is": ({}, ObserveInstallOptions()),
    "prometheus": (
        {"prometheus": "http://prometheus:9090", "prometheusTokenSecret": "token"},
        ObserveInstallOptions(prometheus="http://prometheus:9090", prometheus_token_secret="token"),
    ),
    "tls": ({"tlsSecret": "page-tls"}, ObserveInstallOptions(tls_secret="page-tls")),
}


@pytest.mark.parametrize(("values", "choices"), OBSERVE_CASES.values(), ids=OBSERVE_CASES)
def test_helm_renders_the_pages_server_that_install_prints(
    binaries: Binaries, tmp_path: Path, values: dict[str, Any], choices: ObserveInstallOptions
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"observe": {"enabled": True, **values}}))
    command = [str(binaries.path("helm")), "template", "windlass", str(CHART), f"--values={file}"]
    command += ["--namespace=windlass-system", "--kube-version=v1.36.0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rendered = by_name(list(yaml.safe_load_all(done.stdout)))
    printed = yaml.safe_dump_all(observe_manifests(choices)[1:]).replace("managed-by: windlass", "managed-by: Helm")
    expected = by_name(list(yaml.safe_load_all(printed)))
    assert {key: one for key, one in rendered.items() if key[1].startswith("windlass-observe")} == expected


def by_operator(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    kinds = {crd["metadata"]["name"] for crd in operator_crds()}
    return {
        key: one
        for key, one in objects.items()
        if key[1].startswith("windlass-operator") or key[1] in (*kinds, "trials")
    }


@pytest.mark.parametrize("prometheus", ["", "http://prometheus.monitoring:9090"])
def test_helm_renders_the_operator_that_install_prints(binaries: Binaries, prometheus: str) -> None:
    values = f"--set=operator.enabled=true,operator.replicas=3,operator.prometheus={prometheus},node.namespace=gpus,"
    values += "operator.canaryNamespace=trials"
    done = subprocess.run(
        [
            *(str(binaries.path("helm")), "template", "windlass", str(CHART)),
            *("--namespace=elsewhere", "--kube-version=v1.36.0", values),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    rendered = by_name(list(yaml.safe_load_all(done.stdout)))
    assert ("Namespace", "gpus") in rendered
    choices = OperatorInstallOptions(
        install=InstallOptions(namespace="elsewhere", replicas=3),
        driver_namespace="gpus",
        canary_namespace="trials",
        prometheus=prometheus,
    )
    wanted = operator_crds()
    for crd in wanted:
        crd["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "keep"
    helms = yaml.safe_dump_all([*wanted, *operator_manifests(choices)]).replace("by: windlass", "by: Helm")
    expected = by_operator(by_name(list(yaml.safe_load_all(helms))))
    assert by_operator(rendered) == expected
    assert expected["Deployment", "windlass-operator"]["spec"]["replicas"] == 3


def test_without_being_asked_for_there_is_no_operator(binaries: Binaries) -> None:
    command = [str(binaries.path("helm")), "template", "windlass", str(CHART), "--kube-version=v1.36.0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not by_operator(by_name(list(yaml.safe_load_all(done.stdout))))


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
    crds_path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    theirs = next(crd for crd in crds() if crd["metadata"]["name"] == "topologies.kueue.x-k8s.io")
    api.create({**theirs, "metadata": {"name": "topologies.kueue.x-k8s.io"}})
    run("install", "windlass", str(CHART), "--create-namespace")
    assert not api.exists(f"{crds_path}/workloads.kueue.x-k8s.io"), "the queue API is there by choice"
    assert api.get(deployment)["spec"]["replicas"] == 2
    daemon = "/apis/apps/v1/namespaces/windlass-node/daemonsets/windlass-node"
    assert not api.exists(daemon)
    run("upgrade", "windlass", str(CHART), "--set=replicas=3,node.enabled=true,queueAPI.install=true")
    run("upgrade", "windlass", str(CHART), "--set=replicas=3,node.enabled=true,queueAPI.install=true")
    assert "labels" not in api.get(f"{crds_path}/topologies.kueue.x-k8s.io")["metadata"], "another installation's"
    assert api.get(deployment)["spec"]["replicas"] == 3
    assert api.get(daemon)["spec"]["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]
    run("uninstall", "windlass")
    assert not api.exists(deployment)
    until(lambda: not api.exists(daemon))
    assert api.exists(f"{crds_path}/workloads.kueue.x-k8s.io"), "objects of that kind may be left"
    program = str(Path(sys.executable).with_name("windlass"))
    command = [program, "install", "hand-over-crds", f"--kubeconfig={control_plane.kubeconfig}"]
    done = subprocess.run([*command, "--helm-release=kueue-system/kueue"], capture_output=True, text=True, check=True)
    assert "workloads.kueue.x-k8s.io handed over" in done.stderr
    assert "topologies.kueue.x-k8s.io was not installed by Windlass" in done.stderr
    handed = api.get(f"{crds_path}/workloads.kueue.x-k8s.io")["metadata"]
    assert handed["labels"] == {"app.kubernetes.io/managed-by": "Helm"}
    assert handed["annotations"] == {
        "meta.helm.sh/release-name": "kueue",
        "meta.helm.sh/release-namespace": "kueue-system",
    }
