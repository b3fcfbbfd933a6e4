"""`windlass install node` on a real API server: the objects are taken, the account may change its own node only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.real_cluster.api import Api, ApiError, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import node

from windlass.cli.install import install, uninstall
from windlass.cli.install_manifests import USER, InstallOptions, all_objects
from windlass.cli.install_node_manifests import HOST_PATHS, NodeInstallOptions, node_manifests
from windlass.cli.install_platforms import GPU_LABELS, PLATFORMS
from windlass.kube.client_config import load_client_config
from windlass.model.errors import ClusterUnreachable
from windlass.node.labels.sinks import NodeFeatureSink, NodeSink
from windlass.node.node_api import NodeApi

NAMESPACE = "windlass-node"


def printed(*arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(install, ["node", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.stdout))


class TestManifests:
    def test_the_pod_is_where_gpus_are_and_sees_what_it_must(self) -> None:
        (daemon,) = [obj for obj in printed() if obj["kind"] == "DaemonSet"]
        pod = daemon["spec"]["template"]["spec"]
        required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        keys = [term["matchExpressions"][0]["key"] for term in required["nodeSelectorTerms"]]
        assert tuple(keys) == GPU_LABELS
        assert pod["tolerations"] == [{"operator": "Exists"}]
        assert {volume["name"] for volume in pod["volumes"]} == set(HOST_PATHS)
        (container,) = pod["containers"]
        assert pod["hostPID"], "the host's first process is process 1"
        assert {"name": "HOST_ROOT", "value": "/proc/1/root"} in container["env"]
        assert container["args"][:2] == ["node", "run"]
        names = {variable["name"] for variable in container["env"]}
        assert {"NODE_NAME", "POD_NAME"} <= names

    def test_the_agent_is_root_and_what_mounts_no_folder_of_the_host_is_not(self) -> None:
        """The image says UID 65532, and the kubelet goes by the image where the pod says nothing."""
        users: dict[str, set[object]] = {"host": set(), "own": set()}
        for item in (*printed(), *all_objects(InstallOptions())):
            pod = item.get("spec", {}).get("template", {}).get("spec", {})
            mounts_host = any("hostPath" in volume for volume in pod.get("volumes", ()))
            for container in pod.get("containers", ()):
                context = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
                user = tuple(context.get(key) for key in ("runAsUser", "runAsGroup", "runAsNonRoot"))
                users["host" if mounts_host else "own"].add(user)
        assert users == {"host": {(0, 0, False)}, "own": {(USER, USER, True)}}

    def test_labels_in_a_file_reach_the_host(self) -> None:
        def mounts(*arguments: str) -> dict[str, str]:
            (daemon,) = [obj for obj in printed(*arguments) if obj["kind"] == "DaemonSet"]
            pod = daemon["spec"]["template"]["spec"]
            hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
            return {mount["mountPath"]: hosts[mount["name"]] for mount in pod["containers"][0]["volumeMounts"]}

        folder = "/etc/kubernetes/node-feature-discovery/features.d"
        assert mounts("--label-sink", "file")[folder] == folder
        assert folder not in mounts()

    def test_metrics_have_a_service_and_a_pod_monitor_on_request(self) -> None:
        kinds = {obj["kind"]: obj for obj in printed("--pod-monitor")}
        (daemon,) = [obj for obj in printed() if obj["kind"] == "DaemonSet"]
        labels = daemon["spec"]["template"]["metadata"]["labels"]
        for selector in (kinds["Service"]["spec"]["selector"], kinds["PodMonitor"]["spec"]["selector"]["matchLabels"]):
            assert selector.items() <= labels.items()
        assert kinds["Service"]["metadata"]["annotations"]["prometheus.io/port"] == "9400"
        assert "PodMonitor" not in {obj["kind"] for obj in printed()}

    def test_the_monitor_keeps_the_labels_of_the_gpus_users(self) -> None:
        (monitor,) = [obj for obj in printed("--pod-monitor") if obj["kind"] == "PodMonitor"]
        assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "honorLabels": True}]

    def test_history_outlives_the_pod(self) -> None:
        pod = daemon_pod("--history")
        (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "history"]
        (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "history"]
        assert mount["mountPath"] == volume["hostPath"]["path"]
        assert f"--history={mount['mountPath']}" in pod["containers"][0]["args"]

    def test_a_config_comes_along_checked(self, tmp_path: Path) -> None:
        config = tmp_path / "config.yaml"
        config.write_text("flags: {migStrategy: mixed}")
        objects = printed("--config", str(config), "--parts", "plugin")
        (found,) = [obj for obj in objects if obj["kind"] == "ConfigMap"]
        assert found["data"]["config.yaml"] == "flags: {migStrategy: mixed}"
        config.write_text("flags: {migStrategy: some}")
        done = CliRunner().invoke(install, ["node", "--config", str(config)])
        assert "flags.migStrategy" in str(done.exception)

    def test_a_folder_of_configs_comes_by_name(self, tmp_path: Path) -> None:
        for name, strategy in (("whole", "none"), ("cut", "mixed")):
            (tmp_path / name).write_text(f"flags: {{migStrategy: {strategy}}}")
        objects = printed("--config", str(tmp_path), "--default-config", "whole", "--arg=--honor-renames")
        (found,) = [obj for obj in objects if obj["kind"] == "ConfigMap"]
        assert set(found["data"]) == {"whole", "cut"}
        (daemon,) = [obj for obj in objects if obj["kind"] == "DaemonSet"]
        pod = daemon["spec"]["template"]["spec"]
        (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "config"]
        assert pod["containers"][0]["args"][-3:] == [
            f"--config-file-srcdir={mount['mountPath']}",
            "--default-config=whole",
            "--honor-renames",
        ]
        assert {"name": "config", "configMap": {"name": "windlass-node"}} in pod["volumes"]

    @pytest.mark.parametrize(
        ("files", "more", "words"),
        [
            ({"a": "{}"}, ["--default-config", "b"], "specified config b does not exist"),
            ({"a": "flags: {migStrategy: some}"}, [], "a: flags.migStrategy"),
            ({}, [], "no configuration files available"),
        ],
    )
    def test_a_folder_with_a_mistake_is_refused(
        self, tmp_path: Path, files: dict[str, str], more: list[str], words: str
    ) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        done = CliRunner().invoke(install, ["node", "--config", str(tmp_path), *more])
        assert words in str(done.exception)

    def test_the_namespace_allows_what_the_agent_needs(self) -> None:
        (namespace,) = [obj for obj in printed() if obj["kind"] == "Namespace"]
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"

    def test_mps_needs_no_folder_of_its_own_in_the_config(self, tmp_path: Path) -> None:
        """As with NVIDIA's chart, whose pod names the folder that it mounts."""
        config = tmp_path / "config.yaml"
        config.write_text("sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}")
        (daemon,) = [obj for obj in printed("--config", str(config)) if obj["kind"] == "DaemonSet"]
        (container,) = daemon["spec"]["template"]["spec"]["containers"]
        assert {"name": "MPS_ROOT", "value": HOST_PATHS["mps"]} in container["env"]

    def test_the_hosts_files_can_be_a_volume(self) -> None:
        pod = daemon_pod("--mount-host-root")
        (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "host-root"]
        assert {"name": "host-root", "hostPath": {"path": "/"}} in pod["volumes"]
        assert {"name": "HOST_ROOT", "value": mount["mountPath"]} in pod["containers"][0]["env"]
        assert mount["mountPropagation"] == "HostToContainer", "what is mounted later is seen, and what goes, goes"


