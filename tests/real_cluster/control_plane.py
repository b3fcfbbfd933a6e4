"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, and kube-scheduler on demand.

Made by the fixtures from `binaries`; hands out kubeconfigs, and lets a test stop, kill, freeze and restart each part.
There is no kubelet: nodes are plain Node objects (see `fake_kubelet`), which is why the admission plugin that taints
new nodes and the controller that taints silent ones are off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3
import yaml
from tests.real_cluster.api import Api
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.certificates import Authority, write_kubeconfig
from tests.real_cluster.etcd import Etcd
from tests.real_cluster.service import Service, free_ports

ADMIN_GROUP = "system:masters"
SERVICE_ADDRESS = "10.245.255.1"
"""Of the Service `kubernetes`, at which pods look for the API server; see `service_proxy`."""
_NO_ACCOUNTS = "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount"
_ACCOUNTS = "--disable-admission-plugins=TaintNodesByCondition"


class ControlPlane:
    """The parts of one control plane, each a `Service`: `etcd.service`, `apiserver`, `controllers`."""

    def __init__(self, binaries: Binaries, folder: Path) -> None:
        self.binaries = binaries
        self.folder = folder
        self.authority = Authority(folder / "pki")
        (port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{port}"
        self.etcd = Etcd(binaries.path("etcd"), folder)
        self.kubeconfig = self.user("admin", [ADMIN_GROUP])
        self.api = Api(self.kubeconfig)
        self.apiserver = self._apiserver(port)
        self.controllers = self._controllers()
        self._pristine: set[str] = set()
        self._absences = 0

    # ---- life

    def start(self) -> None:
        """Start everything; returns when the API server is ready."""
        self.etcd.service.start()
        self.apiserver.start()
        self.controllers.start()
        self._pristine = self.etcd.keys()

    def stop(self) -> None:
        for service in (self.controllers, self.apiserver, self.etcd.service):
            service.stop()

    def restart_apiserver(self, *more: str) -> None:
        """Stop the API server and start it on the same port, with more flags if need be (`--watch-cache=false`)."""
        self.apiserver.stop()
        self.apiserver.start(*more)

    @contextmanager
    def service_accounts(self) -> Iterator[None]:
        """For so long, pods get the token of their account, as in the field."""
        command = self.apiserver.command
        self.apiserver.command = [_ACCOUNTS if one == _NO_ACCOUNTS else one for one in command]
        try:
            self.restart_apiserver()
            yield
        finally:
            self.apiserver.command = command
            self.apiserver.stop()  # the next test starts it as it was

    def restore(self) -> None:
        """As after `start`, whatever a test has stopped, frozen, restarted with other flags, or made."""
        parts = (self.etcd.service, self.apiserver, self.controllers)
        for part in parts:
            if part.running:
                part.resume()
            if part.running and part.more:
                part.stop()
        if self.apiserver.absences + self.etcd.service.absences != self._absences:
            # Controllers that met a closed door try it again only after half a minute, or a whole one.
            self._absences = self.apiserver.absences + self.etcd.service.absences
            self.controllers.stop()
        for part in parts:
            if not part.running:
                part.start()
            part.wait_until_ready()
        self.wipe()

    def wipe(self) -> None:
        """Back to the state of the first minute: everything that was made since is gone at once."""
        self.etcd.keep_only(self._pristine)

    # ---- ways in

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of a user; what that user may do is for RBAC objects to say."""
        pair = self.authority.client(name, groups)
        file = self.folder / f"{pair.certificate.stem}.kubeconfig"
        return write_kubeconfig(file, self.url, self.authority.certificate, pair)

    # ---- parts

    def scheduler(self, configuration: Mapping[str, Any] | None = None, name: str = "kube-scheduler") -> Service:
        """kube-scheduler, not started yet. `configuration` is laid over a KubeSchedulerConfiguration without leader
        election and with client limits that don't bind."""
        content = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 5000, "burst": 5000},
            **(configuration or {}),
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(content))
        return self._part(name, [str(self.binaries.path("kube-scheduler")), f"--config={file}"])

    def _apiserver(self, port: int) -> Service:
        serving = self.authority.server(
            "kube-apiserver", ["127.0.0.1", SERVICE_ADDRESS, "localhost", "kubernetes.default.svc"]
        )
        to_kubelet = self.authority.client("kube-apiserver-kubelet-client", [ADMIN_GROUP])
        self.token_key = self.authority.signing_key("service-accounts")
        command = [
            str(self.binaries.path("kube-apiserver")),
            f"--etcd-servers={self.etcd.url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={port}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--kubelet-client-certificate={to_kubelet.certificate}",
            f"--kubelet-client-key={to_kubelet.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.token_key}",
            f"--service-account-signing-key-file={self.token_key}",
            f"--service-cluster-ip-range={SERVICE_ADDRESS}/24",
            "--authorization-mode=Node,RBAC",
            _NO_ACCOUNTS,
            "--allow-privileged=true",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
            "--shutdown-delay-duration=0",
            "--shutdown-send-retry-after=false",
            "--profiling=false",
        ]
        # Open watches would hold up an orderly stop for a minute.
        log = self.folder / "kube-apiserver.log"
        return Service("kube-apiserver", command, log, self.api.healthy, grace=2)

    def _controllers(self) -> Service:
        command = [
            str(self.binaries.path("kube-controller-manager")),
            f"--kubeconfig={self.kubeconfig}",
            "--controllers=*,-node-lifecycle-controller",
            "--leader-elect=false",
            f"--service-account-private-key-file={self.token_key}",
            f"--root-ca-file={self.authority.certificate}",
            "--pvclaimbinder-sync-period=1s",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--profiling=false",
        ]
        return self._part("kube-controller-manager", command)

    def _part(self, name: str, command: Sequence[str]) -> Service:
        """A part beside the API server, which says on a port of its own whether it is well."""
        (port,) = free_ports(1)
        serving = self.authority.server(name, ["127.0.0.1"])
        flags = [
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
        ]
        pool = urllib3.PoolManager(maxsize=1, retries=False, ca_certs=str(self.authority.certificate))

        def healthy() -> bool:
            try:
                answer = pool.request("GET", f"https://127.0.0.1:{port}/healthz", timeout=2)
            except urllib3.exceptions.HTTPError:
                return False
            return answer.status == 200

        return Service(name, [*command, *flags], self.folder / f"{name}.log", healthy, grace=3)
