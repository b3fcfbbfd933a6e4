"""A real Kueue on the test cluster: its own kinds, and its controller beside the control plane.

Used by the tests of `tests/live` that need somebody else to decide on quota. Its webhooks are registered too, those of
its own kinds and of Jobs, at an address instead of a Service. Needs root: it reads a certificate at a fixed place in
/etc, and gets an /etc of its own for it.
"""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import urllib3
import yaml
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.service import Service, free_ports

NAMESPACE = "kueue-system"
HOOKED = {"clusterqueues", "cohorts", "jobs", "resourceflavors", "workloads"}
"""Resources whose webhooks are registered: other kinds are not there."""


def install_kueue(plane: ControlPlane) -> None:
    """Its CRDs, as they come with its source, and its namespace."""
    folder = plane.binaries.source("kueue") / "config" / "components" / "crd" / "bases"
    wanted = [yaml.safe_load(file.read_text()) for file in sorted(folder.glob("*.yaml"))]
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *wanted)
    for crd in wanted:
        until(lambda crd=crd: _is_served(plane.api, crd), 60, crd["metadata"]["name"])


def _is_served(api: Api, crd: Object) -> bool:
    """Also in discovery, which lags behind: Kueue ends where it does not find its kinds there."""
    group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
    served = {version["name"] for version in crd["spec"]["versions"] if version["served"]}
    if not all(api.exists(f"/apis/{group}/{version}/{plural}") for version in served):
        return False
    groups = {found["name"]: found["versions"] for found in api.get("/apis")["groups"]}
    if not served <= {found["version"] for found in groups.get(group, ())}:
        return False
    listed = [api.get(f"/apis/{group}/{version}")["resources"] for version in served]
    return all(any(resource["name"] == plural for resource in resources) for resources in listed)


def register_webhooks(plane: ControlPlane, port: int) -> None:
    """As they come with its source, at the controller's own port; from now on nothing of theirs is made without it."""
    file = plane.binaries.source("kueue") / "config" / "components" / "webhook" / "manifests.yaml"
    trusted = base64.b64encode(plane.authority.certificate.read_bytes()).decode()
    for made in yaml.safe_load_all(file.read_text()):
        made["metadata"]["name"] = f"kueue-{made['metadata']['name']}"
        made["webhooks"] = [hook for hook in made["webhooks"] if hook["rules"][0]["resources"][0] in HOOKED]
        for hook in made["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": trusted}
        plane.api.create(made)


def kueue_controller(plane: ControlPlane, folder: Path, hooks: int) -> Service:
    """The controller, not started yet; its webhooks will be at that port."""
    (health,) = free_ports(1)
    serving = plane.authority.server("kueue", ["127.0.0.1"])
    certificates = folder / "kueue-certificates"
    certificates.mkdir()
    shutil.copy(serving.certificate, certificates / "tls.crt")
    shutil.copy(serving.key, certificates / "tls.key")
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": hooks, "certDir": str(certificates)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {
            "leaderElect": True,
            "resourceName": "c1f6bfd2.kueue.x-k8s.io",
            "resourceNamespace": NAMESPACE,
        },
        "clientConnection": {"qps": 500, "burst": 1000},
        "integrations": {"frameworks": ["batch/job"]},
    }
    file = folder / "kueue.yaml"
    file.write_text(yaml.safe_dump(config))
    program = f"exec {plane.binaries.path('kueue')} --config={file} --feature-gates=VisibilityOnDemand=false"
    place = "/etc/kueue/metrics/certs"
    private = f"mount -t tmpfs tmpfs /etc && mkdir -p {place} && cp {certificates}/* {place} && {program}"
    command = ["unshare", "--mount", "sh", "-c", private]
    pool = urllib3.PoolManager(maxsize=1, retries=False)

    def healthy() -> bool:
        try:
            return pool.request("GET", f"http://127.0.0.1:{health}/readyz", timeout=2).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    environment = {"KUBECONFIG": str(plane.kubeconfig)}
    return Service("kueue", command, folder / "kueue.log", healthy, environment, grace=3)
