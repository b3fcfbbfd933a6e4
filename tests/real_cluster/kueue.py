"""A real Kueue on the test cluster: its own kinds, and its controller beside the control plane.

Used by the tests of `tests/live` that need somebody else to decide on quota. Its webhooks are registered too, those of
its own kinds and of Jobs, at an address instead of a Service. Needs root: it reads a certificate at a fixed place in
/etc, and gets an /etc of its own for it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.service import Service, free_ports
from tests.real_cluster.with_webhooks import create_webhooks, install_kinds, is_healthy

NAMESPACE = "kueue-system"
HOOKED = {"clusterqueues", "cohorts", "jobs", "resourceflavors", "workloads"}
"""Resources whose webhooks are registered: other kinds are not there."""


def install_kueue(plane: ControlPlane) -> None:
    """Its CRDs, as they come with its source, and its namespace."""
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    install_kinds(plane.api, plane.binaries.source("kueue") / "config" / "components" / "crd" / "bases")


def register_webhooks(plane: ControlPlane, port: int) -> None:
    """As they come with its source; from now on nothing of theirs is made without it."""
    file = plane.binaries.source("kueue") / "config" / "components" / "webhook" / "manifests.yaml"
    create_webhooks(plane, "kueue", file, port, HOOKED)


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
    environment = {"KUBECONFIG": str(plane.kubeconfig)}
    return Service("kueue", command, folder / "kueue.log", lambda: is_healthy(health), environment, grace=3)
