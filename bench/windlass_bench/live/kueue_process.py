"""Kueue beside the benchmark's cluster: its kinds, and its controller as a process. `live.queues` uses it.

Its webhooks are not registered, which makes it faster: Jobs are created suspended, as its webhook would make them. It
reads a certificate at a fixed place in /etc, so it gets an /etc of its own, for which it needs root.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import yaml

from windlass.embedded.pki import make_identity, write_private
from windlass.kube.client import KubeClient
from windlass.kube.errors import Conflict, NotFound
from windlass.kube.request import Request
from windlass.model.unstructured import Unstructured
from windlass_bench.live.contenders import SchedulerProcess
from windlass_bench.processes import free_ports

KUEUE = "kueue"
METRICS_CERTIFICATES = "/etc/kueue/metrics/certs"
QPS, BURST = 500, 1000
"""Its client limits; the defaults are 50 and 100, which would bind it."""


async def install_crds(client: KubeClient, folder: Path) -> None:
    """The CRDs of Kueue's own source; returns when all are served."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in sorted(folder.glob("*.yaml")):
        for tree in yaml.safe_load_all(file.read_text()):
            try:
                await client.send(Request("POST", path, body=tree))
            except Conflict:
                continue
            await _wait_until_served(client, tree["spec"])


async def _wait_until_served(client: KubeClient, spec: Unstructured) -> None:
    version = next(each["name"] for each in spec["versions"] if each["served"])
    while True:
        try:
            await client.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", limit="1")
        except NotFound:
            await asyncio.sleep(0.2)
        else:
            return


def start_kueue(program: Path, kubeconfig: Path) -> SchedulerProcess:
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    health, hooks = free_ports(2)
    certificates = folder / "certificates"
    certificates.mkdir()
    identity = make_identity()
    (certificates / "tls.crt").write_text(identity.certificate)
    write_private(certificates / "tls.key", identity.key)
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": hooks, "certDir": str(certificates)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": QPS, "burst": BURST},
        "integrations": {"frameworks": ["batch/job"]},
    }
    file = folder / "kueue.json"
    file.write_text(json.dumps(configuration))
    run = f"exec env KUBECONFIG={kubeconfig} {program} --config={file} --feature-gates=VisibilityOnDemand=false"
    place = METRICS_CERTIFICATES
    private = f"mount -t tmpfs tmpfs /etc && mkdir -p {place} && cp {certificates}/* {place} && {run}"
    return SchedulerProcess(KUEUE, ["unshare", "--mount", "sh", "-c", private], health, False, folder / "log")