def daemon_pod(*arguments: str) -> dict[str, Any]:
    (daemon,) = [obj for obj in printed(*arguments) if obj["kind"] == "DaemonSet"]
    return dict(daemon["spec"]["template"]["spec"])


def node_terms(*arguments: str) -> list[list[dict[str, Any]]]:
    required = daemon_pod(*arguments)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [term["matchExpressions"] for term in required["nodeSelectorTerms"]]


class TestPlatforms:
    @pytest.mark.parametrize("name", sorted(set(PLATFORMS) - {""}))
    def test_each_says_what_it_does_itself_and_runs_where_gpus_are(self, name: str) -> None:
        done = CliRunner().invoke(install, ["node", "--for", name], catch_exceptions=False)
        assert "driver" in done.stderr
        keys = {term[0]["key"] for term in node_terms("--for", name)}
        assert set(GPU_LABELS) <= keys

    @pytest.mark.parametrize(
        ("name", "condition"),
        [
            ("gke", {"key": "gke-no-default-nvidia-gpu-device-plugin", "operator": "In", "values": ["true"]}),
            ("eks", {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["auto"]}),
            ("aks", {"key": "kubernetes.azure.com/dcgm-exporter", "operator": "NotIn", "values": ["enabled"]}),
        ],
    )
    def test_where_the_cloud_runs_a_plugin_the_agent_does_not(self, name: str, condition: dict[str, Any]) -> None:
        assert all(condition in term for term in node_terms("--for", name))
        chosen = ("--for", name, "--node-selector", "pool=gpu")
        assert daemon_pod(*chosen)["nodeSelector"] == {"pool": "gpu"}
        as_installed = {"key": "windlass.dev/agent-revision", "operator": "DoesNotExist"}
        assert node_terms(*chosen) == [[condition, as_installed]], "also on nodes that were chosen by hand"

    @pytest.mark.parametrize(("name", "folder"), [("k0s", "/var/lib/k0s/kubelet"), ("microk8s", "/var/snap/microk8s")])
    def test_the_kubelets_folder_is_the_platforms(self, name: str, folder: str) -> None:
        pod = daemon_pod("--for", name)
        hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
        inside = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert hosts["pod-resources"].startswith(folder)
        assert inside["pod-resources"] == HOST_PATHS["pod-resources"]
        # The kubelet has its device plugins there whatever its root is.
        assert hosts["device-plugins"] == "/var/lib/kubelet/device-plugins"

    def test_admission_gets_what_it_asks_for(self) -> None:
        kinds = {obj["kind"]: obj for obj in printed("--for", "openshift")}
        assert kinds["RoleBinding"]["roleRef"]["name"] == "system:openshift:scc:privileged"
        quota = {obj["kind"]: obj for obj in printed("--for", "gke")}["ResourceQuota"]["spec"]
        (scope,) = quota["scopeSelector"]["matchExpressions"]
        assert scope["values"] == [daemon_pod()["priorityClassName"]]

    def test_the_objects_of_every_platform_are_taken(self, control_plane: ControlPlane) -> None:
        for name in sorted(PLATFORMS):
            for each in node_manifests(NodeInstallOptions(platform=name)):
                path = control_plane.api.path_of(each)
                query = "fieldManager=test&force=true&dryRun=All"
                if each["kind"] == "Namespace" and not control_plane.api.exists(path):
                    control_plane.api.create(each)
                control_plane.api.patch(f"{path}?{query}", each, "apply")


