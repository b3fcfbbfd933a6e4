"""The real controllers of JobSet, LeaderWorkerSet and Kubeflow's trainer beside the control plane.

Used by the tests of `tests/live` that need the projects' own pods, names and labels. Their kinds and webhooks are read
from their modules' files. The trainer's webhook only validates, and is left out. Needs root: the trainer reads its
certificate at a fixed place in /tmp, and gets a mount of its own for it.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml
from tests.real_cluster.api import Api
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.service import Service, free_ports
from tests.real_cluster.with_webhooks import create_webhooks, install_kinds, is_healthy, is_listening

TRAINER_NAMESPACE = "kubeflow-system"
TRAINER_SECRET = "kubeflow-trainer-webhook-cert"


def job_set_controller(plane: ControlPlane, folder: Path) -> Service:
    source = plane.binaries.source("jobset") / "config" / "components"
    install_kinds(plane.api, source / "crd" / "bases")
    hooks = ("jobset.x-k8s.io", "jobset.sigs.k8s.io/jobset-name", ("jobsets", "pods"))
    return _with_webhooks(plane, folder, "jobset", source / "webhook" / "manifests.yaml", *hooks)


def leader_worker_set_controller(plane: ControlPlane, folder: Path) -> Service:
    source = plane.binaries.source("lws") / "config"
    install_kinds(plane.api, source / "crd" / "bases")
    hooks = ("lws.x-k8s.io", "leaderworkerset.sigs.k8s.io/name", ("leaderworkersets", "pods"))
    return _with_webhooks(plane, folder, "lws", source / "webhook" / "manifests.yaml", *hooks)


def _with_webhooks(
    plane: ControlPlane, folder: Path, name: str, webhooks: Path, group: str, label: str, resources: Sequence[str]
) -> Service:
    """Started, with its webhooks registered."""
    health, port = free_ports(2)
    serving = plane.authority.server(name, ["127.0.0.1"])
    certificates = folder / f"{name}-certificates"
    certificates.mkdir()
    shutil.copy(serving.certificate, certificates / "tls.crt")
    shutil.copy(serving.key, certificates / "tls.key")
    config = {
        "apiVersion": f"config.{group}/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    service = Service(
        name,
        [str(plane.binaries.path(name)), f"--config={file}"],
        folder / f"{name}.log",
        lambda: is_healthy(health) and is_listening(port),
        {"KUBECONFIG": str(plane.kubeconfig)},
        grace=3,
    )
    service.start()
    create_webhooks(plane, name, webhooks, port, resources, {label: "Exists"})
    return service


def trainer_controller(plane: ControlPlane, folder: Path) -> Service:
    """Needs the JobSet controller. Its certificate comes from a Secret, which a kubelet would mount."""
    install_kinds(plane.api, plane.binaries.source("trainer") / "manifests" / "base" / "crds")
    secret = {"name": TRAINER_SECRET, "namespace": TRAINER_NAMESPACE}
    plane.api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TRAINER_NAMESPACE}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": secret, "type": "Opaque"},
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "validator.trainer.kubeflow.org"},
        },
    )
    health, port = free_ports(2)
    mounted = folder / "webhook-server"
    (mounted / "serving-certs").mkdir(parents=True)
    place = "/tmp/k8s-webhook-server"
    program = f"exec {plane.binaries.path('trainer')} --webhook-server-port={port}"
    program += f" --health-probe-bind-address=127.0.0.1:{health}"
    command = ["unshare", "--mount", "sh", "-c", f"mkdir -p {place} && mount --bind {mounted} {place} && {program}"]

    def ready() -> bool:
        _mount_secret(plane.api, mounted / "serving-certs")
        return is_healthy(health)

    service = Service("trainer", command, folder / "trainer.log", ready, {"KUBECONFIG": str(plane.kubeconfig)}, grace=3)
    service.start()
    return service


def _mount_secret(api: Api, folder: Path) -> None:
    found = api.get(f"/api/v1/namespaces/{TRAINER_NAMESPACE}/secrets/{TRAINER_SECRET}")
    for name, content in (found.get("data") or {}).items():
        (folder / name).write_bytes(base64.b64decode(content))