def token_for(api: Api, pod: str) -> str:
    """A token as the kubelet would mount it: bound to a pod, and so to its node."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod}},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/windlass-node/token"
    return str(api.post(path, body)["status"]["token"])


def agent_api(plane: ControlPlane, folder: Path, node_name: str) -> NodeApi:
    """The agent's own client, as its service account on a node."""
    plane.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"agent-{node_name}", "namespace": NAMESPACE},
            "spec": {
                "serviceAccountName": "windlass-node",
                "nodeName": node_name,
                "containers": [{"name": "agent", "image": "none"}],
            },
        }
    )
    admin = yaml.safe_load(plane.kubeconfig.read_text())
    admin["users"] = [
        {"name": admin["users"][0]["name"], "user": {"token": token_for(plane.api, f"agent-{node_name}")}}
    ]
    file = folder / f"{node_name}.kubeconfig"
    file.write_text(yaml.safe_dump(admin))
    return NodeApi(load_client_config(str(file)), node_name)


def test_the_account_may_change_its_own_node_and_nothing_else(control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api
    api.create(node("n1", {}), node("n2", {}))
    api.create(*node_manifests(NodeInstallOptions()))
    mine = agent_api(control_plane, tmp_path, "n1")
    until(lambda: _may(mine), 30, "the role is in force")
    until(lambda: not _may_other(mine, control_plane), 30, "the policy is in force")
    with pytest.raises(ClusterUnreachable, match="its own node"):
        _other(mine, "n2").patch_node(labels={"nvidia.com/gpu.count": "8"})
    assert "nvidia.com/gpu.count" not in api.get("/api/v1/nodes/n2")["metadata"]["labels"]
    mine.create_event(reason="GPUUnhealthy", message="told", warning=True, now=1.7e9)
    assert [pod["metadata"]["name"] for pod in mine.list_pods()] == ["agent-n1"]
    with pytest.raises(ClusterUnreachable, match="403"):
        mine.request("DELETE", "/api/v1/nodes/n1")
    _check_uninstall(control_plane)


def _may(mine: NodeApi) -> bool:
    try:
        mine.patch_node(labels={"nvidia.com/gpu.count": "8"})
    except ClusterUnreachable:
        return False
    return True


def _other(mine: NodeApi, name: str) -> NodeApi:
    """The same account, reaching for another node."""
    return NodeApi(mine.access, name)


def _may_other(mine: NodeApi, plane: ControlPlane) -> bool:
    """A policy takes effect some moments after it was made; what was let through before is undone."""
    if not _may(_other(mine, "n2")):
        return False
    plane.api.patch("/api/v1/nodes/n2", {"metadata": {"labels": {"nvidia.com/gpu.count": None}}}, "merge")
    return True


def _check_uninstall(plane: ControlPlane) -> None:
    done = CliRunner().invoke(uninstall, ["node", "--kubeconfig", str(plane.kubeconfig)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for path in (
        f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/windlass-node",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/windlass-node",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/windlass-node",
    ):
        with pytest.raises(ApiError):
            plane.api.get(path)


FEATURES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "nodefeatures.nfd.k8s-sigs.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
    },
    "spec": {
        "group": "nfd.k8s-sigs.io",
        "scope": "Namespaced",
        "names": {"plural": "nodefeatures", "singular": "nodefeature", "kind": "NodeFeature"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def test_labels_as_a_node_feature_and_on_the_node(control_plane: ControlPlane) -> None:
    api = control_plane.api
    api.create(node("n1", {}), FEATURES)
    mine = NodeApi(load_client_config(str(control_plane.kubeconfig)), "n1")
    sink = NodeFeatureSink(mine, "default")
    path = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/default/nodefeatures/nvidia-features-for-n1"
    until(lambda: _put(sink, {"nvidia.com/gpu.count": "8"}), 30, "the kind is served")
    assert api.get(path)["spec"]["labels"] == {"nvidia.com/gpu.count": "8"}
    sink.write_labels({"nvidia.com/gpu.count": "7"})
    assert api.get(path)["spec"]["labels"] == {"nvidia.com/gpu.count": "7"}
    assert api.get(path)["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"] == "n1"
    check_owners(control_plane, mine, path)
    direct = NodeSink(mine)
    direct.write_labels({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-H200"})
    api.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"nvidia.com/gpu.deploy.mig-manager": "true"}}}, "merge")
    direct.write_labels({"nvidia.com/gpu.count": "8"})
    labels = api.get("/api/v1/nodes/n1")["metadata"]["labels"]
    assert labels["nvidia.com/gpu.count"] == "8"
    assert "nvidia.com/gpu.product" not in labels, "what was ours and is gone is taken away"
    assert labels["nvidia.com/gpu.deploy.mig-manager"] == "true", "what is others' is not touched"


def check_owners(plane: ControlPlane, mine: NodeApi, path: str) -> None:
    """An object that was there before gets its owners too, and only once."""
    container = {"name": "agent", "image": "windlass"}
    labels = {"app": "owner"}
    plane.api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "owner", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "nodeSelector": {"is": "nowhere"}},
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "agent", "namespace": "default"},
            "spec": {"containers": [container]},
        },
    )
    sink = NodeFeatureSink(OfTheDaemon(mine.access, "n1"), "default", "agent")
    sink.write_labels({"nvidia.com/gpu.count": "7"})
    found = plane.api.get(path)["metadata"]
    assert [(reference["kind"], reference["name"]) for reference in found["ownerReferences"]] == [
        ("DaemonSet", "owner"),
        ("Pod", "agent"),
    ]
    sink.write_labels({"nvidia.com/gpu.count": "7"})
    assert plane.api.get(path)["metadata"]["resourceVersion"] == found["resourceVersion"]


class OfTheDaemon(NodeApi):
    """Sees the agent's pod as its DaemonSet would have made it. Both are real: who has no owner left is collected."""

    def get_pod(self, namespace: str, name: str) -> dict[str, Any]:
        found = super().get_pod(namespace, name)
        daemon = self.request("GET", f"/apis/apps/v1/namespaces/{namespace}/daemonsets/owner")
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": "owner",
            "uid": daemon["metadata"]["uid"],
        }
        found["metadata"]["ownerReferences"] = [owner]
        return found


def _put(sink: NodeFeatureSink, labels: dict[str, str]) -> bool:
    try:
        sink.write_labels(labels)
    except ClusterUnreachable:
        return False
    return True
